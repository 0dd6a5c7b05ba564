"""How exactly a GPU multiplies: the whole process at once, as PyTorch has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def precision(name: str) -> Iterator[None]:
    """float32 exactly, "tf32" as PyTorch is set up (convolutions in TF32, products in float32), or "bf16" by autocast.

    Convolutions take deterministic ways only, so that a run ends in the same bits whatever runs beside it.
    """
    before = _settings()
    _set(name != "float32", False, True, False)
    try:
        yield
    finally:
        _set(*before)


def require(name: str) -> None:
    """Refuse to go on where the GPU does not multiply as said, or not the same way each time."""
    if _settings() != (name != "float32", False, True, False):
        raise ValueError(f'expected the GPU set up by `precision("{name}")`, as `PackedGPU` does it, got it otherwise')


def _settings() -> tuple[bool, bool, bool, bool]:
    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    return convolutions.allow_tf32, products.allow_tf32, convolutions.deterministic, convolutions.benchmark


def _set(convolutions: bool, products: bool, is_deterministic: bool, tries: bool) -> None:
    torch.backends.cudnn.allow_tf32 = convolutions
    if torch.backends.cuda.matmul.allow_tf32 != products:  # only where the environment has it so, as in some containers
        torch.backends.cuda.matmul.allow_tf32 = products
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = is_deterministic, tries


def autocast(name: str) -> torch.autocast:
    """Operations in bfloat16 where that is safe, if that is the precision."""
    # Without its cache, which would outlive a captured graph.
    return torch.autocast("cuda", torch.bfloat16, enabled=name == "bf16", cache_enabled=False)
