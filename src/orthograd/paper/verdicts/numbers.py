"""Verdicts on the numbers of the paper's tables, and how many of each the rule gives if the method did nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from ...lab.comparison.pair import MARGINS, MethodPair
from ...statistics import Comparison, compare_table
from ..evidence import convention_of, values_of
from .claims import Oddity, Part, Printed, Row, Section, oddities_of
from .rule import (
    DRAWS,
    LEVEL,
    Claim,
    Estimate,
    Methods,
    Says,
    Values,
    Verdict,
    difference_estimates,
    mean_estimates,
    verdict_on,
    without_effect,
)

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
Of = Literal["claimed", "differences", "means"]
Tally = Mapping[Verdict, tuple[int, float]]
"""For each verdict the count, and the mean count if the method did nothing."""


def differences(methods: Mapping[str, Methods], *, margins: Mapping[str, float] | None = None) -> dict[str, Comparison]:
    """The comparison of every quantity, second − first method, corrected by Holm's rule over all of them.

    ``margins`` are the equivalence margins; the usual ones if not given.

    >>> rows = differences({"clean.ece": ([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162])})
    >>> rows["clean.ece"].verdict
    'better'
    """
    if not methods:
        return {}
    if margins is None:
        margins = {name: margin for name in methods if (margin := MARGINS.get(name.rpartition(".")[2])) is not None}
    better = {name: convention.better for name in methods if (convention := convention_of(name)) is not None}
    table = compare_table(methods, better=better, margins=margins, alpha=LEVEL)
    return dict(zip(methods, table, strict=True))


def differences_of(pair: MethodPair, quantities: Sequence[str]) -> dict[str, Comparison]:
    """`differences` of the quantities for which every run has a number."""
    methods = {name: (values_of(pair.baseline, name), values_of(pair.candidate, name)) for name in quantities}
    return differences({name: both for name, both in methods.items() if all(both)})


def claims_difference(row: Row, seeds: int) -> bool:
    """True if the paper claims a difference: p ≤ 0.05, or two means of one seed that differ."""
    if seeds == 1:
        return row.baseline.value != row.candidate.value
    return row.p is not None and row.p.value <= LEVEL


def claim_of(row: Row, seeds: int) -> Claim:
    """What a row of a table claims of candidate − baseline."""
    size = row.candidate.value - row.baseline.value
    says: Says | None = None
    if claims_difference(row, seeds):
        says = "lower" if (size if row.d is None else row.d.value) < 0 else "higher"
    return Claim(says, size, row.baseline.rounding + row.candidate.rounding, seeds)


@dataclass(frozen=True)
class Answer:
    """A table of the paper, and our two methods; the pair is None without runs."""

    section: Section
    pair: MethodPair | None
    names: tuple[str, str]

    @cached_property
    def comparisons(self) -> dict[str, Comparison]:
        """Comparisons by quantity, for those rows of the table for which every run has a number."""
        return {} if self.pair is None else differences_of(self.pair, [row.quantity for row in self.section.rows])

    def claims(self, row: Row) -> dict[Part, Claim]:
        """What the paper says of the two means of a row and of their difference."""
        seeds = self.section.seeds
        means: dict[Part, Printed] = {"baseline": row.baseline, "candidate": row.candidate}
        return {
            "difference": claim_of(row, seeds),
            **{part: Claim(None, each.value, each.rounding, seeds) for part, each in means.items()},
        }

    def estimate(self, row: Row, part: Part) -> Estimate | None:
        """Our value of a part of a row; None without runs."""
        ours = self.comparisons.get(row.quantity)
        if ours is None:
            return None
        return _estimates(part, np.array([ours.baseline_values]), np.array([ours.candidate_values]))[0]

    def verdict(self, row: Row, part: Part) -> Verdict | None:
        """The verdict on a part of a row; None without runs."""
        ours = self.estimate(row, part)
        return None if ours is None else verdict_on(self.claims(row)[part], ours)

    def oddities(self, row: Row) -> list[Oddity]:
        """Remarks on odd numbers of a row."""
        return [oddity for oddity in oddities_of(self.section.name) if oddity.quantity == row.quantity]

    def tally(self, of: Of) -> Tally:
        """How many differences, or means, have which verdict; "claimed" are the differences that the paper claims.

        A printed interval or p that contradicts others counts among the differences.
        """
        counts, expected = Counter[Verdict](), Counter[Verdict]()
        parts: tuple[Part, ...] = ("baseline", "candidate") if of == "means" else ("difference",)
        for row in self.section.rows:
            if of == "claimed" and not claims_difference(row, self.section.seeds):
                continue
            odd = [oddity for oddity in self.oddities(row) if of == "differences" and not oddity.is_remark]
            counts["contradicted by its own numbers"] += len(odd)
            expected["contradicted by its own numbers"] += len(odd) * DRAWS
            for part in parts:
                counts.update(verdict for verdict in [self.verdict(row, part)] if verdict is not None)
                expected.update(self._drawn(row, part))
        return {verdict: (counts[verdict], expected[verdict] / DRAWS) for verdict in VERDICTS}

    def _drawn(self, row: Row, part: Part) -> Iterator[Verdict]:
        """The verdicts in data sets without an effect."""
        ours = self.comparisons.get(row.quantity)
        if ours is not None:
            drawn = without_effect((ours.baseline_values, ours.candidate_values))
            claim = self.claims(row)[part]
            yield from (verdict_on(claim, each) for each in _estimates(part, *drawn))


def _estimates(part: Part, baseline: Values, candidate: Values) -> list[Estimate]:
    if part == "difference":
        return difference_estimates(baseline, candidate)
    return mean_estimates(baseline if part == "baseline" else candidate)


def total(tallies: Iterable[Tally]) -> Tally:
    """The sum of several tallies."""
    known = list(tallies)
    return {
        verdict: (sum(each[verdict][0] for each in known), sum(each[verdict][1] for each in known))
        for verdict in VERDICTS
    }
