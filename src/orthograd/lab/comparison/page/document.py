"""The report page: the verdict, then the sections, as one self-contained HTML file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files

from ....statistics import Comparison, ComparisonTable
from ..formats import TITLES
from ..pair import MethodPair, evidence
from . import diagnosis, pairs, reliability, tables
from .curves import severity_section, training_section
from .markup import Markup, joined, tag
from .runs import FailedRun, downloads_section, failure_count, failures_section, settings_of, setup_section

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
IMAGES = {
    "clean": "On clean test images",
    "shifted": "On corrupted test images",
    "temperature-scaled": "On clean test images after temperature scaling",
    "shifted-temperature-scaled": "On corrupted test images after temperature scaling",
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
    title, about = headline(pair.tables["clean"], names), _about(pair, failed)
    body = tag(
        "body",
        page_patterns(),
        tag(
            "main",
            tag("header", tag("p", about, class_="about"), tag("h1", title), verdict_section(pair, names)),
            (_section(name, content) for name, content in sections.items() if content),
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', page_head(title), body, lang='en')}\n"


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


def _section(name: str, content: Markup) -> Markup:
    identity = "".join(sign if sign.isalnum() else "-" for sign in name.lower()).strip("-")
    return tag("section", tag("h2", name, id=identity), content, aria_labelledby=identity)


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


def accuracy_sentence(table: ComparisonTable, names: tuple[str, str]) -> str:
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
    return f"{start}: {row.candidate.mean:.1f}% of the clean test images against {row.baseline.mean:.1f}%."


def _summary(images: str, table: ComparisonTable) -> Markup:
    return tag("li", tag("strong", IMAGES[images]), tag("ul", _groups(table)))


def _groups(table: ComparisonTable) -> Iterator[Markup]:
    for word in GROUPS:
        metrics = [_short(row) for row in table if row.verdict == word]
        if metrics:
            yield tag("li", tag("strong", f"{word}: ", class_=f"verdict {word}"), ", ".join(metrics))
    moved = [f"{_short(row)} {row.verdict}" for row in table if row.verdict in ("lower", "higher")]
    if moved:
        yield tag("li", tag("strong", "changed"), " (neither good nor bad): ", ", ".join(moved))


def _short(row: Comparison) -> str:
    return TITLES[str(row.metric)].removesuffix(", %")


def page_head(title: str) -> Markup:
    """The head of a page: title, style, and a policy that forbids loading anything."""
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),  # otherwise the browser asks a server for one
        tag("style", Markup(_style())),
    )


def drawing_style() -> str:
    """The part of the page's style that a separate SVG file needs: colors and marks."""
    text = _style()
    colors = text[: text.index("* {")]
    marks = text[text.index("\nsvg text {") : text.index("@media print")]
    return f"{colors}{marks}.ground {{ fill: var(--paper); }}\n"


def _style() -> str:
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def page_patterns() -> Markup:
    """Hatches and dots, defined once for all diagrams of a page."""
    over = tag(
        "pattern",
        tag("path", d="M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2"),
        id="over",
        width="6",
        height="6",
        patternUnits="userSpaceOnUse",
    )
    under = tag(
        "pattern",
        tag("circle", cx="2.5", cy="2.5", r="1"),
        id="under",
        width="5",
        height="5",
        patternUnits="userSpaceOnUse",
    )
    return tag(
        "svg",
        tag("defs", joined(over, under)),
        width="0",
        height="0",
        class_="patterns",
        aria_hidden="true",
        focusable="false",
    )
