"""Compose the reliability diagrams of several models into one figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..calibration import ReliabilityCurve, average
from .layout import COLUMNS, Layout
from .names import shortened, told_apart
from .reliability import draw_confidences, draw_reliability
from .style import ACCURACY_MARK, BAND, BLUE, CONFIDENCE_MARK, DIAGONAL, OVER, UNDER, bar_look, figure_style

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


def reliability_figure(
    curves: Mapping[str, ReliabilityCurve | Sequence[ReliabilityCurve]], *, title: str | None = None
) -> Figure:
    """Reliability diagrams side by side, named by their keys; a sequence is one model's runs and is averaged.

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
        handles = _handles(drawn.values())
        legend_columns = min(len(drawn) + 1, 4)
        layout = Layout(len(drawn), -(-len(handles) // legend_columns), title is not None)
        figure = Figure(figsize=(layout.width, layout.height))
        _draw_panels(figure, layout, drawn)
        if title is not None:
            shown = shortened(title, 9, inches=0.93 * layout.width)
            figure.suptitle(shown, y=1 - 0.06 / layout.height, va="top", fontsize=9, parse_math=False)
        figure.legend(handles=handles, ncols=legend_columns, **LEGEND)
    return figure


def _one(curve: ReliabilityCurve | Sequence[ReliabilityCurve]) -> ReliabilityCurve:
    return curve if isinstance(curve, ReliabilityCurve) else average(curve)


def _draw_panels(figure: Figure, layout: Layout, curves: Mapping[str, ReliabilityCurve]) -> None:
    highest = 108 * max(float(curve.share.max()) for curve in curves.values())
    names = told_apart(list(curves), 8, inches=layout.panel)
    for index, (name, curve) in enumerate(zip(names, curves.values(), strict=True)):
        diagram, histogram = layout.axes(figure, index)
        draw_reliability(diagram, curve)
        draw_confidences(histogram, curve)
        diagram.set_title(name, pad=4, parse_math=False)
        histogram.set(ylim=(0, highest), yticks=_shares(highest))
        _share_axes(diagram, histogram, is_first=index % COLUMNS == 0)


def _share_axes(diagram: Axes, histogram: Axes, *, is_first: bool) -> None:
    """Label the outer axes alone: the inner ones are the same."""
    for axes in (diagram, histogram):
        axes.set_xticks(list(TICKS), TICKS.values())
        axes.tick_params(labelleft=is_first)
        if not is_first:
            axes.set_ylabel("")
    diagram.set_yticks(list(TICKS), TICKS.values())
    diagram.set_xlabel("")
    diagram.tick_params(labelbottom=False)


def _shares(highest: float) -> tuple[float, float, float]:
    """Three ticks, the upper one far enough below the diagram not to touch its labels."""
    upper = max((share for share in ROUND if share <= 0.9 * highest), default=0.9 * highest)
    return 0, upper / 2, upper


def _handles(curves: Iterable[ReliabilityCurve]) -> list[Artist]:
    bands = dict.fromkeys(curve.band for curve in curves)
    return [
        Patch(label="accuracy of a bin", **bar_look(BLUE)),
        Patch(label="overconfident", **OVER),
        Patch(label="underconfident", **UNDER),
        Line2D([], [], label="perfectly calibrated", **DIAGONAL),
        *(Line2D([], [], label=band, marker="o", markersize=2.4, **BAND) for band in bands),
        Line2D([], [], label="mean confidence", **CONFIDENCE_MARK),
        Line2D([], [], label="overall accuracy", **ACCURACY_MARK),
    ]
