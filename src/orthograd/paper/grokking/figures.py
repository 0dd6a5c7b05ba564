"""Figures from the records: the mechanism at a glance, and test accuracy over steps for every row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ...figures.style import BLUE, GREEN, GREY, INK, VERMILION, figure_style
from .records import Record

ROSE, BROWN = "#CC79A7", "#8A5A00"
Look = tuple[str, Any]
LOOKS: tuple[Look, ...] = (
    (INK, "--"),
    (VERMILION, "-"),
    (GREEN, (0, (1, 1))),
    (BLUE, "-."),
    (GREY, (0, (5, 1))),
    (BLUE, ":"),
)
"""Colors and line styles, in the order of the rows."""
MECHANISM = (
    ("adamw", "ortho_adamw", "decay_8", "stablemax_short", "adamw_float64"),
    ("adamw_long", "float16_40", "float32_40", "float64_40"),
)
"""The rows of the first figure: short training above, long training below."""
METHODS: dict[str, Look] = {
    "adamw": (INK, "--"),
    "ortho_adamw": (VERMILION, "-"),
    "decay_8": (GREEN, (0, (1, 1))),
    "stablemax_short": (BLUE, "-."),
    "adamw_float64": (GREY, (0, (5, 1))),
    "adamw_long": (INK, "--"),
    "float64_40": (GREY, (0, (5, 1))),
    "float32_40": (ROSE, "-"),
    "float16_40": (BROWN, (0, (3, 1, 1, 1))),
}
"""The looks of these rows: a method has the same in both halves, and no other row has it."""

PANELS = {
    "test_accuracy": ("accuracy on test pairs", "generalization"),
    "radial": ("share of the gradient's energy", "gradient along the weights"),
    "zero_loss": ("share of training pairs", "loss exactly zero"),
    "logit_norm": ("mean norm of logits", "logits"),
    "confidence": ("mean confidence on test pairs", "confidence"),
}

GROUPS: dict[str, tuple[str, ...]] = {
    "figure 1: rate 0.01": ("adamw", "ortho_adamw", "adamw_defaults", "ortho_adamw_stated"),
    "figure 6: rate 0.005, ⊥SGD": ("adamw_slower", "ortho_adamw_slower", "ortho_sgd"),
    "figure 6: transformer": ("transformer_adamw", "transformer_ortho_adamw", "transformer_decay"),
    "rivals: weight decay": ("decay_1", "ortho_adamw", "decay_8", "decay_2", "decay_4", "decay_16"),
    "rivals: other losses": ("adamw_float64", "ortho_adamw", "ortho_stablemax", "stablemax_short"),
    "product": ("product_adamw", "product_ortho_adamw"),
    "sparse parity": ("parity_adamw", "parity_ortho_adamw"),
    "figure 2: 40% of pairs": ("float16_40", "float32_40", "float64_40"),
    "figure 2: 60% of pairs": ("float16_60", "float32_60", "float64_60"),
    "figure 2: 70% of pairs": ("float16_70", "float32_70", "float64_70"),
    "figures 1, 4: long rows": ("adamw_long", "stablemax", "stablemax_product", "stablemax_parity", "float64_long"),
}
"""The panels of the second figure: rows by title."""
REFERENCE = "ortho_adamw"
"""The row that rivals are drawn with."""


def mechanism_figure(records: Mapping[str, Record]) -> Figure:
    """Measures over the steps of a few rows: medians, and the range of all seeds.

    The rows are those of `MECHANISM`, or else the first ones that have records.
    """
    lines = [[(records[name], METHODS[name]) for name in names if name in records] for names in MECHANISM]
    lines = [rows for rows in lines if rows] or [_looked_up(records, [*records])]
    with figure_style():
        figure = Figure(figsize=(7.2, 4.4 * len(lines)), layout="constrained")
        for part, rows in zip(figure.subfigures(len(lines), 1, squeeze=False)[:, 0], lines, strict=True):
            _measures(part, rows)
    return figure


def with_rate(record: Record, among: Sequence[Record]) -> str:
    """The title of a row, with its learning rate if the rows of a picture have several."""
    rates = {each.row.learning_rate for each in among}
    if len(rates) == 1:
        return record.row.title
    space = "\n" if len(record.row.title) > 20 else " "
    return f"{record.row.title},{space}rate {record.row.learning_rate:g}"


def _measures(part: Any, rows: Sequence[tuple[Record, Look]]) -> None:
    """A panel for each measure, in two lines, with a legend in the place that is left."""
    *panels, last = part.subplots(2, 3).flatten()
    for axes, (measure, (label, title)) in zip(panels, PANELS.items(), strict=True):
        for record, look in rows:
            _draw(axes, record, measure, look)
        axes.set(title=title, xlabel="step", ylabel=label)
        if measure == "logit_norm":
            axes.set_yscale("log")
        else:
            axes.set_ylim(-0.03, 1.03)
        _thousands(axes, [record for record, _ in rows])
    last.set_axis_off()
    shown = [record for record, _ in rows]
    labels = [with_rate(record, shown) for record in shown]
    last.legend(panels[0].get_lines(), labels, loc="center", frameon=False, labelspacing=0.8)


def accuracy_figure(records: Mapping[str, Record]) -> Figure:
    """Accuracy on test pairs for each group of rows that has records."""
    groups = {title: _looked_up(records, names) for title, names in GROUPS.items()}
    groups = {title: rows for title, rows in groups.items() if {each.row.name for each, _ in rows} - {REFERENCE}} or {
        title: rows for title, rows in groups.items() if rows and not title.startswith("rivals")
    }
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    with figure_style():
        figure = Figure(figsize=(2.6 * columns, 2.9 * lines), layout="constrained")
        parts = figure.subfigures(lines, columns, squeeze=False).flatten()
        for part, (title, rows) in zip(parts, groups.items(), strict=False):
            _group(part, title, rows)
    return figure


def _looked_up(records: Mapping[str, Record], names: Sequence[str]) -> list[tuple[Record, Look]]:
    """The records of these rows, each with the look of its place, whichever others there are."""
    return [(records[name], look) for name, look in zip(names, LOOKS, strict=False) if name in records]


def _group(part: Any, title: str, rows: Sequence[tuple[Record, Look]]) -> None:
    axes = part.subplots()
    for record, look in rows:
        _draw(axes, record, "test_accuracy", look)
    axes.set(title=title, xlabel="step", ylabel="accuracy on test pairs", ylim=(-0.03, 1.03))
    _thousands(axes, [record for record, _ in rows])
    part.legend(loc="outside lower center", fontsize=6, frameon=False)  # inside, it would cover a curve


def _draw(axes: Axes, record: Record, measure: str, look: Look) -> None:
    """Draw the median of the seeds, and their whole range as a band."""
    color, line = look
    values = np.array([[np.nan if value is None else value for value in curve] for curve in record.curves[measure]])
    is_seen = np.isfinite(values).any(0)
    steps, values = np.array(record.steps)[is_seen], values[:, is_seen]
    axes.plot(steps, np.nanmedian(values, 0), linestyle=line, color=color, linewidth=1.3, label=record.row.title)
    axes.fill_between(steps, np.nanmin(values, 0), np.nanmax(values, 0), color=color, alpha=0.18, linewidth=0)


def _thousands(axes: Axes, rows: Sequence[Record]) -> None:
    """Write large numbers of steps in thousands."""
    if max(record.row.steps for record in rows) >= 10_000:
        axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step / 1000:g}k"))
