"""The tables of the comparison, and what their words mean."""

from __future__ import annotations

import re

from ....calibration import CONVENTIONS
from ....statistics import Comparison, ComparisonTable
from ..formats import TITLES, caption, cells, header, metric_title
from ..pair import MARGINS, MethodPair
from .markup import Markup, joined, table, tag

CAPTIONS = {
    "clean": "Clean test images",
    "shifted": "Shifted test images: the mean over all shifts and severities",
    "temperature-scaled": "Clean test images after temperature scaling: one number, fitted on held-out images, divides "
    "all logits of a network",
}
SIGNS = {"better": "✓", "worse": "✗", "equivalent": "=", "inconclusive": "?", "lower": "↓", "higher": "↑"}


def section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """How to read the tables, the tables, and the definitions."""
    return joined(
        _glossary(pair, names),
        (_table(f"{CAPTIONS[images]}. {caption(*names)}", each, names) for images, each in pair.tables.items()),
        _left_out(pair),
        _definitions(pair),
    )


def _table(words: str, compared: ComparisonTable, names: tuple[str, str]) -> Markup:
    rows = [_row(row) for row in compared]
    return table(words, header(*names), rows, label=words, style="comparison")


def _row(row: Comparison) -> list[str]:
    name, *numbers, word = cells(row)
    sign = tag("span", SIGNS[row.verdict], aria_hidden="true")
    return [name, *map(number, numbers), tag("span", sign, " ", word, class_=f"verdict {word}")]


def number(text: str) -> Markup:
    """A number, and smaller what says how sure it is."""
    first, space, rest = typeset(text).partition(" ")
    return (
        joined(first, space, tag("small", rest))
        if rest and first[-1].isdigit() and rest[0] in "±("
        else joined(first, space, rest)
    )


def typeset(text: str) -> str:
    """Minus signs and powers of ten as print has them.

    >>> typeset("-0.01 (-0.02 to +0.03)"), typeset("9.3e-07")
    ('−0.01 (−0.02 to +0.03)', '9.3 × 10⁻⁷')
    """
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    powers = re.sub(r"e([+-]\d+)", lambda power: " × 10" + str(int(power[1])).translate(raised), text)
    return powers.replace("-", "−")


def _glossary(pair: MethodPair, names: tuple[str, str]) -> Markup:
    seeds = len(pair.seeds)
    words = {
        "ECE": "expected calibration error: how far stated confidence and the share of right answers are apart, on "
        "average. 0.05 is five percentage points; 0 is perfect.",
        "±": f"standard deviation over the {seeds} seeds.",
        f"{names[1]} − {names[0]}": "mean difference over the seeds and its paired 95% interval. The arrow of a metric "
        "points in the good direction: a negative difference in ECE ↓ is an improvement.",
        "d": "Cohen’s d: the difference in standard deviations of the seeds, with its exact 95% interval. From about "
        "0.8 on it is called large.",
        "p": "how often pairs of seeds would differ this much if there were no difference (paired t-test).",
        "p (Holm)": "the same, with Holm’s correction for all metrics of a table. Below 0.05 counts as a difference.",
        "equivalent": f"shown to differ by less than what was said beforehand not to matter: {_margins()}.",
        "inconclusive": "neither a difference nor equivalence was detected. More seeds may tell.",
    }
    pairs = (joined(tag("dt", name), tag("dd", meaning)) for name, meaning in words.items())
    return tag("details", tag("summary", "How to read the tables"), tag("dl", pairs), open="")


def _margins() -> str:
    return ", ".join(f"{margin:g} point of {TITLES[name].removesuffix(', %')}" for name, margin in MARGINS.items())


def _left_out(pair: MethodPair) -> Markup | None:
    """Metrics that some run has no number for."""
    missing = {
        images: [words for name, words in TITLES.items() if name not in [row.metric for row in compared]]
        for images, compared in pair.tables.items()
    }
    listed = "; ".join(f"{images}: {', '.join(titles)}" for images, titles in missing.items() if titles)
    return tag("p", f"Left out, as they are undefined or infinite in some run: {listed}.") if listed else None


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
        "What each metric is", ["metric", "definition", "unit", "better"], rows, label="Definitions", style="words"
    )
    return tag("details", tag("summary", "What each metric is"), described)
