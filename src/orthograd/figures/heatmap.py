"""Heat maps of one quantity of every parameter over training: a row per parameter, from input to output."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize, PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from .style import BLUE, INK, VERMILION, figure_style

ROW, HEAD, FOOT, LEAST = 0.165, 0.3, 0.42, 4  # inches; rows that a color bar needs
WIDTH, BAR, GAP, LETTER, RIGHT = 3.6, 0.11, 0.09, 0.058, 0.5
MISSING = "#DDDDDD"
LONGEST = 34  # letters of a name

Values = Mapping[str, Sequence[float | None]]

_RISING = LinearSegmentedColormap.from_list("share", ["#FFFFFF", "#9CC9E3", BLUE, "#00304C"])
_SIGNED = LinearSegmentedColormap.from_list("signed", ["#6B2C00", VERMILION, "#FFFFFF", BLUE, "#00304C"])


@dataclass(frozen=True)
class Look:
    """The style of a quantity: its title, whether it is signed, and the ends of its color scale."""

    label: str
    is_signed: bool = False
    end: float | None = None
    is_percent: bool = False


LOOKS = {
    "radial": Look("radial share of its gradient", end=1.0, is_percent=True),
    "removed": Look("radial share of the whole gradient", is_percent=True),
    "cosine": Look("cosine of gradient and weight", is_signed=True, end=1.0),
    "update_cosine": Look("cosine of update and weight", is_signed=True, end=1.0),
    "drift": Look("weight norm since the start", is_signed=True, is_percent=True),
    "weight_norm": Look("weight norm"),
    "gradient_norm": Look("gradient norm"),
}


def heatmap_figure(steps: Sequence[int], values: Values, *, quantity: str, title: str = "") -> Figure:
    """The heat map of values by parameter and step, as `orthograd.Recorder` gives them; missing values are gray.

    >>> figure = heatmap_figure([0, 100], {"weight": [0.1, 0.4], "bias": [None, 0.2]}, quantity="radial")
    >>> len(figure.axes)
    2
    """
    if quantity not in LOOKS:
        raise ValueError(f"expected a quantity among {', '.join(LOOKS)}, got {quantity}")
    if not values or any(len(row) != len(steps) for row in values.values()):
        raise ValueError(f"expected {len(steps)} values for each of at least one parameter, got {_sizes(values)}")
    with figure_style():
        figure, axes, bar = _places([_short(name) for name in values])
        _draw(axes, bar, steps, values, LOOKS[quantity])
        axes.set_title(f"{title}: {LOOKS[quantity].label}" if title else LOOKS[quantity].label, loc="left")
    return figure


def _places(names: Sequence[str]) -> tuple[Figure, Axes, Axes]:
    """Axes with room for the longest name, rows of equal height, and a color bar to the right."""
    left = 0.14 + LETTER * max(map(len, names))
    inner = ROW * max(len(names), LEAST)
    width, height = left + WIDTH + GAP + BAR + RIGHT, HEAD + inner + FOOT
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((left / width, FOOT / height, WIDTH / width, inner / height))
    bar = figure.add_axes(((left + WIDTH + GAP) / width, FOOT / height, BAR / width, inner / height))
    axes.set_yticks(range(len(names)), names)
    return figure, axes, bar


def _draw(axes: Axes, bar: Axes, steps: Sequence[int], values: Values, look: Look) -> None:
    cells = [[math.nan if value is None else value for value in row] for row in values.values()]
    colors, norm = _colors(look, [value for row in cells for value in row if math.isfinite(value)])
    axes.set_facecolor(MISSING)
    image = axes.imshow(cells, aspect="auto", interpolation="nearest", cmap=colors, norm=norm)
    has_gaps = any(math.isnan(value) for row in cells for value in row)
    axes.set_xlabel("step; gray where weight or gradient is next to zero" if has_gaps else "step")
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _step_at(x, steps)))
    axes.tick_params(axis="y", length=0)
    scale = axes.figure.colorbar(image, cax=bar)
    scale.outline.set_linewidth(0.6)  # type: ignore[operator]
    scale.outline.set_edgecolor(INK)  # type: ignore[operator]
    if look.is_percent:
        scale.formatter = FuncFormatter(lambda share, _: f"{100 * share:g}%".replace("-", "−"))
        scale.update_ticks()


def _colors(look: Look, known: Sequence[float]) -> tuple[Colormap, Normalize]:
    """The color scale. White is zero; shares use a square root, so that 1% is visible beside 50%."""
    end = look.end or max(map(abs, known), default=0.0) or 1.0
    if look.is_signed:
        return _SIGNED, Normalize(-end, end)
    return _RISING, PowerNorm(0.5, 0, end) if look.is_percent else Normalize(0, end)


def _step_at(place: float, steps: Sequence[int]) -> str:
    """The label of a column; empty between columns, where a plot of few columns also has ticks.

    >>> _step_at(1.0, [0, 1000]), _step_at(0.5, [0, 1000]), _step_at(2.0, [0, 1000])
    ('1,000', '', '')
    """
    return f"{steps[int(place)]:,}" if place in range(len(steps)) else ""


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"


def _sizes(values: Values) -> str:
    return "none" if not values else ", ".join(str(len(row)) for row in values.values())
