"""Hooks that turn the steps of an existing optimizer into ⊥Grad steps."""

from __future__ import annotations

import copy
import inspect
import pickle
import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from .engine.compilation import is_capturing
from .engine.gradients import project_gradients_
from .engine.projector import Projector
from .options import Options
from .partition import UNKNOWN, Partition, Segments, Where
from .update import Decay, Updates
from .verification.bypass import Bypass, MissingGradients, sum_of
from .verification.copies import Verification, Verifier

Call = tuple[tuple[Any, ...], dict[str, Any]]
ONE_PARAMETER = ("step_param", "step_parameter")
"""Methods that step one parameter during the backward pass, as trainers with a fused backward pass call them."""


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
        self._has_stepped = self._is_stepping = False
        self._missing_gradients: MissingGradients | None = None
        self._one_parameter: dict[int, tuple[Projector, Updates]] = {}
        self._check()
        self._bypass = Bypass(optimizer, self._chosen())
        # torch.compile skips the hooks and compiles the base step: its kernels would not be faster than ours.
        before, after = torch.compiler.disable(self._before_step), torch.compiler.disable(self._after_step)
        before.attachment = self
        self._hooks = [
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(after),
            optimizer.register_load_state_dict_pre_hook(self._keep_group_options),
        ]
        self._replaced = {name: vars(optimizer).get(name) for name in ONE_PARAMETER if hasattr(optimizer, name)}
        self._own = {name: self._stepping_one(getattr(optimizer, name)) for name in self._replaced}
        vars(optimizer).update(self._own)
        # copy.deepcopy and pickle drop hooks, so the optimizer gets its own way to be copied.
        optimizer.__reduce_ex__ = self._reduce  # type: ignore[method-assign, assignment]

    def _check(self) -> None:
        """Raise at attach time for optimizers that ⊥Grad cannot serve."""
        if not hasattr(self.optimizer, "_optimizer_step_pre_hooks"):
            raise TypeError(
                f"{type(self.optimizer).__name__} has no step hooks, as it does not call the constructor of "
                f"torch.optim.Optimizer. Call orthograd.orthogonalize_(parameters) before each of its steps."
            )
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
        divided = self._stepping = self.partition.segments(self.optimizer.param_groups)
        for options, segments in divided.items():
            if options.project == "update":
                self._decay.shares(options, segments)
        if not divided and not any(is_lazy(p) for group in self.optimizer.param_groups for p in group["params"]):
            self._warn_of_nothing(stacklevel=5)

    def _warn_of_nothing(self, stacklevel: int) -> None:
        name = type(self.optimizer).__name__
        warnings.warn(f"⊥Grad acts on no parameter of this {name}: nothing will change", stacklevel=stacklevel)

    @property
    def is_attached(self) -> bool:
        """True until ``remove()`` is called."""
        return bool(self._hooks)

    def remove(self) -> None:
        """Detach ⊥Grad from the optimizer, whose state stays. Calling it twice is allowed."""
        if self._hooks:
            vars(self.optimizer).pop("__reduce_ex__", None)
            self._restore_methods()
        self._bypass.stop()
        while self._hooks:
            self._hooks.pop().remove()

    def _restore_methods(self) -> None:
        attributes = vars(self.optimizer)
        for name, own in self._own.items():
            if attributes.get(name) is own:  # not replaced since
                del attributes[name]
                if self._replaced[name] is not None:
                    attributes[name] = self._replaced[name]

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

    def verify(self) -> Verification:
        """Take three steps on copies of the optimizer and its parameters, and say what ⊥Grad projected.

        The steps have random gradients. With ⊥Grad attached they must end where steps with gradients projected
        beforehand end, so that an optimizer that reads its gradients elsewhere shows. Weights, states and random
        numbers of the original stay as they are. The copies cost the memory of the weights and states while it runs.
        The copies have the step of their class. What a trainer does around it, such as gradient release, does not show
        here: the first steps of training warn of that.

        Returns:
            A row for each parameter, which prints as a table. ``is_complete`` is True if all is as it should be.

        Raises:
            TypeError: if an attribute of the optimizer cannot be copied, or a parameter is sharded.
            ValueError: if a parameter has no values yet, as in a lazy module, or after ``remove()``.
            RuntimeError: if the optimizer cannot take a step on the copies.

        >>> from orthograd import attach
        >>> weight, scale = torch.nn.Parameter(torch.ones(4, 3)), torch.nn.Parameter(torch.ones(1))
        >>> print(attach(torch.optim.SGD([weight, scale], lr=0.1)).verify())  # doctest: +ELLIPSIS
        ⊥Grad projects 1 of 2 parameters (three steps on a copy).
          0  (4, 3)           |cosine| 7... → ...  projected
          1  (1,)             |cosine| 0.0e+00 → 0.0e+00  left alone: no orthogonal direction
        """
        if not self.is_attached:
            raise ValueError(f"⊥Grad was removed from this {type(self.optimizer).__name__}: there is nothing to verify")
        return Verifier(self.optimizer, self.partition, type(self)).verified()

    def _chosen(self) -> list[Tensor]:
        divided = self.partition.segments(self.optimizer.param_groups)
        return [p for segments in divided.values() for segment in segments for p in segment]

    def project_gradients_(self) -> None:
        """Project the gradients in ``.grad`` now, as the next step would."""
        self._bypass.see_gradients()
        self._project_gradients_(self.partition.segments(self.optimizer.param_groups))

    def _project_gradients_(self, divided: dict[Options, Segments]) -> None:
        for options, segments in divided.items():
            if options.project == "gradient":
                project_gradients_(segments, options, self._projector(options))

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        if not self._has_stepped:
            self.partition.forget()  # the model may have been wrapped in FSDP1 after attach
        self._is_stepping, before = True, self._stepping
        self._stepping = self.partition.segments(optimizer.param_groups)
        if before and not self._stepping:  # groups were changed, perhaps by a checkpoint
            self._warn_of_nothing(stacklevel=4)
        if self._stepping is not before:
            self._bypass.observe(self._chosen())
        for options, segments in self._stepping.items():
            if options.project == "update":
                shares = self._decay.shares(options, segments)
                self._updates.setdefault(options, Updates()).remember(segments, shares)
        return self._prepare(args, kwargs)

    def _prepare(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        """Project the gradients of this step, or return its arguments with a closure that does."""
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # args[0] is the optimizer
        if not callable(closure):
            self._watch_missing_gradients()
            self._bypass.see_gradients()
            self._project_gradients_(self._stepping)
            # A closure by another name, which computes new gradients.
            others = {name: self._projecting(value) for name, value in kwargs.items() if callable(value)}
            return (args, {**kwargs, **others}) if others else None
        wrapped = self._projecting(closure)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _watch_missing_gradients(self) -> None:
        if not self._has_stepped:
            self._missing_gradients = MissingGradients(self.optimizer, self._stepping.values())

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for options, segments in self._stepping.items():
            if options.project == "update":
                self._updates[options].project_(optimizer, segments, self._projector(options))
        self._is_stepping = False
        if not self._has_stepped:
            if self._missing_gradients is not None:
                if self._missing_gradients.has_warned():
                    self._bypass.stop()
                self._missing_gradients = None
            self._has_stepped = self._bypass.has_seen or self._bypass.is_stopped or not self._stepping

    def _stepping_one(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a method that steps one parameter so that this parameter is projected."""

        @wraps(original)
        def step_one(*args: Any, **kwargs: Any) -> Any:
            # A step() that calls this method has projected already. It does not run inside a backward pass.
            if self._is_stepping and torch._C._current_graph_task_id() == -1:
                return original(*args, **kwargs)
            # The parameter is the first argument, whatever its name.
            given = args or inspect.signature(original).bind(*args, **kwargs).args
            was_stepping, self._is_stepping = self._is_stepping, True
            self._bypass.see_gradient(given[0])
            try:
                return self._step_one(given[0], lambda: original(*args, **kwargs))
            finally:
                self._is_stepping = was_stepping

        return step_one

    def _step_one(self, parameter: Tensor, step: Callable[[], Any]) -> Any:
        options = self.partition.choice(parameter, self.optimizer.param_groups)
        if options is None:
            return step()
        if options.granularity in ("group", "model"):
            raise ValueError(
                f"expected granularity 'tensor' or 'row', got {options.granularity!r}: it projects several parameters "
                f"as one vector, and {type(self.optimizer).__name__} steps one at a time in the backward pass"
            )
        segments = [[parameter]]
        if id(parameter) not in self._one_parameter:
            self._one_parameter[id(parameter)] = projector_for(options), Updates()
        projector, updates = self._one_parameter[id(parameter)]
        if options.project == "gradient":
            project_gradients_(segments, options, projector)
            return step()
        updates.remember(segments, self._decay.shares(options, segments))
        result = step()
        updates.project_(self.optimizer, segments, projector)
        return result

    def _projecting(self, closure: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a closure so that the gradients are projected after each of its calls."""
        # LBFGS calls the closure along a line search and uses every gradient of it. Schedule-free optimizers call it at
        # the weights that they train.
        is_exempt = isinstance(self.optimizer, torch.optim.LBFGS) or "ScheduleFree" in type(self.optimizer).__name__
        is_known = self._has_stepped or is_capturing() or is_exempt
        sums = None if is_known else _sums(self._stepping)

        @wraps(closure)
        def projecting_closure(*args: Any, **kwargs: Any) -> Any:
            if sums is not None and sums != _sums(self._stepping):
                raise ValueError(
                    f"{type(self.optimizer).__name__} calls its closure at perturbed weights, as SAM does, so ⊥Grad "
                    f"would project at the wrong weights. Attach it to the inner optimizer that takes the step, or "
                    f"call orthograd.orthogonalize_ where the gradient is used."
                )
            loss = closure(*args, **kwargs)
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
        return _restored, (type(self), type(self.optimizer), self.optimizer.__getstate__(), *choice)


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
    """The handle of ⊥Grad on an optimizer, also of one with a class of its own; None if there is none.

    >>> from orthograd import attachment_of
    >>> from orthograd.optim import OrthoSGD
    >>> attachment_of(OrthoSGD(torch.nn.Linear(3, 2).parameters(), lr=0.1)).verify().is_complete
    True
    """
    hooks: dict[int, Any] = getattr(optimizer, "_optimizer_step_pre_hooks", {})  # some classes have none
    handles = (getattr(hook, "attachment", None) for hook in hooks.values())
    return next((handle for handle in handles if isinstance(handle, Attachment)), None)


def _restored(
    attachment_class: type[Attachment],
    optimizer_class: type[Optimizer],
    state: dict[str, Any],
    options: Options,
    where: Shipped,
    names: list[str | None],
) -> Optimizer:
    """A copied or unpickled optimizer, with ⊥Grad attached as before."""
    optimizer = optimizer_class.__new__(optimizer_class)
    optimizer.__setstate__(state)
    if attachment_of(optimizer) is None:
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        named = [(name, p) for name, p in zip(names, parameters, strict=True) if name is not None]
        attachment_class(optimizer, Partition(options, where.where, named))
    return optimizer


def _sums(divided: dict[Options, Segments]) -> list[float | None]:
    return [sum_of(p) for segments in divided.values() for segment in segments for p in segment]
