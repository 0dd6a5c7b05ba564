"""`torch.optim.SGD` and `AdamW` with ⊥Grad, with projection and step in one pass over GPU memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from inspect import Parameter, Signature
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..attachment import Attachment, attachment_of
from ..partition import Partition, Where
from .by_name import signature_of, taken_from
from .fused_plans import Corrections, FusedPlans

if TYPE_CHECKING:
    from ..engine.step_plan import Pace

OF_ALL_GROUPS = {"stochastic_rounding", "master_weights"}
"""Settings of an optimizer that its parameter groups cannot change."""


class FusedOptimizer(Optimizer):
    """What `SGD` and `AdamW` share. ``base`` is the class of torch; ``states`` names its tensors per parameter."""

    base: ClassVar[type[Optimizer]]
    made_by: ClassVar[tuple[type[Optimizer]]]
    states: ClassVar[tuple[str, ...]]
    corrections: Corrections | None = None
    """Those of gradients that are measured before the step."""
    _removed: FusedAttachment | None = None

    def __init__(
        self,
        params: Iterable[Any],
        *args: Any,
        stochastic_rounding: bool = False,
        master_weights: bool = False,
        where: Where | None = None,
        **kwargs: Any,
    ) -> None:
        options = taken_from(kwargs)
        for name, value in (("stochastic_rounding", stochastic_rounding), ("master_weights", master_weights)):
            if not isinstance(value, bool):
                raise TypeError(f"expected {name} to be True or False, got {value!r}")
        groups: Any = params if isinstance(params, Tensor) else _listed(params)  # torch refuses a tensor
        self._choose_base(groups, kwargs)
        self.base.__init__(self, groups, *args, **kwargs)
        self._step_supports_amp_scaling = False  # GradScaler then unscales the gradients itself
        self.defaults |= {"stochastic_rounding": stochastic_rounding, "master_weights": master_weights}
        FusedAttachment(self, Partition(options, where))

    def _choose_base(self, groups: list[Any], settings: dict[str, Any]) -> None:
        """Choose the implementation of torch's step, for where ours does not apply."""

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group, as in torch. Raises TypeError for settings that hold for all groups."""
        if given := sorted(OF_ALL_GROUPS.intersection(param_group)):
            raise TypeError(f"expected {', '.join(given)} as an argument of {type(self).__name__}, got it in a group")
        super().add_param_group(param_group)
        for name in OF_ALL_GROUPS:
            self.param_groups[-1].pop(name, None)  # torch copies all defaults into the group

    @torch.compiler.disable  # type: ignore[untyped-decorator, unused-ignore]
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take a ⊥Grad step; a closure computes gradients first, and its loss is returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        handle = attachment_of(self)
        if isinstance(handle, FusedAttachment):
            handle.step_()
        elif self._removed is not None and self._needs_kernel:
            self._removed.step_()
        else:  # after remove()
            self.plain_step()
        return loss

    @property
    def _needs_kernel(self) -> bool:
        return bool(self.defaults["stochastic_rounding"] or self.defaults["master_weights"])

    def plain_step(self) -> None:
        """Take the step of torch."""
        if self._needs_kernel:
            raise ValueError(
                f"stochastic_rounding and master_weights work only where the step of {type(self).__name__} is fused: "
                f"expected float32 or bfloat16 parameters on one CUDA device, Triton, granularity='tensor' with "
                f"project='gradient', and none of amsgrad, maximize, dampening and settings in tensors but lr"
            )
        step: Any = self.base.step
        if getattr(step, "hooked", False):  # torch has wrapped it to call the hooks, which have been called already
            step = step.__wrapped__
        step(self)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state, also one of torch's class. Float32 state of bfloat16 parameters stays in float32."""
        groups = [dict(group) for group in state_dict["param_groups"]]
        for own, given in zip(self.param_groups, groups):  # noqa: B905  # torch refuses another number of them
            self._choose_base(own["params"], given)
        super().load_state_dict({**state_dict, "param_groups": groups})
        numbers = chain.from_iterable(group["params"] for group in state_dict["param_groups"])
        for number, parameter in zip(numbers, _members(self.param_groups), strict=True):
            given = dict(state_dict["state"].get(number, {}))  # torch has cast it to the dtype of the parameter
            has_masters, master = self.defaults["master_weights"], given.get("master_weight")
            # In lower precision, an optimizer that does not update it has carried it along.
            if master is not None and not (has_masters and master.dtype == torch.float32):
                del given["master_weight"], self.state[parameter]["master_weight"]
            if has_masters:
                tensors = ((k, v) for k, v in given.items() if getattr(v, "shape", None) == parameter.shape)
                copies = {name: value.to(parameter.device, torch.float32, copy=True) for name, value in tensors}
                self.state[parameter].update(copies)

    def rule_of(self, group: dict[str, Any]) -> str | None:
        """The name of the kernel's rule for a group; None if it has none."""
        raise NotImplementedError

    def pace_of(self, group: dict[str, Any]) -> Pace:
        """The kernel's arguments for a group, the learning rate first."""
        raise NotImplementedError


