"""Tables: the paper's numbers beside ours, differences between methods, and single runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ...calibration import CONVENTIONS
from ...lab.comparison.formats import metric_title
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.records import Record
from ...statistics import Comparison
from ...statistics.samples import Moments
from ...statistics.table import ARROWS
from ..evidence import title_of, value_of
from ..verdicts.claims import Part, Row, number_of
from ..verdicts.numbers import VERDICTS, Answer, Tally
from .blocks import Table, table

SHOWN = ("top1_accuracy", "loss", "ece", "entropy", "max_logit")
NONE = "no runs"


def shown(images: str) -> list[str]:
    """The quantities by which methods are compared."""
    return [f"{images}.{metric}" for metric in SHOWN]


def arrowed(quantity: str) -> str:
    """The name of a quantity, with an arrow in its good direction.

    >>> arrowed("clean.ece"), arrowed("severity_3.top1_accuracy"), arrowed("clean.entropy")
    ('ECE ↓', 'accuracy, %, severity 3 ↑', 'entropy')
    """
    metric = quantity.rpartition(".")[2].removesuffix("_mean")
    return title_of(quantity) + (ARROWS[CONVENTIONS[metric].better] if metric in CONVENTIONS else "")


def mean_text(moments: Moments, digits: int) -> str:
    """x̄ ± s over seeds."""
    return f"{moments.mean:.{digits}f} ± {moments.sd:.{digits}f}"


def difference_text(row: Comparison, digits: int) -> str:
    """The paired difference and its interval."""
    low, high = row.interval
    return f"{signed(row.difference, digits)} ({signed(low, digits)} to {signed(high, digits)})"


def signed(value: float, digits: int) -> str:
    """A number with its sign; zero has none.

    >>> signed(-0.0123, 2), signed(-0.0003, 3)
    ('−0.01', '0.000')
    """
    text = f"{value:+.{digits}f}"
    return typeset(text) if float(text) else text[1:]


def p_texts(row: Comparison) -> list[str]:
    """p of the paired t-test, as it is and corrected."""
    return [typeset(f"{row.p:.2g}"), typeset(f"{row.corrected_p:.2g}")]


def tally_cells(tally: Tally) -> list[str]:
    """For each verdict its count, and in parentheses the mean count if the method did nothing."""
    return [f"{tally[verdict][0]} ({tally[verdict][1]:.1f})" for verdict in VERDICTS]


def means_table(answer: Answer) -> Table:
    """Every mean that the paper prints: theirs, ours, the range for theirs, and the verdict."""
    seeds = answer.section.seeds
    header = ("metric", "method", "paper", "ours ± SD", f"95% range, {seeds} seed{'s' * (seeds > 1)}", "verdict")
    return table(header, (cells for row in answer.section.rows for cells in _mean_rows(answer, row)))


def _mean_rows(answer: Answer, row: Row) -> Iterator[list[str]]:
    ours = answer.comparisons.get(row.quantity)
    parts: tuple[Part, Part] = ("baseline", "candidate")
    moments = (None, None) if ours is None else (ours.baseline, ours.candidate)
    for part, name, printed, own in zip(parts, answer.names, (row.baseline, row.candidate), moments, strict=True):
        digits, estimate = printed.digits + 1, answer.estimate(row, part)
        cells = [arrowed(row.quantity), name, f"{printed}{_marks(answer, row, part)}"]
        if own is None or estimate is None:
            yield [*cells, "–", "–", NONE]
        else:
            low, high = estimate.expected(answer.section.seeds, printed.rounding)
            expected = typeset(f"{low:.{digits}f} to {high:.{digits}f}")
            yield [*cells, mean_text(own, digits), expected, answer.verdict(row, part) or NONE]


def differences_table(answer: Answer) -> Table:
    """Every difference: the paper's, ours, and the verdict on the paper's."""
    header = ("metric", "paper", "ours (95%)", f"{answer.names[1]} is", "the paper's claim")
    return table(header, (_difference_row(answer, row) for row in answer.section.rows))


def _difference_row(answer: Answer, row: Row) -> list[str]:
    digits, ours = max(row.baseline.digits, row.candidate.digits), answer.comparisons.get(row.quantity)
    return [
        arrowed(row.quantity),
        signed(row.candidate.value - row.baseline.value, digits),
        "–" if ours is None else difference_text(ours, max(digits, 2) + 1),
        NONE if ours is None else ours.verdict,
        answer.verdict(row, "difference") or NONE,
    ]


def statistics_table(answer: Answer) -> Table:
    """Effect sizes and p of every difference, the paper's where it prints them and ours."""
    is_printed = any(row.d or row.p for row in answer.section.rows)
    header = (
        "metric",
        *(("paper: d (95%)", "paper: p") if is_printed else ()),
        "ours: d (95%)",
        "p",
        "p, Holm",
    )
    return table(header, (_statistics_row(answer, row, is_printed) for row in answer.section.rows))


def _statistics_row(answer: Answer, row: Row, is_printed: bool) -> list[str]:
    cells = [arrowed(row.quantity)]
    if is_printed:
        interval = f" ({row.interval[0]} to {row.interval[1]})" if row.interval else ""
        cells.append(typeset(f"{row.d}{interval}") + _marks(answer, row, "interval") if row.d else "–")
        cells.append(typeset(str(row.p)) + _marks(answer, row, "p") if row.p else "–")
    ours = answer.comparisons.get(row.quantity)
    if ours is None or ours.cohens_d.normal is None:
        return [*cells, "–", "–", "–"]
    low, high = ours.cohens_d.normal
    return [*cells, f"{signed(ours.cohens_d.value, 2)} ({signed(low, 2)} to {signed(high, 2)})", *p_texts(ours)]


def _marks(answer: Answer, row: Row, part: Part) -> str:
    """The numbers of the notes on a part of a row."""
    return "".join(f" [{number_of(oddity)}]" for oddity in answer.oddities(row) if oddity.part == part)


def effects_table(cases: Mapping[str, Mapping[str, Comparison]], names: tuple[str, str, str]) -> Table:
    """A row for each case and metric: means of two methods, paired difference, p, verdict.

    ``names`` are the title of the first column, or "" for none, and the two methods.
    """
    case, first, second = names
    header = ("metric", first, second, f"{second} − {first} (95%)", "d", "p", "p, Holm", f"{second} is")
    if not case:
        return table(header, (_effect_row(*item) for rows in cases.values() for item in rows.items()))
    rows = ([name, *_effect_row(*item)] for name, rows in cases.items() for item in rows.items())
    return table((case, *header), rows)


def _effect_row(quantity: str, row: Comparison) -> list[str]:
    metric = quantity.rpartition(".")[2]
    digits = CONVENTIONS[metric].digits
    return [
        metric_title(metric),
        mean_text(row.baseline, digits),
        mean_text(row.candidate, digits),
        difference_text(row, digits),
        signed(row.cohens_d.value, 2),
        *p_texts(row),
        row.verdict,
    ]


def runs_table(runs: Iterable[tuple[str, Record]]) -> Table:
    """A row for each run, by its name: its metrics on clean and on corrupted images."""
    quantities = [*shown("clean"), *shown("shifted")]
    return table(("run", *map(title_of, quantities)), ([name, *_values(run, quantities)] for name, run in runs))


def _values(run: Record, quantities: Iterable[str]) -> Iterator[str]:
    for quantity in quantities:
        value = value_of(run, quantity)
        yield "–" if value is None else f"{value:.{CONVENTIONS[quantity.rpartition('.')[2]].digits}f}"
