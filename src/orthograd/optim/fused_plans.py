"""Plans of a fused step, reused while tensors stay in place."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.graph import increment_version
from torch.nn import Parameter

from ..engine.compilation import is_capturing
from ..engine.dense import flattened, is_dense
from ..engine.projector import Addresses, addresses_of, are_plain
from ..imports import has_triton
from ..options import Options
from ..partition import Segments

if TYPE_CHECKING:
    from ..engine.step_plan import Pace, Stepped, StepPlan

Chosen = dict[Options, Segments]


class Corrections(Protocol):
    """Corrections of projections that are computed before the step."""

    def correction_of(self, parameter: Tensor) -> Tensor | None:
        """Return that of a parameter's gradient as it is now, valid after `join`; None if the step must compute it."""

    def join(self) -> None:
        """Make the current stream wait for them."""


class Fused(Protocol):
    """An optimizer with a fused step, as far as plans know it: `FusedOptimizer`."""

    param_groups: list[dict[str, Any]]
    state: defaultdict[Tensor, Any]
    defaults: dict[str, Any]
    states: ClassVar[tuple[str, ...]]
    corrections: Corrections | None

    def rule_of(self, group: dict[str, Any]) -> str | None:
        """See `FusedOptimizer.rule_of`."""

    def pace_of(self, group: dict[str, Any]) -> Pace:
        """See `FusedOptimizer.pace_of`."""


class Known(NamedTuple):
    """Holds what plans were made for, and a plan for each parameter group that has gradients, by its index.

    ``addresses`` is None if gradients were copied, to have the memory order of their weights: these are ``copies``.
    """

    chosen: Chosen
    settings: list[Any]
    addresses: Addresses | None
    states: list[int]
    corrections: list[Tensor | None]
    plans: dict[int, StepPlan]
    copies: list[Tensor]


