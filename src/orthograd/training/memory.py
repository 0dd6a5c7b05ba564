"""When a GPU is full."""

from __future__ import annotations

import torch


def is_full(error: RuntimeError) -> bool:
    """Whether there was no memory left: CUDA and its libraries say so in other words than PyTorch.

    >>> is_full(RuntimeError("CUDNN_STATUS_ALLOC_FAILED")), is_full(RuntimeError("expected 3 channels"))
    (True, False)
    """
    words = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError) or "out of memory" in words or "alloc_failed" in words
