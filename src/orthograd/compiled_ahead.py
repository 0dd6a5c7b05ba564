"""How kernels are launched, and how all that some work needs are compiled at once before it: one by one takes long."""

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
    """``kernel[grid](*arguments, **options)``; inside `compiled_ahead` the kernel is compiled and not launched."""
    if getattr(_OWN, "is_ahead", False):
        kernel.warmup(*arguments, grid=grid, **options)
        return None
    return kernel[grid](*arguments, **options)


@contextmanager
def compiled_ahead() -> Iterator[None]:
    """Have the kernels compiled that this thread would launch in the block, side by side; its results are void."""
    import triton

    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    # A backward pass would launch from a thread of its own.
    with (
        ThreadPoolExecutor(threads) as pool,
        triton.AsyncCompileMode(pool),
        torch.autograd.set_multithreading_enabled(False),
    ):
        _OWN.is_ahead = True
        try:
            yield
        finally:
            _OWN.is_ahead = False
