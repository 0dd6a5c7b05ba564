"""Warnings in the first steps of training, if weights change without a gradient that ⊥Grad has projected."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from ..engine.compilation import is_capturing
from ..engine.sharded import local
from ..partition import Segments
from ..projection import as_real

STEPS = 4
"""Steps in which a parameter is observed. In the first two, a schedule-free wrapper has the weights of the gradient."""
REMEDY = (
    "With a fused backward pass or gradient release, attach ⊥Grad after the trainer has set it up, or instead of "
    "attaching it call orthograd.orthogonalize_(parameter) before the step of each parameter. If step() was replaced, "
    "call handle.project_gradients_() at its start."
)
OTHER_WEIGHTS = (
    "A wrapper such as ScheduleFreeWrapper does that: instead of attaching ⊥Grad, call "
    "orthograd.orthogonalize_(parameters) before each of its steps, or use a class that is schedule-free itself, such "
    "as AdamWScheduleFree. If you change weights there yourself, do it after the step."
)


def sum_of(parameter: Tensor) -> float | None:
    """The sum of a parameter in float64: a cheap test of whether it has changed. None if it has no values to sum."""
    try:
        return float(as_real(local(parameter.detach())).sum(dtype=torch.float64).nan_to_num())
    except (RuntimeError, TypeError):  # meta tensors, and subclasses without sum: a check must not stop training
        return None


@dataclass
class Observed:
    """A parameter in its first steps. ``sums`` are those of its weights, in the backward passes since its last step."""

    parameter: Tensor  # No weakref: torch does not swap tensors that have one.
    hook: RemovableHandle
    sums: list[float | None] = field(default_factory=list)
    last: float | None = None
    changes: int = 0
    steps: int = 0


class Bypass:
    """Warns if weights change otherwise than by steps that ⊥Grad sees, or between a gradient and its step.

    Gradient release and a replaced ``step`` do the first, wrappers that train other weights the second. Hooks on each
    parameter sum it in backward passes. They are removed after its first steps, so that later ones cost nothing.
    """

    def __init__(self, optimizer: Optimizer, parameters: Iterable[Tensor]):
        self._optimizer = weakref.ref(optimizer)
        self._compare_later = torch.compiler.disable(self._compare)
        self._known: dict[int, Tensor] = {}
        self._observed: dict[int, Observed] = {}
        self.has_seen = False
        """True if a step has had a gradient."""
        self.observe(parameters)

    @property
    def is_stopped(self) -> bool:
        """True if it does not look any more."""
        return not self._observed

    def observe(self, parameters: Iterable[Tensor]) -> None:
        """Look at these parameters and at no others."""
        known, self._known = self._known, {id(p): p for p in parameters if p.requires_grad and p.is_leaf}
        for key in known.keys() - self._known.keys():
            self._leave(key)
        for key, p in self._known.items():
            if key not in known:
                self._observed[key] = Observed(p, p.register_post_accumulate_grad_hook(self._compare_later))

    def stop(self) -> None:
        """Remove the hooks."""
        for key in list(self._observed):
            self._leave(key)

    def _leave(self, key: int) -> None:
        if (observed := self._observed.pop(key, None)) is not None:
            observed.hook.remove()

    def see_gradients(self) -> None:
        """Take note that a step sees the gradients in ``.grad``, before it changes weights."""
        if self._observed and is_capturing():
            self.stop()
        for observed in list(self._observed.values()):
            if observed.parameter.grad is not None:
                self.see_gradient(observed.parameter)

    def see_gradient(self, parameter: Tensor) -> None:
        """The same for one parameter."""
        if (observed := self._observed.get(id(parameter))) is None:
            return
        self.has_seen = True
        if _has_moved(observed):
            self._warn(
                f"⊥Grad projects at other weights than those of the gradient: a parameter of shape "
                f"{tuple(parameter.shape)} has changed between its backward pass and this step. {OTHER_WEIGHTS}"
            )
        observed.sums, observed.changes, observed.steps = [], 0, observed.steps + 1
        if observed.steps == STEPS:
            self._leave(id(parameter))

    def _compare(self, parameter: Tensor) -> None:
        observed = self._observed.get(id(parameter))
        if observed is None or is_capturing():
            return
        now = sum_of(parameter)
        observed.changes += bool(observed.sums) and observed.last != now
        observed.last = now
        if now not in observed.sums:
            observed.sums.append(now)
        # One change may be the perturbation of SAM, whose second backward pass comes before its step.
        if observed.changes > 1:
            self._warn_of_bypass(parameter)

    def _warn_of_bypass(self, parameter: Tensor) -> None:
        gc.collect()
        if (optimizer := self._optimizer()) is None:  # thrown away, and another one takes the steps
            self.stop()
            return
        self._warn(
            f"⊥Grad projects nothing for a parameter of shape {tuple(parameter.shape)}: it changes, but no step() of "
            f"this {type(optimizer).__name__} that runs its hooks was called with its gradients. {REMEDY}"
        )

    def _warn(self, message: str) -> None:
        self.stop()
        warnings.warn(message, stacklevel=2)


def _has_moved(observed: Observed) -> bool:
    """True if the weights are those of no backward pass since the last step. SAM steps from those of its first."""
    if not observed.sums:  # gradients that were set by hand: without a backward pass there is nothing to compare
        return False
    now = sum_of(observed.parameter)
    if now is None or now in observed.sums:
        return False
    values = as_real(local(observed.parameter.detach()))
    # Some forms of SAM subtract the perturbation that they have added, and round twice.
    rounding = 4 * torch.finfo(values.dtype).eps * float(torch.linalg.vector_norm(values, dtype=torch.float64))
    return all(each is not None and abs(now - each) > rounding for each in observed.sums)


class MissingGradients:
    """Warns if the first step changes weights that have no gradient in ``.grad``: it takes gradients from elsewhere."""

    def __init__(self, optimizer: Optimizer, segments: Iterable[Segments]):
        self._optimizer_name = type(optimizer).__name__
        parameters = [p for each in segments for vector in each for p in vector if p.grad is None and p.requires_grad]
        self._before = [] if is_capturing() else [(p, sum_of(p)) for p in parameters]

    def has_warned(self) -> bool:
        """Compare with the weights after the step, and warn if some have changed."""
        changed = [p for p, before in self._before if sum_of(p) != before]
        if changed:
            warnings.warn(
                f"⊥Grad projected nothing for {len(changed)} parameters, the first of shape "
                f"{tuple(changed[0].shape)}: this {self._optimizer_name} changed them though they have no gradient in "
                f".grad. It reads gradients elsewhere. Project them there, with "
                f"orthograd.projection.orthogonal_gradient.",
                stacklevel=4,
            )
        return bool(changed)
