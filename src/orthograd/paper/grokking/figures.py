"""Figures from the records: the mechanism at a glance, and test accuracy over steps for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ...figures.style import BLUE, GREEN, GREY, INK, VERMILION, figure_style
from .records import Record

Look = tuple[str, str]
LOOKS: dict[str, Look] = {
    "adamw": (INK, "--"),
    "ortho_adamw": (VERMILION, "-"),
    "stablemax_short": (BLUE, "-."),
    "decay_8": (GREEN, (0, (1, 1))),  # type: ignore[dict-item]
    "adamw_float64": (GREY, (0, (5, 1))),  # type: ignore[dict-item]
}
"""The rows of the first figure, each with its color and line style."""
CYCLE = list(LOOKS.values())

PANELS = {
    "test_accuracy": ("accuracy on test pairs", "generalization"),
    "zero_gradient": ("share of training pairs", "gradient exactly zero"),
    "cosine": ("cosine of weights and −gradient", "gradient that only rescales"),
    "logit_norm": ("mean norm of logits", "logits"),
    "confidence": ("mean confidence on test pairs", "confidence"),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "figure 1: rate 0.01": ("adamw", "ortho_adamw", "adamw_defaults", "ortho_adamw_stated"),
    "figure 6: rate 0.005, ⊥SGD": ("adamw_slower", "ortho_adamw_slower", "ortho_sgd"),
    "figure 6: transformer": ("transformer_adamw", "transformer_ortho_adamw", "transformer_decay"),
    "rivals: weight decay": ("ortho_adamw", "decay_1", "decay_2", "decay_4", "decay_8", "decay_16"),
    "rivals: other losses": ("ortho_adamw", "adamw_float64", "stablemax_short", "ortho_stablemax"),
    "product": ("product_adamw", "product_ortho_adamw"),
    "sparse parity": ("parity_adamw", "parity_ortho_adamw"),
    "figure 2: 40% of pairs": ("float16_40", "float32_40", "float64_40"),
    "figure 2: 60% of pairs": ("float16_60", "float32_60", "float64_60"),
    "figure 2: 70% of pairs": ("float16_70", "float32_70", "float64_70"),
    "figures 1, 4: long rows": ("stablemax", "stablemax_product", "stablemax_parity", "float64_long"),
}
"""The panels of the second figure: rows by title."""


def mechanism_figure(records: Mapping[str, Record]) -> Figure:
    """Five measures over the steps of the short rows: medians, and the range of all seeds."""
    shown = [records[name] for name in LOOKS if name in records]
    with figure_style():
        figure = Figure(figsize=(2.05 * len(PANELS), 2.5), layout="constrained")
        for axes, (measure, (label, title)) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for record in shown:
                _draw(axes, record, measure, LOOKS[record.row.name])
            axes.set(title=title, xlabel="step", ylabel=label)
            if measure == "logit_norm":
                axes.set_yscale("log")
        _legend_below(figure)
    return figure


def accuracy_figure(records: Mapping[str, Record]) -> Figure:
    """Accuracy on test pairs for each group of rows that has records."""
    groups = {title: [records[name] for name in names if name in records] for title, names in GROUPS.items()}
    groups = {title: rows for title, rows in groups.items() if rows}
    columns = min(4, len(groups))
    lines = -(-len(groups) // columns)
    with figure_style():
        figure = Figure(figsize=(2.4 * columns, 2.3 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, squeeze=False).flatten()
        for axes, (title, rows) in zip(panels, groups.items(), strict=False):
            _group(axes, title, rows)
        for axes in panels[len(groups) :]:
            axes.set_axis_off()
    return figure


def _group(axes: Axes, title: str, rows: Sequence[Record]) -> None:
    looks = [*CYCLE, (BLUE, ":")]
    for record, look in zip(rows, looks, strict=False):
        _draw(axes, record, "test_accuracy", look)
    axes.set(title=title, xlabel="step", ylabel="accuracy on test pairs", ylim=(-0.03, 1.03))
    if max(record.row.steps for record in rows) >= 10_000:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step / 1000:g}k"))
    axes.legend(frameon=False, loc="best", fontsize=5.5)


def _draw(axes: Axes, record: Record, measure: str, look: Look) -> None:
    """Draw the median of the seeds, and their whole range as a band."""
    color, line = look
    values = np.array([[np.nan if value is None else value for value in curve] for curve in record.curves[measure]])
    is_seen = np.isfinite(values).any(0)
    steps, values = np.array(record.steps)[is_seen], values[:, is_seen]
    axes.plot(steps, np.nanmedian(values, 0), linestyle=line, color=color, linewidth=1.3, label=record.row.title)
    axes.fill_between(steps, np.nanmin(values, 0), np.nanmax(values, 0), color=color, alpha=0.18, linewidth=0)


def _legend_below(figure: Figure) -> None:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
