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
    if not all("ended" in run for run in runs):
        return sum(float(sum(run["seconds"].values())) for run in runs) / 60
    spans = [span for run in runs for part in _spans(run).values() for span in part]
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
    spans = [span for run in runs for part in _spans(run).values() for span in part]
    return [_shares(run, spans) for run in runs]


def with_whole_clocks(records: Iterable[Record]) -> list[Record]:
    """Those whose clock tells of all their training, and not of its last part after a checkpoint.

    Runs that tell their stretches tell all. Of older ones those are taken for resumed that trained for less than a
    quarter of the longest of their kind.

    >>> runs = [{"config": {"seed": i}, "seconds": {"training": t}} for i, t in enumerate((80.0, 60.0, 4.0, 5.0))]
    >>> runs[3]["stretches"] = [[0.0, 2.0], [10.0, 13.0]]
    >>> [run["config"]["seed"] for run in with_whole_clocks(runs)]
    [0, 1, 3]
    """
    runs, longest = list(records), dict[str, float]()
    for run in runs:
        longest[_kind(run)] = max(longest.get(_kind(run), 0.0), run["seconds"]["training"])
    return [run for run in runs if "stretches" in run or run["seconds"]["training"] >= longest[_kind(run)] / 4]


def _kind(run: Record) -> str:
    return repr({**run["config"], "arm": "", "seed": 0})


def _spans(run: Record) -> dict[str, list[Span]]:
    """From when to when it trained and was judged, where that is known; older records tell their end alone."""
    if "ended" not in run:
        return {}
    end, seconds = float(run["ended"]), run["seconds"]
    judged = end - float(seconds["evaluation"])
    training = run.get("stretches", [[judged - float(seconds["training"]), judged]])
    return {
        "training": [(float(begin), float(stop)) for begin, stop in training],
        "evaluation": [(float(training[-1][1]), end)],
    }


def _shares(run: Record, spans: Sequence[Span]) -> dict[str, float]:
    own = {name: sum(_share(span, spans) for span in part) for name, part in _spans(run).items()}
    return own or {name: float(seconds) for name, seconds in run["seconds"].items()}


def _share(part: Span, spans: Sequence[Span]) -> float:
    begin, end = part
    beside = [span for span in spans if span[0] < end and span[1] > begin]
    marks = sorted({begin, end, *(mark for span in beside for mark in span if begin < mark < end)})
    return sum(
        (after - before) / sum(start <= before and after <= stop for start, stop in beside)
        for before, after in pairwise(marks)
    )
