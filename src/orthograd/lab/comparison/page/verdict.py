"""What happened, first as a newspaper would say it, then metric by metric."""

from __future__ import annotations

from collections.abc import Iterator

from ....statistics import Comparison, ComparisonTable
from ..formats import TITLES
from ..pair import ArmPair, verdict
from .markup import Markup, joined, tag

IMAGES = {
    "clean": "On clean test images",
    "shifted": "On shifted test images",
    "temperature-scaled": "On clean test images after temperature scaling",
}
CALIBRATED = {
    "better": "better calibrated",
    "worse": "worse calibrated",
    "equivalent": "equally calibrated",
    "undecided": "calibration undecided",
}
ACCURATE = {
    "better": "more accurate",
    "worse": "less accurate",
    "equivalent": "as accurate",
    "undecided": "accuracy undecided",
}
GROUPS = ("better", "worse", "equivalent", "undecided")


def headline(table: ComparisonTable, names: tuple[str, str]) -> str:
    """Both findings in a few words."""
    ece, accuracy = table["ece"].verdict, table["top1_accuracy"].verdict
    return f"{names[1]} against {the(names[0])}: {CALIBRATED[ece]}, {ACCURATE[accuracy]}"


def section(pair: ArmPair, names: tuple[str, str]) -> Markup:
    """Two sentences, what stands behind them, and where the candidate is better or worse."""
    table = pair.tables["clean"]
    return joined(
        tag("p", f"{calibration(table, names)} {accuracy(table, names)}", class_="lede"),
        tag("p", "In numbers: ", verdict(table, baseline=names[0], candidate=names[1]), class_="evidence"),
        tag("h2", f"Where {names[1]} is better, and where worse"),
        tag("ul", (_summary(name, found) for name, found in pair.tables.items()), class_="summary"),
    )


def calibration(table: ComparisonTable, names: tuple[str, str]) -> str:
    """The first sentence: how far confidence is from the truth."""
    row = table["ece"]
    who, others = f"etworks trained with {names[1]}", f"those of {the(names[0])}"
    start = {
        "better": f"N{who} know better how sure they may be than {others}",
        "worse": f"N{who} know less well how sure they may be than {others}",
        "equivalent": f"N{who} know as well how sure they may be as {others}",
        "undecided": f"{row.baseline.n} seeds leave open whether n{who} know better how sure they may be than {others}",
    }[row.verdict]
    return (
        f"{start}: the confidence they state is off by {100 * row.candidate.mean:.1f} percentage points on average, "
        f"against {100 * row.baseline.mean:.1f}."
    )


def accuracy(table: ComparisonTable, names: tuple[str, str]) -> str:
    """The second sentence: how often they are right, and whether that speaks against the first."""
    found, ece = table["top1_accuracy"], table["ece"].verdict
    turn = "But they" if {found.verdict, ece} == {"better", "worse"} else "They"
    also = " also" if found.verdict == ece and ece in ("better", "worse") else ""
    start = {
        "better": f"{turn} are{also} right more often",
        "worse": f"{turn} are{also} right less often",
        "equivalent": f"They are right as often, within {found.margin or 0:g} point",
        "undecided": "Whether they are right as often remains undecided",
    }[found.verdict]
    return f"{start}: in {found.candidate.mean:.1f} % of the clean test images, against {found.baseline.mean:.1f} %."


def the(name: str) -> str:
    """An arm inside a sentence.

    >>> the("baseline"), the("mixup")
    ('the baseline', 'mixup')
    """
    return f"the {name}" if name == "baseline" else name


def _summary(images: str, table: ComparisonTable) -> Markup:
    return tag("li", tag("strong", IMAGES[images]), tag("ul", _groups(table)))


def _groups(table: ComparisonTable) -> Iterator[Markup]:
    for word in GROUPS:
        metrics = [_short(row) for row in table if row.verdict == word]
        if metrics:
            yield tag("li", tag("strong", f"{word}: ", class_=f"verdict {word}"), ", ".join(metrics))
    moved = [f"{_short(row)} {row.verdict}" for row in table if row.verdict in ("lower", "higher")]
    if moved:
        yield tag("li", tag("strong", "changed, "), "which is neither good nor bad by itself: ", ", ".join(moved))


def _short(row: Comparison) -> str:
    return TITLES[str(row.metric)].removesuffix(", %")
