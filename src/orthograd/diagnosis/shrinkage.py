"""How far weight decay alone shrinks the parameters that ⊥Grad projects, in a planned number of steps."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..attachment import attachment_of
from ..optimizer import _innermost
from ..options import Options
from ..partition import Partition, Where
from ..update import DECOUPLED, Decay, stepping_class
from .result import Row, Shrinkage, few, percent

# Classes of torch.optim that divide the sum of gradient and weight decay by the size of recent gradients.
ADAPTIVE = {"Adadelta", "Adagrad", "Adam", "Adamax", "NAdam", "RAdam", "RMSprop"}
# Factor below which underconfidence is to be expected. Chosen after the fact: recorded networks at 0.02 and 0.55 ended
# underconfident, those at 0.67 did not (docs/norms.md).
UNDERCONFIDENT = 0.6
# Effects of rescaling that leave the outputs as they are, so that a small norm does no harm.
HARMLESS = {"invariant", "rows invariant", "idle"}
# Granularities for which the loss has no say in the norm of a single parameter.
OWN_NORM = ("tensor", "row")
Effect = tuple[float | None, str]
"""The factor of a norm, None if it is not known, and a reason."""


def shrinkages(
    parameters: Mapping[str, Tensor],
    optimizer: Optimizer,
    steps: int,
    *,
    options: Options | None = None,
    where: Where | None = None,
) -> dict[str, Shrinkage]:
    """The effect of weight decay alone on each parameter that ⊥Grad projects, by name.

    Args:
        parameters: the parameters of a network that get a gradient, by name.
        optimizer: if ⊥Grad is attached to it, the parameters are those that it projects.
        steps: number of steps, at the present learning rate.
        options: for an optimizer without ⊥Grad, the options with which it would be attached. None: the defaults.
        where: for an optimizer without ⊥Grad, as in `orthograd.attach`.

    Raises:
        TypeError: if ``optimizer`` is not an optimizer, or ``steps`` not an integer.
        ValueError: if ``steps`` is below 1, or the optimizer has none of the parameters.

    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
    >>> round(shrinkages(dict(model.named_parameters()), optimizer, 7900)["weight"].factor, 4)  # exp(−0.395)
    0.6739
    """
    optimizer = checked_optimizer(parameters, optimizer, steps)
    names = {id(parameter): name for name, parameter in parameters.items()}
    groups = optimizer.param_groups
    places = {id(p): i for i, group in enumerate(groups) for p in group["params"] if id(p) in names}
    handle = attachment_of(optimizer)
    partition = Partition(options or Options(), where, parameters.items()) if handle is None else handle.partition
    chosen: dict[str, Shrinkage] = {}
    for used, segments in partition.segments(groups).items():
        shares = Decay(optimizer).shares(used, segments) if used.project == "update" else {}
        for parameter in (p for segment in segments for p in segment if id(p) in places and p.requires_grad):
            name, place = names[id(parameter)], places[id(parameter)]
            if used.project == "update":
                factor, reason = _of_update(groups[place], used, float(shares[id(parameter)]), steps)
            else:
                factor, reason = _of_gradient(groups[place], used, optimizer, steps)
            settings = (groups[place].get(key) for key in ("lr", "weight_decay"))
            rate, decay = (None if value is None else float(value) for value in settings)
            chosen[name] = Shrinkage(name, place, rate, decay, factor, reason)
    return {name: chosen[name] for name in parameters if name in chosen}


def checked_optimizer(parameters: Mapping[str, Tensor], optimizer: Optimizer, steps: int) -> Optimizer:
    """The optimizer that takes the steps. Raises as `shrinkages` does."""
    optimizer = _innermost(optimizer)
    if isinstance(steps, bool) or not isinstance(steps, int):
        raise TypeError(f"expected steps to be a whole number, got {steps!r}")
    if steps < 1:
        raise ValueError(f"expected steps to be at least 1, got {steps}")
    known = {id(parameter) for parameter in parameters.values()}
    if not any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError("expected an optimizer of this network's parameters, got one that has none of them")
    return optimizer


def _of_update(group: Mapping[str, Any], options: Options, share: float, steps: int) -> Effect:
    """Decoupled decay stays. Coupled decay is a part of the update, so its radial part is removed."""
    if not group.get("weight_decay"):
        return 1.0, ""
    if "d" in group:
        return None, "the optimizer estimates its own step size"
    if share:
        return abs(1 - share) ** steps, _restored(options)
    if options.granularity in OWN_NORM:
        return 1.0, "weight decay is projected with the update"
    return None, "weight decay is projected with the update of several parameters"


def _of_gradient(group: Mapping[str, Any], options: Options, optimizer: Optimizer, steps: int) -> Effect:
    inner = stepping_class(optimizer)
    name = inner.step.__qualname__.split(".")[0]
    if not inner.step.__module__.startswith("torch.optim."):
        return None, f"the step of {inner.__name__} is not one of torch.optim"
    if name == "SGD":
        keys = {"rate": "lr", "decay": "weight_decay", "momentum": "momentum", "dampening": "dampening"}
        numbers = {ours: float(group[theirs]) for ours, theirs in keys.items()}
        return sgd_factor(steps, **numbers, nesterov=group["nesterov"]), _restored(options)
    if name in DECOUPLED or group.get("decoupled_weight_decay"):
        return abs(1 - float(group["lr"]) * float(group["weight_decay"])) ** steps, _restored(options)
    if name not in ADAPTIVE:
        return None, f"the weight decay of {name} is not known"
    if not group["weight_decay"]:
        return 1.0, ""
    return None, f"{name} divides weight decay by the size of the gradients"


def _restored(options: Options) -> str:
    """The reason why the loss can still restore the norm of a parameter; empty if it cannot."""
    return "" if options.granularity in OWN_NORM else "the loss can restore it: several parameters are one vector"


def sgd_factor(
    steps: int,
    *,
    rate: float,
    decay: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
) -> float:
    """‖w‖ after T steps of `torch.optim.SGD` without a gradient, over ‖w‖ before: about exp(−aT).

    With rate η, decay λ, momentum μ and dampening τ, a = ηλ(1 − τ)/(1 − μ). Exactly,

        v ← μ v + (1 − τ) λ w          w ← w − η v          (Nesterov: w ← w − η (λ w + μ v))

    and v = λ w in the first step. Without momentum it is (1 − ηλ)ᵀ.

    >>> round(sgd_factor(7900, rate=0.01, decay=5e-4, momentum=0.9), 4)
    0.6739
    """
    if not momentum:
        return abs(1 - rate * decay) ** steps
    # A step is linear in (w, v): each row below holds the two coefficients of a vector.
    weight, decayed, buffer = torch.tensor(
        [[1.0, 0.0], [decay, 0.0], [(1 - dampening) * decay, momentum]], dtype=torch.float64, device="cpu"
    )

    def step(new: Tensor) -> Tensor:
        update = decayed + momentum * new if nesterov else new
        return torch.stack([weight - rate * update, new])

    # The first step fills the buffer without dampening.
    whole = torch.linalg.matrix_power(step(buffer), steps - 1) @ step(decayed)
    return abs(float(whole[0, 0]))


def shrinkage_cautions(shrunk: Mapping[str, Shrinkage], rows: Collection[Row], optimizer: Optimizer) -> Iterator[str]:
    """Warnings: underconfidence to be expected, and a scheduler that makes the present rate the wrong one."""
    harmless = {row.name for row in rows if row.kind in HARMLESS or not row.weight_norm}
    factors = {one.name: one.factor for one in shrunk.values() if one.factor is not None and not one.reason}
    low = {name: factor for name, factor in factors.items() if factor < UNDERCONFIDENT and name not in harmless}
    if low:
        yield (
            f"Underconfidence is to be expected. Weight decay alone shrinks {few(list(low))} to "
            f"{percent(max(low.values()))} of the norm or less, and ⊥Grad removes the gradient that would restore it. "
            f"In our records, networks below {percent(UNDERCONFIDENT)} ended underconfident. Take fewer steps, or use "
            "weight decay only on weights that a normalization layer follows."
        )
    if any(factor != 1.0 for factor in factors.values()) and any("initial_lr" in g for g in optimizer.param_groups):
        yield (
            "The optimizer has a learning-rate scheduler, and weight decay was computed for the present rate. The sum "
            "of all rates counts: pass that sum, divided by the present rate, as steps."
        )
