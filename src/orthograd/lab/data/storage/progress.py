"""What is told of work that takes long."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """What is being done and how far it is, in bytes or other units; news that are told once have no unit."""

    words: str
    done: int = 0
    total: int | None = None
    unit: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Tell nobody."""