class FusedAttachment(Attachment):
    """⊥Grad inside the optimizer's own step: its hooks leave the gradients alone."""

    optimizer: FusedOptimizer

    def __init__(self, optimizer: FusedOptimizer, partition: Partition) -> None:
        super().__init__(optimizer, partition)
        self._plans = FusedPlans()
        self._is_taken = False

    def remove(self) -> None:
        """Detach ⊥Grad. Steps that need the kernel, as with master weights, stay fused."""
        super().remove()
        self._stepping = {}
        self.optimizer._removed = self

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._is_taken = False

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not self._is_taken:
            name = type(optimizer).__name__
            raise RuntimeError(
                f"⊥Grad projected nothing: a step of {name} was taken that did not call step of orthograd.optim. In a "
                f"class with a step of its own call super().step(), or derive it from torch's class and attach ⊥Grad."
            )
        super()._after_step(optimizer, args, kwargs)

    def step_(self) -> None:
        """Take a step between the hooks: in one pass, or by projecting the gradients before torch's step."""
        self._is_taken = True
        self._watch_missing_gradients()
        self._bypass.see_gradients()
        if not self._plans.step_(self.optimizer, self._stepping, self.partition.options.engine):
            self._project_gradients_(self._stepping)
            self.optimizer.plain_step()


class SGD(FusedOptimizer, torch.optim.SGD):
    """`torch.optim.SGD` with ⊥Grad, which projects and steps in one pass over GPU memory.

    It takes the arguments of `torch.optim.SGD`, and the options of `orthograd.attach` as keywords. Checkpoints can be
    exchanged with torch's class. Steps are fused on one CUDA device, for float32 or bfloat16 parameters with
    ``granularity="tensor"``, and leave ``.grad`` as it is. Elsewhere, and with dampening or maximize, it takes the
    steps of `OrthoSGD`, which project ``.grad``. It never waits for the GPU, and CUDA graphs can hold it; a learning
    rate in a tensor may then change.

    Args:
        stochastic_rounding: round bfloat16 weights and their state up or down at random, so that small changes are not
            lost. The same step gives the same bits, in replicas and after a resume too.
        master_weights: keep float32 copies of bfloat16 parameters, with their state in float32. Take the copy, in
            ``state[parameter]["master_weight"]``, for the exact weight. A parameter that you change between steps
            changes its copy, unless through ``.data`` or between the replays of a CUDA graph. A checkpoint holds the
            copies, so load it together with the model's.
        where: as in `orthograd.attach`.

    Raises:
        ValueError: for ``stochastic_rounding`` and ``master_weights`` in a step that is not fused.
        TypeError: for either of them in a parameter group.

    >>> from orthograd.optim import SGD
    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    >>> model(torch.ones(1, 3)).sum().backward()
    >>> optimizer.step()
    """

    base, made_by = torch.optim.SGD, (torch.optim.SGD,)
    states = ("momentum_buffer",)

    def rule_of(self, group: dict[str, Any]) -> str | None:
        """See `FusedOptimizer.rule_of`."""
        if group["dampening"] or group["maximize"] or not _are_numbers(group["weight_decay"]):
            return None
        if not group["momentum"]:
            return "plain"
        return "nesterov" if group["nesterov"] else "momentum"

    def pace_of(self, group: dict[str, Any]) -> Pace:
        """See `FusedOptimizer.pace_of`."""
        return group["lr"], float(group["momentum"]), float(group["weight_decay"])


