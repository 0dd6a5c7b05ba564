"""Every demonstration, and the record of what was found."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from typing import Any

import torch

from .boundary import boundary
from .convergence import convergence
from .length import length
from .renormalization import renormalization
from .statement import Demonstration
from .wandering import wandering

DEMONSTRATIONS: dict[str, Callable[[], Demonstration]] = {
    "convergence": convergence,
    "wandering": wandering,
    "length": length,
    "renormalization": renormalization,
    "boundary": boundary,
}


def demonstrated(only: str | None = None) -> Iterable[Demonstration]:
    """Run one demonstration, or all, one after the other, in float64 on the CPU."""
    if only is not None and only not in DEMONSTRATIONS:
        raise ValueError(f"expected one of {', '.join(DEMONSTRATIONS)}, got {only!r}")
    for name, demonstration in DEMONSTRATIONS.items():
        if only in (None, name):
            yield demonstration()


def as_record(demonstrations: Iterable[Demonstration], version: str) -> dict[str, Any]:
    """All that was found, as plain data with what it was found with."""
    facts: dict[str, Any] = {"orthograd": version, "torch": torch.__version__, "python": platform.python_version()}
    facts |= {"device": f"{platform.machine()} CPU", "threads": torch.get_num_threads(), "dtype": "float64"}
    return {"environment": facts, "demonstrations": [found.as_record() for found in demonstrations]}
