"""What a gradient step does to decisions."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from ....figures.style import BLUE, INK, VERMILION, figure_style

COLORS = ListedColormap(["#CFE3F1", "#FBD9BF", "#D3EBDF"])
SPAN = (-3.0, 3.0, -3.0, 3.0)


def boundary_figure(curves: dict[str, Any]) -> Figure:
    """Decisions before and after a step along the gradient and at random; shares changed in five networks."""
    with figure_style():
        figure = Figure(figsize=(6.8, 4.2), layout="constrained")
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.05])[:, 0]
        maps = {name: [[int(digit) for digit in row] for row in rows] for name, rows in curves["map"].items()}
        for axes, (name, classes) in zip(upper.subplots(1, 3), maps.items(), strict=True):
            _draw_map(axes, classes, maps["as trained"])
            axes.set(title=name if name == "as trained" else f"step of 30 % {name}")
        panels = lower.subplots(1, len(curves["networks"]), sharey=True)
        for axes, (name, found) in zip(panels, curves["networks"].items(), strict=True):
            _draw_shares(axes, curves["lengths"], found)
            axes.set(title=name, xlabel="step / ‖θ‖")
        panels[0].set(ylabel="predictions changed, %")
        handles, labels = panels[0].get_legend_handles_labels()
        lower.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3)
    return figure


def _draw_map(axes: Axes, classes: list[list[int]], before: list[list[int]]) -> None:
    """The regions of the classes, and what changed darkened; rows of the map are the first coordinate."""
    columns = list(zip(*classes, strict=True))
    axes.imshow(columns, origin="lower", extent=SPAN, cmap=COLORS, vmin=0, vmax=2, interpolation="nearest")
    changed = [
        [float(a != b) for a, b in zip(*pair, strict=True)]
        for pair in zip(columns, zip(*before, strict=True), strict=True)
    ]
    dark = ListedColormap(["#00000000", VERMILION])
    axes.imshow(changed, origin="lower", extent=SPAN, cmap=dark, vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[-3, 0, 3], yticks=[-3, 0, 3])


def _draw_shares(axes: Axes, lengths: list[float], found: dict[str, Any]) -> None:
    for key, color, line, marker, name in (
        ("random", INK, "--", "o", "at random"),
        ("gradient", VERMILION, "-", "s", "along the gradient"),
        ("rescaling", BLUE, ":", "^", "its radial part"),
    ):
        shares = [100 * share for share in found[key]]
        axes.plot(lengths, shares, line, color=color, marker=marker, markersize=2.5, linewidth=1.1, label=name)
    axes.set(xscale="log", ylim=(-0.8, 18))
