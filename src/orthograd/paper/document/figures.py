"""The paper's figures, redrawn from records, for light and dark backgrounds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from ...lab.comparison.formats import TITLES
from ...lab.comparison.page.curves import SEVERITY_FRAME as FRAME
from ...lab.comparison.page.curves import TRAINING_FRAME as TRAINING
from ...lab.comparison.page.curves import severity_bands, severity_drawing, training_drawing
from ...lab.comparison.page.reliability import curves_of
from ...lab.comparison.page.tables import typeset
from ...lab.comparison.pair import MethodPair
from ...lab.page.document import drawing_style, page_patterns
from ...lab.page.figure import (
    METHODS,
    Frame,
    around,
    bands_of,
    bottom_axis,
    curve,
    drawing,
    left_axis,
    marker,
)
from ...lab.page.markup import Markup, joined, tag
from ...lab.page.reliability import FRAME as DIAGRAM
from ...lab.page.reliability import reliability_drawing
from ...statistics import Comparison
from ..evidence import title_of, values_of
from ..verdicts.numbers import differences_of
from .blocks import Picture

OVER_SEVERITY = ("top1_accuracy", "loss", "ece", "entropy", "max_softmax", "confidence_accuracy_correlation")
OF_METHODS = ("clean.top1_accuracy", "clean.ece", "shifted.ece", "clean.max_logit", "clean.loss", "shifted.loss")
COLUMNS, GAP, TITLE, LEGEND = 3, 16, 24, 34
NAMES, ROW = 178, 24
A_FEW = 3
"""The fewest seeds that are compared."""


def severity_picture(name: str, pair: MethodPair, names: tuple[str, str], metrics: Sequence[str]) -> Picture | None:
    """Metrics over the severity of corruptions; None where the runs saw no corrupted images."""
    bands_of_metrics = {metric: severity_bands(pair, metric) for metric in metrics} if pair.is_shifted else {}
    panels = [
        (TITLES[metric], severity_drawing(f"{name}-{metric}", TITLES[metric], metric, bands, names))
        for metric, bands in bands_of_metrics.items()
        if bands is not None
    ]
    if not panels:
        return None
    shown = ", ".join(title.removesuffix(", %") for title, _ in panels)
    words = f"{shown} over the severity of corruption, {names[0]} and {names[1]}, means and ranges of {_seeds(pair)}"
    svg = _composed(panels, (FRAME.width, FRAME.height), legend=_legend(names))
    return Picture(f"{name}.svg", svg, words[0].upper() + words[1:])


def reliability_picture(name: str, pair: MethodPair, names: tuple[str, str], images: str) -> Picture | None:
    """Reliability diagrams of both methods, averaged over the seeds; None where the records have no such images."""
    curves = [curves_of(method, images) for method in (pair.baseline, pair.candidate)]
    known = [each for each in curves if each is not None]
    if len(known) < 2:
        return None
    highest = min(100.0, 108 * max(float(each.share.max()) for each in known))
    title = {"clean": "clean images", "shifted": "corrupted images"}[images]
    panels = []
    for i, (diagram, method) in enumerate(zip(known, names, strict=True)):
        ece, accuracy, confidence = diagram.ece, diagram.top1_accuracy, diagram.mean_confidence
        words = f"ECE {ece:.4f}, accuracy {accuracy:.2f}%, mean confidence {confidence:.4f}"
        drawn = reliability_drawing(diagram, f"{name}-{i}", highest, title=f"{method}, {title}", words=words)
        panels.append((f"{method}, {title}: ECE {ece:.3f}", drawn))
    words = f"Reliability diagrams of {names[0]} and {names[1]} on {title}, means over {_seeds(pair)}"
    if images == "shifted":
        words += ". ECE is over all images together; tables have its mean over corruptions and severities"
    return Picture(f"{name}.svg", _composed(panels, (DIAGRAM.width, DIAGRAM.height)), words)


def scatter_picture(
    name: str, pair: MethodPair, names: tuple[str, str], across: str, metrics: Sequence[str]
) -> Picture:
    """Metrics on clean images against another quantity, a mark for each run."""
    methods = (pair.baseline, pair.candidate)
    places = [values_of(method, across) for method in methods]
    x = around(chain(*places), *FRAME.x, may_be_logarithmic=True)
    panels = []
    for metric in metrics:
        heights = [values_of(method, f"clean.{metric}") for method in methods]
        y = around(chain(*heights), *FRAME.y)
        below = bottom_axis(FRAME, ((x(value), text) for value, text in x.ticks()), label=title_of(across))
        marks = [
            marker(x(where), y(value), look=look)
            for look, *points in zip(METHODS, places, heights, strict=True)
            for where, value in zip(*points, strict=True)
        ]
        title = f"{TITLES[metric]} over {title_of(across)}"
        drawn = drawing(f"{name}-{metric}", FRAME, left_axis(FRAME, y), below, *marks, title=title, description=title)
        panels.append((TITLES[metric], drawn))
    shown = ", ".join(title.removesuffix(", %") for title, _ in panels)
    words = (
        f"{shown} over {title_of(across)}, {names[0]} and {names[1]}, a mark for each run, {len(places[0])} per method"
    )
    svg = _composed(panels, (FRAME.width, FRAME.height), legend=_legend(names, has_lines=False))
    return Picture(f"{name}.svg", svg, words[0].upper() + words[1:])


def training_picture(name: str, pairs: Mapping[str, MethodPair], names: tuple[str, str]) -> Picture:
    """The training loss over epochs, with a panel for each pair."""
    panels = []
    for i, (title, pair) in enumerate(pairs.items()):
        bands = [bands_of([run["losses"] for run in method]) for method in (pair.baseline, pair.candidate)]
        panels.append((f"{title}, {_seeds(pair)}", training_drawing(f"{name}-{i}", bands, names)))
    words = (
        f"Training loss over epochs, {names[0]} and {names[1]}, means and ranges over seeds: "
        f"{'; '.join(title for title, _ in panels)}"
    )
    return Picture(f"{name}.svg", _composed(panels, (TRAINING.width, TRAINING.height), legend=_legend(names)), words)


def methods_picture(name: str, pairs: Mapping[str, MethodPair], usual: str) -> Picture | None:
    """Each method − the first, over the seeds that all have; None with too few methods or seeds."""
    seeds = set.intersection(*(set(pair.seeds) for pair in pairs.values())) if len(pairs) > 1 else set()
    if len(seeds) < A_FEW:
        return None
    effects = {method: differences_of(pair.of_seeds(seeds), OF_METHODS) for method, pair in pairs.items()}
    shown = [quantity for quantity in OF_METHODS if all(quantity in rows for rows in effects.values())]
    if not shown:
        return None
    frame = Frame(width=362, left=NAMES, right=16, height=ROW * len(pairs) + 48)
    panels = [
        (_of_images(quantity), _changes(f"{name}-{quantity}", quantity, frame, effects, usual)) for quantity in shown
    ]
    words = (
        f"Each method − {usual} ({'; '.join(map(_of_images, shown))}): mean difference and 95% paired interval, not "
        f"corrected, on the {len(seeds)} seeds that all methods have"
    )
    return Picture(f"{name}.svg", _composed(panels, (frame.width, frame.height)), words)


def _of_images(quantity: str) -> str:
    images, _, metric = quantity.partition(".")
    return f"{TITLES[metric]}, {'clean' if images == 'clean' else 'corrupted'} images"


def _changes(
    identity: str, quantity: str, frame: Frame, effects: Mapping[str, Mapping[str, Comparison]], usual: str
) -> Markup:
    """A line for each method: its interval, with a mark at the mean."""
    methods = {method: rows[quantity] for method, rows in effects.items()}
    x = around([0.0, *(end for each in methods.values() for end in each.interval)], *frame.x)
    marks, changes = [], []
    for row, (method, each) in enumerate(methods.items()):
        y = frame.top + ROW * (row + 0.5)
        marks += [
            tag("text", method, x=frame.left - 8, y=y, dy="0.35em", class_="right"),
            curve([(x(each.interval.low), y), (x(each.interval.high), y)], look="candidate"),
            marker(x(each.difference), y, look="candidate"),
        ]
        changes.append(f"{method} {each.difference:+.4g}")
    zero = tag("line", class_="axis", x1=x(0), x2=x(0), y1=frame.y[1], y2=frame.y[0])
    below = bottom_axis(frame, ((x(value), typeset(text)) for value, text in x.ticks(3)), label=f"method − {usual}")
    title = f"{_of_images(quantity)}: each method − {usual}"
    return drawing(identity, frame, zero, below, *marks, title=title, description=typeset("; ".join(changes)))


def _seeds(pair: MethodPair) -> str:
    return f"{len(pair.seeds)} seeds"


def _composed(panels: Sequence[tuple[str, Markup]], size: tuple[float, float], *, legend: Markup | None = None) -> str:
    """Panels side by side, each under its title."""
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    top = LEGEND if legend else 0
    width, height = columns * (size[0] + GAP) + GAP, top + rows * (size[1] + TITLE + GAP)
    return tag(
        "svg",
        tag("style", Markup(drawing_style())),
        page_patterns(),
        tag("rect", class_="ground", width=width, height=height),
        legend,
        _placed(panels, size, columns, top),
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:g} {height:g}",
        width=width,
        height=height,
    )


def _placed(
    panels: Sequence[tuple[str, Markup]], size: tuple[float, float], columns: int, top: float
) -> Iterator[Markup]:
    for i, (title, drawn) in enumerate(panels):
        x = GAP + (i % columns) * (size[0] + GAP)
        y = top + (i // columns) * (size[1] + TITLE + GAP)
        inner = Markup(
            drawn.replace("<svg ", f'<svg x="{x:g}" y="{y + TITLE:g}" width="{size[0]:g}" height="{size[1]:g}" ', 1)
        )
        yield joined(tag("text", title, x=x, y=y + 16, class_="strong"), inner)


def _legend(names: tuple[str, str], *, has_lines: bool = True) -> Markup:
    parts = []
    for i, (look, name) in enumerate(zip(METHODS, names, strict=True)):
        x = GAP + 180 * i
        if has_lines:
            parts.append(tag("line", class_=f"line {look}", x1=x, x2=x + 32, y1=18, y2=18))
        parts.append(marker(x + 16, 18, look=look))
        parts.append(tag("text", name, x=x + 40, y=18, dy="0.35em"))
    return joined(parts)
