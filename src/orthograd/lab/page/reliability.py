"""Reliability diagrams: accuracy by confidence, and below it the share of predictions in each bin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...calibration import ReliabilityCurve
from .figure import Frame, Scale, drawing, entry, figure, left_axis, panel
from .markup import Markup, joined, table, tag

FRAME = Frame(width=300, height=372, left=42, right=8, top=8, bottom=114)
HISTOGRAM = Frame(width=300, height=372, left=42, right=8, top=270, bottom=38)
TICKS = (0, 0.2, 0.4, 0.6, 0.8, 1)


def reliability_introduction(who: str) -> Markup:
    """How to read the diagrams of ``who``, such as "network"."""
    return tag(
        "p",
        f"Each bar is the accuracy of the predictions in one confidence bin. The bars of a calibrated {who} end on "
        "the dashed diagonal. Hatched gaps are overconfidence, dotted gaps underconfidence.",
    )


def reliability_figure(
    identity: str, title: str, curves: Mapping[str, ReliabilityCurve], panels: Sequence[str] | None = None
) -> Markup:
    """Diagrams side by side, each under its name, with one axis of shares; ``panels`` are their identities."""
    identities = panels or [f"{identity}-{i}" for i in range(len(curves))]
    band = next(iter(curves.values())).band
    highest = min(100.0, 108 * max(float(curve.share.max()) for curve in curves.values()))
    return figure(
        identity,
        title=title,
        words="Below each diagram: the share of predictions in each bin.",
        legend=_legend(band),
        panels=(_panel(*each, highest) for each in zip(curves.values(), curves, identities, strict=True)),
        numbers=[_numbers(curve, name) for name, curve in curves.items()],
        columns="two",
    )


def _panel(curve: ReliabilityCurve, name: str, identity: str, highest: float) -> Markup:
    gap = 100 * curve.mean_confidence - curve.top1_accuracy
    sides = "overconfident" if gap > 0 else "underconfident"
    words = (
        f"ECE {curve.ece:.4f}, of which {curve.ece_by_chance:.4f} by chance; accuracy {curve.top1_accuracy:.2f}%, "
        f"mean confidence {100 * curve.mean_confidence:.2f}%: {sides} by {abs(gap):.2f} points."
    )
    return panel(
        name,
        f"ECE {curve.ece:.4f} ({curve.ece_by_chance:.4f} by chance), {sides} by {abs(gap):.2f} points",
        reliability_drawing(curve, identity, highest, title=f"Reliability of {name}", words=words),
    )


def reliability_drawing(curve: ReliabilityCurve, identity: str, highest: float, *, title: str, words: str) -> Markup:
    """Accuracy over confidence, and below it the shares; ``highest`` is the largest share, in percent."""
    return drawing(identity, FRAME, *_marks(curve, highest), title=title, description=words)


def _marks(curve: ReliabilityCurve, highest: float) -> Iterator[Markup]:
    x, y = Scale(0, 1, *FRAME.x), Scale(0, 1, *FRAME.y)
    yield left_axis(FRAME, y, label="accuracy", about=5)
    width = 1 / len(curve.share)
    for i in (~curve.accuracy.isnan()).nonzero().flatten().tolist():
        accuracy, confidence, low, high = (
            float(getattr(curve, name)[i]) for name in ("accuracy", "confidence", "low", "high")
        )
        place = {"x": x(i * width), "width": x(width) - x(0)}
        lower, upper = sorted((accuracy, confidence))
        look = "over" if confidence > accuracy else "under"
        yield tag("rect", class_="bar", y=y(accuracy), height=y(0) - y(accuracy), **place)
        yield tag("rect", class_=f"gap {look}", y=y(upper), height=y(lower) - y(upper), **place)
        yield tag("line", class_="whisker", x1=x(confidence), x2=x(confidence), y1=y(low), y2=y(high))
        yield tag("circle", class_="dot", cx=x(confidence), cy=y(accuracy), r=2.4)
    yield tag("line", class_="diagonal", x1=x(0), y1=y(0), x2=x(1), y2=y(1))
    yield tag("line", class_="axis", x1=x(0), x2=x(1), y1=y(0), y2=y(0))
    yield from _histogram(curve, x, highest)


def _histogram(curve: ReliabilityCurve, x: Scale, highest: float) -> Iterator[Markup]:
    shares = [100 * float(share) for share in curve.share]
    y = Scale(0, highest, *HISTOGRAM.y)
    floor, width = HISTOGRAM.y[0], x(1 / len(shares)) - x(0)
    for value, text in y.ticks(2):
        yield tag("text", f"{text}%", x=FRAME.left - 6, y=y(value), dy="0.35em", class_="right")
    for i, share in enumerate(shares):
        yield tag("rect", class_="bar", x=x(i / len(shares)), y=y(share), width=width, height=floor - y(share))
    for look, value in (("confidence", curve.mean_confidence), ("accuracy", curve.top1_accuracy / 100)):
        yield tag("line", class_=look, x1=x(value), x2=x(value), y1=floor, y2=HISTOGRAM.top)
    yield tag("line", class_="axis", x1=x(0), x2=x(1), y1=floor, y2=floor)
    for tick in TICKS:
        yield tag("text", f"{tick:g}", x=x(tick), y=floor + 15, class_="middle")
    yield tag("text", "confidence", x=(x(0) + x(1)) / 2, y=FRAME.height - 5, class_="middle label")


def _legend(band: str) -> list[Markup]:
    box = {"x": 1, "y": 1, "width": 26, "height": 12}
    lying = {"x1": 1, "x2": 27, "y1": 7, "y2": 7}
    return [
        entry(tag("rect", class_="bar", **box), "accuracy of a bin"),
        entry(tag("rect", class_="gap over", **box), "overconfident"),
        entry(tag("rect", class_="gap under", **box), "underconfident"),
        entry(tag("line", class_="diagonal", **lying), "perfectly calibrated"),
        entry(
            joined(
                tag("line", class_="whisker", x1=14, x2=14, y1=0, y2=14),
                tag("circle", class_="dot", cx=14, cy=7, r=2.4),
            ),
            band,
        ),
        entry(tag("line", class_="confidence", **lying), "mean confidence"),
        entry(tag("line", class_="accuracy", **lying), "overall accuracy"),
    ]


def _numbers(curve: ReliabilityCurve, title: str) -> Markup:
    edges = curve.edges.tolist()
    rows = [
        [f"{edges[i]:.2g} to {edges[i + 1]:.2g}", f"{100 * float(curve.share[i]):.2f}", *_cells(curve, i)]
        for i in range(len(curve.share))
    ]
    header = ["confidence", "share, %", "mean confidence", "accuracy", "low", "high"]
    return table(f"{title}; low and high: {curve.band}", header, rows, label=title)


def _cells(curve: ReliabilityCurve, i: int) -> list[str]:
    numbers = [float(getattr(curve, name)[i]) for name in ("confidence", "accuracy", "low", "high")]
    return ["–" if number != number else f"{number:.4f}" for number in numbers]
