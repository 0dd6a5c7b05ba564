"""``project="update"``: project the update that the base optimizer made, instead of the gradient.

Momentum and Adam mix the gradients of many steps, each orthogonal to an earlier weight, so their update has a radial
part again. Here the optimizer takes its step w ← (1 − ηλ) w + Δ first, and then Δ is projected. Decoupled weight decay
ηλ is radial by design and stays.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from .engine.plan import Pair
from .engine.projector import Projector
from .options import Options
from .partition import Segments

# Classes of torch.optim whose weight_decay is decoupled, though no key of their param groups says so.
DECOUPLED = {"AdamW", "Adafactor", "Muon"}
LAYOUT = ("shape", "dtype", "device")
Shares = Mapping[int, Any]
"""The share ηλ by which decoupled weight decay shrinks each parameter in a step, by the id of the parameter."""


is_measuring: ContextVar[bool] = ContextVar("orthograd_is_measuring", default=False)
"""True while scratch optimizers are made, which `orthograd.everywhere` must leave alone."""


class Updates:
    """Copies the weights before a step and projects the updates after it. Costs one copy of the weights."""

    def __init__(self) -> None:
        self._before: dict[int, Tensor] = {}
        self._shares: Shares = {}
        self._had_gradient: set[int] = set()

    @torch.no_grad()
    def remember(self, segments: Segments, shares: Shares) -> None:
        """Copy every weight, into memory that is reused at the next step."""
        parameters = {id(parameter): parameter for segment in segments for parameter in segment}
        self._before = {key: copy for key, copy in self._before.items() if key in parameters}
        self._shares = shares
        self._had_gradient = {key for key, parameter in parameters.items() if parameter.grad is not None}
        for key, parameter in parameters.items():
            copy = self._before.get(key)
            if copy is None or any(getattr(copy, name) != getattr(parameter, name) for name in LAYOUT):
                self._before[key] = parameter.detach().clone()
            else:
                copy.copy_(parameter)

    @torch.no_grad()
    def project_(self, optimizer: Optimizer, segments: Segments, projector: Projector) -> None:
        """Project the updates of all parameters that had a gradient."""
        # Under a GradScaler, fused optimizers skip the whole step, decay included, if a gradient is infinite.
        found_inf = getattr(optimizer, "found_inf", None)
        is_taken = 1 if found_inf is None else 1 - found_inf
        remaining = {key: 1 - share * is_taken for key, share in self._shares.items()}
        # Some optimizers drop gradients in their step, and a closure computes them there.
        changed = [[p for p in each if p.grad is not None or id(p) in self._had_gradient] for each in segments]
        pairs = [[Pair(p.detach(), self._before[id(p)]) for p in segment] for segment in changed if segment]
        for parameter in (p for segment in changed for p in segment):
            parameter.sub_(self._before[id(parameter)] * remaining[id(parameter)])
        projector.project_(pairs)
        for parameter in (p for segment in changed for p in segment):
            parameter.add_(self._before[id(parameter)] * remaining[id(parameter)])


class Decay:
    """The decoupled weight decay in an optimizer's step.

    It is known for the classes of torch.optim, and measured once for any other (see `is_decoupled_in`).
    """

    def __init__(self, optimizer: Optimizer):
        self._optimizer = optimizer
        self._measured: dict[int, bool] = {}

    def shares(self, options: Options, segments: Segments) -> Shares:
        """ηλ of each parameter, times Prodigy's d if there is one. Call it before a step, which changes d."""
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
        inner = stepping_class(self._optimizer)
        if inner.step.__module__.startswith("torch.optim."):
            return bool(group.get("decoupled_weight_decay")) or inner.step.__qualname__.split(".")[0] in DECOUPLED
        if number not in self._measured:
            try:
                self._measured[number] = is_decoupled_in(inner, group)
            except Exception as error:  # a third-party class can raise anything
                raise ValueError(f"{self._unknown}: {str(error).rstrip('.')}. {REMEDY}") from error
        return self._measured[number]

    @property
    def _unknown(self) -> str:
        name = type(self._optimizer).__name__
        return f"project='update' needs to know how {name} applies weight decay, and could not measure it"


