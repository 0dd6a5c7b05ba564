"""CUDA graphs, as far as engines have to know of them."""

from __future__ import annotations

import torch


def is_capturing() -> bool:
    """Whether what the current stream is given now becomes part of a graph, and is not done yet."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
