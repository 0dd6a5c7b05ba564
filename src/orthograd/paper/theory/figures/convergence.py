"""Theorem 3.1 along six paths."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from ....figures.style import BLUE, GREY, INK, VERMILION, figure_style

LOOKS = {"quadratic": INK, "logistic regression": VERMILION, "homogeneous network": BLUE}
PANELS = {
    "ratio": "fall of the loss / least allowed",
    "share": "Σ‖g⊥‖² / its bound",
    "sine": "‖g⊥‖ / ‖g‖",
}


def convergence_figure(curves: dict[str, Any]) -> Figure:
    """What each step lowers the loss by, the sum of squares and the angle, by step."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.5), layout="constrained")
        axes = figure.subplots(1, 3)
        for panel, (key, title) in zip(axes, PANELS.items(), strict=True):
            for name, found in curves.items():
                problem, form = name.rsplit(", ", 1)
                line = "-" if form == "whole" else (0, (2, 1.2))
                steps, values = zip(*((step + 1, value) for step, value in found[key]), strict=True)
                panel.plot(steps, values, color=LOOKS[problem], linestyle=line, linewidth=1.1, label=name)
            panel.set(xscale="log", xlabel="step", title=title)
        for panel in axes[:2]:
            panel.axhline(1, color=GREY, linewidth=0.9, linestyle=(0, (4, 2.5)))
        axes[0].set(ylim=(0.9, None))
        axes[1].set(ylim=(0, 1.08))
        axes[2].set(yscale="log")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3)
    return figure