REMEDY = (
    "Pass decoupled_decay=True if a step shrinks weights by lr · weight_decay, decoupled_decay=False to project decay "
    "like the rest of the update; or use weight_decay=0, or project='gradient'."
)


def share_of(group: Mapping[str, Any]) -> Any:
    """ηλ, times the step size d that Prodigy and D-Adaptation estimate."""
    return group["lr"] * group["weight_decay"] * group.get("d", 1.0)


def stepping_class(optimizer: Optimizer) -> type[Optimizer]:
    """The class that defines the step: not a wrapper that shards it, nor a class made by `orthogonal`."""
    inner = getattr(optimizer, "optim", None)  # ZeroRedundancyOptimizer
    outer = type(inner if isinstance(inner, Optimizer) else optimizer)
    return getattr(outer, "made_by", (outer,))[0]


def is_decoupled_in(optimizer_class: type[Optimizer], group: Mapping[str, Any]) -> bool:
    """True if the weight decay of an optimizer class is decoupled, with the settings of a param group.

    Three optimizers take three steps from the same weights: one with decay λ, one without, and one without but with λw
    added to the gradient. With decoupled decay the first differs from the second by ηλw; with coupled decay it equals
    the third. Raises ValueError if neither holds, and any error of the class.
    """
    # Enough decay to be visible in float32.
    lr, decay = 0.125, 0.25
    parameters = [parameter for parameter in group["params"] if not is_lazy(parameter)]
    shape, device = (4,) * max(parameter.ndim for parameter in parameters), parameters[0].device
    generator = torch.Generator().manual_seed(0)
    weight, *gradients = torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    if device.type == "cuda":  # some optimizers run nowhere else
        weight, *gradients = (tensor.to(device) for tensor in (weight, *gradients))
    with_decay, without, coupled = (
        Scratch(optimizer_class, group, weight, lr=lr, weight_decay=used) for used in (decay, 0.0, 0.0)
    )
    is_decoupled = is_coupled = True
    for gradient in gradients:
        share = share_of(with_decay.optimizer.param_groups[0])
        changed, plain = with_decay.stepped(gradient), without.stepped(gradient)
        limit = 1e-3 * share * float(weight.abs().max())
        is_decoupled &= float((plain - changed - share * weight).abs().max()) <= limit
        is_coupled &= float((coupled.stepped(gradient + decay * weight) - changed).abs().max()) <= limit
    if not (is_decoupled or is_coupled):
        raise ValueError("its weight decay is neither coupled nor lr · weight_decay")
    return is_decoupled


class Scratch:
    """An optimizer with the settings of a param group, on a scratch weight."""

    def __init__(self, optimizer_class: type[Optimizer], group: Mapping[str, Any], weight: Tensor, **settings: float):
        accepted = inspect.signature(optimizer_class).parameters
        same = {name: value for name, value in group.items() if name in accepted and name != "params"}
        self.weight, self.parameter = weight, torch.nn.Parameter(weight.clone())
        token = is_measuring.set(True)
        try:
            self.optimizer: Optimizer = optimizer_class([self.parameter], **{**same, **settings})
        finally:
            is_measuring.reset(token)
        if callable(train := getattr(self.optimizer, "train", None)):  # schedule-free optimizers step in this mode
            train()

    def stepped(self, gradient: Tensor) -> Tensor:
        """The weight after a step with this gradient from the initial weight; the optimizer keeps its state."""
        self.parameter.data.copy_(self.weight)
        self.parameter.grad = gradient.clone()
        with torch.random.fork_rng(devices=[gradient.device] if gradient.is_cuda else []):
            torch.manual_seed(0)
            self.optimizer.step()
        return self.parameter.detach().clone()
