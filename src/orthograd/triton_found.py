"""Whether Triton is here, for all who have kernels in it."""

from __future__ import annotations

from functools import cache

OLDEST = (3, 5)


@cache
def has_triton() -> bool:
    """Whether there is one that the kernels are known to compile with."""
    try:
        import triton
    except ImportError:
        return False
    return tuple(map(int, triton.__version__.split(".")[:2])) >= OLDEST
