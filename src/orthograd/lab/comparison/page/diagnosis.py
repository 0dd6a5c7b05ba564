"""Where ⊥Grad acts: the radial share of each parameter's gradient, and how its norm grew."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...page.figure import METHODS, Frame, Scale, bottom_axis, drawing, entry, figure, panel
from ...page.markup import Markup, joined, table, tag
from ..pair import MethodPair
from ..records import Record, is_number

DRAWN, ROW, LONGEST = 12, 26, 15  # parameters, units of the drawing, letters of a name
EFFECTS = {
    "invariant": "scale-invariant",
    "rows invariant": "scale-invariant, each row",
    "idle": "no effect on the loss",
    "outputs": "rescales the outputs",
    "part of outputs": "rescales a part of the outputs",
    "function": "changes the function",
}
MEANINGS = {
    "scale-invariant": "halving or doubling the parameter does not change the loss, as in front of a normalization "
    "layer. Its gradient has no radial part, so ⊥Grad does not change it. “Each row”: this holds for every filter.",
    "no effect on the loss": "for example a bias in front of BatchNorm. Its gradient is rounding error.",
    "rescales the outputs": "all outputs or some of them, in proportion: a last layer. Its radial gradient makes the "
    "network more or less confident and changes little else. This is what ⊥Grad removes.",
    "changes the function": "a layer inside the network. Its radial gradient rescales it, which changes the outputs "
    "through the layers above.",
}


@dataclass(frozen=True)
class Parameter:
    """A parameter, mean over the seeds: one start for both methods, an end for each."""

    name: str
    effect: str | None
    start: Part
    ends: tuple[Part, Part]

    @property
    def share(self) -> float:
        """Its share of the gradient's energy after training, in the method where that is larger."""
        return max((end.share or 0.0 for end in self.ends), default=0.0)


@dataclass(frozen=True)
class Part:
    """Numbers of a parameter before or after training; None where a run has none."""

    radial: float | None
    share: float | None
    norm: float | None


def section(pair: MethodPair, names: tuple[str, str]) -> Markup | None:
    """A figure and a table; None where records have no diagnosis or have different networks."""
    parameters = parameters_of(pair)
    if not parameters:
        return None
    samples = pair.baseline[0]["diagnosis"]["samples"]
    introduction = tag(
        "p",
        "The radial part of a gradient points along its weight and only rescales it. ⊥Grad removes this part, so it "
        f"acts where it is large. Measured on {samples:,} training samples before the first step and after the last; "
        "mean over the seeds. The effect of a norm was measured by halving and doubling the parameter.",
    )
    drawn = [one for one in parameters if one.effect != "idle"][:DRAWN]
    return joined(introduction, _figure(drawn, names) if drawn else None, _table(parameters, names), _glossary())


def parameters_of(pair: MethodPair) -> list[Parameter]:
    """All parameters, the largest share of the gradient first; none where a record has no diagnosis."""
    parts = [record.get("diagnosis") for record in pair.records]
    if not all(parts) or len({tuple(sorted(part["parameters"])) for part in parts if part}) > 1:
        return []
    parameters = [_parameter(name, pair) for name in pair.baseline[0]["diagnosis"]["parameters"]]
    return sorted(parameters, key=lambda parameter: -parameter.share)


def _parameter(name: str, pair: MethodPair) -> Parameter:
    effects = Counter(record["diagnosis"]["parameters"][name]["kind"] for record in pair.records)
    effect = sorted(effects.items(), key=lambda item: (-item[1], str(item[0])))[0][0]
    ends = _part(pair.baseline, name, "end"), _part(pair.candidate, name, "end")
    return Parameter(name, effect, _part(pair.records, name, "start"), ends)


def _part(records: Sequence[Record], name: str, when: str) -> Part:
    parts = [record["diagnosis"]["parameters"][name][when] for record in records]
    return Part(*(_mean(parts, key) for key in ("radial", "share", "norm")))


def _mean(parts: Sequence[Any], key: str) -> float | None:
    values = [part[key] for part in parts if part is not None and is_number(part[key])]
    return sum(values) / len(values) if len(values) == len(parts) else None


