"""A figure for each demonstration, drawn from its record."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ...figures.style import BLUE, GREEN, GREY, INK, VERMILION, figure_style

DASHED = (0, (4, 2.5))
DOTTED = (0, (2, 1.2))
PROBLEMS = {"quadratic": INK, "logistic regression": VERMILION, "homogeneous network": BLUE}
FORMS = {"whole": "-", "layer-wise": DOTTED}
PANELS = {
    "ratio": "fall of the loss / least allowed",
    "share": "Σ‖g⊥‖² / its bound",
    "sine": "‖g⊥‖ / ‖g‖",
}
VARIANTS = {
    "plain": (INK, "-", "plain ⊥Grad"),
    "fixed": (VERMILION, "-", "renormalized, fixed rate"),
    "falling": (BLUE, DOTTED, "renormalized, falling rate"),
    "inside": (GREEN, (0, (4, 1, 1, 1)), "renormalized, from inside"),
}
MINIMUM = (1.5, 1.0)
CLASSES = ListedColormap(["#CFE3F1", "#FBD9BF", "#D3EBDF"])
SPAN = (-3.0, 3.0, -3.0, 3.0)


def convergence_figure(curves: dict[str, Any]) -> Figure:
    """The fall of the loss, the sum of squares and the angle, by step."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.5), layout="constrained")
        axes = figure.subplots(1, 3)
        for panel, (key, title) in zip(axes, PANELS.items(), strict=True):
            for (problem, color), (form, line) in product(PROBLEMS.items(), FORMS.items()):
                name = f"{problem}, {form}"
                steps, values = zip(*((step + 1, value) for step, value in curves[name][key]), strict=True)
                panel.plot(steps, values, color=color, linestyle=line, linewidth=1.1, label=name)
            panel.set(xscale="log", xlabel="step", title=title)
        for panel in axes[:2]:
            panel.axhline(1, color=GREY, linewidth=0.9, linestyle=DASHED)
        axes[0].set(ylim=(0.9, None))
        axes[1].set(ylim=(0, 1.08))
        axes[2].set(yscale="log")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3)
    return figure


def wandering_figure(curves: dict[str, Any]) -> Figure:
    """The path from above, its angle, and its norm."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.4), layout="constrained")
        above, angle, norm = figure.subplots(1, 3, width_ratios=[1, 1.15, 1.15])
        x, y = zip(*curves["path"], strict=True)
        radius = 1 + curves["norms"][-1][1]
        above.add_patch(Circle((0, 0), radius, fill=False, color=GREY, linewidth=0.9, linestyle=DASHED))
        above.plot(x, y, color=VERMILION, linewidth=1)
        above.plot(x[0], y[0], "o", color=INK, markersize=3)
        above.text(x[0], y[0], " start", color=INK, va="center")
        above.set(aspect="equal", xlim=(-1.06, 1.06), ylim=(-1.06, 1.06), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        above.set(title="⊥Grad on the spiral, from above")
        for key, color, line, name in (
            ("turns", VERMILION, "-", "⊥Grad on the spiral"),
            ("harmonic", BLUE, DOTTED, "steps of length 1/(n + 10)"),
        ):
            steps, values = zip(*curves[key], strict=True)
            angle.plot([step + 1 for step in steps], values, color=color, linestyle=line, linewidth=1.2, label=name)
        angle.set(xscale="log", xlabel="step", title="turns")
        angle.legend(frameon=False, loc="upper left")
        steps, values = zip(*curves["norms"], strict=True)
        norm.plot([step + 1 for step in steps], values, color=VERMILION, linewidth=1.2)
        norm.set(xscale="log", xlabel="step", title="‖θ‖ − 1 on the spiral")
    return figure


def path_length_figure(curves: dict[str, Any]) -> Figure:
    """The remaining path length on two analytic losses; the condition and the losses of a path from a small start."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.4), layout="constrained")
        left, condition, losses = figure.subplots(1, 3)
        for name, color in (("quadratic", INK), ("logistic regression", VERMILION)):
            points = [(step + 1, value) for step, value in curves[name]["left"] if value > 1e-13]
            points = points[: int(0.93 * len(points))]  # the run ends before the path does
            left.plot(*zip(*points, strict=True), color=color, linewidth=1.2, label=name)
        left.set(yscale="log", xlabel="step", title="remaining path length")
        left.legend(frameon=False)
        growing = curves["growing"]
        shown = 16
        condition.axhline(2, color=GREY, linewidth=0.9, linestyle=DASHED)
        condition.plot(growing["condition"][:shown], color=VERMILION, marker="o", markersize=2.5, linewidth=1.2)
        condition.set(xlabel="step", title="small start: η(k + G/‖θ‖)", ylim=(0, None))
        losses.plot(growing["loss"][:shown], color=INK, marker="o", markersize=2.5, linewidth=1.2, label="loss of θ")
        losses.plot(
            growing["on the sphere"][:shown],
            color=BLUE,
            linestyle=DOTTED,
            marker="s",
            markersize=2.5,
            linewidth=1.2,
            label="at the last norm",
        )
        losses.set(xlabel="step", title="small start: loss")
        losses.legend(frameon=False, loc="upper right")
    return figure


