"""The numbers of one table of the paper beside ours, and the statistics of their differences, both ways."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..lab.comparison.page.tables import typeset
from ..lab.comparison.pair import ArmPair
from .blocks import Table, table
from .claims import Printed, Row, Section
from .differences import Difference, differences_of
from .judgement import Judged, Verdict, judged_effect, judged_mean, printed_effect
from .oddities import Oddity, number_of, oddities_of
from .quantities import title_of, values_of

Values = tuple[list[float], list[float]]


@dataclass(frozen=True)
class Answer:
    """A table of the paper, and the pair of arms that answers it; None where runs are missing."""

    section: Section
    pair: ArmPair | None
    names: tuple[str, str]

    def values(self, quantity: str) -> Values:
        """Both arms, seed by seed; empty where any run has no such number."""
        if self.pair is None:
            return [], []
        found = values_of(self.pair.baseline, quantity), values_of(self.pair.candidate, quantity)
        return found if all(found) else ([], [])

    def verdicts(self) -> list[Verdict]:
        """One for each number: the two means, the effect, and what cannot mean what it says."""
        found: list[Verdict] = []
        for row in self.section.rows:
            found += [self._mean(row, printed).verdict for printed in (row.baseline, row.candidate)]
            effect = judged_effect(row, self.section.seeds, *self.values(row.quantity))
            found += [] if effect is None else [effect.verdict]
            found += ["cannot mean what it says" for oddity in self.oddities(row) if not oddity.is_remark]
        return found

    def oddities(self, row: Row) -> list[Oddity]:
        """What is odd about the numbers of a row."""
        return [oddity for oddity in oddities_of(self.section.name) if oddity.quantity == row.quantity]

    def means(self) -> Table:
        """Every mean that the paper prints: theirs, ours, where theirs should lie, and the verdict."""
        seeds = self.section.seeds
        expected = f"expected of {seeds} seeds" if seeds > 1 else "expected of one seed"
        header = ("what", "arm", "paper", "ours ± SD over seeds", f"{expected}, 95 %", "verdict")
        return table(header, (cells for row in self.section.rows for cells in self._mean_rows(row)))

    def _mean_rows(self, row: Row) -> Iterator[list[str]]:
        for printed, name, values in zip(
            (row.baseline, row.candidate), self.names, self.values(row.quantity), strict=True
        ):
            part = "baseline" if printed is row.baseline else "candidate"
            marks = "".join(_mark(oddity) for oddity in self.oddities(row) if oddity.part == part)
            judged = self._mean(row, printed)
            yield [title_of(row.quantity), name, f"{printed}{marks}", _mean(values, printed), *_judged(judged, printed)]

    def _mean(self, row: Row, printed: Printed) -> Judged:
        return judged_mean(printed, row, self.section.seeds, *self.values(row.quantity))

    def differences(self) -> Table | None:
        """Of every quantity: the paper's statistics, the same of ours, and ours by pairs and corrected."""
        found = {} if self.pair is None else differences_of(self.pair, [row.quantity for row in self.section.rows])
        if not found and all(printed_effect(row, self.section.seeds) is None for row in self.section.rows):
            return None
        header = (
            "what",
            "paper: d (95 %)",
            "paper: p",
            "ours: d (95 %)",
            "ours: p, independent",
            "difference by pairs (95 %)",
            "p, paired",
            "p, Holm",
            "ours says",
            "the paper's effect",
        )
        return table(header, (self._difference_row(row, found.get(row.quantity)) for row in self.section.rows))

    def _difference_row(self, row: Row, ours: Difference | None) -> list[str]:
        effect = judged_effect(row, self.section.seeds, *self.values(row.quantity))
        verdict: str = "the paper gives none" if effect is None else effect.verdict
        decided = [oddity for oddity in self.oddities(row) if not oddity.is_remark]
        if decided:
            verdict += f"; its {' and '.join(oddity.part for oddity in decided)} cannot mean what it says"
        return [title_of(row.quantity), self._printed_d(row), self._printed_p(row), *_ours(ours, row), verdict]

    def _printed_d(self, row: Row) -> str:
        marks = "".join(_mark(oddity) for oddity in self.oddities(row) if oddity.part == "interval")
        interval = f" ({row.interval[0]} to {row.interval[1]})" if row.interval else ""
        return typeset(f"{row.d}{interval}") + marks if row.d else "–"

    def _printed_p(self, row: Row) -> str:
        marks = "".join(_mark(oddity) for oddity in self.oddities(row) if oddity.part == "p")
        return typeset(str(row.p)) + marks if row.p else "–"


def _ours(found: Difference | None, row: Row) -> list[str]:
    if found is None:
        return ["–"] * 6
    digits = max(row.baseline.digits, 2) + 1
    low, high = found.interval
    return [
        typeset(f"{found.d:+.2f} ({found.d_interval.low:+.2f} to {found.d_interval.high:+.2f})"),
        typeset(f"{found.independent_p:.2g}"),
        typeset(f"{found.value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"),
        typeset(f"{found.p:.2g}"),
        typeset(f"{found.corrected_p:.2g}"),
        found.verdict,
    ]


def _mark(oddity: Oddity) -> str:
    return f" [{number_of(oddity)}]"


def _mean(values: list[float], printed: Printed) -> str:
    if len(values) < 2:
        return "–"
    mean = sum(values) / len(values)
    sd = (sum((value - mean) ** 2 for value in values) / (len(values) - 1)) ** 0.5
    digits = printed.digits + 1
    return f"{mean:.{digits}f} ± {sd:.{digits}f}"


def _judged(judged: Judged, printed: Printed) -> tuple[str, str]:
    if judged.expected is None:
        return "–", judged.verdict
    digits = printed.digits + 1
    low, high = judged.expected
    return typeset(f"{low:.{digits}f} to {high:.{digits}f}"), judged.verdict