class FusedPlans:
    """Takes fused steps, and remembers the last plans. They are made anew if anything but gradients has moved."""

    def __init__(self) -> None:
        self._last: Known | None = None
        self._captured: list[Known] = []
        self._masters: list[tuple[Tensor, int, Tensor]] = []  # parameter, its version after the step, its copy

    def step_(self, optimizer: Fused, chosen: Chosen, engine: str) -> bool:
        """Take a step; return False, with nothing done, if the kernels do not serve these tensors or settings."""
        groups = optimizer.param_groups
        members = [parameter for group in groups for parameter in group["params"]]
        gradients = [parameter.grad for parameter in members]
        self._update_masters(optimizer)
        early = optimizer.corrections
        corrections = [] if early is None else [early.correction_of(each) for each in members]
        known = self._repeated(optimizer, chosen, members, gradients, corrections)
        if known is None:
            if not _serves(optimizer, chosen, engine, members, gradients):
                return False
            known = self._made(optimizer, chosen, members, gradients, corrections)
        if early is not None:
            early.join()
        for index, plan in known.plans.items():
            plan.step_(_pace(optimizer, groups[index]))
        changed = [p for p, gradient in zip(members, gradients, strict=True) if gradient is not None]
        masters = _masters_of(optimizer, members) if optimizer.defaults["master_weights"] else []
        _count_change([*changed, *(master for _, master in masters)])
        self._masters = [(parameter, parameter._version, master) for parameter, master in masters]
        return True

    def _update_masters(self, optimizer: Fused) -> None:
        """Copy the values that were changed since the last step into the float32 copies of their parameters."""
        for parameter, version, master in self._masters:
            is_loaded = optimizer.state.get(parameter, {}).get("master_weight") is not master  # since then
            if parameter._version != version and not is_loaded:
                is_same = master.to(parameter.dtype) == parameter
                master.copy_(torch.where(is_same, master, parameter.float()))

    def _repeated(
        self,
        optimizer: Fused,
        chosen: Chosen,
        members: list[Tensor],
        gradients: list[Tensor | None],
        corrections: list[Tensor | None],
    ) -> Known | None:
        """The last plans, updated for gradients that have moved; None if anything else has changed."""
        last = self._last
        if last is None or last.addresses is None or is_capturing() or last.chosen is not chosen:
            return None
        if last.settings != _settings(optimizer) or last.states != _state_addresses(optimizer):
            return None
        if list(map(id, last.corrections)) != list(map(id, corrections)):
            return None
        addresses = addresses_of(gradients, members, [])
        if addresses == last.addresses:
            return last
        moves = None if addresses is None else last.addresses.moves_to(addresses)
        if moves is None:
            return None
        # Until all plans have moved, since they change in place. What they lend to new ones does not change.
        self._last = last._replace(addresses=None)
        if not all(plan.move_(moves) for plan in last.plans.values()):
            return None
        self._last = last._replace(addresses=addresses)
        return self._last

    def _made(
        self,
        optimizer: Fused,
        chosen: Chosen,
        members: list[Tensor],
        gradients: list[Tensor | None],
        corrections: list[Tensor | None],
    ) -> Known:
        from ..engine.step_plan import Rule, StepPlan  # imports Triton, which is slow to import and may be missing

        options_of = {id(p): options for options, segments in chosen.items() for each in segments for p in each}
        numbers = {id(p): number for number, p in enumerate(members)}
        correction_of = {id(p): each for p, each in zip(members, corrections, strict=False)}
        plans: dict[int, StepPlan] = {}
        copies: list[Tensor] = []
        for index, group in enumerate(optimizer.param_groups):
            learning = [p for p in group["params"] if p.grad is not None]
            renormalize = all(options_of[id(p)].renormalize for p in learning if id(p) in options_of)
            rule = Rule(optimizer.rule_of(group) or "", optimizer.defaults["stochastic_rounding"], renormalize)
            tensors = [
                _stepped(optimizer, p, rule.name, numbers[id(p)], id(p) in options_of)._replace(
                    correction=correction_of.get(id(p))
                )
                for p in learning
            ]
            copies += [each.gradient for each, p in zip(tensors, learning, strict=True) if each.gradient is not p.grad]
            if tensors:
                earlier = self._last and self._last.plans.get(index)
                plans[index] = StepPlan(tensors, rule, reads_rate=_is_read(group["lr"]), earlier=earlier)
        addresses = None if copies else addresses_of(gradients, members, [])
        settings, states = _settings(optimizer), _state_addresses(optimizer)
        known = Known(chosen, settings, addresses, states, corrections, plans, copies)
        if is_capturing():
            self._captured.append(known)  # the graph reads the memory of a plan at every replay
        else:
            self._last = known
        return known


def _count_change(tensors: list[Tensor]) -> None:
    """Let a backward pass that needs the values from before a fused step raise, as after torch's step."""
    try:
        increment_version(tensors)
    except (TypeError, RuntimeError):  # older versions of torch take one tensor
        for tensor in tensors:
            increment_version(tensor)


