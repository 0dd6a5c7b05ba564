"""The way to a Ray cluster: an existing one by its address, else one of this machine alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

OBJECT_STORE = 200 << 20  # bytes; only results pass through it, and what does not fit goes to the disk


def imported_ray() -> Any:
    """The module ray, or what to do about its absence."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("expected Ray to be installed: pip install '.[ray]'") from error
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The module ray, connected: as the caller has done it already, else to the address or to RAY_ADDRESS."""
    ray = imported_ray()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    alone = {"include_dashboard": False, "object_store_memory": OBJECT_STORE} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, logging_level="error", **alone)
    try:
        yield ray
    finally:
        ray.shutdown()