class AdamW(FusedOptimizer, torch.optim.AdamW):
    """`torch.optim.AdamW` with ⊥Grad, which projects and steps in one pass over GPU memory.

    All else is as in `SGD`; with ``amsgrad`` or ``maximize`` it takes the steps of `OrthoAdamW`.

    >>> from orthograd.optim import AdamW
    >>> optimizer = AdamW(torch.nn.Linear(3, 2).parameters(), lr=1e-3, granularity="row")
    >>> AdamW(torch.nn.Linear(3, 2).parameters()).load_state_dict(
    ...     torch.optim.AdamW(torch.nn.Linear(3, 2).parameters()).state_dict()
    ... )
    """

    base, made_by = torch.optim.AdamW, (torch.optim.AdamW,)
    states = ("exp_avg", "exp_avg_sq")

    def _choose_base(self, groups: list[Any], settings: dict[str, Any]) -> None:
        # The flag also tells torch where to keep step counts. Torch's fused SGD fails where other forms of it do not.
        if settings.get("fused") is None and not settings.get("foreach") and not settings.get("differentiable"):
            settings["fused"] = True if len(groups) and all(map(_is_on_cuda, _members(groups))) else None

    def rule_of(self, group: dict[str, Any]) -> str | None:
        """See `FusedOptimizer.rule_of`."""
        are_numbers = _are_numbers(*group["betas"], group["eps"], group["weight_decay"])
        is_plain = group.get("decoupled_weight_decay", True) and not (group["amsgrad"] or group["maximize"])
        return "adamw" if are_numbers and is_plain else None

    def pace_of(self, group: dict[str, Any]) -> Pace:
        """See `FusedOptimizer.pace_of`."""
        decays = chain.from_iterable((beta, 1 - beta, math.log(beta) if beta else -math.inf) for beta in group["betas"])
        return group["lr"], *map(float, decays), float(group["eps"]), float(group["weight_decay"])


for _class in (SGD, AdamW):
    _more = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default)
        for name, default in (("stochastic_rounding", False), ("master_weights", False), ("where", None))
    ]
    _self, *_given = signature_of(_class.base, *_more).parameters.values()
    _class.__signature__ = Signature(_given)  # type: ignore[union-attr]


def _are_numbers(*values: Any) -> bool:
    """True if none is a tensor, whose value would have to come from the GPU."""
    return not any(isinstance(value, Tensor) for value in values)


def _listed(params: Iterable[Any]) -> list[Any]:
    """What an optimizer's constructor takes, with all iterators as lists."""
    return [
        {**each, "params": each["params"] if isinstance(each["params"], (Tensor, set)) else list(each["params"])}
        if isinstance(each, dict)
        else each
        for each in params
    ]


def _members(groups: list[Any]) -> list[Tensor]:
    """The parameters of groups, or in a list of parameters or of pairs (name, parameter)."""
    several = [each["params"] if isinstance(each, dict) else [each] for each in groups]
    flat = chain.from_iterable([each] if isinstance(each, Tensor) else each for each in several)
    return [each[1] if isinstance(each, tuple) else each for each in flat]


def _is_on_cuda(parameter: Any) -> bool:
    return isinstance(parameter, Tensor) and parameter.is_cuda and parameter.is_floating_point()
