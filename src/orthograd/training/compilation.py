"""Forward pass and loss in as few kernels as there may be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from .arms import Arm
from .config import Config
from .objective import loss
from .precision import autocast

Compute = Callable[[nn.Module, Tensor, Tensor, Arm], Tensor]


def forward_and_loss(config: Config, *, is_compiled: bool) -> Compute:
    """The loss of a batch, to be differentiated; compiled where a compiler is at hand."""
    name = config.precision

    def plain(model: nn.Module, images: Tensor, targets: Tensor, arm: Arm) -> Tensor:
        with autocast(name):
            logits = model(images)
        return loss(arm, logits.float(), targets)

    if not is_compiled:
        return plain
    fused = _compiled(name)

    def compiled(model: nn.Module, images: Tensor, targets: Tensor, arm: Arm) -> Tensor:
        try:
            return fused(model, images, targets, arm.smoothing, arm.focus)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            warnings.warn(f"training goes on without compiled kernels, more slowly: {error}", stacklevel=2)
            return plain(model, images, targets, arm)

    return compiled


@lru_cache
def _compiled(name: str) -> Callable[[nn.Module, Tensor, Tensor, float, float], Tensor]:
    """One for each precision: arms with the same loss, and all networks of a kind, share what it compiles."""

    def compute(model: nn.Module, images: Tensor, targets: Tensor, smoothing: float, focus: float) -> Tensor:
        with autocast(name):
            logits = model(images)
        return loss(Arm("", "", smoothing=smoothing, focus=focus), logits.float(), targets)

    return torch.compile(compute, dynamic=False)
