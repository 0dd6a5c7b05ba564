"""Metrics by the severity of a corruption, for two methods with their seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .style import BLUE, INK, VERMILION, figure_style

LOOKS = ((INK, "--", "o"), (VERMILION, "-", "s"), (BLUE, "-.", "^"))
NAMES = {
    "top1_accuracy": "accuracy, % ↑",
    "loss": "loss, nats ↓",
    "ece": "ECE ↓",
    "max_softmax": "mean confidence",
}


def severity_figure(curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> Figure:
    """One panel per metric: {metric: {method: one list per run of values at severities 0 (clean), 1, 2, …}}.

    >>> figure = severity_figure({"ece": {"SGD": [[0.1, 0.2], [0.1, 0.3]], "⊥Grad": [[0.1, 0.1], [0.1, 0.2]]}})
    >>> [round(float(y), 2) for y in figure.axes[0].lines[0].get_ydata()]
    [0.1, 0.25]
    """
    with figure_style():
        figure = Figure(figsize=(2.0 * len(curves) + 0.4, 2.25), layout="constrained")
        axes = figure.subplots(1, len(curves), squeeze=False)[0]
        for panel, (metric, methods) in zip(axes, curves.items(), strict=True):
            for (name, runs), look in zip(methods.items(), LOOKS, strict=False):
                _draw(panel, name, runs, look)
            panel.set(
                xlabel="severity", title=NAMES.get(metric, metric), xticks=range(len(next(iter(methods.values()))[0]))
            )
        axes[0].legend(frameon=False, loc="best")
    return figure


def _draw(axes: Axes, name: str, runs: Sequence[Sequence[float]], look: tuple[str, str, str]) -> None:
    """Draw the mean over the runs, and every run faintly behind it."""
    color, line, marker = look
    mean = [sum(values) / len(values) for values in zip(*runs, strict=True)]
    axes.plot(mean, line, color=color, marker=marker, markersize=3, linewidth=1.2, label=name, zorder=2)
    for run in runs:
        axes.plot(run, color=color, linewidth=0.4, alpha=0.35, zorder=1)
