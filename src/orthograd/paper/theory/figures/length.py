"""How far is left to go, and how a path grows until it can settle."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from ....figures.style import BLUE, GREY, INK, VERMILION, figure_style


def length_figure(curves: dict[str, Any]) -> Figure:
    """The length still to come on two analytic losses; the condition and the losses of a path from a small start."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.4), layout="constrained")
        left, condition, losses = figure.subplots(1, 3)
        for name, color in (("quadratic", INK), ("logistic regression", VERMILION)):
            points = [(step + 1, value) for step, value in curves[name]["left"] if value > 1e-13]
            points = points[: int(0.93 * len(points))]  # at the very end, what is left is cut off with the run
            left.plot(*zip(*points, strict=True), color=color, linewidth=1.2, label=name)
        left.set(yscale="log", xlabel="step", title="length of the path still to come")
        left.legend(frameon=False)
        growing = curves["growing"]
        shown = 16
        condition.axhline(2, color=GREY, linewidth=0.9, linestyle=(0, (4, 2.5)))
        condition.plot(growing["condition"][:shown], color=VERMILION, marker="o", markersize=2.5, linewidth=1.2)
        condition.set(xlabel="step", title="small start: η(k + G/‖θ‖)", ylim=(0, None))
        losses.plot(growing["loss"][:shown], color=INK, marker="o", markersize=2.5, linewidth=1.2, label="loss of θ")
        losses.plot(
            growing["on the sphere"][:shown],
            color=BLUE,
            linestyle=(0, (2, 1.2)),
            marker="s",
            markersize=2.5,
            linewidth=1.2,
            label="at the last norm",
        )
        losses.set(xlabel="step", title="small start: loss")
        losses.legend(frameon=False, loc="upper right")
    return figure
