"""What else the paper's correlation of confidence and accuracy could be of, tried on our runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...lab.comparison.page.tables import typeset
from ...lab.comparison.records import Record, is_number
from ...statistics import Interval
from ..evidence import title_of, value_of
from ..verdicts.claims import Printed, Row
from ..verdicts.numbers import LEVEL, Answer, expected_mean
from .blocks import Block, Words, table

Values = tuple[Sequence[float], Sequence[float]]
Numbers = Sequence[float] | NDArray[np.float64]
TINY = 1e-12
"""What is left of a variance of zero."""
OVER_SEEDS = "seeds, their mean confidence and accuracy"
CORRELATION = "clean.confidence_accuracy_correlation"


def _of_runs(value: Callable[[Record], float | None]) -> Callable[[Sequence[Record]], list[float]]:
    def values(runs: Sequence[Record]) -> list[float]:
        known = [number for run in runs if (number := value(run)) is not None]
        return known if len(known) == len(runs) else []

    return values


def _quantity(name: str) -> Callable[[Sequence[Record]], list[float]]:
    return _of_runs(lambda run: value_of(run, name))


def _fitted_on_test(run: Record) -> float | None:
    fitted = run.get("after_temperature_on_test") or {"metrics": {}}
    correlation = fitted["metrics"].get("confidence_accuracy_correlation")
    return float(correlation) if is_number(correlation) else None


def _by_rank(run: Record) -> float | None:
    """Spearman's, images of a bin being ties: ϱ = cov(rank, right) / √(var rank · p (1 − p)).

    After a temperature, which hardly changes the order of confidences, they fill the bins instead of the last alone.
    """
    bins = _bins(run, "after_temperature")
    if bins is None:
        return None
    share, _, accuracy = bins
    rank, right = np.cumsum(share) - share / 2, float(share @ accuracy)
    variances = float(share @ rank**2 - 0.25) * right * (1 - right)
    return float(share @ (rank * accuracy) - right / 2) / math.sqrt(variances) if variances > TINY else None


def _over_bins(run: Record) -> float | None:
    bins = _bins(run, "clean")
    return None if bins is None else _pearson(bins[1], bins[2])


def _bins(run: Record, images: str) -> tuple[NDArray[np.float64], ...] | None:
    """Share, confidence and accuracy of each bin of a reliability diagram that is not empty."""
    curve = run["reliability"][images]
    if curve is None:
        return None
    full = [i for i, share in enumerate(curve["share"]) if share > 0]
    return tuple(np.array([curve[name][i] for i in full]) for name in ("share", "confidence", "accuracy"))


def _over_seeds(runs: Sequence[Record]) -> list[float]:
    correlation = _pearson(*(_quantity(f"clean.{name}")(runs) for name in ("max_softmax", "top1_accuracy")))
    return [] if correlation is None else [correlation]


def _pearson(first: Numbers, second: Numbers) -> float | None:
    return float(np.corrcoef(first, second)[0, 1]) if min(np.var(first), np.var(second)) > TINY else None


READINGS: dict[str, Callable[[Sequence[Record]], list[float]]] = {
    "images, their confidence and whether they are right (ours)": _quantity(CORRELATION),
    "the same after temperature scaling": _quantity("after_temperature.confidence_accuracy_correlation"),
    "the same, the temperature fitted on the test images": _of_runs(_fitted_on_test),
    "the same on corrupted images of severity 1": _quantity("severity_1.confidence_accuracy_correlation"),
    "images, the rank of their confidence (from ten bins)": _of_runs(_by_rank),
    "ten bins, their confidence and accuracy": _of_runs(_over_bins),
    OVER_SEEDS: _over_seeds,
}


def other_readings(answer: Answer) -> Iterator[Block]:
    """Whether another reading fits both numbers; nothing where ours does, or where runs are missing."""
    outside = [row for row in answer.section.rows if not all(_fits(row, _ours(row, answer), answer))]
    row = next((row for row in outside if row.quantity == CORRELATION), None)
    if answer.pair is None or row is None:
        return
    methods = {name: (of(answer.pair.baseline), of(answer.pair.candidate)) for name, of in READINGS.items()}
    known = {name: both for name, both in methods.items() if all(both)}
    fitting = [name for name, both in known.items() if all(_fits(row, both, answer))]
    quoted = [f"“{name}”" for name in fitting]
    place = "alone among the rows of the table" if len(outside) == 1 else "as do other rows"
    yield Words(
        f"The paper's {title_of(CORRELATION)} correlations, {row.baseline} and {row.candidate}, lie outside our range, "
        f"{place}. What else they could be of, as far as our records tell (mean, and the range expected of the paper's "
        f"seeds): both numbers fit {' and '.join(quoted) or 'nothing that was tried'}."
        + (
            " Over so few seeds a correlation may be nearly anything, so that says little."
            if OVER_SEEDS in fitting
            else ""
        )
    )
    yield table(
        ("correlation over", *answer.names, "fits"), (_row(name, row, both, answer) for name, both in known.items())
    )


def _row(name: str, row: Row, both: Values, answer: Answer) -> list[str]:
    ranges = [
        _expected(values, printed, _seeds(answer), answer.section.seeds) for values, printed in _beside(row, both)
    ]
    cells = (
        typeset(f"{np.mean(values):.4f} ({low:.4f} to {high:.4f})")
        for values, (low, high) in zip(both, ranges, strict=True)
    )
    fits = [method for method, is_inside in zip(answer.names, _fits(row, both, answer), strict=True) if is_inside]
    return [name, *cells, " and ".join(fits) or "neither"]


def _fits(row: Row, both: Values, answer: Answer) -> list[bool]:
    """Whether each of the paper's two means lies where it should; nothing known, nothing outside."""
    return [
        not values or printed.value in _expected(values, printed, _seeds(answer), answer.section.seeds)
        for values, printed in _beside(row, both)
    ]


def _ours(row: Row, answer: Answer) -> Values:
    ours = answer.comparisons.get(row.quantity)
    return ([], []) if ours is None else (ours.baseline_values, ours.candidate_values)


def _seeds(answer: Answer) -> int:
    return 0 if answer.pair is None else len(answer.pair.baseline)


def _beside(row: Row, both: Values) -> list[tuple[Sequence[float], Printed]]:
    return list(zip(both, (row.baseline, row.candidate), strict=True))


def _expected(values: Sequence[float], printed: Printed, ours: int, seeds: int) -> Interval:
    """As means are evaluated; a correlation over all n seeds at once by tanh(atanh r ± z √(1/(n − 3) + 1/(m − 3))).

    Reference: R. A. Fisher, "On the Probable Error of a Coefficient of Correlation", 1921.
    """
    if len(values) > 1:
        return expected_mean(values, seeds, rounding=printed.rounding)
    if min(ours, seeds) < 4:
        return Interval(-1.0, 1.0)
    half = float(stats.norm.isf(LEVEL / 2)) * math.sqrt(1 / (ours - 3) + 1 / (seeds - 3))
    center = math.atanh(values[0])
    return Interval(math.tanh(center - half) - printed.rounding, math.tanh(center + half) + printed.rounding)
