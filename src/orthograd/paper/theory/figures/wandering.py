"""The path that never settles."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Circle

from ....figures.style import BLUE, GREY, INK, VERMILION, figure_style


def wandering_figure(curves: dict[str, Any]) -> Figure:
    """The path seen from above, the angle it has turned by, and its norm."""
    with figure_style():
        figure = Figure(figsize=(6.8, 2.4), layout="constrained")
        above, angle, norm = figure.subplots(1, 3, width_ratios=[1, 1.15, 1.15])
        x, y = zip(*curves["path"], strict=True)
        radius = 1 + curves["norms"][-1][1]
        above.add_patch(Circle((0, 0), radius, fill=False, color=GREY, linewidth=0.9, linestyle=(0, (4, 2.5))))
        above.plot(x, y, color=VERMILION, linewidth=1)
        above.plot(x[0], y[0], "o", color=INK, markersize=3)
        above.text(x[0], y[0], " start", color=INK, va="center")
        above.set(aspect="equal", xlim=(-1.06, 1.06), ylim=(-1.06, 1.06), xticks=[-1, 0, 1], yticks=[-1, 0, 1])
        above.set(title="⊥Grad on the spiral, from above")
        for key, color, line, name in (
            ("turns", VERMILION, "-", "⊥Grad on the spiral"),
            ("harmonic", BLUE, (0, (2, 1.2)), "steps of length 1/(n + 10)"),
        ):
            steps, values = zip(*curves[key], strict=True)
            angle.plot([step + 1 for step in steps], values, color=color, linestyle=line, linewidth=1.2, label=name)
        angle.set(xscale="log", xlabel="step", title="turns")
        angle.legend(frameon=False, loc="upper left")
        steps, values = zip(*curves["norms"], strict=True)
        norm.plot([step + 1 for step in steps], values, color=VERMILION, linewidth=1.2)
        norm.set(xscale="log", xlabel="step", title="‖θ‖ − 1 on the spiral")
    return figure
