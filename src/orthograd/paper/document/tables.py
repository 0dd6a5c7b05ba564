"""Tables: the primary table of a comparison, and the paper's numbers beside ours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...lab.comparison.formats import TITLES, caption
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MethodPair
from ...statistics import Comparison
from ...statistics.samples import Moments
from ...statistics.table import ARROWS
from ..evidence import DERIVED, convention_of, title_of
from ..formats import difference_text, interval_text, p_text, signed
from ..verdicts.claims import Part, Row, number_of
from ..verdicts.numbers import VERDICTS, Answer, Tally
from ..verdicts.primary import FAMILY, QUANTITIES, primary
from .blocks import Table, Words, table

NONE, NOT_MEASURED = "no runs", "not measured"
IMAGES = {
    "clean": "clean",
    "shifted": "corrupted",
    "after_temperature": "clean, scaled",
    "shifted_after_temperature": "corrupted, scaled",
}
"""The images in the primary table; scaled: after temperature scaling."""
MISSING = {
    "shifted": "corrupted images",
    "after_temperature": "clean images after temperature scaling",
    "shifted_after_temperature": "corrupted images after temperature scaling",
}


def arrowed(quantity: str) -> str:
    """The name of a quantity, with an arrow in its good direction.

    >>> arrowed("clean.ece"), arrowed("severity_3.top1_accuracy"), arrowed("clean.entropy")
    ('ECE ↓', 'accuracy, %, severity 3 ↑', 'entropy')
    """
    return title_of(quantity) + _arrow(quantity)


def _arrow(quantity: str) -> str:
    convention = convention_of(quantity)
    return "" if convention is None else ARROWS[convention.better]


def mean_text(moments: Moments, digits: int) -> str:
    """x̄ ± s over seeds."""
    return f"{moments.mean:.{digits}f} ± {moments.sd:.{digits}f}"


def tally_cells(tally: Tally) -> list[str]:
    """For each verdict its count, and in parentheses the mean count if the method did nothing."""
    return [f"{tally[verdict][0]} ({tally[verdict][1]:.1f})" for verdict in VERDICTS]


def primary_blocks(
    pairs: Mapping[str, MethodPair], names: tuple[str, str], *, is_shared: bool = False
) -> Iterator[Words | Table]:
    """The caption and the primary table of these pairs; ``is_shared`` if all have the same first method."""
    cases = {f"{title}, {len(pair.seeds)} seeds": primary(pair) for title, pair in pairs.items()}
    words, known = caption(*names), {name.partition(".")[0] for rows in cases.values() for name in rows}
    if len(cases) > 1:
        words += " Each cell: difference (95%), p after Holm's correction, and the verdict unless it is inconclusive."
    if missing := [title for images, title in MISSING.items() if images not in known]:
        words += f" Not measured: {', '.join(missing)}."
    yield Words(words)
    yield primary_table(cases, names, is_shared=is_shared)


def primary_table(
    cases: Mapping[str, Mapping[str, Comparison]], names: tuple[str, str], *, is_shared: bool = False
) -> Table:
    """A row for each quantity of the primary comparison that a case has.

    ``cases`` are the rows of `orthograd.paper.verdicts.primary.primary` by title, ``names`` the two methods. A single
    case has a column for each number. Of several cases each has one column, beside the mean of a shared first method.
    """
    shown = [name for name in QUANTITIES if any(name in rows for rows in cases.values())]
    first, second = names
    if len(cases) == 1:
        (rows,) = cases.values()
        header = ("images", "metric", first, second, f"{second} − {first} (95%)", "p, Holm", f"{second} is")
        return table(header, ([*_named(name), *_cells(name, rows[name])] for name in shown))
    cells = ([*_named(name), *([_first(name, cases)] if is_shared else []), *_columns(name, cases)] for name in shown)
    return table(("images", "metric", *([first] if is_shared else []), *cases), cells)


def _first(quantity: str, cases: Mapping[str, Mapping[str, Comparison]]) -> str:
    """The mean of the first method, over the seeds of the case with the most."""
    moments = max((rows[quantity].baseline for rows in cases.values() if quantity in rows), key=lambda each: each.n)
    return mean_text(moments, _digits(quantity))


def _named(quantity: str) -> list[str]:
    images, _, metric = quantity.partition(".")
    return [IMAGES[images], (DERIVED[metric][1] if metric in DERIVED else TITLES[metric]) + _arrow(quantity)]


def _digits(quantity: str) -> int:
    convention = convention_of(quantity)
    return 2 if quantity.endswith(".confidence") else 4 if convention is None else convention.digits


def _cells(quantity: str, row: Comparison) -> list[str]:
    digits = _digits(quantity)
    tested = [p_text(row.corrected_p), row.verdict if quantity in FAMILY else "–"]
    return [mean_text(row.baseline, digits), mean_text(row.candidate, digits), difference_text(row, digits), *tested]


def _columns(quantity: str, cases: Mapping[str, Mapping[str, Comparison]]) -> Iterator[str]:
    for row in (rows.get(quantity) for rows in cases.values()):
        text = NOT_MEASURED if row is None else difference_text(row, _digits(quantity))
        if row is not None and quantity in FAMILY:
            text += f", {p_text(row.corrected_p)}{'' if row.verdict == 'inconclusive' else f', {row.verdict}'}"
        yield text


def differences_table(answer: Answer) -> Table:
    """Every difference: the paper's, ours, effect sizes and p, and the verdict on the paper's."""
    is_tested = any(row.d or row.p for row in answer.section.rows)
    theirs = ("paper", *(("paper: d (95%)", "paper: p") if is_tested else ()))
    header = ("metric", *theirs, "ours (95%)", "ours: d (95%)", "ours: p", "the paper's claim")
    return table(header, (_difference_row(answer, row, is_tested) for row in answer.section.rows))


def _difference_row(answer: Answer, row: Row, is_tested: bool) -> list[str]:
    digits, ours = max(row.baseline.digits, row.candidate.digits), answer.comparisons.get(row.quantity)
    cells = [arrowed(row.quantity), signed(row.candidate.value - row.baseline.value, digits)]
    if is_tested:
        interval = f" ({row.interval[0]} to {row.interval[1]})" if row.interval else ""
        cells.append(typeset(f"{row.d}{interval}") + _marks(answer, row, "interval") if row.d else "–")
        cells.append(typeset(str(row.p)) + _marks(answer, row, "p") if row.p else "–")
    if ours is None:
        return [*cells, "–", "–", "–", NONE]
    d = ours.cohens_d
    effect = signed(d.value, 2) if d.normal is None else interval_text(d.value, d.normal, 2)
    return [
        *cells,
        difference_text(ours, max(digits, 2) + 1),
        effect,
        p_text(ours.p),
        answer.verdict(row, "difference") or NONE,
    ]


def means_table(answer: Answer) -> Table:
    """Every mean that the paper prints: theirs, ours, the range for theirs, and the verdict, of both methods."""
    seeds = answer.section.seeds
    of = ("paper", "ours ± SD", f"95% range, {seeds} seed{'s' * (seeds > 1)}", "verdict")
    header = ("metric", *(f"{name}: {each}" for name in answer.names for each in of))
    parts: tuple[Part, Part] = ("baseline", "candidate")
    rows = answer.section.rows
    return table(
        header,
        ([arrowed(row.quantity), *(cell for part in parts for cell in _mean(answer, row, part))] for row in rows),
    )


def _mean(answer: Answer, row: Row, part: Part) -> list[str]:
    is_first, ours = part == "baseline", answer.comparisons.get(row.quantity)
    printed, estimate = row.baseline if is_first else row.candidate, answer.estimate(row, part)
    digits, cell = printed.digits + 1, f"{printed}{_marks(answer, row, part)}"
    if ours is None or estimate is None:
        return [cell, "–", "–", NONE]
    low, high = estimate.expected(answer.section.seeds, printed.rounding)
    expected = typeset(f"{low:.{digits}f} to {high:.{digits}f}")
    own = mean_text(ours.baseline if is_first else ours.candidate, digits)
    return [cell, own, expected, answer.verdict(row, part) or NONE]


def _marks(answer: Answer, row: Row, part: Part) -> str:
    """The numbers of the notes on a part of a row."""
    return "".join(f" [{number_of(oddity)}]" for oddity in answer.oddities(row) if oddity.part == part)
