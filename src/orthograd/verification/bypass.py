"""Warnings in the first steps of training, if weights change without a gradient that ⊥Grad has projected."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor
from torch.optim import Optimizer

from ..engine.compilation import is_capturing
from ..engine.sharded import local
from ..partition import Segments
from ..projection import as_real

REMEDY = (
    "With a fused backward pass or gradient release, attach ⊥Grad after the trainer has set it up, or call "
    "orthograd.orthogonalize_(parameter) before the step of each parameter. If step() was replaced, call "
    "handle.project_gradients_() at its start."
)


def sum_of(parameter: Tensor) -> float | None:
    """The sum of a parameter in float64: a cheap test of whether it has changed. None if it has no values to sum."""
    try:
        return float(as_real(local(parameter.detach())).sum(dtype=torch.float64).nan_to_num())
    except (RuntimeError, TypeError):  # meta tensors, and subclasses without sum: a check must not stop training
        return None


class Bypass:
    """Warns if weights change though the optimizer takes no step that ⊥Grad sees.

    Gradient release and a replaced ``step`` do that. Hooks on the parameters compare their sums after each backward
    pass until the first step with a gradient, and are removed then: later steps cost nothing.
    """

    def __init__(self, optimizer: Optimizer, parameters: Iterable[Tensor]):
        self._optimizer_name = type(optimizer).__name__
        self._sums: dict[int, float | None] = {}
        self._changes: Counter[int] = Counter()
        compare = torch.compiler.disable(self._compare)
        leaves = {id(p): p for p in parameters if p.requires_grad and p.is_leaf}
        self._hooks = [p.register_post_accumulate_grad_hook(compare) for p in leaves.values()]

    @property
    def is_stopped(self) -> bool:
        """True if it does not look any more."""
        return not self._hooks

    def stop(self) -> None:
        """Remove the hooks."""
        while self._hooks:
            self._hooks.pop().remove()

    def _compare(self, parameter: Tensor) -> None:
        if is_capturing() or not self._hooks:
            return
        now, key = sum_of(parameter), id(parameter)
        self._changes[key] += self._sums.get(key, now) != now
        self._sums[key] = now
        # One change may be the perturbation of SAM, whose second backward pass comes before its step.
        if self._changes[key] > 1:
            self.stop()
            warnings.warn(
                f"⊥Grad projects nothing: the weights of this {self._optimizer_name} change, but since attach no "
                f"step() that runs its hooks was called with their gradients. {REMEDY}",
                stacklevel=2,
            )


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
