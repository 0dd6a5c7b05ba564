"""The tables of the comparison, how to read them, and the definitions of the metrics."""

from __future__ import annotations

import re

from ....calibration import CONVENTIONS
from ....statistics import Comparison, ComparisonTable
from ...page.markup import Markup, joined, table, tag
from ..formats import TITLES, caption, cells, header, metric_title
from ..pair import MARGINS, MethodPair

CAPTIONS = {
    "clean": "Clean test samples",
    "shifted": "Corrupted test samples: mean over all corruptions and severities",
    "temperature-scaled": "Clean test samples after temperature scaling, fitted on held-out samples",
    "shifted-temperature-scaled": "Corrupted test samples after temperature scaling, fitted on held-out clean samples",
}
SIGNS = {"better": "✓", "worse": "✗", "equivalent": "=", "inconclusive": "?", "lower": "↓", "higher": "↑"}


def section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """The section: a guide, the tables, and the definitions."""
    return joined(
        glossary(len(pair.seeds), names),
        (
            comparison_table(f"{CAPTIONS[images]}. {caption(*names)}", each, names)
            for images, each in pair.tables.items()
        ),
        _left_out(pair),
        _definitions(pair),
    )


def comparison_table(words: str, compared: ComparisonTable, names: tuple[str, str]) -> Markup:
    """The table of a comparison under its caption."""
    rows = [_row(row) for row in compared]
    columns = [name.replace("95% ", "95%\u00a0") for name in header(*names)]  # lines break before the bracket
    return table(words, columns, rows, label=words, style="comparison")


def _row(row: Comparison) -> list[str]:
    name, *numbers, word = cells(row)
    sign = tag("span", SIGNS[row.verdict], aria_hidden="true")
    return [name, *map(number, numbers), tag("span", sign, " ", word, class_=f"verdict {word}")]


def number(text: str) -> Markup:
    """A number, followed by its spread or interval in small print."""
    first, space, rest = typeset(text).partition(" ")
    return (
        joined(first, space, tag("small", rest))
        if rest and first[-1].isdigit() and rest[0] in "±("
        else joined(first, space, rest)
    )


def typeset(text: str) -> str:
    """Text with typographic minus signs and powers of ten.

    >>> typeset("-0.01 (-0.02 to +0.03)"), typeset("9.3e-07")
    ('−0.01 (−0.02 to +0.03)', '9.3 × 10⁻⁷')
    """
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = re.sub(r"e([+-]\d+)", lambda power: " × 10" + str(int(power[1])).translate(raised), text)
    return powers.replace("-", "−")


def glossary(seeds: int, names: tuple[str, str]) -> Markup:
    """How to read the tables."""
    words = {
        "ECE": "expected calibration error: the average gap between confidence and accuracy. 0.05 is five percentage "
        "points; 0 is perfect.",
        "±": f"standard deviation over the {seeds} seeds.",
        f"{names[1]} − {names[0]}": "the mean difference and its paired 95% interval. Arrows point in the good "
        "direction, so a negative difference in ECE ↓ is an improvement. Intervals are not corrected for the number of "
        "metrics.",
        "d": "Cohen’s d: the difference divided by the standard deviation over the seeds, with its exact 95% interval. "
        "0.8 or more is called large.",
        "p": "the probability of a difference at least this large if the methods did not differ (paired t-test).",
        "p (Holm)": "p with Holm’s correction for all metrics of the table. Below 0.05, a difference is detected.",
        "equivalent": f"the difference was shown to be smaller than a margin fixed beforehand: {_margins()}.",
        "inconclusive": "no difference was detected, and equivalence was not shown. More seeds may decide.",
    }
    pairs = (joined(tag("dt", name), tag("dd", meaning)) for name, meaning in words.items())
    return tag("details", tag("summary", "How to read the tables"), tag("dl", pairs), open="")


def _margins() -> str:
    return ", ".join(f"{margin:g} point of {TITLES[name].removesuffix(', %')}" for name, margin in MARGINS.items())


def _left_out(pair: MethodPair) -> Markup | None:
    """A sentence that names the metrics that are undefined or infinite in some run."""
    missing = {
        images: [words for name, words in TITLES.items() if name not in [row.metric for row in compared]]
        for images, compared in pair.tables.items()
    }
    listed = "; ".join(f"{images}: {', '.join(titles)}" for images, titles in missing.items() if titles)
    return tag("p", f"Not shown, because undefined or infinite in some run: {listed}.") if listed else None


def _definitions(pair: MethodPair) -> Markup:
    evaluated = pair.baseline[0].get("evaluated") or {"bins": 10, "classes": 5}
    numbers = {"bins": evaluated["bins"], "k": min(5, evaluated["classes"])}
    rows = []
    for name in TITLES:
        metric = CONVENTIONS[name]
        rows.append(
            [metric_title(name), metric.definition.format(**numbers), metric.unit or "–", metric.better or "neither"]
        )
    described = table(
        "Definitions of the metrics",
        ["metric", "definition", "unit", "better"],
        rows,
        label="Definitions of the metrics",
        style="words",
    )
    return tag("details", tag("summary", "Definitions of the metrics"), described)
