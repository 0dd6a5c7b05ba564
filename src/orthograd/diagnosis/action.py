"""What ⊥Grad would do to each parameter, and how much of the gradient's energy it would take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from ..engine.dense import moments, row_moments
from ..engine.plan import merged
from ..engine.sharded import is_dtensor
from ..options import Options
from ..partition import Partition, Where
from ..projection import as_real, rounding_of
from .scaling import ORTHOGONAL

# cos² up to which a gradient has no radial part worth the name.
NEGLIGIBLE = ORTHOGONAL**2


class Angle(NamedTuple):
    """A gradient and a weight as plain numbers; the cosine is NaN where one of them is zero."""

    weight_norm: float
    gradient_norm: float
    cosine: float

    @classmethod
    def of_moments(cls, square: float, coefficient: float, residual: float) -> Angle:
        """From B = ‖w‖², c = ⟨g, w⟩ / B and R = ‖g − c w‖².

        >>> Angle.of_moments(4.0, 2.0, 9.0)
        Angle(weight_norm=2.0, gradient_norm=5.0, cosine=0.8)
        """
        energy = residual + coefficient**2 * square
        product = coefficient * math.sqrt(square)
        return cls(math.sqrt(square), math.sqrt(energy), product / math.sqrt(energy) if energy and square else math.nan)


class Measurement(NamedTuple):
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


def measurements(gradients: Gradients, options: Options, where: Where | None) -> dict[str, Measurement]:
    """Of every parameter that has a gradient, by name."""
    tables = _on_cpu({name: moments(*real_pair(*pair)) for name, pair in gradients.items()})
    by_name = {name: Measurement(Angle.of_moments(*row.tolist()), 0.0, False) for name, row in tables.items()}
    names = {id(weight): name for name, (_, weight) in gradients.items()}
    group = {"params": [weight for _, weight in gradients.values()], "param_names": list(gradients)}
    for segment in Partition(options, where).segments([group]).get(options, []):
        members = [names[id(weight)] for weight in segment]
        for name, row in zip(members, _projected(members, gradients, tables, options), strict=True):
            by_name[name] = by_name[name]._replace(removed_energy=row[0], is_frozen=bool(row[1]))
    return by_name


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
        return [_summed(row_moments(*real_pair(*gradients[name])), gradients[name][0].dtype) for name in members]
    common = merged(torch.stack([tables[name] for name in members]))
    dtype = max((gradients[name][0].dtype for name in members), key=rounding_of)
    is_frozen = _summed(common[None], dtype)[1]
    return [[float(common[1]) ** 2 * float(tables[name][0]), is_frozen] for name in members]


def _summed(table: Tensor, dtype: torch.dtype) -> list[float]:
    square, coefficient, residual = table.unbind(1)
    radial = coefficient**2 * square
    is_frozen = (residual <= rounding_of(dtype) ** 2 * (residual + radial)) & (radial > 0)
    return [float(radial.sum()), float((is_frozen | (residual + radial == 0)).all() & is_frozen.any())]


def choice(name: str, weight: Tensor, measurement: Measurement | None, options: Options, where: Where | None) -> Choice:
    """What ⊥Grad does to one parameter; ``measurement`` is None for one without a gradient."""
    reason = _reason_to_leave(name, weight, measurement, options, where)
    if reason is not None:
        return Choice("leave", reason)
    assert measurement is not None
    if measurement.is_frozen:
        what = "one element, which has no orthogonal direction" if weight.numel() == 1 else "parallel to its weight"
        return Choice("freeze", f"the gradient is {what}: nothing of it is left")
    if measurement.removed_energy <= NEGLIGIBLE * measurement.angle.gradient_norm**2:
        return Choice("leave", "orthogonal already on this batch")
    return Choice("act", "")


def _reason_to_leave(
    name: str, weight: Tensor, measurement: Measurement | None, options: Options, where: Where | None
) -> str | None:
    if measurement is None:
        return "the loss does not reach it" if weight.requires_grad else "frozen: requires_grad is False"
    if where is not None and not where(name, weight):
        return "left out by where"
    if weight.numel() == 1 and not options.scalars:
        return "one element has no orthogonal direction"
    if options.granularity == "row" and (weight.ndim < 2 or (weight.numel() == len(weight) and not options.scalars)):
        return "one number a row has no orthogonal direction"
    angle = measurement.angle
    if not angle.gradient_norm < float("inf"):
        return "its gradient is not finite and passes unchanged"
    if not angle.gradient_norm:
        return "its gradient is zero"
    return None if angle.weight_norm else "zero: it has no direction before its first step"


def real_pair(vector: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both detached, dense and real."""
    dense = vector.detach().to_dense() if vector.layout is not torch.strided else vector.detach()
    return as_real(dense), as_real(weight.detach())


def refuse_shards(name: str, parameter: Tensor) -> None:
    """Raise where a rank holds a part of a parameter alone: its cosine is not the parameter's."""
    if is_dtensor(parameter):
        raise ValueError(
            f"expected whole parameters, got {name} as a DTensor that is spread over ranks: "
            "diagnose or record the network before it is sharded"
        )
