"""Triton kernels compiled ahead, streams, and CUDA graph capture."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

_OWN = threading.local()


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> Any:
    """Call ``kernel[grid](*arguments, **options)``; inside `compiled_ahead` compile the kernel without a launch."""
    wanted: list[Any] | None = getattr(_OWN, "wanted", None)
    if wanted is None:
        return kernel[grid](*arguments, **options)
    wanted.append(kernel.warmup(*arguments, grid=grid, **options))
    return None


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Compile in parallel the kernels that this thread would launch in the block. The block computes no results."""
    import triton

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    _OWN.wanted = wanted = list[Any]()
    try:
        # A backward pass would launch from another thread.
        with (
            ThreadPoolExecutor(threads) as pool,
            triton.AsyncCompileMode(pool),
            torch.autograd.set_multithreading_enabled(False),
        ):
            yield
    finally:
        _OWN.wanted = None
    # One after another: Triton's launchers are C modules of one name, and threads that load them at once may get the
    # launcher of another kernel.
    for kernel in {id(kernel): kernel for kernel in wanted}.values():
        _load(kernel)


def _load(kernel: Any) -> None:
    """Load a kernel onto the GPU and build its launcher, which would otherwise happen at the first launch."""
    if hasattr(kernel, "result"):
        kernel = kernel.result()
    if kernel is not None:
        _ = kernel.run


def stream_of(device: torch.device) -> int | None:
    """The address of a CUDA device's current stream; None for other devices."""
    return torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None


def is_capturing() -> bool:
    """True while the current stream captures a CUDA graph."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()
