"""The effect of ⊥Grad on each parameter, and the share of the gradient's energy that it removes."""

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
from .result import UNUSED
from .scaling import ORTHOGONAL

# cos² up to which the radial part of a gradient is negligible.
NEGLIGIBLE = ORTHOGONAL**2


class Angle(NamedTuple):
    """Norms of a gradient and a weight, and the cosine between them, NaN if one of them is zero."""

    weight_norm: float
    gradient_norm: float
    cosine: float

    @classmethod
    def of_moments(cls, square: float, coefficient: float, residual: float) -> Angle:
        """The angle from B = ‖w‖², c = ⟨g, w⟩ / B and R = ‖g − c w‖².

        >>> Angle.of_moments(4.0, 2.0, 9.0)
        Angle(weight_norm=2.0, gradient_norm=5.0, cosine=0.8)
        """
        energy = residual + coefficient**2 * square
        product = coefficient * math.sqrt(square)
        return cls(math.sqrt(square), math.sqrt(energy), product / math.sqrt(energy) if energy and square else math.nan)


class Measurement(NamedTuple):
    """The angle of a parameter and its gradient, the part of ‖g‖² that ⊥Grad removes, and True if nothing is left."""

    angle: Angle
    removed_energy: float
    is_frozen: bool


class Choice(NamedTuple):
    """The action of ⊥Grad on a parameter (act, leave or freeze), and the reason."""

    action: str
    reason: str


Gradients = Mapping[str, tuple[Tensor, Tensor]]
"""Gradient and weight by name, for the parameters that have a gradient."""


def measurements(gradients: Gradients, options: Options, where: Where | None) -> dict[str, Measurement]:
    """The measurement of every parameter that has a gradient, by name."""
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
    """Copy all rows to the CPU in one transfer, because each transfer waits for the GPU."""
    if not tables:
        return {}
    device = next(iter(tables.values())).device
    return dict(zip(tables, torch.stack([row.to(device) for row in tables.values()]).cpu(), strict=True))


def _projected(
    members: list[str], gradients: Gradients, tables: Mapping[str, Tensor], options: Options
) -> list[list[float]]:
    """For each member of one vector: the removed energy c²B, and 1 if the whole g⊥ counts as zero."""
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
    """The action of ⊥Grad on one parameter; ``measurement`` is None for one without a gradient."""
    reason = _reason_to_leave(name, weight, measurement, options, where)
    if reason is not None:
        return Choice("leave", reason)
    assert measurement is not None
    if measurement.is_frozen:
        cause = "it has one element" if weight.numel() == 1 else "its gradient is parallel to its weight"
        return Choice("freeze", f"{cause}, so nothing of the gradient is left")
    if measurement.removed_energy <= NEGLIGIBLE * measurement.angle.gradient_norm**2:
        return Choice("leave", "orthogonal already on this batch")
    return Choice("act", "")


def _reason_to_leave(
    name: str, weight: Tensor, measurement: Measurement | None, options: Options, where: Where | None
) -> str | None:
    if measurement is None:
        return UNUSED if weight.requires_grad else "frozen: requires_grad is False"
    if where is not None and not where(name, weight):
        return "excluded by where"
    if weight.numel() == 1 and not options.scalars:
        return "one element has no orthogonal direction"
    if options.granularity == "row" and (weight.ndim < 2 or (weight.numel() == len(weight) and not options.scalars)):
        return "rows of one element have no orthogonal direction"
    angle = measurement.angle
    if not angle.gradient_norm < float("inf"):
        return "its gradient is not finite, and passes unchanged"
    if not angle.gradient_norm:
        return "its gradient is zero"
    return None if angle.weight_norm else "zero, so it has no direction before its first step"


def real_pair(vector: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Both tensors, detached, dense and real."""
    dense = vector.detach().to_dense() if vector.layout is not torch.strided else vector.detach()
    return as_real(dense), as_real(weight.detach())


def refuse_shards(name: str, parameter: Tensor) -> None:
    """Raise for a sharded parameter: the cosine of a shard is not the cosine of the parameter."""
    if is_dtensor(parameter):
        raise ValueError(
            f"expected whole parameters, got {name} as a DTensor sharded over ranks: "
            "diagnose or record the network before it is sharded"
        )
