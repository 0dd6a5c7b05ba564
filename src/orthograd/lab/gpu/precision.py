"""How exactly a GPU multiplies: the whole process at once, as PyTorch has it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_HELD: list[str] = []
"""The precisions that blocks of this process have set, the last one in force: PyTorch has one for all threads."""


@contextmanager
def precision(name: str) -> Iterator[None]:
    """float32 exactly, "tf32" as PyTorch is set up (convolutions in TF32, products in float32), or "bf16" by autocast.

    Convolutions take deterministic ways only, so that a run ends in the same bits whatever runs beside it.
    """
    before = _settings()
    _set(name != "float32", False, True, False)
    _HELD.append(name)
    try:
        yield
    finally:
        _HELD.pop()
        _set(*before)


@contextmanager
def ensured(name: str) -> Iterator[None]:
    """The same for one run: concurrent runs share what was set for all of them, a run alone sets its own."""
    if not _HELD:
        with precision(name):
            yield
        return
    if _HELD[-1] != name:
        raise ValueError(f"expected a run in {_HELD[-1]}, to which this process has set its GPU, got one in {name}")
    yield


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
