"""The style of all figures: fonts, colors, reproducible files, and names shortened to fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from matplotlib import style
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

# Okabe and Ito's colors, safe for color-blind readers; hatches and line styles work in gray.
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
    "pdf.fonttype": 42,  # embeds text as text; journals reject the default
    "svg.hashsalt": "orthograd",
}
_NO_DATE: dict[str, dict[str, Any]] = {
    ".png": {"Software": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".svg": {"Date": None, "Creator": None},
}


def bar_look(color: str) -> Look:
    """A bar style with the color mixed with white, so that text on it is readable and it prints as light gray."""
    fill = tuple(1 - 0.42 * (1 - channel) for channel in to_rgb(color))
    return {"facecolor": fill, "edgecolor": color, "linewidth": 0.6}


@contextmanager
def figure_style() -> Iterator[None]:
    """A context with the style of our figures; the user's settings are restored afterwards."""
    with style.context(["default", _RC]):
        yield


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a PNG (200 dpi), a PDF or an SVG, by the suffix; the same figure gives the same bytes.

    >>> save_figure(Figure(), "figure.jpeg")
    Traceback (most recent call last):
    ValueError: expected a file name that ends in .png, .pdf or .svg, got figure.jpeg
    """
    suffix = Path(path).suffix.lower()
    if suffix not in _NO_DATE:
        raise ValueError(f"expected a file name that ends in .png, .pdf or .svg, got {path}")
    with figure_style():
        figure.savefig(path, format=suffix[1:], dpi=DPI, metadata=_NO_DATE[suffix])


def shortened(name: str, size: float, *, inches: float) -> str:
    """The name, with its middle cut out until it fits.

    >>> shortened("runs/cifar10/resnet18/orthograd/seed-3/test-predictions.npz", 8, inches=1.95)
    'runs/cifar10/resn…-predictions.npz'
    """
    shorter = (
        f"{name[: (letters + 1) // 2]}…{name[len(name) - letters // 2 :]}" for letters in range(len(name) - 1, 0, -1)
    )
    return _first_that_fits((name, *shorter), size, inches)


def told_apart(names: Sequence[str], size: float, *, inches: float) -> list[str]:
    """The names shortened; where that makes them equal, the part that differs and its surroundings.

    >>> told_apart([f"runs/cifar10/resnet18/seed-{seed}/test-predictions.npz" for seed in (3, 4)], 8, inches=1.5)
    ['…et18/seed-3/test-pred…', '…et18/seed-4/test-pred…']
    """
    shown = [shortened(name, size, inches=inches) for name in names]
    if len(set(shown)) == len(set(names)):
        return shown
    start = _common(names)
    end = _common([name[start:][::-1] for name in names])
    return [_around(name, start, len(name) - end, size, inches) for name in names]


def _around(name: str, start: int, stop: int, size: float, inches: float) -> str:
    wider = (f"…{name[max(0, start - more) : stop + more]}…" for more in range(start, -1, -1))
    fitting = _first_that_fits(wider, size, inches)
    return shortened(fitting, size, inches=inches)


def _common(names: Sequence[str]) -> int:
    """The length of the common prefix of all names."""
    return sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))


def _first_that_fits(texts: Iterable[str], size: float, inches: float) -> str:
    """The first text that is narrow enough, else the last."""
    font, measure, text = FontProperties(family="DejaVu Sans", size=size), TextToPath(), ""
    for text in texts:
        if len(text) * size / 4 > 72 * inches:
            continue  # cannot fit, and measuring is slow
        if measure.get_text_width_height_descent(text, font, ismath=False)[0] <= 72 * inches:
            break
    return text
