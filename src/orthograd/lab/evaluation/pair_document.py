"""The page of two methods over seeds: the verdict in words, then the sections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...calibration.files.evaluation import Column
from ..comparison.formats import as_csv, caption
from ..comparison.page.document import accuracy_sentence, calibration_sentence, headline, verdict_groups
from ..comparison.page.pairs import MAIN, Pairs, seeds_figure
from ..comparison.page.tables import comparison_table, glossary
from ..comparison.pair import evidence
from ..page.document import csv_text, downloads, whole_page
from ..page.figure import (
    METHODS,
    Band,
    Frame,
    Scale,
    area,
    band_entry,
    bands_of,
    curve,
    drawing,
    figure,
    method_entries,
    panel,
)
from ..page.markup import Markup, joined, table, tag
from ..page.reliability import reliability_figure, reliability_introduction
from .sections import coverage_scale, risk_at, risk_axes
from .seeds import GIVEN, SCALED, SeedPairs

COVERAGES = [number / 50 for number in range(5, 51)]
FRAME = Frame(width=360, height=230, left=48)


def pair_page(pairs: SeedPairs, command: str) -> str:
    """The page of a comparison as HTML. The same arguments give the same bytes."""
    names, given = pairs.names, pairs.tables[GIVEN]
    sections = {
        "All metrics": joined(glossary(len(pairs.seeds), names), _tables(pairs)),
        "Seed by seed": joined(
            tag("p", "Each line is one seed. Both files of a seed have the same labels."),
            seeds_figure("given", "As given", list(_pairs(pairs)), names),
        ),
        "Reliability diagrams": joined(
            reliability_introduction("model"),
            reliability_figure("reliability", "Mean over the seeds", pairs.curves),
        ),
        "Risk and coverage": _risks(pairs),
        "Files and settings": _setup(pairs, command),
        "Data": downloads(_files(pairs)),
    }
    about = f"orthograd evaluate --pair · {len(pairs.seeds)} seeds"
    return whole_page(headline(given, names), about, _verdict(pairs), sections)


def _verdict(pairs: SeedPairs) -> Markup:
    names, given = pairs.names, pairs.tables[GIVEN]
    ece, accuracy, common = evidence(given, baseline=names[0], candidate=names[1])
    sentences = f"{calibration_sentence(given, names)} {accuracy_sentence(given, names, 'samples')}"
    return joined(
        (tag("p", words, class_="missing") for words in pairs.doubts),
        tag("p", sentences, class_="lede"),
        tag("p", f"{ece}. Accuracy {accuracy}. {common}. {' '.join(pairs.remarks)}", class_="evidence"),
        tag("h2", f"Where {names[1]} is better and where it is worse"),
        tag(
            "ul",
            (
                tag("li", tag("strong", when[0].upper() + when[1:]), tag("ul", verdict_groups(each)))
                for when, each in pairs.tables.items()
            ),
            class_="summary",
        ),
    )


def _tables(pairs: SeedPairs) -> Iterator[Markup]:
    for when, each in pairs.tables.items():
        words = f"{when[0].upper()}{when[1:]}. {caption(*pairs.names)}"
        yield comparison_table(words, each, pairs.names)


def _pairs(pairs: SeedPairs) -> Iterator[Pairs]:
    """The main metrics that every run has."""
    known = [str(row.metric) for row in pairs.tables[GIVEN]]
    for metric in MAIN:
        if metric in known:
            row = pairs.tables[GIVEN][metric]
            yield Pairs(metric, pairs.seeds, row.baseline_values, row.candidate_values)


def _risks(pairs: SeedPairs) -> Markup:
    methods = [bands_of([risk_at(column, COVERAGES) for column in method]) for method in pairs.columns[GIVEN]]
    ranges = "from the lowest to the highest seed"
    return figure(
        "risk",
        title="Risk–coverage curves",
        words="The error rate among the most confident predictions; means over the seeds. At coverage 1 all count.",
        legend=[*method_entries(pairs.names), band_entry(ranges)],
        panels=[panel("error rate by coverage", "", _risk_drawing(methods, pairs.names))],
        numbers=[_risk_numbers(methods, pairs.names)],
        columns="one",
    )


def _risk_drawing(methods: Sequence[Band], names: tuple[str, str]) -> Markup:
    x, y = coverage_scale(FRAME), Scale(0, 100 * max(0.01, *(max(band.high) for band in methods)), *FRAME.y)

    def along(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(x(coverage), y(100 * value)) for coverage, value in zip(COVERAGES, values, strict=True)]

    words = " ".join(
        f"{name}: {100 * band.mean[20]:.1f}% at coverage 0.5, {100 * band.mean[-1]:.1f}% at coverage 1."
        for name, band in zip(names, methods, strict=True)
    )
    return drawing(
        "risk-0",
        FRAME,
        risk_axes(FRAME, x, y),
        *(area(along(band.low), along(band.high), look=look) for band, look in zip(methods, METHODS, strict=True)),
        *(curve(along(band.mean), look=look) for band, look in zip(methods, METHODS, strict=True)),
        title="Error rate by coverage",
        description=words,
    )


def _risk_numbers(methods: Sequence[Band], names: tuple[str, str]) -> Markup:
    rows = [
        [f"{coverage:g}", *(f"{100 * band.mean[i]:.2f}" for band in methods)]
        for i, coverage in enumerate(COVERAGES)
        if i % 5 == 0
    ]
    header = ["coverage", *(f"{name}, %" for name in names)]
    return table("Mean error rate by coverage", header, rows, label="Mean error rate by coverage")


def _setup(pairs: SeedPairs, command: str) -> Markup:
    both = zip(*pairs.columns[GIVEN], strict=True)
    rows = [[seed, *(str(column.file.path) for column in each)] for seed, each in zip(pairs.seeds, both, strict=True)]
    first = pairs.columns[GIVEN][0][0]
    return joined(
        tag("p", f"Each file: {str(first.metrics).splitlines()[0]}; {first.file.source}."),
        table("Files", ["seed", *pairs.names], rows, label="Files", style="facts"),
        tag("pre", tag("code", command), tabindex="0", role="region", aria_label="The command"),
    )


def _files(pairs: SeedPairs) -> Mapping[str, tuple[str, str]]:
    names = {"baseline": pairs.names[0], "candidate": pairs.names[1]}
    files = {
        "seeds.csv": ("every metric of every seed, in full precision", seeds_csv(pairs)),
        "comparison.csv": ("the first table above", as_csv(pairs.tables[GIVEN], **names)),
    }
    if SCALED in pairs.tables:
        scaled = as_csv(pairs.tables[SCALED], **names)
        files["comparison-temperature.csv"] = ("the table after temperature scaling", scaled)
    return files


def seeds_csv(pairs: SeedPairs) -> str:
    """CSV with a row for each method and seed, as given and after temperature scaling."""
    metrics = pairs.columns[GIVEN][0][0].metrics.asked
    lines = [["method", "seed", "when", *metrics]]
    for when, both in pairs.columns.items():
        for name, method in zip(pairs.names, both, strict=True):
            lines += [[name, column.name, when, *_cells(column)] for column in method]
    return csv_text(lines)


def _cells(column: Column) -> list[str]:
    return ["" if value is None else str(value) for value in column.metrics.as_row().values()]
