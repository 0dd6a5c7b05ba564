"""Many runs of one curve: their mean and their range."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Band:
    """At each place the mean over runs, the lowest and the highest of them."""

    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @property
    def extremes(self) -> list[float]:
        """Every value that an axis has to show."""
        return [*self.low, *self.high]


def bands_of(runs: Sequence[Sequence[float]]) -> Band:
    """Of runs that are as long as each other.

    >>> bands_of([[1.0, 2.0], [3.0, 2.5]])
    Band(mean=[2.0, 2.25], low=[1.0, 2.0], high=[3.0, 2.5])
    """
    places = list(zip(*runs, strict=True))
    return Band(
        [sum(place) / len(place) for place in places],
        [min(place) for place in places],
        [max(place) for place in places],
    )


def thinned(length: int, limit: int) -> list[int]:
    """At most about so many of the places 0, 1, …, evenly, with the first and the last.

    >>> thinned(10, 4), thinned(3, 10)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    every = max(1, -(-length // limit))
    return sorted({*range(0, length, every), length - 1})
