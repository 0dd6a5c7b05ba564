"""One panel of a figure: an SVG with axes, named and described for those who do not see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .markup import Child, Markup, compact, joined, tag
from .scale import Scale


@dataclass(frozen=True)
class Frame:
    """The size of a panel and where its axes stand, in units that are about a pixel."""

    width: float = 300
    height: float = 210
    left: float = 46
    right: float = 10
    top: float = 10
    bottom: float = 38

    @property
    def x(self) -> tuple[float, float]:
        """Where the horizontal axis starts and ends."""
        return self.left, self.width - self.right

    @property
    def y(self) -> tuple[float, float]:
        """Where the vertical axis starts and ends: upwards."""
        return self.height - self.bottom, self.top


def drawing(identity: str, frame: Frame, *marks: Child, title: str, description: str) -> Markup:
    """The SVG, with its content in words."""
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
    """Lines across the panel at round values, and their labels."""
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
    """The line under a panel, with labels at places on the page."""
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
    """Points as SVG writes them."""
    return " ".join(f"{compact(x)},{compact(y)}" for x, y in points)
