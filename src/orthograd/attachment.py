"""Hooks that turn the steps of an existing optimizer into ⊥Grad steps."""

from __future__ import annotations

import copy
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from .engine.compilation import is_capturing
from .engine.gradients import project_gradients_
from .engine.projector import Projector
from .engine.sharded import local
from .options import Options
from .partition import UNKNOWN, Partition, Segments, Where
from .projection import as_real
from .update import Decay, Updates

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Attachment:
    """Handle that `orthograd.attach` returns. ``remove()``, or leaving its ``with`` block, detaches ⊥Grad.

    >>> from orthograd import attach
    >>> optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)
    >>> with attach(optimizer) as handle:
    ...     handle.is_attached
    True
    >>> handle.is_attached
    False
    """

    def __init__(self, optimizer: Optimizer, partition: Partition):
        self.optimizer, self.partition = optimizer, partition
        self._projectors: dict[Options, Projector] = {}
        self._updates: dict[Options, Updates] = {}
        self._decay = Decay(optimizer)
        self._stepping: dict[Options, Segments] = {}
        self._has_stepped = False
        self._check()
        # torch.compile skips the hooks and compiles the base step: its kernels would not be faster than ours.
        before, after = torch.compiler.disable(self._before_step), torch.compiler.disable(self._after_step)
        before.attachment = self
        self._hooks = [
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(after),
            optimizer.register_load_state_dict_pre_hook(self._keep_group_options),
        ]
        # copy.deepcopy and pickle drop hooks, so the optimizer gets its own way to be copied.
        optimizer.__reduce_ex__ = self._reduce  # type: ignore[method-assign, assignment]

    def _check(self) -> None:
        """Raise at attach time for optimizers that ⊥Grad cannot serve."""
        if any(group.get("differentiable") for group in self.optimizer.param_groups):
            raise ValueError(
                "expected an optimizer with differentiable=False, got True: ⊥Grad projects outside of autograd, so "
                "gradients through its steps would be wrong. Write such a step with "
                "orthograd.projection.orthogonal_gradient, which autograd differentiates."
            )
        if all(hasattr(self.optimizer, name) for name in ("first_step", "second_step")):
            raise ValueError(
                f"{type(self.optimizer).__name__} updates weights in first_step and second_step, where ⊥Grad has no "
                f"hook. Use an implementation of SAM whose base_optimizer takes the second step, as most do."
            )
        divided = self.partition.segments(self.optimizer.param_groups)
        for options, segments in divided.items():
            if options.project == "update":
                self._decay.shares(options, segments)
        if not divided and not any(is_lazy(p) for group in self.optimizer.param_groups for p in group["params"]):
            name = type(self.optimizer).__name__
            warnings.warn(f"⊥Grad acts on no parameter of this {name}: nothing will change", stacklevel=4)

    @property
    def is_attached(self) -> bool:
        """True until ``remove()`` is called."""
        return bool(self._hooks)

    def remove(self) -> None:
        """Detach ⊥Grad from the optimizer, whose state stays. Calling it twice is allowed."""
        if self._hooks:
            vars(self.optimizer).pop("__reduce_ex__", None)
        while self._hooks:
            self._hooks.pop().remove()

    def __enter__(self) -> Attachment:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def __repr__(self) -> str:
        state = "attached to" if self.is_attached else "removed from"
        groups = self.optimizer.param_groups
        projected = sum(len(vector) for vectors in self.partition.segments(groups).values() for vector in vectors)
        counts = f"{projected} of {sum(len(group['params']) for group in groups)} parameters"
        return f"<⊥Grad {state} {type(self.optimizer).__name__}: {counts}, {self.partition.options}>"

    def project_gradients_(self) -> None:
        """Project the gradients in ``.grad`` now, as the next step would."""
        self._project_gradients_(self.partition.segments(self.optimizer.param_groups))

    def _project_gradients_(self, divided: dict[Options, Segments]) -> None:
        for options, segments in divided.items():
            if options.project == "gradient":
                project_gradients_(segments, options, self._projector(options))

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        if not self._has_stepped:
            self.partition.forget()  # the model may have been wrapped in FSDP1 after attach
        self._stepping = self.partition.segments(optimizer.param_groups)
        for options, segments in self._stepping.items():
            if options.project == "update":
                shares = self._decay.shares(options, segments)
                self._updates.setdefault(options, Updates()).remember(segments, shares)
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer
        if not callable(closure):
            self._project_gradients_(self._stepping)
            return None
        wrapped = self._projecting(closure)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for options, segments in self._stepping.items():
            if options.project == "update":
                self._updates[options].project_(optimizer, segments, self._projector(options))
        self._has_stepped = True

    def _projecting(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Wrap a closure so that the gradients are projected after each of its calls."""
        # LBFGS calls the closure along a line search and uses every gradient of it.
        is_known = self._has_stepped or is_capturing() or isinstance(self.optimizer, torch.optim.LBFGS)
        sums = None if is_known else _sums(self._stepping)

        def projecting_closure() -> Any:
            if sums is not None and sums != _sums(self._stepping):
                raise ValueError(
                    f"{type(self.optimizer).__name__} calls its closure at perturbed weights, as SAM does, so ⊥Grad "
                    f"would project at the wrong weights. Attach it to the inner optimizer that takes the step, or "
                    f"call orthograd.orthogonalize_ where the gradient is used."
                )
            loss = closure()
            self.project_gradients_()
            return loss

        return projecting_closure

    def _projector(self, options: Options) -> Projector:
        if options not in self._projectors:
            self._projectors[options] = projector_for(options)
        return self._projectors[options]

    def _keep_group_options(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any] | None:
        """Keep the "orthogonal" option of each group when a checkpoint without it is loaded."""
        saved = state_dict["param_groups"]
        if len(saved) != len(optimizer.param_groups):
            return None  # torch raises a clear error
        choices = [{k: v for k, v in group.items() if k == "orthogonal"} for group in optimizer.param_groups]
        return {**state_dict, "param_groups": [{**now, **then} for now, then in zip(choices, saved, strict=True)]}

    def _reduce(self, protocol: int) -> tuple[Any, ...]:
        names = [None if name is UNKNOWN else name for name in self.partition.names(self.optimizer.param_groups)]
        choice = self.partition.options, Shipped(self.partition.where), names
        return _restored, (type(self.optimizer), self.optimizer.__getstate__(), *choice)


class Shipped:
    """Wrapper that pickles a ``where`` predicate, or raises with advice if it cannot be pickled."""

    def __init__(self, where: Where | None):
        self.where = where

    def __deepcopy__(self, memo: dict[int, Any]) -> Shipped:
        return Shipped(copy.deepcopy(self.where, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        try:
            pickle.dumps(self.where)
        except Exception as error:
            raise pickle.PicklingError(
                f"expected a where that can be pickled, got {self.where!r}: define the function at the top of a "
                f"module, or save optimizer.state_dict() instead of the optimizer"
            ) from error
        return Shipped, (self.where,)


def projector_for(options: Options) -> Projector:
    """The projector for these options."""
    return Projector(renormalize=options.renormalize, rows=options.granularity == "row", engine=options.engine)


def attachment_of(optimizer: Optimizer) -> Attachment | None:
    """The handle attached to an optimizer; None if there is none."""
    handles = (getattr(hook, "attachment", None) for hook in optimizer._optimizer_step_pre_hooks.values())
    return next((handle for handle in handles if isinstance(handle, Attachment)), None)


def _restored(
    optimizer_class: type[Optimizer], state: dict[str, Any], options: Options, where: Shipped, names: list[str | None]
) -> Optimizer:
    """A copied or unpickled optimizer, with ⊥Grad attached as before."""
    optimizer = optimizer_class.__new__(optimizer_class)
    optimizer.__setstate__(state)
    if attachment_of(optimizer) is None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        named = [(name, p) for name, p in zip(names, parameters, strict=True) if name is not None]
        Attachment(optimizer, Partition(options, where.where, named))
    return optimizer


def _sums(divided: dict[Options, Segments]) -> list[float]:
    """The sum of each parameter: a cheap test of whether it has changed."""
    parameters: list[Tensor] = [p for segments in divided.values() for segment in segments for p in segment]
    return [float(as_real(local(p.detach())).sum(dtype=torch.float64).nan_to_num()) for p in parameters]
