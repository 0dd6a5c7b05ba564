"""Tables: the paper's numbers beside ours, what one method changes against another, and single runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...calibration import CONVENTIONS
from ...lab.comparison.formats import TITLES
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.records import Record
from ...statistics import Comparison
from ...statistics.samples import Moments
from ..evidence import title_of, value_of
from ..verdicts.claims import Part, Row, number_of
from ..verdicts.numbers import Answer, printed_effect
from .blocks import Table, table

SHOWN = ("top1_accuracy", "loss", "ece", "entropy", "max_logit")


def shown(images: str) -> list[str]:
    """The quantities by which methods are compared."""
    return [f"{images}.{metric}" for metric in SHOWN]


def mean_text(moments: Moments, digits: int) -> str:
    """x̄ ± s, over seeds."""
    return f"{moments.mean:.{digits}f} ± {moments.sd:.{digits}f}"


def difference_text(row: Comparison, digits: int) -> str:
    """The paired difference and its interval."""
    low, high = row.interval
    return typeset(f"{row.difference:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})")


def p_texts(row: Comparison) -> list[str]:
    """p of the paired t-test, as it is and corrected."""
    return [typeset(f"{row.p:.2g}"), typeset(f"{row.corrected_p:.2g}")]


def means_table(answer: Answer) -> Table:
    """Every mean that the paper prints: theirs, ours, where theirs should lie, and the verdict."""
    seeds = answer.section.seeds
    expected = f"expected of {seeds} seeds" if seeds > 1 else "expected of one seed"
    header = ("what", "method", "paper", "ours ± SD over seeds", f"{expected}, 95 %", "verdict")
    return table(header, (cells for row in answer.section.rows for cells in _mean_rows(answer, row)))


def _mean_rows(answer: Answer, row: Row) -> Iterator[list[str]]:
    ours = answer.comparisons.get(row.quantity)
    parts: tuple[Part, Part] = ("baseline", "candidate")
    moments = (None, None) if ours is None else (ours.baseline, ours.candidate)
    for part, name, printed, own in zip(parts, answer.names, (row.baseline, row.candidate), moments, strict=True):
        assessed, digits = answer.mean(row, printed), printed.digits + 1
        yield [
            title_of(row.quantity),
            name,
            f"{printed}{_marks(answer, row, part)}",
            "–" if own is None else mean_text(own, digits),
            "–"
            if assessed.expected is None
            else typeset(" to ".join(f"{end:.{digits}f}" for end in assessed.expected)),
            assessed.verdict,
        ]


def differences_table(answer: Answer) -> Table | None:
    """Of every quantity: the paper's statistics, the same of ours, and ours paired and corrected."""
    rows = answer.section.rows
    if not answer.comparisons and all(printed_effect(row, answer.section.seeds) is None for row in rows):
        return None
    header = (
        "what",
        "paper: d (95 %)",
        "paper: p",
        "ours: d (95 %)",
        "ours: p, independent",
        "paired difference (95%)",
        "p, paired",
        "p, Holm",
        "ours says",
        "the paper's effect",
    )
    return table(header, (_difference_row(answer, row) for row in rows))


def _difference_row(answer: Answer, row: Row) -> list[str]:
    effect = answer.effect(row)
    verdict: str = "the paper gives none" if effect is None else effect.verdict
    decided = [oddity for oddity in answer.oddities(row) if not oddity.is_remark]
    if decided:
        verdict += f"; its {' and '.join(oddity.part for oddity in decided)} cannot mean what it says"
    interval = f" ({row.interval[0]} to {row.interval[1]})" if row.interval else ""
    return [
        title_of(row.quantity),
        typeset(f"{row.d}{interval}") + _marks(answer, row, "interval") if row.d else "–",
        typeset(str(row.p)) + _marks(answer, row, "p") if row.p else "–",
        *_ours(answer.comparisons.get(row.quantity), digits=max(row.baseline.digits, 2) + 1),
        verdict,
    ]


def _ours(row: Comparison | None, *, digits: int) -> list[str]:
    if row is None or row.cohens_d.normal is None:
        return ["–"] * 6
    low, high = row.cohens_d.normal
    return [
        typeset(f"{row.cohens_d.value:+.2f} ({low:+.2f} to {high:+.2f})"),
        typeset(f"{row.student_test.p:.2g}"),
        difference_text(row, digits),
        *p_texts(row),
        row.verdict,
    ]


def _marks(answer: Answer, row: Row, part: Part) -> str:
    """The numbers of the notes on a part of a row."""
    return "".join(f" [{number_of(oddity)}]" for oddity in answer.oddities(row) if oddity.part == part)


def effects_table(cases: Mapping[str, Mapping[str, Comparison]], names: tuple[str, str, str]) -> Table:
    """A row for each case and metric: means of two methods, paired difference, p, verdict.

    The names are those of what a case is, and of the two methods.
    """
    case, first, second = names
    header = (case, "metric", first, second, "difference (95 %)", "d", "p, paired", "p, Holm", f"{second} is")
    return table(header, (_effect_row(name, *item) for name, rows in cases.items() for item in rows.items()))


def _effect_row(name: str, quantity: str, row: Comparison) -> list[str]:
    metric = quantity.rpartition(".")[2]
    digits = CONVENTIONS[metric].digits
    return [
        name,
        TITLES[metric],
        mean_text(row.baseline, digits),
        mean_text(row.candidate, digits),
        difference_text(row, digits),
        typeset(f"{row.cohens_d.value:+.2f}"),
        *p_texts(row),
        row.verdict,
    ]


def runs_table(runs: Iterable[tuple[str, Record]]) -> Table:
    """A row for each run, by its name: what it came to, on clean images and on corrupted ones."""
    quantities = [*shown("clean"), *shown("shifted")]
    return table(("run", *map(title_of, quantities)), ([name, *_values(run, quantities)] for name, run in runs))


def _values(run: Record, quantities: Iterable[str]) -> Iterator[str]:
    for quantity in quantities:
        value = value_of(run, quantity)
        yield "–" if value is None else f"{value:.{CONVENTIONS[quantity.rpartition('.')[2]].digits}f}"
