"""Verdicts on the numbers of the paper's tables: our differences, the rule, and the result of each row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
from scipy import stats

from ...calibration import CONVENTIONS
from ...lab.comparison.pair import MARGINS, MethodPair
from ...statistics import Comparison, Direction, Interval, compare_table, from_effect_size
from ..evidence import values_of
from .claims import Oddity, Printed, Row, Section, oddities_of

Verdict = Literal[
    "reproduced",
    "same direction, different size",
    "no difference in either, different size",
    "not reproduced",
    "cannot mean what it says",
    "still missing",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
LEVEL = 0.05
Methods = tuple[Sequence[float], Sequence[float]]


def differences(methods: Mapping[str, Methods], *, margins: Mapping[str, float] | None = None) -> dict[str, Comparison]:
    """The comparison of every quantity, first − second method, corrected by Holm's rule over all of them.

    ``margins`` are what differences do not matter within, the usual ones if not given.

    >>> rows = differences({"clean.ece": ([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162])})
    >>> rows["clean.ece"].verdict
    'better'
    """
    if not methods:
        return {}
    if margins is None:
        margins = {name: margin for name in methods if (margin := MARGINS.get(_metric(name))) is not None}
    table = compare_table(methods, better={name: _better(name) for name in methods}, margins=margins, alpha=LEVEL)
    return dict(zip(methods, table, strict=True))


def differences_of(pair: MethodPair, quantities: Sequence[str]) -> dict[str, Comparison]:
    """Of those quantities for which every run has a number."""
    methods = {name: (values_of(pair.baseline, name), values_of(pair.candidate, name)) for name in quantities}
    return differences({name: both for name, both in methods.items() if all(both)})


def _metric(quantity: str) -> str:
    name = quantity.rpartition(".")[2]
    return "brier" if name == "brier_mean" else name


def _better(quantity: str) -> Direction | None:
    convention = CONVENTIONS.get(_metric(quantity))
    return None if convention is None else convention.better


@dataclass(frozen=True)
class Assessment:
    """A verdict, and the range in which the paper's number should lie if both of us measure the same thing."""

    verdict: Verdict
    expected: Interval | None = None


def assess_mean(printed: Printed, row: Row, seeds: int, ours: Comparison | None) -> Assessment:
    """One of the two means of a row. Inside the expected range, and the finding agrees or none is claimed: reproduced.

    Outside, but with the same finding about the difference (its sign, or none in either), it is of another size; else
    it is not reproduced.
    """
    if ours is None:
        return Assessment("still missing")
    values = ours.baseline_values if printed is row.baseline else ours.candidate_values
    expected = expected_mean(values, seeds, rounding=printed.rounding)
    is_same = is_same_finding(row, ours)
    if printed.value in expected:
        return Assessment("reproduced" if is_same or not claims_difference(row) else "not reproduced", expected)
    return Assessment(_of_another_size(row, ours) if is_same else "not reproduced", expected)


def expected_mean(values: Sequence[float], seeds: int, *, rounding: float = 0.0) -> Interval:
    """x̄ ± (t_{0.975, n−1} s √(1/n + 1/m) + rounding): where a mean of m more seeds falls in 95 of 100 cases.

    >>> low, high = expected_mean([1.0, 3.0], 2)  # t_{0.975, 1} = 12.706, s = √2
    >>> round(low, 2), round(high, 2)
    (-15.97, 19.97)
    """
    n, mean, sd = len(values), float(np.mean(values)), float(np.std(values, ddof=1))
    half = float(stats.t.isf(LEVEL / 2, n - 1)) * sd * math.sqrt(1 / n + 1 / seeds) + rounding
    # The last digit of a decimal fraction is not exact in binary.
    return Interval(mean - half - 1e-9 * abs(mean), mean + half + 1e-9 * abs(mean))


def claims_difference(row: Row) -> bool:
    """Whether the paper calls the difference significant; one that comes without a p it does not."""
    return row.p is not None and row.p.value <= LEVEL


def is_same_finding(row: Row, ours: Comparison) -> bool:
    """Whether our difference has the sign of the paper's, or neither of us finds one by the paper's own test."""
    return _directions_agree(row, ours) or (not claims_difference(row) and ours.student_test.p > LEVEL)


def _directions_agree(row: Row, ours: Comparison) -> bool:
    return (row.baseline.value - row.candidate.value) * ours.difference > 0


def _of_another_size(row: Row, ours: Comparison) -> Verdict:
    is_same = _directions_agree(row, ours)
    return "same direction, different size" if is_same else "no difference in either, different size"


def assess_effect(row: Row, seeds: int, ours: Comparison | None) -> Assessment | None:
    """Two effect sizes agree if they differ by no more than their 95 % intervals, added in squares, allow.

    None where the paper says nothing of the effect.
    """
    theirs = printed_effect(row, seeds)
    if theirs is None:
        return None
    if ours is None:
        return Assessment("still missing")
    d, own, other = ours.cohens_d.value, ours.cohens_d.normal, from_effect_size(theirs, seeds).normal
    assert own is not None
    rounding = row.d.rounding if row.d else 0.0
    half = math.hypot((own.high - own.low) / 2, (other.high - other.low) / 2) + rounding
    expected = Interval(d - half, d + half)
    if not is_same_finding(row, ours):
        return Assessment("not reproduced", expected)
    return Assessment("reproduced" if theirs in expected else _of_another_size(row, ours), expected)


def printed_effect(row: Row, seeds: int) -> float | None:
    """The paper's d: as printed, or the one that its p stands for; None where it prints neither."""
    if row.d is not None:
        return row.d.value
    if row.p is None:
        return None
    t = float(stats.t.isf(row.p.value / 2, 2 * seeds - 2))
    return math.copysign(t * math.sqrt(2 / seeds), row.baseline.value - row.candidate.value)


@dataclass(frozen=True)
class Answer:
    """A table of the paper, and the pair of methods that answers it; None where runs are missing."""

    section: Section
    pair: MethodPair | None
    names: tuple[str, str]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Of the quantities of the table for which every run has a number."""
        return {} if self.pair is None else differences_of(self.pair, [row.quantity for row in self.section.rows])

    def mean(self, row: Row, printed: Printed) -> Assessment:
        """The verdict on one of the two means of a row."""
        return assess_mean(printed, row, self.section.seeds, self.comparisons.get(row.quantity))

    def effect(self, row: Row) -> Assessment | None:
        """The verdict on the effect of a row; None where the paper says nothing of it."""
        return assess_effect(row, self.section.seeds, self.comparisons.get(row.quantity))

    def oddities(self, row: Row) -> list[Oddity]:
        """What is odd about the numbers of a row."""
        return [oddity for oddity in oddities_of(self.section.name) if oddity.quantity == row.quantity]

    def verdicts(self) -> list[Verdict]:
        """One for each number: the two means, the effect, and what cannot mean what it says."""
        verdicts: list[Verdict] = []
        for row in self.section.rows:
            verdicts += [self.mean(row, printed).verdict for printed in (row.baseline, row.candidate)]
            effect = self.effect(row)
            verdicts += [] if effect is None else [effect.verdict]
            verdicts += ["cannot mean what it says" for oddity in self.oddities(row) if not oddity.is_remark]
        return verdicts
