"""Seed by seed: a line from the value with the baseline to the value with the candidate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ....calibration import CONVENTIONS
from ...page.figure import (
    METHODS,
    Frame,
    around,
    bottom_axis,
    curve,
    drawing,
    entry,
    figure,
    left_axis,
    listed_points,
    marker,
    method_entries,
    panel,
)
from ...page.markup import Markup, joined, table, tag
from ..formats import metric_title
from ..pair import MethodPair
from ..records import Metrics, Record, clean, is_number, shifted

MAIN = ("ece", "loss", "top1_accuracy", "max_softmax", "brier", "entropy")
FRAME = Frame(height=220, bottom=28)
LONGEST = 15  # letters


@dataclass(frozen=True)
class Pairs:
    """One metric of both methods, one value per seed."""

    metric: str
    seeds: Sequence[int | str]
    baseline: Sequence[float]
    candidate: Sequence[float]

    @property
    def methods(self) -> tuple[Sequence[float], Sequence[float]]:
        """The values of both methods, the baseline first."""
        return self.baseline, self.candidate

    @property
    def each(self) -> list[tuple[float, float]]:
        """The values of both methods, seed by seed."""
        return list(zip(self.baseline, self.candidate, strict=True))

    @property
    def means(self) -> tuple[float, float]:
        """The mean of each method."""
        return sum(self.baseline) / len(self.seeds), sum(self.candidate) / len(self.seeds)

    @property
    def count(self) -> str:
        """The number of seeds that are lower or higher with the candidate, whichever are more."""
        lower, higher = (self.ways.count(way) for way in ("lower", "higher"))
        many, word = (lower, "lower") if lower >= higher else (higher, "higher")
        return f"{many} of {len(self.seeds)} seeds {word}"

    @property
    def ways(self) -> list[str]:
        """For each seed, "lower", "the same" or "higher" with the candidate."""
        return [("lower", "the same", "higher")[1 + (after > before) - (after < before)] for before, after in self.each]

    def shown(self, value: float) -> str:
        """A value as the table prints it."""
        return f"{value:.{CONVENTIONS[self.metric].digits}f}"


def section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """The figures of clean and of corrupted images."""
    parts = [seeds_figure("clean", "On clean test samples", list(pairs_of(pair, clean)), names)]
    if pair.is_shifted:
        title = "On corrupted test samples, mean over all corruptions and severities"
        parts.append(seeds_figure("shifted", title, list(pairs_of(pair, shifted)), names))
    introduction = tag(
        "p",
        "Both runs of a seed start from the same weights and see the same samples in the same order. "
        "Each line is one seed. The more lines point the same way, the less likely the difference is chance.",
    )
    return joined(introduction, parts)


def pairs_of(pair: MethodPair, metrics_of: Callable[[Record], Metrics]) -> Iterator[Pairs]:
    """The main metrics that are numbers in every run."""
    for metric in MAIN:
        methods = [[metrics_of(record)[metric] for record in method] for method in (pair.baseline, pair.candidate)]
        if all(is_number(value) for method in methods for value in method):
            yield Pairs(metric, pair.seeds, *methods)


def seeds_figure(key: str, title: str, metrics: Sequence[Pairs], names: tuple[str, str]) -> Markup:
    """A panel for each metric, with a line for each seed."""
    samples = [
        entry(tag("line", class_=_look(way), x1=1, x2=27, y1=7, y2=7), f"{way} with {names[1]}")
        for way in ("lower", "higher", "the same")
        if any(way in pairs.ways for pairs in metrics)
    ]
    return figure(
        f"pairs-{key}",
        title=title,
        words=f"Left: {names[0]}. Right: {names[1]}. Means in bold.",
        legend=[*method_entries(names, has_lines=False), *samples],
        panels=(_panel(key, pairs, names) for pairs in metrics),
        numbers=[_numbers(title, metrics, names)],
        columns="three",
    )


def _panel(key: str, pairs: Pairs, names: tuple[str, str]) -> Markup:
    title = metric_title(pairs.metric)
    before, after = map(pairs.shown, pairs.means)
    words = f"Mean {before} with {names[0]}, {after} with {names[1]}; {pairs.count}."
    picture = drawing(
        f"pairs-{key}-{pairs.metric}", FRAME, *_marks(pairs, names), title=f"{title}, seed by seed", description=words
    )
    return panel(title, pairs.count, picture)


def _marks(pairs: Pairs, names: tuple[str, str]) -> Iterator[Markup]:
    start, end = FRAME.x
    places = start + 0.29 * (end - start), start + 0.71 * (end - start)
    scale = around([*pairs.baseline, *pairs.candidate], *FRAME.y)
    yield left_axis(FRAME, scale)
    yield bottom_axis(FRAME, zip(places, map(_short, names), strict=True))
    for seed, ends, way in zip(pairs.seeds, pairs.each, pairs.ways, strict=True):
        hint = tag("title", f"seed {seed}: {pairs.shown(ends[0])} → {pairs.shown(ends[1])}")
        points = list(zip(places, map(scale, ends), strict=True))
        dots = [marker(x, y, look=look, size=2) for (x, y), look in zip(points, METHODS, strict=True)]
        yield tag("g", hint, tag("polyline", class_=_look(way), points=listed_points(points)), dots)
    means = list(zip(places, map(scale, pairs.means), strict=True))
    yield curve(means, look="mean")
    for (x, y), look, value, side in zip(means, METHODS, pairs.means, ("right", "left"), strict=True):
        yield marker(x, y, look=look, size=4.5)
        away = -10 if side == "right" else 10
        yield tag("text", pairs.shown(value), x=x + away, y=y, dy="0.35em", class_=f"strong halo {side}")


def _short(name: str) -> str:
    """A name short enough for its place on the axis."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def _look(way: str) -> str:
    return f"seed {way.removeprefix('the ')}"


def _numbers(title: str, metrics: Sequence[Pairs], names: tuple[str, str]) -> Markup:
    header = ["seed", *(f"{metric_title(pairs.metric)}: {name}" for pairs in metrics for name in names)]
    rows = [
        [str(seed), *(pairs.shown(value) for pairs in metrics for value in pairs.each[i])]
        for i, seed in enumerate(metrics[0].seeds)
    ]
    means = ["mean", *(pairs.shown(value) for pairs in metrics for value in pairs.means)]
    return table(f"{title}: every seed", header, [*rows, means], label=f"{title}: every seed")
