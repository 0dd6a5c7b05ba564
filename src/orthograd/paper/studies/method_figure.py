"""docs/figures/method.svg: a step of ⊥Grad, and its effect on a classifier, from docs/results/when.json.

The file has no embedded fonts and no dates, so it is the same everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from ...lab.page.document import drawing_style, page_patterns
from ...lab.page.figure import Frame, Scale, bottom_axis, curve, left_axis, listed_points
from ...lab.page.markup import Markup, compact, joined, tag

Point = tuple[float, float]
Runs = Sequence[Mapping[str, Sequence[float]]]
"""The values of each run's metrics over epochs."""
FIRST, TICKS = 28, (30, 50, 100, 200, 300)
"""The epoch at which the curves begin; before it, neither method has learned anything."""
TITLES = {"baseline": "SGD: overconfident", "orthograd": "⊥Grad: close to calibrated"}
PANEL = Frame(width=290, height=262, left=44, right=14, top=14, bottom=40)
WIDTH, HEIGHT, TOP, LEFT = 960, 340, 44, 330
STYLE = """
.arrow { fill: none; stroke-width: 2; }
.arrow.weight { stroke: var(--ink); stroke-width: 2.6; }
.arrow.plain { stroke: var(--baseline); }
.arrow.radial, .help { stroke: var(--quiet); stroke-dasharray: 4 3; }
.arrow.full { stroke: var(--candidate); stroke-width: 3; }
.help { fill: none; stroke-width: 1; opacity: .6; }
.tip.weight { fill: var(--ink); }
.tip.plain { fill: var(--baseline); }
.tip.radial { fill: var(--quiet); }
.tip.full { fill: var(--candidate); }
.sphere { fill: none; stroke: var(--quiet); stroke-width: 1.2; opacity: .6; }
.line.confidence { stroke: var(--ink); stroke-width: 2.2; }
.line.accuracy { stroke: var(--ink); stroke-dasharray: 5 3; }
svg text.quiet { fill: var(--quiet); }
svg text.plain { fill: var(--baseline); font-weight: 600; }
svg text.full { fill: var(--candidate); font-weight: 600; }
"""


def method_figure(record: Mapping[str, Any]) -> str:
    """The figure as SVG, from the record of `when_it_hurts`."""
    words = (
        "Left: at the tip of a weight w, on a circle with its norm as radius, SGD's step −g splits into a radial part "
        "along w and −g⊥ along the circle; −ĝ has the direction of −g⊥ and the norm of −g. Middle and right: test "
        "accuracy and mean confidence over epochs. With SGD, confidence rises above accuracy. With ⊥Grad, both rise "
        "more slowly and end close together."
    )
    runs = record["runs"]["plain CNN"]
    epochs = record["epochs"]
    return (
        tag(
            "svg",
            tag("title", "What ⊥Grad does"),
            tag("desc", words),
            tag("style", Markup(drawing_style() + STYLE)),
            page_patterns(),
            tag("rect", class_="ground", width=WIDTH, height=HEIGHT),
            tag("text", "A step, seen from the weight", x=16, y=24, class_="strong"),
            geometry(),
            (
                placed(
                    LEFT + i * 315,
                    tag("text", title, x=PANEL.left, y=-20, class_="strong"),
                    curves(epochs, runs[method]),
                )
                for i, (method, title) in enumerate(TITLES.items())
            ),
            xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            width=WIDTH,
            height=HEIGHT,
            role="img",
        )
        + "\n"
    )


def placed(x: float, *marks: Markup) -> Markup:
    """Marks moved to the right."""
    return tag("g", *marks, transform=f"translate({compact(x)} {TOP})")


def geometry() -> Markup:
    """A weight, and a step of SGD that points outward, as it does once the training images are learned."""
    center, length, angle, radial, tangent = (26.0, 306.0), 196.0, math.radians(54), 70.0, 56.0
    outward, along = (math.cos(angle), -math.sin(angle)), (math.sin(angle), math.cos(angle))
    tip = moved(center, outward, length)
    longer, short = moved(tip, outward, radial), moved(tip, along, tangent)
    full, end = moved(tip, along, math.hypot(radial, tangent)), moved(longer, along, tangent)
    first, last = moved(center, (1, 0), length), moved(center, (0, -1), length)
    arc = f"M{listed_points([first])}A{length:g},{length:g} 0 0 0 {listed_points([last])}"
    help_line = f"M{listed_points([longer])}L{listed_points([end])}L{listed_points([short])}"
    return joined(
        tag("path", class_="sphere", d=arc),
        tag("path", class_="help", d=help_line),
        arrow(tip, full, "full"),
        arrow(center, tip, "weight"),
        arrow(tip, longer, "radial"),
        arrow(tip, end, "plain"),
        tag("circle", class_="tip full", cx=short[0], cy=short[1], r=3.2),
        label(moved(center, outward, length / 2), "w", -12, -4, "strong"),
        label(longer, "radial part of −g:", -13, -22, "quiet right"),
        label(longer, "larger ‖w‖,", -13, -7, "quiet right"),
        label(longer, "more confidence", -13, 8, "quiet right"),
        label(end, "−g, SGD", 6, -2, "plain"),
        label(short, "−g⊥", -9, 16, "full right"),
        label(full, "−ĝ, ⊥Grad:", 4, 18, "full"),
        label(full, "norm of g", 4, 33, "quiet"),
        label(last, "‖w‖ the same", 6, 30, "quiet"),
    )


