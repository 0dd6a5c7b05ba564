"""What ⊥Grad would do to each parameter, and how much of the gradient's energy it would take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..options import Options
from ..partition import Partition, Where
from ..projection import rounding_of
from .measures import Angle, common_moments, moments_of, row_moments_of
from .scaling import ORTHOGONAL

# cos² up to which a gradient has no radial part worth the name.
NEGLIGIBLE = ORTHOGONAL**2


class Measured(NamedTuple):
    """A parameter with its gradient: the angle between them, what is removed of ‖g‖², and whether nothing is left."""

    angle: Angle
    removed_energy: float
    is_frozen: bool


class Choice(NamedTuple):
    """What ⊥Grad does to a parameter, and why."""

    action: str
    reason: str


Gradients = Mapping[str, tuple[Tensor, Tensor]]
"""Gradient and weight by name, for parameters that have a gradient."""


def measured(gradients: Gradients, options: Options, where: Where | None) -> dict[str, Measured]:
    """Every parameter that has a gradient."""
    tables = _on_cpu({name: moments_of(*pair) for name, pair in gradients.items()})
    found = {name: Measured(Angle.of_moments(*row.tolist()), 0.0, False) for name, row in tables.items()}
    names = {id(weight): name for name, (_, weight) in gradients.items()}
    group = {"params": [weight for _, weight in gradients.values()], "param_names": list(gradients)}
    for segment in Partition(options, where).segments([group]).get(options, []):
        members = [names[id(weight)] for weight in segment]
        for name, row in zip(members, _projected(members, gradients, tables, options), strict=True):
            found[name] = found[name]._replace(removed_energy=row[0], is_frozen=bool(row[1]))
    return found


def _on_cpu(tables: dict[str, Tensor]) -> dict[str, Tensor]:
    """All in one transfer: a GPU that is at other work answers late, each time."""
    if not tables:
        return {}
    device = next(iter(tables.values())).device
    return dict(zip(tables, torch.stack([row.to(device) for row in tables.values()]).cpu(), strict=True))


def _projected(
    members: list[str], gradients: Gradients, tables: Mapping[str, Tensor], options: Options
) -> list[list[float]]:
    """Removed energy c²B of each member of one vector, and whether all of its g⊥ counts as zero."""
    if options.granularity == "row":
        return [_summed(row_moments_of(*gradients[name]), gradients[name][0].dtype) for name in members]
    common = common_moments([tables[name] for name in members])
    dtype = max((gradients[name][0].dtype for name in members), key=rounding_of)
    is_frozen = _summed(common[None], dtype)[1]
    return [[float(common[1]) ** 2 * float(tables[name][0]), is_frozen] for name in members]


def _summed(table: Tensor, dtype: torch.dtype) -> list[float]:
    square, coefficient, residual = table.unbind(1)
    radial = coefficient**2 * square
    is_frozen = (residual <= rounding_of(dtype) ** 2 * (residual + radial)) & (radial > 0)
    return [float(radial.sum()), float((is_frozen | (residual + radial == 0)).all() & is_frozen.any())]


def chosen(name: str, weight: Tensor, found: Measured | None, options: Options, where: Where | None) -> Choice:
    """What ⊥Grad does to one parameter; ``found`` is None for one without a gradient."""
    reason = _reason_to_leave(name, weight, found, options, where)
    if reason is not None:
        return Choice("leave", reason)
    assert found is not None
    if found.is_frozen:
        what = "one element, which has no orthogonal direction" if weight.numel() == 1 else "parallel to its weight"
        return Choice("freeze", f"the gradient is {what}: nothing of it is left")
    if found.removed_energy <= NEGLIGIBLE * found.angle.gradient_norm**2:
        return Choice("leave", "orthogonal already on this batch")
    return Choice("act", "")


def _reason_to_leave(
    name: str, weight: Tensor, found: Measured | None, options: Options, where: Where | None
) -> str | None:
    if found is None:
        return "the loss does not reach it" if weight.requires_grad else "frozen: requires_grad is False"
    if where is not None and not where(name, weight):
        return "left out by where"
    if weight.numel() == 1 and not options.scalars:
        return "one element has no orthogonal direction"
    if options.granularity == "row" and (weight.ndim < 2 or (weight.numel() == len(weight) and not options.scalars)):
        return "one number a row has no orthogonal direction"
    angle = found.angle
    if not angle.gradient_norm < float("inf"):
        return "its gradient is not finite and passes unchanged"
    if not angle.gradient_norm:
        return "its gradient is zero"
    return None if angle.weight_norm else "zero: it has no direction before its first step"
