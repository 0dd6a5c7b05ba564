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
    backend = torch.backends.cudnn
    before = backend.allow_tf32, backend.deterministic, backend.benchmark
    backend.allow_tf32, backend.deterministic, backend.benchmark = name != "float32", True, False
    try:
        yield
    finally:
        backend.allow_tf32, backend.deterministic, backend.benchmark = before


def autocast(name: str) -> torch.autocast:
    """Operations in bfloat16 where that is safe, if that is the precision."""
    # Without its cache, which would outlive a captured graph.
    return torch.autocast("cuda", torch.bfloat16, enabled=name == "bf16", cache_enabled=False)