def renormalization_figure(curves: dict[str, Any]) -> Figure:
    """The first steps in the plane, the length of steps, and the norm."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.6), layout="constrained")
        plane, steps, norms = figure.subplots(1, 3)
        for key, (color, line, name) in VARIANTS.items():
            path = curves[key]
            plane.plot(*zip(*path["weights"], strict=True), color=color, linestyle=line, linewidth=0.8, label=name)
            for axes, values in ((steps, path["steps"]), (norms, path["norm"])):
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


def boundary_figure(curves: dict[str, Any]) -> Figure:
    """Decisions before and after a step along the gradient and at random; shares changed in five networks."""
    with figure_style():
        figure = Figure(figsize=(6.8, 4.2), layout="constrained")
        upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.05])[:, 0]
        maps = {name: [[int(digit) for digit in row] for row in rows] for name, rows in curves["map"].items()}
        for axes, (name, classes) in zip(upper.subplots(1, 3), maps.items(), strict=True):
            _draw_map(axes, classes, maps["as trained"])
            axes.set(title=name if name == "as trained" else f"step of 30% {name}")
        panels = lower.subplots(1, len(curves["networks"]), sharey=True)
        for axes, (name, network) in zip(panels, curves["networks"].items(), strict=True):
            _draw_shares(axes, curves["lengths"], network)
            axes.set(title=name, xlabel="step / ‖θ‖")
        panels[0].set(ylabel="predictions changed, %")
        handles, labels = panels[0].get_legend_handles_labels()
        lower.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3)
    return figure


def _draw_map(axes: Axes, classes: list[list[int]], before: list[list[int]]) -> None:
    """The regions of the classes, with changes darkened; rows of the map are the first coordinate."""
    columns = list(zip(*classes, strict=True))
    axes.imshow(columns, origin="lower", extent=SPAN, cmap=CLASSES, vmin=0, vmax=2, interpolation="nearest")
    changed = [
        [float(a != b) for a, b in zip(*pair, strict=True)]
        for pair in zip(columns, zip(*before, strict=True), strict=True)
    ]
    dark = ListedColormap(["#00000000", VERMILION])
    axes.imshow(changed, origin="lower", extent=SPAN, cmap=dark, vmin=0, vmax=1, interpolation="nearest")
    axes.set(xticks=[-3, 0, 3], yticks=[-3, 0, 3])


def _draw_shares(axes: Axes, lengths: list[float], network: dict[str, Any]) -> None:
    for key, color, line, marker, name in (
        ("random", INK, "--", "o", "at random"),
        ("gradient", VERMILION, "-", "s", "along the gradient"),
        ("rescaling", BLUE, ":", "^", "its radial part"),
    ):
        shares = [100 * share for share in network[key]]
        axes.plot(lengths, shares, line, color=color, marker=marker, markersize=2.5, linewidth=1.1, label=name)
    axes.set(xscale="log", ylim=(-0.8, 18))


FIGURES: dict[str, Callable[[dict[str, Any]], Figure]] = {
    "convergence": convergence_figure,
    "wandering": wandering_figure,
    "path_length": path_length_figure,
    "renormalization": renormalization_figure,
    "boundary": boundary_figure,
}
"""By the names of the demonstrations."""
