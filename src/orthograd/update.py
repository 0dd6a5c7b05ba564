"""project="update": make orthogonal what the base optimizer did to a weight, not what it was given.

Momentum and Adam mix gradients of many steps, each orthogonal to the weight of its own time. The update they
make of them has a radial part again. Here the step is taken first; then, of w ← (1 − ηλ) w + Δ, only Δ is
projected. Decoupled weight decay ηλ is radial on purpose and stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from .engine.plan import Pair
from .engine.projector import Projector
from .options import Options
from .partition import Segments

# Classes of torch.optim whose weight_decay is decoupled without a key in their param groups that says so.
DECOUPLED = {"AdamW", "Adafactor", "Muon"}
KIND = ("shape", "dtype", "device")
Shares = Mapping[int, Any]
"""By the id of a parameter: by how much decoupled weight decay alone shrinks it in a step."""


class Updates:
    """Remembers weights before a step and projects the updates after it. Costs one copy of the weights."""

    def __init__(self) -> None:
        self._before: dict[int, Tensor] = {}
        self._shares: Shares = {}
        self._had_gradient: set[int] = set()

    @torch.no_grad()
    def remember(self, segments: Segments, shares: Shares) -> None:
        """Keep a copy of every weight, in memory that is used again at the next step."""
        parameters = {id(parameter): parameter for segment in segments for parameter in segment}
        self._before = {key: copy for key, copy in self._before.items() if key in parameters}
        self._shares = shares
        self._had_gradient = {key for key, parameter in parameters.items() if parameter.grad is not None}
        for key, parameter in parameters.items():
            copy = self._before.get(key)
            if copy is None or any(getattr(copy, what) != getattr(parameter, what) for what in KIND):
                self._before[key] = parameter.detach().clone()
            else:
                copy.copy_(parameter)

    @torch.no_grad()
    def project_(self, optimizer: Optimizer, segments: Segments, projector: Projector) -> None:
        """Take the radial part out of the updates of all parameters that had a gradient."""
        # Fused optimizers under a GradScaler skip the step, decay included, where a gradient was infinite.
        found_inf = getattr(optimizer, "found_inf", None)
        is_taken = 1 if found_inf is None else 1 - found_inf
        remaining = {key: 1 - share * is_taken for key, share in self._shares.items()}
        # Some optimizers drop gradients in their step; a closure makes them in it.
        changed = [[p for p in each if p.grad is not None or id(p) in self._had_gradient] for each in segments]
        pairs = [[Pair(p.detach(), self._before[id(p)]) for p in segment] for segment in changed if segment]
        for parameter in (p for segment in changed for p in segment):
            parameter.sub_(self._before[id(parameter)] * remaining[id(parameter)])
        projector.project_(pairs)
        for parameter in (p for segment in changed for p in segment):
            parameter.add_(self._before[id(parameter)] * remaining[id(parameter)])


class Decay:
    """Tells which part of an optimizer's step is decoupled weight decay.

    Known for the classes of torch.optim. Any other is tried once, on small weights of its own (see `is_decoupled_in`).
    """

    def __init__(self, optimizer: Optimizer):
        self._optimizer = optimizer
        self._measured: dict[int, bool] = {}

    def shares(self, options: Options, segments: Segments) -> Shares:
        """ηλ for each parameter, with Prodigy's d where there is one. Read before a step, which changes d."""
        wanted = {id(parameter) for segment in segments for parameter in segment}
        groups = enumerate(self._optimizer.param_groups)
        return {
            id(parameter): self._share(number, group, options)
            for number, group in groups
            for parameter in group["params"]
            if id(parameter) in wanted
        }

    def _share(self, number: int, group: dict[str, Any], options: Options) -> Any:
        if not group.get("weight_decay") or not self._is_decoupled(number, group, options):
            return 0.0
        if group.get("lr") is None:
            raise ValueError(f"{self._unknown}: its learning rate is None. {REMEDY}")
        return share_of(group)

    def _is_decoupled(self, number: int, group: dict[str, Any], options: Options) -> bool:
        if options.decoupled_decay is not None:
            return options.decoupled_decay
        kind = stepping_class(self._optimizer)
        if kind.step.__module__.startswith("torch.optim."):
            return bool(group.get("decoupled_weight_decay")) or kind.step.__qualname__.split(".")[0] in DECOUPLED
        if number not in self._measured:
            try:
                self._measured[number] = is_decoupled_in(kind, group)
            except Exception as error:  # whatever a class of someone else raises
                raise ValueError(f"{self._unknown}: {str(error).rstrip('.')}. {REMEDY}") from error
        return self._measured[number]

    @property
    def _unknown(self) -> str:
        name = type(self._optimizer).__name__
        return (
            f"project='update' needs to know which part of a step of {name} is weight decay, and could not measure it"
        )


