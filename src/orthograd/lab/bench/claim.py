"""A measured number beside the bound it has to keep and what others reach in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """``value`` is ours, ``reach`` the bound it must not pass, if there is one, ``others`` our peers', or extremes."""

    what: str
    value: float
    reach: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)

    @property
    def holds(self) -> bool:
        """Whether the bound is kept; NaN keeps none."""
        return self.reach is None or self.value <= self.reach

    def as_row(self) -> Row:
        """The claim as plain data, for a record."""
        return {**asdict(self), "holds": self.holds}


def interleaved(contenders: Mapping[str, Callable[[], object]], *, rounds: int, settle: Callable[[], None]) -> Row:
    """Median seconds of each contender. All take turns, so that a noisy machine is noisy for all of them."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            settle()
            start = time.perf_counter()
            run()
            settle()
            seconds[name].append(time.perf_counter() - start)
    return {name: median(values) for name, values in seconds.items()}


def ratios(seconds: Row, baseline: str) -> Row:
    """Each contender's time over the baseline's."""
    return {name: value / seconds[baseline] for name, value in seconds.items() if name != baseline}
