"""Forward pass and loss in as few kernels as there may be."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor, nn

from ..training.config import Config
from ..training.methods import Method
from ..training.steps import loss

Network = Callable[[Tensor], Tensor]
Compute = Callable[[Network, Tensor, Tensor, Method], Tensor]
Forward = Callable[[nn.Module, Tensor], Tensor]

FORMS = 256


def autocast(precision: str) -> torch.autocast:
    """Operations in bfloat16 where that is safe, if that is the precision."""
    # Without its cache, which would outlive a captured graph.
    return torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16", cache_enabled=False)


def forward_and_loss(config: Config, *, is_compiled: bool) -> Compute:
    """The loss of a batch, to be differentiated; compiled where a compiler is at hand."""
    name = config.precision

    def plain(model: Network, images: Tensor, targets: Tensor, method: Method) -> Tensor:
        with autocast(name):
            logits = model(images)
        return loss(method, logits.float(), targets)

    if not is_compiled:
        return plain
    fused = _compiled_loss(name)

    def compiled(model: Network, images: Tensor, targets: Tensor, method: Method) -> Tensor:
        return fused(model, images, targets, method.smoothing, method.focus)

    return _or_plain(compiled, plain)


def forward(config: Config, *, is_compiled: bool) -> Forward:
    """The logits of a batch in float32; compiled where a compiler is at hand."""
    plain = _forward(config.precision)
    return _or_plain(_compiled_forward(config.precision), plain) if is_compiled else plain


def _or_plain(compiled: Callable[..., Tensor], plain: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def compute(*arguments: object) -> Tensor:
        try:
            return compiled(*arguments)
        except _not_compiled() as error:
            warnings.warn(f"going on without compiled kernels, more slowly: {error}", stacklevel=2)
            return plain(*arguments)

    return compute


def _not_compiled() -> tuple[type[Exception], ...]:
    """What PyTorch raises without a compiler, without Triton, or on a GPU too old for it."""
    known = torch._dynamo.exc
    return known.BackendCompilerFailed, getattr(known, "ShortenTraceback", known.BackendCompilerFailed)


@lru_cache  # of the process, as what torch.compile keeps is: it compiles a function anew when that is made anew
def _compiled_loss(name: str) -> Callable[[Network, Tensor, Tensor, float, float], Tensor]:
    """One for each precision: methods with the same loss, and all networks of a kind, share what it compiles."""

    def compute(model: Network, images: Tensor, targets: Tensor, smoothing: float, focus: float) -> Tensor:
        with autocast(name):
            logits = model(images)
        return loss(Method("", "", smoothing=smoothing, focus=focus), logits.float(), targets)

    return _compiled(compute)


def _compiled(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    fused = torch.compile(function, dynamic=False)

    def compute(*arguments: object) -> Tensor:
        _allow_many_forms()
        result: Tensor = fused(*arguments)
        return result

    return compute


def _allow_many_forms() -> None:
    """For many networks, precisions and losses: to dynamo all are one function, whose ninth form it leaves as it is.

    That one would train more slowly, and end in other bits than alone in a process. Since PyTorch 2.12 each thread has
    a limit of its own.
    """
    limits = torch._dynamo.config
    name = "recompile_limit" if hasattr(limits, "recompile_limit") else "cache_size_limit"  # its name before 2.6
    if getattr(limits, name) < FORMS:
        setattr(limits, name, FORMS)


def _forward(name: str) -> Forward:
    def compute(model: nn.Module, images: Tensor) -> Tensor:
        with autocast(name):
            logits: Tensor = model(images)
        return logits.float()

    return compute


@lru_cache  # of the process, like `_compiled_loss`
def _compiled_forward(name: str) -> Forward:
    return _compiled(_forward(name))
