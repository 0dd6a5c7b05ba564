"""The report page: the verdict, then the sections, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ....statistics import Comparison, ComparisonTable
from ...page.document import whole_page
from ...page.markup import Markup, joined, tag
from ..formats import TITLES
from ..pair import MethodPair, evidence
from . import diagnosis, pairs, reliability, tables
from .curves import severity_section, training_section
from .runs import FailedRun, downloads_section, failure_count, failures_section, settings_of, setup_section

IMAGES = {
    "clean": "On clean test samples",
    "shifted": "On corrupted test samples",
    "temperature-scaled": "On clean test samples after temperature scaling",
    "shifted-temperature-scaled": "On corrupted test samples after temperature scaling",
}
CALIBRATED = {
    "better": "better calibrated",
    "worse": "worse calibrated",
    "equivalent": "equally calibrated",
    "inconclusive": "calibration inconclusive",
}
ACCURATE = {
    "better": "more accurate",
    "worse": "less accurate",
    "equivalent": "equally accurate",
    "inconclusive": "accuracy inconclusive",
}
GROUPS = ("better", "worse", "equivalent", "inconclusive")


def page(pair: MethodPair, *, names: tuple[str, str], command: str, failed: Sequence[FailedRun] = ()) -> str:
    """The page of a comparison as HTML. The same arguments give the same bytes.

    Args:
        pair: The records of both methods.
        names: Titles of the baseline and the candidate.
        command: The command line that reproduces the runs.
        failed: Runs that have no record because they failed.
    """
    sections = {"Runs that failed": failures_section(pair, names, failed), **_sections(pair, names, command)}
    return whole_page(
        headline(pair.tables["clean"], names), _about(pair, failed), verdict_section(pair, names), sections
    )


def _sections(pair: MethodPair, names: tuple[str, str], command: str) -> Mapping[str, Markup | None]:
    return {
        "All metrics": tables.section(pair, names),
        "Seed by seed": pairs.section(pair, names),
        "Reliability diagrams": reliability.section(pair, names),
        "Corrupted images": severity_section(pair, names),
        "Training loss": training_section(pair, names),
        "Where ⊥Grad acts": diagnosis.section(pair, names),
        "Settings and versions": setup_section(pair, names, command),
        "Data": downloads_section(pair, names),
    }


def _about(pair: MethodPair, failed: Sequence[FailedRun]) -> str:
    settings = settings_of(pair)
    what = [str(settings[name]) for name in ("model", "dataset") if name in settings]
    missing = [failure_count(failed)] if failed else []
    return " · ".join(["orthograd compare", *what, f"{len(pair.seeds)} seeds", *missing])


def headline(table: ComparisonTable, names: tuple[str, str]) -> str:
    """The title of the page: calibration and accuracy in a few words."""
    ece, accuracy = table["ece"].verdict, table["top1_accuracy"].verdict
    return f"{names[1]} vs. {names[0]}: {CALIBRATED[ece]}, {ACCURATE[accuracy]}"


def verdict_section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """The verdict in two sentences, its statistics, and every metric by its verdict."""
    table = pair.tables["clean"]
    ece, accuracy, common = evidence(table, baseline=names[0], candidate=names[1])
    return joined(
        tag("p", f"{calibration_sentence(table, names)} {accuracy_sentence(table, names)}", class_="lede"),
        tag("p", f"{ece}. Accuracy {accuracy}. {common}.", class_="evidence"),
        tag("h2", f"Where {names[1]} is better and where it is worse"),
        tag("ul", (_summary(name, each) for name, each in pair.tables.items()), class_="summary"),
    )


def calibration_sentence(table: ComparisonTable, names: tuple[str, str]) -> str:
    """The first sentence: calibration."""
    row = table["ece"]
    start = {
        "better": f"{names[1]} is better calibrated",
        "worse": f"{names[1]} is worse calibrated",
        "equivalent": f"{names[1]} is as well calibrated as {names[0]}",
        "inconclusive": f"With {row.baseline.n} seeds, no difference in calibration was detected",
    }[row.verdict]
    whose = f"the confidence of {names[1]}" if row.verdict == "inconclusive" else "its confidence"
    return (
        f"{start}: {whose} is off by {100 * row.candidate.mean:.1f} percentage points on average, "
        f"that of {names[0]} by {100 * row.baseline.mean:.1f}."
    )


def accuracy_sentence(table: ComparisonTable, names: tuple[str, str], what: str = "clean test samples") -> str:
    """The second sentence: accuracy. It starts with "But" where it contradicts the first."""
    row, ece = table["top1_accuracy"], table["ece"].verdict
    turn = f"But {names[1]}" if {row.verdict, ece} == {"better", "worse"} else names[1]
    also = " also" if row.verdict == ece and ece in ("better", "worse") else ""
    start = {
        "better": f"{turn} is{also} more accurate",
        "worse": f"{turn} is{also} less accurate",
        "equivalent": f"Accuracy is equivalent within {row.margin or 0:g} point",
        "inconclusive": "No difference in accuracy was detected",
    }[row.verdict]
    return f"{start}: {row.candidate.mean:.1f}% of the {what} against {row.baseline.mean:.1f}%."


def _summary(images: str, table: ComparisonTable) -> Markup:
    return tag("li", tag("strong", IMAGES[images]), tag("ul", verdict_groups(table)))


def verdict_groups(table: ComparisonTable) -> Iterator[Markup]:
    """The metrics of each verdict, as items of a list."""
    for word in GROUPS:
        metrics = [_short(row) for row in table if row.verdict == word]
        if metrics:
            yield tag("li", tag("strong", f"{word}: ", class_=f"verdict {word}"), ", ".join(metrics))
    moved = [f"{_short(row)} {row.verdict}" for row in table if row.verdict in ("lower", "higher")]
    if moved:
        yield tag("li", tag("strong", "changed"), " (neither good nor bad): ", ", ".join(moved))


def _short(row: Comparison) -> str:
    return TITLES[str(row.metric)].removesuffix(", %")