def _figure(parameters: Sequence[Parameter], names: tuple[str, str]) -> Markup:
    samples = [
        entry(_bar(2, 26, 7, look), f"{name}, after the last step") for look, name in zip(METHODS, names, strict=True)
    ]
    start = entry(tag("line", class_="whisker", x1=14, x2=14, y1=1, y2=13), "before the first step")
    return figure(
        "radial",
        title="Radial share of each parameter’s gradient",
        words="The share of the gradient’s energy along the weight. Parameters with the largest gradients come first.",
        legend=[*samples, start],
        panels=[_panel(parameters, names)],
        numbers=[_numbers(parameters, names)],
        columns="one",
    )


def _panel(parameters: Sequence[Parameter], names: tuple[str, str]) -> Markup:
    frame = Frame(width=360, height=48 + ROW * len(parameters), left=112, right=16, top=4)
    x = Scale(0, 100, *frame.x)
    words = "; ".join(f"{one.name} {' and '.join(_percent(end.radial) for end in one.ends)}" for one in parameters)
    picture = drawing(
        "radial-shares",
        frame,
        (tag("line", class_="grid", x1=x(at), x2=x(at), y1=frame.y[0], y2=frame.y[1]) for at in (25, 50, 75, 100)),
        bottom_axis(frame, [(x(at), f"{at}") for at in (0, 25, 50, 75, 100)], label="radial share, %"),
        *(mark for i, one in enumerate(parameters) for mark in _marks(one, frame.top + ROW * (i + 0.5), x)),
        title="Radial share of gradients after training",
        description=f"With {names[0]} and with {names[1]}: {words}.",
    )
    return panel("radial share", "upper bar of each pair: " + names[0], picture)


def _marks(one: Parameter, y: float, x: Scale) -> Iterator[Markup]:
    yield tag("text", _short(one.name), x=x(0) - 6, y=y, dy="0.35em", class_="right")
    for end, look, middle in zip(one.ends, METHODS, (y - 4, y + 4), strict=True):
        if end.radial is not None:
            yield _bar(x(0), x(100 * end.radial), middle, look)
    if one.start.radial is not None:
        at = x(100 * one.start.radial)
        yield tag("line", class_="whisker", x1=at, x2=at, y1=y - 10, y2=y + 10)


def _bar(start: float, end: float, middle: float, look: str) -> Markup:
    return tag("rect", class_=f"mark {look}", x=start, y=middle - 3.5, width=max(0.6, end - start), height=7)


def _numbers(parameters: Sequence[Parameter], names: tuple[str, str]) -> Markup:
    header = ["parameter", "start", *names]
    rows = [[one.name, *(_percent(part.radial) for part in (one.start, *one.ends))] for one in parameters]
    return table("Radial share of the gradient, %", header, rows, label="Radial share of the gradient")


def _table(parameters: Sequence[Parameter], names: tuple[str, str]) -> Markup:
    header = [
        "parameter",
        *(f"{what}, {when}" for what in ("radial", "norm") for when in ("start", *names)),
        "effect of its norm",
    ]
    rows = [
        [
            one.name,
            # The direction of a gradient that is rounding error means nothing.
            *("–" if one.effect == "idle" else _percent(part.radial) for part in (one.start, *one.ends)),
            *(_norm(part.norm) for part in (one.start, *one.ends)),
            EFFECTS.get(str(one.effect), "not measured"),
        ]
        for one in parameters
    ]
    caption = "Every parameter: radial share of its gradient, its norm, and the effect of its norm"
    return table(caption, header, rows, label="Every parameter")


def _glossary() -> Markup:
    pairs = (joined(tag("dt", name), tag("dd", meaning)) for name, meaning in MEANINGS.items())
    return tag("details", tag("summary", "Effects of a parameter’s norm"), tag("dl", pairs))


def _percent(share: float | None) -> str:
    if share is None:
        return "–"
    return "< 0.01%" if 0 < share < 1e-4 else f"{100 * share:.3g}%"


def _norm(norm: float | None) -> str:
    return "–" if norm is None else f"{norm:.3g}"


def _short(name: str) -> str:
    """The end of a name, where the names of layers differ.

    >>> _short("features.layer4.1.conv2.weight")
    '….1.conv2.weight'
    """
    return name if len(name) <= LONGEST else f"…{name[-LONGEST:]}"
