"""Sections of the page: metrics, risk–coverage curves, calibrators, and the files behind them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from ... import __version__
from ...calibration import CONVENTIONS, risk_coverage
from ...calibration.files.evaluation import Column, Difference, Results, confidences, has_independent_samples
from ...calibration.files.recalibration import Recalibration
from ...calibration.reliability import wilson
from ...statistics.table import ARROWS
from ..comparison.formats import TITLES
from ..comparison.page.tables import SIGNS, number
from ..page.document import csv_text
from ..page.figure import (
    Frame,
    Scale,
    area,
    bottom_axis,
    curve,
    drawing,
    entry,
    figure,
    left_axis,
    panel,
    thinned,
)
from ..page.markup import Child, Markup, joined, table, tag

BEFORE = "As given"
NAMES = TITLES | {
    "ece_by_chance": "ECE by chance",
    "ece_by_chance_limit": "95% limit of ECE by chance",
    "ece_l2": "L2 ECE",
    "ece_debiased": "debiased ECE",
    "mce": "maximum calibration error",
    "ece_classwise": "classwise ECE",
    "brier_reliability": "Brier reliability",
    "brier_resolution": "Brier resolution",
    "brier_uncertainty": "Brier uncertainty",
    "ece_equal_mass": "equal-mass ECE",
    "augrc": "AUGRC",
}
COMPARED = ("loss", "ece", "smooth_ece", "brier", "top1_accuracy", "aurc")
FRAME = Frame(width=300, height=230, left=48)
DRAWN, LISTED, STORED = 200, 10, 1000  # points of a curve: in the drawing, in its table, in the CSV file
FIRST, SHARE = 10, 0.01  # samples, and share of all: among fewer, an error rate says little

Curve = tuple[list[float], list[float]]
"""Coverages and error rates."""


def title_of(metric: str) -> str:
    """The title of any metric, with an arrow for its good direction."""
    unit = CONVENTIONS[metric].unit
    name = NAMES[metric]
    name = f"{name}, {unit}" if unit and not name.endswith(unit) else name
    return name + ARROWS[CONVENTIONS[metric].better]


def metrics_section(results: Results) -> Markup:
    """Every metric of every file with its interval, the differences, and the definitions."""
    names = list(results.columns[0].metrics.asked)
    header = ["metric", *(column.name for column in results.columns), *(each.name for each in results.differences)]
    rows = [
        [
            title_of(name),
            *(_value(column, name) for column in results.columns),
            *(_difference(each, name) for each in results.differences),
        ]
        for name in names
    ]
    caption = "↓ lower is better, ↑ higher is better."
    if any(column.metrics.intervals for column in results.columns):
        caption += (
            f" In brackets: 95% intervals over samples, Wilson’s for accuracies and BCa bootstrap with "
            f"{results.settings.resamples:,} resamples for the others."
        )
    is_mean = any(column.file.form.task == "multilabel" for column in results.columns)
    dependent = [column.name for column in results.columns if not has_independent_samples(column.file)]
    note = (
        f"No intervals for {', '.join(dependent)}: positions of one map, sequence or sample are not independent. "
        "ECE by chance, and the intervals of the bins below, are those of independent positions: too narrow here."
        if dependent
        else None
    )
    shown = table(caption, header, rows, label="All metrics", style="comparison values")
    means = "These are means over the labels. The verdict and the diagrams count all decisions together."
    return joined(
        shown, tag("p", means) if is_mean else None, tag("p", note) if note else None, _definitions(results.columns[0])
    )


def _value(column: Column, name: str) -> Markup:
    value = getattr(column.metrics, name)
    if value is None:
        return Markup(column.metrics.formatted(name))
    digits = CONVENTIONS[name].digits
    if name not in column.metrics.intervals:
        return number(f"{value:.{digits}f}")
    low, high = column.metrics.intervals[name]
    return number(f"{value:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})")


def _difference(difference: Difference, name: str) -> Child:
    value, digits = difference.values[name], CONVENTIONS[name].digits
    if value is None:
        return "–"
    text = f"{value:+.{digits}f}"
    if name in difference.intervals:
        low, high = difference.intervals[name]
        text += f" ({low:+.{digits}f} to {high:+.{digits}f})"
    word = difference.verdict(name)
    sign = tag("span", SIGNS[word], " ", word, class_=f"verdict {word}") if word in SIGNS else word
    return [number(text), " ", sign]


def _definitions(column: Column) -> Markup:
    rows = [[title_of(name), meaning] for name, meaning in column.metrics.conventions.items()]
    label = "Definitions of the metrics"
    return tag(
        "details", tag("summary", label), table(label, ["metric", "definition"], rows, label=label, style="words")
    )


def risk_curve(column: Column) -> Curve:
    """Coverages and error rates of a file, from the tenth most confident sample on, and from coverage 0.01 on."""
    coverage, risk = risk_coverage(*confidences(column.file))
    first = min(max(FIRST, round(SHARE * len(risk))), len(risk)) - 1
    return coverage[first:].tolist(), risk[first:].tolist()


def risk_at(column: Column, coverages: Sequence[float]) -> list[float]:
    """The error rates of a file at these coverages."""
    _, risk = risk_coverage(*confidences(column.file))
    return [float(risk[max(0, math.ceil(coverage * len(risk)) - 1)]) for coverage in coverages]


def risk_section(curves: Mapping[str, tuple[Column, Curve]]) -> Markup:
    """The error rate among the most confident samples, for each file."""
    introduction = tag(
        "p",
        "If only the most confident predictions are accepted, how many of them are wrong? At coverage 1 all are "
        "accepted. A curve that rises from 0 means that the confidence tells right from wrong.",
    )
    band = "95% interval" if any(has_independent_samples(column.file) for column, _ in curves.values()) else ""
    legend = [entry(tag("line", class_="line candidate", x1=0, x2=28, y1=7, y2=7), "error rate among accepted")]
    if band:
        legend.append(entry(tag("rect", class_="band candidate", x=1, y=2, width=26, height=10), band))
    return joined(
        introduction,
        figure(
            "risk",
            title="Risk–coverage curves",
            words="Predictions are accepted in the order of their confidence.",
            legend=legend,
            panels=(_risk_panel(i, name, *each) for i, (name, each) in enumerate(curves.items())),
            numbers=[_risk_numbers(name, points) for name, (_, points) in curves.items()],
            columns="two",
        ),
    )


def _risk_panel(index: int, name: str, column: Column, points: Curve) -> Markup:
    aurc = column.metrics.aurc
    note = "" if aurc is None else f"AURC {aurc:.4f}: mean error rate over all coverages"
    half = points[1][len(points[1]) // 2]
    words = f"Error rate {100 * half:.1f}% at half of the coverages, {100 * points[1][-1]:.1f}% at coverage 1."
    return panel(
        name, note, drawing(f"risk-{index}", FRAME, *_risk_marks(column, points), title=name, description=words)
    )


def _risk_marks(column: Column, points: Curve) -> Iterator[Markup]:
    coverages, risks = points
    places = thinned(len(risks), DRAWN)
    low, high = _band(column, points, places)
    top = max(max(high), 0.01)
    x, y = coverage_scale(FRAME), Scale(0, 100 * top, *FRAME.y)
    yield risk_axes(FRAME, x, y)
    along = [x(coverages[i]) for i in places]
    if low != high:
        lower, upper = (
            [(place, y(100 * value)) for place, value in zip(along, ends, strict=True)] for ends in (low, high)
        )
        yield area(lower, upper, look="candidate")
    yield curve([(place, y(100 * risks[i])) for place, i in zip(along, places, strict=True)], look="candidate")


def coverage_scale(frame: Frame) -> Scale:
    """Coverages from 0 to 1, with room between the labels of both axes."""
    return Scale(0, 1, frame.left + 8, frame.width - frame.right)


def risk_axes(frame: Frame, x: Scale, y: Scale) -> Markup:
    """The axes of a risk–coverage curve."""
    ticks = ((x(value), f"{value:g}") for value, _ in x.ticks(5))
    return joined(left_axis(frame, y, label="error rate, %"), bottom_axis(frame, ticks, label="coverage"))


def _band(column: Column, points: Curve, places: Sequence[int]) -> tuple[list[float], list[float]]:
    """The Wilson interval of each error rate, or the error rates themselves if samples are not independent."""
    risks = torch.tensor([points[1][i] for i in places], dtype=torch.float64)
    if not has_independent_samples(column.file):
        return risks.tolist(), risks.tolist()
    accepted = torch.tensor([points[0][i] for i in places], dtype=torch.float64) * column.curve.samples
    low, high = wilson(risks * accepted, accepted)
    return low.tolist(), high.tolist()


def _risk_numbers(name: str, points: Curve) -> Markup:
    rows = [[f"{points[0][i]:.3f}", f"{100 * points[1][i]:.2f}"] for i in thinned(len(points[0]), LISTED)]
    return table(f"Risk–coverage: {name}", ["coverage", "error rate, %"], rows, label=f"Risk–coverage: {name}")


def calibrators_table(column: Column, results: Sequence[Recalibration]) -> Markup:
    """Main metrics before and after each calibrator."""
    metrics = [name for name in COMPARED if name in column.metrics.asked]
    known = {BEFORE: _plain(column), **{each.name: each.column for each in results if each.column is not None}}
    rows = [[name, *(_value(each, metric) for metric in metrics)] for name, each in known.items()]
    caption = f"{column.name} before and after each calibrator"
    failures: dict[str, list[str]] = {}
    for each in results:
        if each.column is None:
            failures.setdefault(each.failure, []).append(each.name)
    return joined(
        table(caption, ["calibrator", *map(title_of, metrics)], rows, label=caption, style="comparison values"),
        (tag("p", f"Not fitted: {', '.join(names)}: {why}.") for why, names in failures.items()),
    )


def _plain(column: Column) -> Column:
    return replace(column, metrics=replace(column.metrics, intervals={}))


def setup_section(results: Results, command: str) -> Markup:
    """Files, settings, versions and the command."""
    rows = [[name, str(file.path), file.source] for name, file in results.files.items()]
    sizes = [
        [column.name, str(column.metrics).splitlines()[0]] for column in results.columns if column.temperature is None
    ]
    settings = {"confidence bins": results.settings.bins, "bootstrap resamples": results.settings.resamples}
    settings |= {"seed": results.settings.seed}
    facts = [[name, str(value)] for name, value in settings.items()]
    facts += [["orthograd", __version__], ["torch", torch.__version__]]
    return joined(
        table("Files", ["file", "path", "what was read"], rows, label="Files", style="facts"),
        table("Samples", ["file", "samples"], sizes, label="Samples", style="facts"),
        table("Settings and versions", ["setting", "value"], facts, label="Settings and versions", style="facts"),
        tag("pre", tag("code", command), tabindex="0", role="region", aria_label="The command"),
    )


def metrics_csv(columns: Sequence[Column]) -> str:
    """Every metric of every column, with its interval, in full precision."""
    lines = [["file", "metric", "value", "low", "high"]]
    for column in columns:
        for name, value in column.metrics.as_row().items():
            low, high = column.metrics.intervals.get(name, ("", ""))
            lines.append([column.name, name, "" if value is None else str(value), str(low), str(high)])
    return csv_text(lines)


def reliability_csv(curves: Mapping[str, Column]) -> str:
    """Every bin of every reliability diagram."""
    lines = [["file", "from", "to", "share", "confidence", "accuracy", "low", "high"]]
    for name, column in curves.items():
        edges, shown = column.curve.edges.tolist(), column.curve
        for i in range(len(shown.share)):
            values = [float(getattr(shown, key)[i]) for key in ("share", "confidence", "accuracy", "low", "high")]
            lines.append([name, f"{edges[i]:g}", f"{edges[i + 1]:g}", *("" if v != v else str(v) for v in values)])
    return csv_text(lines)


def risk_csv(curves: Mapping[str, tuple[Column, Curve]]) -> str:
    """The risk–coverage curves, with at most about 1000 points each."""
    lines = [["file", "coverage", "error_rate"]]
    for name, (_, points) in curves.items():
        lines += [[name, str(points[0][i]), str(points[1][i])] for i in thinned(len(points[0]), STORED)]
    return csv_text(lines)
