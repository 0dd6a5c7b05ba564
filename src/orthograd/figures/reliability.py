"""Draw one reliability curve: accuracy over confidence, and how the confidences are spread."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patheffects import withStroke
from torch import Tensor

from ..calibration import ReliabilityCurve
from .style import ACCURACY_MARK, BAND, BLUE, CONFIDENCE_MARK, DIAGONAL, INK, OVER, SMALL, UNDER, bar_look


def draw_reliability(
    axes: Axes, curve: ReliabilityCurve, *, color: str = BLUE, label: str | None = "accuracy of a bin"
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
    _draw_gaps(axes, left, width, confidence, accuracy)
    axes.plot([0, 1], [0, 1], label="perfectly calibrated", zorder=4, **DIAGONAL)
    axes.vlines(confidence, curve.low[filled], curve.high[filled], label=curve.band, zorder=5, **BAND)
    axes.plot(confidence, accuracy, "o", color=INK, markersize=2.4, zorder=5, clip_on=False)
    _draw_numbers(axes, curve)
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="confidence", ylabel="accuracy")


def draw_confidences(axes: Axes, curve: ReliabilityCurve, *, color: str = BLUE) -> None:
    """Share of the samples in each bin of confidence; lines mark the mean confidence and the accuracy."""
    filled = curve.share > 0
    left, width, share = curve.edges[:-1][filled], 1 / len(curve.share), 100 * curve.share[filled]
    axes.bar(left, share, width, align="edge", label="share of the samples", **bar_look(color))
    axes.axvline(curve.mean_confidence, label="mean confidence", zorder=3, **CONFIDENCE_MARK)
    axes.axvline(curve.top1_accuracy / 100, label="overall accuracy", zorder=4, **ACCURACY_MARK)
    axes.set(xlim=(0, 1), xlabel="confidence", ylabel="share, %")
    axes.set_ylim(bottom=0)


def summary(curve: ReliabilityCurve) -> str:
    """The numbers in the corner of a diagram."""
    return (
        f"ECE {curve.ece:.3f}\n"
        f"by chance {curve.ece_by_chance:.3f} (95 %: {curve.ece_by_chance_limit:.3f})\n"
        f"accuracy {curve.top1_accuracy:.1f} %\n"
        f"confidence {100 * curve.mean_confidence:.1f} %"
    )


def _draw_gaps(axes: Axes, left: Tensor, width: float, confidence: Tensor, accuracy: Tensor) -> None:
    for where, look, label in (
        (confidence > accuracy, OVER, "overconfident"),
        (confidence < accuracy, UNDER, "underconfident"),
    ):
        if where.any():  # a legend fails on a group of no bars
            gap = confidence[where] - accuracy[where]
            axes.bar(left[where], gap, width, accuracy[where], align="edge", label=label, zorder=3, **look)


def _draw_numbers(axes: Axes, curve: ReliabilityCurve) -> None:
    x, y, across, up = (0.03, 0.97, "left", "top") if _is_upper_left_free(curve) else (0.97, 0.03, "right", "bottom")
    axes.text(
        x,
        y,
        summary(curve),
        transform=axes.transAxes,
        horizontalalignment=across,
        verticalalignment=up,
        fontsize=SMALL,
        linespacing=1.25,
        zorder=6,
        path_effects=[withStroke(linewidth=2.4, foreground="white")],  # readable on bars, and hides less than a box
    )


def _is_upper_left_free(curve: ReliabilityCurve) -> bool:
    """Whether fewer bars reach into the upper left corner than end in the lower right one."""
    higher, lower = curve.accuracy.fmax(curve.confidence), curve.accuracy.fmin(curve.confidence)
    in_upper_left = (higher > 0.72) & (curve.edges[1:] <= 0.75)
    in_lower_right = (lower < 0.28) & (curve.edges[:-1] >= 0.25)
    return int(in_upper_left.sum()) <= int(in_lower_right.sum())