def label(point: Point, text: str, dx: float, dy: float, look: str) -> Markup:
    """Words beside a point."""
    return tag("text", text, x=point[0] + dx, y=point[1] + dy, class_=f"halo {look}")


def moved(point: Point, direction: Point, by: float) -> Point:
    """A point moved in a direction."""
    return point[0] + direction[0] * by, point[1] + direction[1] * by


def arrow(start: Point, end: Point, look: str) -> Markup:
    """An arrow."""
    length = math.dist(start, end)
    back = (start[0] - end[0]) / length, (start[1] - end[1]) / length
    neck, side = moved(end, back, 9), (-back[1], back[0])
    head = [end, moved(neck, side, 4), moved(neck, side, -4)]
    return joined(
        tag("path", class_=f"arrow {look}", d=f"M{listed_points([start])}L{listed_points([neck])}"),
        tag("path", class_=f"tip {look}", d=f"M{listed_points(head)}Z"),
    )


def curves(epochs: Sequence[int], runs: Runs) -> Markup:
    """Test accuracy and mean confidence, with the gap between them filled."""
    shown = [i for i, epoch in enumerate(epochs) if epoch >= FIRST]
    x = Scale(epochs[shown[0]], epochs[-1], *PANEL.x, is_logarithmic=True)
    y = Scale(0, 100, *PANEL.y)
    means = {
        name: [factor * fmean(run[metric][i] for run in runs) for i in shown]
        for name, metric, factor in (("accuracy", "top1_accuracy", 1), ("confidence", "max_softmax", 100))
    }
    lines = {name: [(x(epochs[i]), y(v)) for i, v in zip(shown, values, strict=True)] for name, values in means.items()}
    return joined(
        left_axis(PANEL, y, label="%"),
        bottom_axis(PANEL, [(x(value), str(value)) for value in TICKS], label="epochs"),
        gaps(lines["accuracy"], lines["confidence"]),
        (curve(points, look=name) for name, points in lines.items()),
        legend(means),
    )


def legend(means: Mapping[str, Sequence[float]]) -> Markup:
    """The legend in the empty corner: both lines with their last values, and both gaps."""
    left, top = 138, 130
    marks = [
        tag("line", class_="line confidence", x1=left, x2=left + 24, y1=top, y2=top),
        tag("line", class_="line accuracy", x1=left, x2=left + 24, y1=top + 18, y2=top + 18),
        tag("rect", class_="gap over", x=left, y=top + 30, width=24, height=11),
        tag("rect", class_="gap under", x=left, y=top + 48, width=24, height=11),
    ]
    words = [f"{name} → {means[name][-1]:.1f}%" for name in ("confidence", "accuracy")]
    words += ["overconfident", "underconfident"]
    return joined(
        marks,
        (tag("text", text, x=left + 30, y=top + 18 * i, dy="0.35em", class_="halo") for i, text in enumerate(words)),
    )


def gaps(accuracy: Sequence[Point], confidence: Sequence[Point]) -> Iterator[Markup]:
    """The areas between two lines; y grows downward."""
    both = with_crossings(accuracy, confidence)
    for look, pick in (("over", min), ("under", max)):
        edge = [(x, pick(a, c)) for x, a, c in both]
        base = [(x, a) for x, a, _ in both]
        yield tag("path", class_=f"gap {look}", d=f"M{listed_points(base)}L{listed_points(edge[::-1])}Z")


def with_crossings(accuracy: Sequence[Point], confidence: Sequence[Point]) -> list[tuple[float, float, float]]:
    """(x, accuracy, confidence) at all points and where the lines cross."""
    rows = [(x, a, c) for (x, a), (_, c) in zip(accuracy, confidence, strict=True)]
    crossed = rows[:1]
    for (x, a, c), (x2, a2, c2) in pairwise(rows):
        if (a - c) * (a2 - c2) < 0:
            share = (a - c) / ((a - c) - (a2 - c2))
            meet = a + share * (a2 - a)
            crossed.append((x + share * (x2 - x), meet, meet))
        crossed.append((x2, a2, c2))
    return crossed
