"""Reliability diagrams: accuracy by confidence, with a histogram of confidence, for one or several models."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke
from torch import Tensor

from ..calibration import ReliabilityCurve, average
from .style import (
    ACCURACY_MARK,
    BAND,
    BLUE,
    CONFIDENCE_MARK,
    DIAGONAL,
    INK,
    OVER,
    SMALL,
    UNDER,
    bar_look,
    figure_style,
    shortened,
    told_apart,
)

TICKS = {0: "0", 0.2: "0.2", 0.4: "0.4", 0.6: "0.6", 0.8: "0.8", 1: "1"}  # "1.0" beside "0.0" would touch
ROUND = (0.2, 0.6, 1, 2, 4, 6, 10, 16, 20, 30, 40, 50, 60, 80)
LEGEND: dict[str, Any] = {
    "loc": "lower center",
    "frameon": False,
    "borderaxespad": 0.3,
    "columnspacing": 0.9,
    "handlelength": 1.6,
    "handletextpad": 0.5,
}
COLUMNS = 4
LEFT, RIGHT, BETWEEN = 0.48, 0.14, 0.16  # inches, as all of these
NAME, GAP, HISTOGRAM, FOOT = 0.22, 0.09, 0.52, 0.37
TITLE, LEGEND_LINE = 0.21, 0.145


class Words(NamedTuple):
    """The words of a diagram: its axes, and the two directions of a gap."""

    x: str = "confidence"
    y: str = "accuracy"
    above: str = "overconfident"
    below: str = "underconfident"


def class_words(name: str) -> Words:
    """The words of a diagram of the probability of one class."""
    return Words(f"probability of {name}", "frequency", "probability too high", "probability too low")


def reliability_figure(
    curves: Mapping[str, ReliabilityCurve | Sequence[ReliabilityCurve]],
    *,
    title: str | None = None,
    words: Words = Words(),  # noqa: B008, it is immutable
) -> Figure:
    """Reliability diagrams side by side, titled by their keys; a sequence holds the runs of one model and is averaged.

    >>> import torch
    >>> from orthograd.calibration import Evaluation
    >>> evaluation = Evaluation()
    >>> evaluation.update(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    >>> figure = reliability_figure({"SGD": evaluation.reliability(), "⊥Grad": [evaluation.reliability()] * 2})
    >>> [axes.get_title() for axes in figure.axes if axes.get_title()]
    ['SGD', '⊥Grad']
    """
    if not curves:
        raise ValueError("expected at least one curve to draw, got none")
    drawn = {name: _one(curve) for name, curve in curves.items()}
    with figure_style():
        handles = _handles(drawn.values(), words)
        legend_columns = min(len(drawn) + 1, 4)
        layout = _Layout(len(drawn), -(-len(handles) // legend_columns), title is not None)
        figure = Figure(figsize=(layout.width, layout.height))
        _draw_panels(figure, layout, drawn, words)
        if title is not None:
            shown = shortened(title, 9, inches=0.93 * layout.width)
            figure.suptitle(shown, y=1 - 0.06 / layout.height, va="top", fontsize=9, parse_math=False)
        figure.legend(handles=handles, ncols=legend_columns, **LEGEND)
    return figure


def _one(curve: ReliabilityCurve | Sequence[ReliabilityCurve]) -> ReliabilityCurve:
    return curve if isinstance(curve, ReliabilityCurve) else average(curve)


def _draw_panels(figure: Figure, layout: _Layout, curves: Mapping[str, ReliabilityCurve], words: Words) -> None:
    highest = 108 * max(float(curve.share.max()) for curve in curves.values())
    names = told_apart(list(curves), 8, inches=layout.panel)
    for index, (name, curve) in enumerate(zip(names, curves.values(), strict=True)):
        diagram, histogram = layout.axes(figure, index)
        draw_reliability(diagram, curve, words=words)
        draw_confidences(histogram, curve, words=words)
        diagram.set_title(name, pad=4, parse_math=False)
        histogram.set(ylim=(0, highest), yticks=_shares(highest))
        _share_axes(diagram, histogram, is_first=index % COLUMNS == 0)


def _share_axes(diagram: Axes, histogram: Axes, *, is_first: bool) -> None:
    """Label only the outer axes, as the inner ones are the same."""
    for axes in (diagram, histogram):
        axes.set_xticks(list(TICKS), TICKS.values())
        axes.tick_params(labelleft=is_first)
        if not is_first:
            axes.set_ylabel("")
    diagram.set_yticks(list(TICKS), TICKS.values())
    diagram.set_xlabel("")
    diagram.tick_params(labelbottom=False)


def _shares(highest: float) -> tuple[float, float, float]:
    """Three ticks, the upper one low enough not to touch the labels of the diagram above."""
    upper = max((share for share in ROUND if share <= 0.9 * highest), default=0.9 * highest)
    return 0, upper / 2, upper


def _handles(curves: Iterable[ReliabilityCurve], words: Words) -> list[Artist]:
    bands = dict.fromkeys(curve.band for curve in curves)
    return [
        Patch(label=f"{words.y} of a bin", **bar_look(BLUE)),
        Patch(label=words.above, **OVER),
        Patch(label=words.below, **UNDER),
        Line2D([], [], label="perfectly calibrated", **DIAGONAL),
        *(Line2D([], [], label=band, marker="o", markersize=2.4, **BAND) for band in bands),
        Line2D([], [], label=f"mean {words.x}", **CONFIDENCE_MARK),
        Line2D([], [], label=f"overall {words.y}", **ACCURACY_MARK),
    ]


@dataclass(frozen=True)
class _Layout:
    """A grid of square diagrams, each with a histogram under it, between a title and a legend, in inches.

    Margins fit the fonts, so panels stay square and text has room.

    >>> _Layout(panels=3, legend_lines=2, has_title=False).width  # fits a page of text
    6.79
    """

    panels: int
    legend_lines: int
    has_title: bool

    @property
    def panel(self) -> float:
        """The side of a diagram; a single one fills a column of text."""
        return 2.63 if self.panels == 1 else 1.95

    @property
    def width(self) -> float:
        """The width of the figure."""
        columns = min(self.panels, COLUMNS)
        return LEFT + columns * self.panel + (columns - 1) * BETWEEN + RIGHT

    @property
    def height(self) -> float:
        """The height of the figure."""
        rows = -(-self.panels // COLUMNS)
        return TITLE * self.has_title + rows * self._row + LEGEND_LINE * self.legend_lines + 0.08

    def axes(self, figure: Figure, index: int) -> tuple[Axes, Axes]:
        """The diagram and the histogram of a panel."""
        row, column = divmod(index, COLUMNS)
        x = LEFT + column * (self.panel + BETWEEN)
        bottom = self.height - TITLE * self.has_title - row * self._row - NAME - self.panel
        diagram = self._add(figure, x, bottom, self.panel)
        return diagram, self._add(figure, x, bottom - GAP - HISTOGRAM, HISTOGRAM)

    @property
    def _row(self) -> float:
        return NAME + self.panel + GAP + HISTOGRAM + FOOT

    def _add(self, figure: Figure, x: float, y: float, height: float) -> Axes:
        return figure.add_axes((x / self.width, y / self.height, self.panel / self.width, height / self.height))


def draw_reliability(
    axes: Axes,
    curve: ReliabilityCurve,
    *,
    color: str = BLUE,
    label: str | None = "accuracy of a bin",
    words: Words = Words(),  # noqa: B008
) -> None:
    """Accuracy of each bin that holds samples, with its band, and the gap to the bin's mean confidence.

    The gap is hatched where the model is overconfident and dotted where it is underconfident.

    >>> import torch
    >>> from matplotlib.figure import Figure
    >>> from orthograd.calibration import Evaluation
    >>> evaluation = Evaluation()
    >>> evaluation.update(torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 1, 1]))
    >>> axes = Figure().add_subplot()
    >>> draw_reliability(axes, evaluation.reliability())
    >>> [float(bar.get_height()) for bar in axes.containers[0]]
    [0.5, 1.0]
    """
    filled = ~curve.accuracy.isnan()
    left, width = curve.edges[:-1][filled], 1 / len(curve.share)
    confidence, accuracy = curve.confidence[filled], curve.accuracy[filled]
    axes.bar(left, accuracy, width, align="edge", label=label, zorder=2, **bar_look(color))
    _draw_gaps(axes, left, width, confidence, accuracy, words)
    axes.plot([0, 1], [0, 1], label="perfectly calibrated", zorder=4, **DIAGONAL)
    axes.vlines(confidence, curve.low[filled], curve.high[filled], label=curve.band, zorder=5, **BAND)
    axes.plot(confidence, accuracy, "o", color=INK, markersize=2.4, zorder=5, clip_on=False)
    _draw_numbers(axes, curve, words)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel=words.x, ylabel=words.y)


def draw_confidences(
    axes: Axes,
    curve: ReliabilityCurve,
    *,
    color: str = BLUE,
    words: Words = Words(),  # noqa: B008
) -> None:
    """Share of the samples in each confidence bin; lines mark the mean confidence and the accuracy."""
    filled = curve.share > 0
    left, width, share = curve.edges[:-1][filled], 1 / len(curve.share), 100 * curve.share[filled]
    axes.bar(left, share, width, align="edge", label="share of the samples", **bar_look(color))
    axes.axvline(curve.mean_confidence, label=f"mean {words.x}", zorder=3, **CONFIDENCE_MARK)
    axes.axvline(curve.top1_accuracy / 100, label=f"overall {words.y}", zorder=4, **ACCURACY_MARK)
    axes.set(xlim=(0, 1), xlabel=words.x, ylabel="share, %")
    axes.set_ylim(bottom=0)


def summary(curve: ReliabilityCurve, words: Words = Words()) -> str:  # noqa: B008
    """The numbers in the corner of a diagram."""
    return (
        f"ECE {curve.ece:.3f}\n"
        f"by chance {curve.ece_by_chance:.3f} (95%: {curve.ece_by_chance_limit:.3f})\n"
        f"{words.y} {curve.top1_accuracy:.1f}%\n"
        f"{words.x.partition(' ')[0]} {100 * curve.mean_confidence:.1f}%"
    )


def _draw_gaps(axes: Axes, left: Tensor, width: float, confidence: Tensor, accuracy: Tensor, words: Words) -> None:
    for where, look, label in (
        (confidence > accuracy, OVER, words.above),
        (confidence < accuracy, UNDER, words.below),
    ):
        if where.any():  # a legend fails on a group of no bars
            gap = confidence[where] - accuracy[where]
            axes.bar(left[where], gap, width, accuracy[where], align="edge", label=label, zorder=3, **look)


def _draw_numbers(axes: Axes, curve: ReliabilityCurve, words: Words) -> None:
    x, y, across, up = (0.03, 0.97, "left", "top") if _is_upper_left_free(curve) else (0.97, 0.03, "right", "bottom")
    axes.text(
        x,
        y,
        summary(curve, words),
        transform=axes.transAxes,
        horizontalalignment=across,
        verticalalignment=up,
        fontsize=SMALL,
        linespacing=1.25,
        zorder=6,
        path_effects=[withStroke(linewidth=2.4, foreground="white")],  # readable on bars, and hides less than a box
    )


def _is_upper_left_free(curve: ReliabilityCurve) -> bool:
    """True if fewer bars reach into the upper left corner than end in the lower right corner."""
    higher, lower = curve.accuracy.fmax(curve.confidence), curve.accuracy.fmin(curve.confidence)
    in_upper_left = (higher > 0.72) & (curve.edges[1:] <= 0.75)
    in_lower_right = (lower < 0.28) & (curve.edges[:-1] >= 0.25)
    return int(in_upper_left.sum()) <= int(in_lower_right.sum())
