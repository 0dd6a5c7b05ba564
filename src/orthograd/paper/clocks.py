"""How long runs took, and what of it was theirs where several ran side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

Record = Mapping[str, Any]
Span = tuple[float, float]


def minutes_of(records: Iterable[Record]) -> float:
    """Minutes in which at least one of these runs was at work, as far as records tell when they ended.

    Where they do not, the sum of the runs' own clocks, which is more where several ran side by side.

    >>> run = {"seconds": {"training": 50.0, "evaluation": 10.0}}
    >>> minutes_of([run, run]), minutes_of([{**run, "ended": 100.0}, {**run, "ended": 130.0}])
    (2.0, 1.5)
    """
    runs = list(records)
    clocks = [float(sum(run["seconds"].values())) for run in runs]
    spans = [span for run in runs if (span := _span(run)) is not None]
    if len(spans) < len(clocks):
        return sum(clocks) / 60
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total / 60


def shares(records: Iterable[Record]) -> list[dict[str, float]]:
    """Seconds of training and of evaluation run by run, every instant divided among the runs then at work.

    Together they are the time in which any run was at work. A run that does not tell when it ended keeps its own clock.

    >>> run = {"seconds": {"training": 50.0, "evaluation": 10.0}}
    >>> shares([{**run, "ended": 60.0}, {**run, "ended": 110.0}])
    [{'training': 50.0, 'evaluation': 5.0}, {'training': 45.0, 'evaluation': 10.0}]
    """
    runs = list(records)
    spans = [span for run in runs if (span := _span(run)) is not None]
    return [_shares(run, spans) for run in runs]


def trained_in_one_go(records: Iterable[Record]) -> list[Record]:
    """Those whose clock tells of all their training, and not of its last part after a checkpoint.

    Records do not say so: taken for resumed is what trained for less than a quarter of the longest of its kind.

    >>> runs = [{"config": {"seed": i}, "seconds": {"training": t}} for i, t in enumerate((80.0, 60.0, 4.0))]
    >>> [run["config"]["seed"] for run in trained_in_one_go(runs)]
    [0, 1]
    """
    runs, longest = list(records), dict[str, float]()
    for run in runs:
        longest[_kind(run)] = max(longest.get(_kind(run), 0.0), run["seconds"]["training"])
    return [run for run in runs if run["seconds"]["training"] >= longest[_kind(run)] / 4]


def _kind(run: Record) -> str:
    return repr({**run["config"], "arm": "", "seed": 0})


def _span(run: Record) -> Span | None:
    """From its beginning to its end, where that is known."""
    return (float(run["ended"]) - float(sum(run["seconds"].values())), float(run["ended"])) if "ended" in run else None


def _shares(run: Record, spans: Sequence[Span]) -> dict[str, float]:
    own = _span(run)
    if own is None:
        return {name: float(seconds) for name, seconds in run["seconds"].items()}
    beside = [span for span in spans if span[0] < own[1] and span[1] > own[0]]
    middle = min(own[0] + float(run["seconds"]["training"]), own[1])
    return {"training": _share((own[0], middle), beside), "evaluation": _share((middle, own[1]), beside)}


def _share(part: Span, spans: Sequence[Span]) -> float:
    begin, end = part
    marks = sorted({begin, end, *(mark for span in spans for mark in span if begin < mark < end)})
    return sum(
        (after - before) / sum(start <= before and after <= stop for start, stop in spans)
        for before, after in pairwise(marks)
    )
