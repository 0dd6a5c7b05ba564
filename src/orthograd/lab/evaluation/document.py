"""The page of evaluated files: the verdict in words, then the sections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...calibration import ReliabilityCurve
from ...calibration.files.evaluation import Column, Results
from ...calibration.files.recalibration import Recalibration, held_out_of, how_fitted, recalibrations
from ..page.document import downloads, whole_page
from ..page.markup import Markup, joined, tag
from ..page.reliability import reliability_figure, reliability_introduction
from .sections import (
    BEFORE,
    calibrators_table,
    metrics_csv,
    metrics_section,
    reliability_csv,
    risk_csv,
    risk_curve,
    risk_section,
    setup_section,
)
from .verdict import difference_sentence, repair_sentence, short_verdict, verdict_sentence

NAMED = 2
"""Files that the title names."""

Repairs = Mapping[str, list[Recalibration]]
"""Calibrators by the name of the file they were applied to."""


def evaluation_page(results: Results, command: str) -> str:
    """The page of an evaluation as HTML. Calibrators are fitted here; the same arguments give the same bytes."""
    plain = {column.name: column for column in results.columns if column.temperature is None}
    repairs = {
        name: recalibrations(column, held_out_of(results, column), results.settings)
        for name, column in _main(plain).items()
    }
    risks = {name: (column, risk_curve(column)) for name, column in plain.items()}
    sections = {
        "All metrics": metrics_section(results),
        "Reliability diagrams": joined(
            reliability_introduction("model"), reliability_figure("reliability", "As given", _curves(plain))
        ),
        "Risk and coverage": risk_section(risks),
        "Before and after each calibrator": joined(
            _calibrators(index, results, plain[name], found) for index, (name, found) in enumerate(repairs.items())
        ),
        "Files and settings": setup_section(results, command),
        "Data": downloads(_files(results, plain, repairs, risk_csv(risks))),
    }
    about = f"orthograd evaluate · {len(results.files)} file{'s' * (len(results.files) > 1)}"
    return whole_page(_title(_main(plain)), about, _verdict(results, plain, repairs), sections)


def _main(plain: Mapping[str, Column]) -> dict[str, Column]:
    """The columns that the verdict is about: all tasks together if they are one model’s, otherwise each file."""
    pooled = {name: column for name, column in plain.items() if column.is_pooled}
    return pooled or dict(plain)


def _title(main: Mapping[str, Column]) -> str:
    named = "; ".join(f"{name}: {short_verdict(column)}" for name, column in list(main.items())[:NAMED])
    return named + (f"; and {len(main) - NAMED} more" if len(main) > NAMED else "")


def _verdict(results: Results, plain: Mapping[str, Column], repairs: Repairs) -> Markup:
    main = _main(plain)
    others = [verdict_sentence(column) for name, column in plain.items() if name not in main]
    listed = [*others, *map(difference_sentence, results.differences)]
    return joined(
        (tag("p", words, class_="missing") for words in results.doubts),
        (tag("p", verdict_sentence(column), class_="lede") for column in main.values()),
        (tag("p", repair_sentence(main[name], found), class_="evidence") for name, found in repairs.items()),
        tag("ul", (tag("li", words) for words in listed), class_="summary") if listed else None,
    )


def _curves(columns: Mapping[str, Column]) -> dict[str, ReliabilityCurve]:
    return {name: column.curve for name, column in columns.items()}


def _calibrators(index: int, results: Results, column: Column, found: list[Recalibration]) -> Markup:
    known = {each.name: each.column for each in found if each.column is not None}
    return joined(
        tag("h3", column.name),
        tag("p", how_fitted(column.file, held_out_of(results, column))),
        calibrators_table(column, found),
        reliability_figure(f"calibrators-{index}", f"{column.name}, calibrated", _curves({BEFORE: column, **known})),
    )


def _files(results: Results, plain: Mapping[str, Column], repairs: Repairs, risks: str) -> dict[str, tuple[str, str]]:
    after = [
        (f"{name}, {each.name.lower()}", each.column)
        for name, found in repairs.items()
        for each in found
        if each.column is not None
    ]
    calibrated = [replace(column, name=name) for name, column in after]
    return {
        "metrics.csv": ("every metric of every file, with its interval", metrics_csv(results.columns)),
        "calibrators.csv": ("every metric after each calibrator", metrics_csv(calibrated)),
        "reliability.csv": ("every bin of every diagram", reliability_csv({**plain, **dict(after)})),
        "risk-coverage.csv": ("the risk–coverage curves", risks),
    }