def _masters_of(optimizer: Fused, members: list[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Each parameter that has a float32 copy, with it."""
    copies = ((parameter, optimizer.state.get(parameter, {}).get("master_weight")) for parameter in members)
    return [(parameter, master) for parameter, master in copies if master is not None]


def _stepped(optimizer: Fused, parameter: Tensor, rule: str, number: int, is_projected: bool) -> Stepped:
    """A parameter with its gradient and state, all in its memory order. The state is that of torch."""
    from ..engine.step_plan import Stepped

    state, weight, gradient = optimizer.state[parameter], parameter.detach(), parameter.grad
    assert gradient is not None
    has_master = optimizer.defaults["master_weights"] and weight.dtype != torch.float32
    is_counted = rule == "adamw" or optimizer.defaults["stochastic_rounding"]
    names = () if rule == "plain" else optimizer.states
    _check_state(state, [*names, *["step"] * is_counted, *["master_weight"] * has_master], parameter)
    if is_counted:
        state["step"] = state.get("step", torch.zeros((), device=weight.device)).to(weight.device, torch.float32)
    if has_master:
        exact = state.get("master_weight")
        if exact is None or flattened(exact, weight) is None:
            weight = weight.float() if exact is None else weight.float().copy_(exact)
        else:
            weight = exact
        state["master_weight"] = weight
    state.update({name: _in_order(state.get(name), weight) for name in names})
    if flattened(gradient, weight) is None:
        gradient = torch.empty_like(weight, dtype=gradient.dtype).copy_(gradient)
    momentum, square = ([state[name] for name in names] + [None, None])[:2]
    return Stepped(
        gradient,
        weight,
        momentum,
        square,
        steps=state["step"] if is_counted else None,
        copy=parameter.detach() if has_master else None,
        is_projected=is_projected,
        number=number,
    )


def _check_state(state: dict[str, Any], names: Sequence[str], parameter: Tensor) -> None:
    """Raise if a parameter's state would begin inside a graph, or belongs to a parameter of another shape."""
    missing = [name for name in names if state.get(name) is None]
    if missing and is_capturing():
        raise RuntimeError(
            f"expected {', '.join(missing)} of an earlier step, got none: each replay of the CUDA graph would begin "
            f"anew. Take a step before the capture."
        )
    for name in {*names}.difference(["step"], missing):
        if state[name].shape != parameter.shape:
            raise ValueError(
                f"expected {name} of shape {tuple(parameter.shape)}, as its parameter, got {tuple(state[name].shape)}: "
                f"is the checkpoint that of another model?"
            )


def _in_order(state: Tensor | None, weight: Tensor) -> Tensor:
    """A tensor of state like its weight; zeros for none."""
    if state is None:
        return torch.zeros_like(weight)
    if state.dtype == weight.dtype and state.device == weight.device and flattened(state, weight) is not None:
        return state
    return torch.empty_like(weight).copy_(state)


def _serves(
    optimizer: Fused,
    chosen: Chosen,
    engine: str,
    members: Sequence[Tensor],
    gradients: Sequence[Tensor | None],
) -> bool:
    """True if the kernels can take this step; on a CPU, if they are interpreted and asked for by name."""
    if not members or not has_triton():
        return False
    device = members[0].device
    if device.type != "cuda" and not (engine == "triton" and os.environ.get("TRITON_INTERPRET") == "1"):
        return False
    for options in chosen:
        if (options.granularity, options.project) != ("tensor", "gradient") or options.engine not in ("auto", "triton"):
            return False
    if any(optimizer.rule_of(group) is None or not _is_rate(group["lr"], device) for group in optimizer.param_groups):
        return False
    return all(_is_served(*pair, device) for pair in zip(members, gradients, strict=True))


def _is_served(parameter: Tensor, gradient: Tensor | None, device: torch.device) -> bool:
    if gradient is None:
        return True
    is_plain = are_plain([gradient], [gradient.dtype]) and gradient.layout is torch.strided
    is_usual = type(parameter) in (Parameter, Tensor) and is_plain
    is_known = parameter.dtype in (torch.float32, torch.bfloat16) and gradient.dtype in (torch.float32, torch.bfloat16)
    return is_usual and is_known and is_dense(parameter) and parameter.device == gradient.device == device


def _is_rate(rate: Any, device: torch.device) -> bool:
    """True for a number, a tensor on the CPU, or one in float32 on the parameters' device."""
    return not _is_read(rate) or (rate.device == device and rate.dtype == torch.float32)


def _is_read(rate: Any) -> bool:
    """True if the kernel reads the rate from memory."""
    return isinstance(rate, Tensor) and rate.is_cuda


def _pace(optimizer: Fused, group: dict[str, Any]) -> Pace:
    rate, *rest = optimizer.pace_of(group)
    return rate if _is_read(rate) else float(rate), *rest


def _settings(optimizer: Fused) -> list[Any]:
    """What decides which kernels take a step."""
    return [(optimizer.rule_of(each), _place(each["lr"]), len(each["params"])) for each in optimizer.param_groups]


def _place(rate: Any) -> tuple[torch.dtype, torch.device] | None:
    """Where the kernel reads the rate from memory; None if it gets its value."""
    return (rate.dtype, rate.device) if _is_read(rate) else None


def _state_addresses(optimizer: Fused) -> list[int]:
    values = list(chain.from_iterable(map(dict.values, optimizer.state.values())))
    try:
        return list(map(Tensor.data_ptr, values))
    except TypeError:  # some are numbers
        return [value.data_ptr() if isinstance(value, Tensor) else 0 for value in values]