REMEDY = (
    "Pass decoupled_decay=True if a step shrinks weights by lr · weight_decay, decoupled_decay=False to project decay "
    "like the rest of the update; or use weight_decay=0, or project='gradient'."
)


def share_of(group: Mapping[str, Any]) -> Any:
    """ηλ, times the step size d that Prodigy and D-Adaptation find."""
    return group["lr"] * group["weight_decay"] * group.get("d", 1.0)


def stepping_class(optimizer: Optimizer) -> type[Optimizer]:
    """The class whose step it is: not the wrapper that shards it, nor what `orthogonal` made of it."""
    inner = getattr(optimizer, "optim", None)  # ZeroRedundancyOptimizer
    kind = type(inner if isinstance(inner, Optimizer) else optimizer)
    return getattr(kind, "made_by", (kind,))[0]


def is_decoupled_in(kind: type[Optimizer], group: Mapping[str, Any]) -> bool:
    """Whether a class of optimizers, with the settings of a param group, shrinks weights apart from the gradient.

    Three optimizers take three steps from the same weights: one with decay λ, one without, one without whose gradient
    has λw added. Decoupled decay makes the first differ from the second by ηλw; coupled decay makes it equal to the
    third. Raises ValueError for anything else, and whatever the class raises.
    """
    # Enough decay to be seen in float32.
    lr, decay = 0.125, 0.25
    parameters = [parameter for parameter in group["params"] if not is_lazy(parameter)]
    shape, device = (4,) * max(parameter.ndim for parameter in parameters), parameters[0].device
    generator = torch.Generator().manual_seed(0)
    weight, *gradients = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    if device.type == "cuda":  # some optimizers run nowhere else
        weight, *gradients = (tensor.to(device) for tensor in (weight, *gradients))
    with_decay, without, coupled = (
        Scratch(kind, group, weight, lr=lr, weight_decay=used) for used in (decay, 0.0, 0.0)
    )
    is_decoupled = is_coupled = True
    for gradient in gradients:
        share = share_of(with_decay.optimizer.param_groups[0])
        changed, plain = with_decay.stepped(gradient), without.stepped(gradient)
        limit = 1e-3 * share * float(weight.abs().max())
        is_decoupled &= float((plain - changed - share * weight).abs().max()) <= limit
        is_coupled &= float((coupled.stepped(gradient + decay * weight) - changed).abs().max()) <= limit
    if not (is_decoupled or is_coupled):
        raise ValueError("it shrinks weights by something else than lr · weight_decay")
    return is_decoupled


class Scratch:
    """An optimizer of a class with the settings of a param group, on a weight of its own."""

    def __init__(self, kind: type[Optimizer], group: Mapping[str, Any], weight: Tensor, **settings: float):
        accepted = inspect.signature(kind).parameters
        same = {name: value for name, value in group.items() if name in accepted and name != "params"}
        self.weight, self.parameter = weight, torch.nn.Parameter(weight.clone())
        self.optimizer: Optimizer = kind([self.parameter], **{**same, **settings})

    def stepped(self, gradient: Tensor) -> Tensor:
        """Where a step with this gradient leads from the weight, with the state of the steps before."""
        self.parameter.data.copy_(self.weight)
        self.parameter.grad = gradient.clone()
        with torch.random.fork_rng(devices=[gradient.device] if gradient.is_cuda else []):
            torch.manual_seed(0)
            self.optimizer.step()
        return self.parameter.detach().clone()
