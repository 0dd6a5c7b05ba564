"""Softmax collapse: samples whose loss, or whose gradient with respect to the logits, is exactly zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

COUNTS = ("zero_gradient", "zero_loss")
Count = tuple[Tensor, int]
"""Samples with an exact zero, on their device, and all samples."""


class CollapseCounter:
    """Counts samples between two steps of an optimizer, in the outputs of a module and in losses that it is given.

    In float32 a loss rounds to zero once the correct logit leads by about 17. From about 103 on the sample has no
    gradient at all, and takes no part in training.
    """

    def __init__(self, outputs: nn.Module | None, is_recording: Callable[[], bool]) -> None:
        if outputs is not None and not isinstance(outputs, nn.Module):
            raise TypeError(f"expected outputs to be the module that returns the logits, got {type(outputs).__name__}")
        self._is_recording = is_recording
        self._counts: dict[str, Count] = {}
        self._hook = None if outputs is None else outputs.register_forward_hook(torch.compiler.disable(self._listen))

    def remove(self) -> None:
        """Remove the hook from the module."""
        if self._hook is not None:
            self._hook.remove()

    def take(self) -> dict[str, Count]:
        """The counts since the last call."""
        counts, self._counts = self._counts, {}
        return counts

    def count_losses(self, losses: Tensor) -> None:
        """Count the samples with a loss of exactly zero."""
        if self._is_recording():
            self._add("zero_loss", losses.detach() == 0)

    def _listen(self, module: nn.Module, inputs: Any, output: Any) -> None:
        if self._is_recording() and isinstance(output, Tensor) and output.requires_grad:
            output.register_hook(self._count_gradient)

    def _count_gradient(self, gradient: Tensor) -> None:
        # Logits are (n, classes, …), or one for each sample.
        is_zero = gradient.detach() == 0
        self._add("zero_gradient", is_zero.all(1) if gradient.ndim > 1 else is_zero)

    def _add(self, name: str, is_zero: Tensor) -> None:
        zeros, samples = is_zero.sum(), is_zero.numel()
        if name in self._counts:  # several backward passes before one step
            zeros, samples = zeros + self._counts[name][0].to(zeros.device), samples + self._counts[name][1]
        self._counts[name] = zeros, samples


def shares(counts: list[dict[str, Count]]) -> dict[str, list[float | None]]:
    """The share of samples with an exact zero at each recorded step; None where none was counted.

    >>> shares([{"zero_loss": (torch.tensor(1), 4)}, {}])
    {'zero_gradient': [None, None], 'zero_loss': [0.25, None]}
    """
    return {name: [_share(at.get(name)) for at in counts] for name in COUNTS}


def _share(count: Count | None) -> float | None:
    return None if count is None or not count[1] else int(count[0]) / count[1]
