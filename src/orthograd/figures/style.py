"""How every figure looks and is saved: the same fonts, inks and bytes wherever it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; hatches and line styles do the same in grey.
BLUE = "#0072B2"
VERMILION = "#D55E00"
GREEN = "#007A59"
INK = "#222222"
GREY = "#777777"

Look = dict[str, Any]
OVER: Look = {"facecolor": "#FBD9BF", "edgecolor": VERMILION, "hatch": "//////", "linewidth": 0.6}
UNDER: Look = {"facecolor": "#D3EBDF", "edgecolor": GREEN, "hatch": "......", "linewidth": 0.6}
CONFIDENCE_MARK: Look = {"color": VERMILION, "linestyle": "-", "linewidth": 1.3}
ACCURACY_MARK: Look = {"color": INK, "linestyle": (0, (1.2, 1.0)), "linewidth": 1.6}
DIAGONAL: Look = {"color": GREY, "linestyle": (0, (4, 2.5)), "linewidth": 0.9}
BAND: Look = {"color": INK, "linewidth": 0.9}

DPI = 200
SMALL = 6.5
_RC = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so lines break alike everywhere
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 8,
    "axes.linewidth": 0.6,
    "axes.edgecolor": INK,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "legend.fontsize": SMALL,
    "hatch.linewidth": 0.6,
    "pdf.fonttype": 42,  # text stays text: journals refuse the default
    "svg.hashsalt": "orthograd",
}
_NO_DATE: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}


def bar_look(color: str) -> Look:
    """Bars in a colour mixed with white, so that ink on them stays readable and they print as light grey."""
    fill = tuple(1 - 0.42 * (1 - channel) for channel in to_rgb(color))
    return {"facecolor": fill, "edgecolor": color, "linewidth": 0.6}


@contextmanager
def figure_style() -> Iterator[None]:
    """The look of our figures, whatever the user's settings, which come back afterwards."""
    with style.context(["default", _RC]):
        yield


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a PNG of 200 dots an inch, a PDF or an SVG, by the suffix; the same figure gives the same bytes.

    >>> save_figure(Figure(), "figure.jpeg")
    Traceback (most recent call last):
    ValueError: expected a file name that ends in .png, .pdf or .svg, got figure.jpeg
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _NO_DATE:
        raise ValueError(f"expected a file name that ends in .png, .pdf or .svg, got {path}")
    with figure_style():
        figure.savefig(path, format=suffix[1:], dpi=DPI, metadata=_NO_DATE[suffix])
