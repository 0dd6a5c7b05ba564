"""Figures as SVG: scales, axes, marks and panels, with a legend and the numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import Child, Markup, compact, joined, tag

METHODS = ("baseline", "candidate")
"""CSS classes of the two methods, in their order."""

DECADES = 30.0
"""Axes are logarithmic from this ratio of the largest to the smallest value."""


@dataclass(frozen=True)
class Scale:
    """Maps values from ``low`` to ``high`` to coordinates from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float
    is_logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """The coordinate of a value.

        >>> Scale(0, 10, 100, 0)(2.5), Scale(0.01, 1, 0, 100, is_logarithmic=True)(0.1)
        (75.0, 50.0)
        """
        if self.is_logarithmic:
            share = math.log10(value / self.low) / math.log10(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, about: int = 4) -> list[tuple[float, str]]:
        """Round values on the axis with their labels.

        >>> Scale(0.013, 0.068, 0, 1).ticks()
        [(0.02, '0.02'), (0.04, '0.04'), (0.06, '0.06')]
        >>> Scale(0.0008, 3, 0, 1, is_logarithmic=True).ticks()
        [(0.001, '0.001'), (0.01, '0.01'), (0.1, '0.1'), (1.0, '1')]
        """
        return self._decades(about) if self.is_logarithmic else self._round(about)

    def _round(self, about: int) -> list[tuple[float, str]]:
        rough = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= 0.75 * rough)
        digits = max(0, -math.floor(math.log10(step) + 1e-9))
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [(round(i * step, 12), f"{round(i * step, 12):.{digits}f}") for i in range(first, last + 1)]

    def _decades(self, about: int) -> list[tuple[float, str]]:
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        every = max(1, -(-(last - first + 1) // (about + 1)))
        return [(10.0**power, f"{10.0**power:g}") for power in range(first, last + 1, every)]


def around(values: Iterable[float], start: float, end: float, *, may_be_logarithmic: bool = False) -> Scale:
    """A scale that covers all values, with some room at both ends.

    >>> around([1.0, 2.0], 0, 1).low
    0.92
    """
    shown = list(values)
    low, high = min(shown), max(shown)
    if may_be_logarithmic and low > 0 and high / low >= DECADES:
        room = (high / low) ** 0.05
        return Scale(low / room, high * room, start, end, is_logarithmic=True)
    room = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    return Scale(low - room, high + room, start, end)


@dataclass(frozen=True)
class Band:
    """At each point of a curve the mean over runs, the lowest and the highest."""

    mean: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]

    @property
    def extremes(self) -> list[float]:
        """All values that an axis has to cover."""
        return [*self.low, *self.high]


def bands_of(runs: Sequence[Sequence[float]]) -> Band:
    """The band of runs of equal length.

    >>> bands_of([[1.0, 2.0], [3.0, 2.5]])
    Band(mean=[2.0, 2.25], low=[1.0, 2.0], high=[3.0, 2.5])
    """
    places = list(zip(*runs, strict=True))
    return Band(
        [sum(place) / len(place) for place in places],
        [min(place) for place in places],
        [max(place) for place in places],
    )


def thinned(length: int, limit: int) -> list[int]:
    """About ``limit`` of the indices 0 … length − 1, evenly spaced, with the first and the last.

    >>> thinned(10, 4), thinned(3, 10)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    every = max(1, -(-length // limit))
    return sorted({*range(0, length, every), length - 1})


@dataclass(frozen=True)
class Frame:
    """The size of a panel and the margins of its axes, in units of about a pixel."""

    width: float = 300
    height: float = 210
    left: float = 46
    right: float = 10
    top: float = 10
    bottom: float = 38

    @property
    def x(self) -> tuple[float, float]:
        """The start and end of the horizontal axis."""
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[float, float]:
        """The start and end of the vertical axis, from bottom to top."""
        return self.height - self.bottom, self.top


def drawing(identity: str, frame: Frame, *marks: Child, title: str, description: str) -> Markup:
    """The SVG, with a description in words."""
    return tag(
        "svg",
        tag("title", title, id=f"{identity}-title"),
        tag("desc", description, id=f"{identity}-words"),
        *marks,
        viewBox=f"0 0 {compact(frame.width)} {compact(frame.height)}",
        role="img",
        aria_labelledby=f"{identity}-title {identity}-words",
    )


def panel(title: str, note: str, picture: Markup) -> Markup:
    """A drawing under its title and a line of words."""
    return tag(
        "div", tag("p", tag("strong", title), " ", tag("span", note), class_="panel-title"), picture, class_="panel"
    )


def left_axis(frame: Frame, scale: Scale, *, label: str = "", about: int = 4) -> Markup:
    """Grid lines at round values, with labels."""
    start, end = frame.x
    lines = [
        joined(
            tag("line", class_="grid", x1=start, x2=end, y1=scale(value), y2=scale(value)),
            tag("text", text, x=start - 6, y=scale(value), dy="0.35em", class_="right"),
        )
        for value, text in scale.ticks(about)
    ]
    middle = (frame.y[0] + frame.y[1]) / 2
    named = tag("text", label, class_="middle label", transform=f"translate(11 {compact(middle)}) rotate(-90)")
    return joined(lines, named if label else None)


def bottom_axis(frame: Frame, ticks: Iterable[tuple[float, str]], *, label: str = "") -> Markup:
    """The horizontal axis, with labels at the given coordinates."""
    floor = frame.y[0]
    middle = (frame.x[0] + frame.x[1]) / 2
    return joined(
        tag("line", class_="axis", x1=frame.x[0], x2=frame.x[1], y1=floor, y2=floor),
        (tag("text", text, x=x, y=floor + 15, class_="middle") for x, text in ticks),
        tag("text", label, x=middle, y=frame.height - 5, class_="middle label") if label else None,
    )


def curve(points: Sequence[tuple[float, float]], *, look: str) -> Markup:
    """A line through points."""
    return tag("polyline", class_=f"line {look}", points=listed_points(points))


def area(lower: Sequence[tuple[float, float]], upper: Sequence[tuple[float, float]], *, look: str) -> Markup:
    """The band between two lines."""
    return tag("path", class_=f"band {look}", d=f"M{listed_points(lower)}L{listed_points(upper[::-1])}Z")


def marker(x: float, y: float, *, look: str, size: float = 3.2) -> Markup:
    """A circle for the baseline, a square for the candidate."""
    if look == "baseline":
        return tag("circle", class_=f"mark {look}", cx=x, cy=y, r=size)
    return tag("rect", class_=f"mark {look}", x=x - size, y=y - size, width=2 * size, height=2 * size)


def listed_points(points: Iterable[tuple[float, float]]) -> str:
    """Points in SVG notation."""
    return " ".join(f"{compact(x)},{compact(y)}" for x, y in points)


def figure(
    identity: str,
    *,
    title: str,
    words: str,
    legend: Iterable[Markup],
    panels: Iterable[Markup],
    numbers: Iterable[Markup],
    columns: str,
) -> Markup:
    """Panels side by side, as many as fit, with their numbers as folded tables."""
    return tag(
        "figure",
        tag("figcaption", tag("strong", f"{title}.", id=f"{identity}-name"), f" {words}"),
        tag("ul", legend, class_="legend"),
        tag("div", panels, class_=f"panels {columns}"),
        tag("details", tag("summary", "Numbers of this figure"), numbers),
        aria_labelledby=f"{identity}-name",
    )


def entry(sample: Markup, words: str) -> Markup:
    """A line of a legend."""
    drawn = tag("svg", sample, viewBox="0 0 28 14", width="28", height="14", aria_hidden="true")
    return tag("li", drawn, " ", words)


def method_entries(names: Sequence[str], *, has_lines: bool = True) -> list[Markup]:
    """Legend entries of the two methods: lines with markers, or markers only."""
    return [
        entry(
            joined(
                tag("line", class_=f"line {look}", x1=0, x2=28, y1=7, y2=7) if has_lines else None,
                marker(14, 7, look=look),
            ),
            name,
        )
        for look, name in zip(METHODS, names, strict=True)
    ]


def band_entry(words: str) -> Markup:
    """The legend entry of the bands."""
    bands = (
        tag("rect", class_=f"band {look}", x=1 + 13 * i, y=2, width=13, height=10) for i, look in enumerate(METHODS)
    )
    return entry(joined(bands), words)
