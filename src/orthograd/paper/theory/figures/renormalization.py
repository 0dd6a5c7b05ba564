"""The renormalised variant at a fixed and at a falling rate."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from ....figures.style import BLUE, GREEN, INK, VERMILION, figure_style

LOOKS = {
    "plain": (INK, "-", "plain ⊥Grad"),
    "fixed": (VERMILION, "-", "renormalised, fixed rate"),
    "falling": (BLUE, (0, (2, 1.2)), "renormalised, falling rate"),
    "inside": (GREEN, (0, (4, 1, 1, 1)), "renormalised, from inside"),
}
MINIMUM = (1.5, 1.0)


def renormalization_figure(curves: dict[str, Any]) -> Figure:
    """The first steps in the plane, the length of steps, and the norm."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.6), layout="constrained")
        plane, steps, norms = figure.subplots(1, 3)
        for key, (color, line, name) in LOOKS.items():
            found = curves[key]
            plane.plot(*zip(*found["weights"], strict=True), color=color, linestyle=line, linewidth=0.8, label=name)
            for axes, values in ((steps, found["steps"]), (norms, found["norm"])):
                points = [(step + 1, value) for step, value in values if value > 1e-12]
                axes.plot(*zip(*points, strict=True), color=color, linestyle=line, linewidth=0.9)
        plane.plot(*MINIMUM, "x", color=INK, markersize=5)
        plane.annotate("minimum", MINIMUM, xytext=(0, 5), textcoords="offset points", ha="center")
        plane.set(aspect="equal", title="first 150 steps")
        steps.set(xscale="log", yscale="log", xlabel="step", title="length of a step", ylim=(1e-4, None))
        norms.set(xscale="log", xlabel="step", title="‖θ‖", ylim=(0, None))
        handles, labels = plane.get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4)
    return figure
