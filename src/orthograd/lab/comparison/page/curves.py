"""Curves of both methods with the range over seeds: metrics by severity, training loss by epoch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from ....calibration import CONVENTIONS
from ...page.figure import (
    METHODS,
    Band,
    Frame,
    Scale,
    area,
    around,
    band_entry,
    bands_of,
    bottom_axis,
    curve,
    drawing,
    figure,
    left_axis,
    marker,
    method_entries,
    panel,
    thinned,
)
from ...page.markup import Markup, joined, table, tag
from ..formats import metric_title
from ..pair import MethodPair
from ..records import by_severity, shifts
from .pairs import MAIN

SEVERITY_FRAME = Frame()
SMALL = Frame(width=200, height=170, left=42, right=8, top=8, bottom=38)
BY_SHIFT = ("ece", "top1_accuracy")
TRAINING_FRAME = Frame(width=360, height=220, left=48, right=18)
DRAWN, LISTED, MARKED = 400, 50, 8  # epochs of a line, of a table, with a marker


def severity_section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """The mean over all corruptions, then each corruption."""
    if not pair.is_shifted:
        return tag("p", "This section is missing: these runs were evaluated on clean samples only.", class_="missing")
    corruptions = shifts(pair.baseline[0])
    levels = len(by_severity(pair.baseline[:1], "ece")[0])
    introduction = tag(
        "p",
        f"Test images are corrupted in {len(corruptions)} ways ({', '.join(corruptions)}), at severities 1 to "
        f"{levels - 1}; severity 0 is clean. A calibrated network loses confidence as it loses accuracy.",
    )
    return joined(
        introduction, _over_all(pair, names), (_by_shift(pair, names, corruptions, metric) for metric in BY_SHIFT)
    )


def _over_all(pair: MethodPair, names: tuple[str, str]) -> Markup:
    by_metric = {metric: severity_bands(pair, metric) for metric in MAIN}
    shown = {metric_title(metric): (metric, bands) for metric, bands in by_metric.items() if bands is not None}
    return _severity_figure("severity", "Mean over all corruptions", shown, names, SEVERITY_FRAME, "three")


def _by_shift(pair: MethodPair, names: tuple[str, str], corruptions: Sequence[str], metric: str) -> Markup | None:
    by_shift = {shift: severity_bands(pair, metric, shift) for shift in corruptions}
    shown = {shift: (metric, bands) for shift, bands in by_shift.items() if bands is not None}
    if not shown:
        return None
    name = metric_title(metric)
    title = f"{name[0].upper()}{name[1:]} by corruption"
    return _severity_figure(f"shift-{metric}", title, shown, names, SMALL, "five")


def severity_bands(pair: MethodPair, metric: str, shift: str | None = None) -> list[Band] | None:
    """Means and ranges of both methods; None where a run has no number."""
    methods = [by_severity(method, metric, shift=shift) for method in (pair.baseline, pair.candidate)]
    is_known = all(math.isfinite(value) for method in methods for run in method for value in run)
    return [bands_of(method) for method in methods] if is_known else None


def _severity_figure(
    key: str,
    title: str,
    shown: dict[str, tuple[str, list[Band]]],
    names: tuple[str, str],
    frame: Frame,
    columns: str,
) -> Markup:
    # Panels of one metric share their axis, so that corruptions can be compared by eye.
    is_shared = len({metric for metric, _ in shown.values()}) == 1
    everything = [value for _, bands in shown.values() for band in bands for value in band.extremes]
    extent = everything if is_shared else None
    panels = [
        panel(name, "", severity_drawing(f"{key}-{i}", name, metric, bands, names, frame, extent))
        for i, (name, (metric, bands)) in enumerate(shown.items())
    ]
    numbers = [
        _numbers(
            f"{title}: {name}",
            names,
            bands,
            {level: str(level) for level in range(len(bands[0].mean))},
            first="severity",
            form=f".{CONVENTIONS[metric].digits}f",
            label=f"{title}: {name}",
        )
        for name, (metric, bands) in shown.items()
    ]
    return _figure(key, title, names, panels, numbers, columns)


def severity_drawing(
    identity: str,
    title: str,
    metric: str,
    bands: Sequence[Band],
    names: tuple[str, str],
    frame: Frame = SEVERITY_FRAME,
    extent: Sequence[float] | None = None,
) -> Markup:
    """A metric by severity, both methods with their ranges; the axis covers all values in ``extent``."""
    form = f".{min(3, CONVENTIONS[metric].digits)}f"
    words = " ".join(f"{name}: {_listed(band.mean, form)}." for name, band in zip(names, bands, strict=True))
    y = around(extent or [value for band in bands for value in band.extremes], *frame.y)
    levels = range(len(bands[0].mean))
    x = Scale(0, max(1, len(levels) - 1), frame.left + 8, frame.width - frame.right - 8)
    axes = joined(left_axis(frame, y), bottom_axis(frame, ((x(i), str(i)) for i in levels), label="severity"))
    return drawing(
        identity,
        frame,
        axes,
        *_curves(bands, [x(level) for level in levels], y, drawn=levels, marked=levels),
        title=f"{title} over severity",
        description=f"Means at severities 0 to {len(levels) - 1}. {words}",
    )


def training_section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """The training loss of both methods, epoch by epoch."""
    methods = [[record["losses"] for record in method] for method in (pair.baseline, pair.candidate)]
    if len({len(losses) for method in methods for losses in method}) > 1:
        return tag("p", "This section is missing: the runs have different numbers of epochs.", class_="missing")
    bands = [bands_of(method) for method in methods]
    last = " and ".join(f"{band.mean[-1]:.3g} with {name}" for name, band in zip(names, bands, strict=True))
    introduction = tag(
        "p",
        f"Mean loss of the last epoch: {last}. It is the loss that each method minimizes, so methods with different "
        "losses cannot be compared by it.",
    )
    note = "on a logarithmic axis" if _loss_scale(bands).is_logarithmic else ""
    panels = [panel("loss", note, training_drawing("training", bands, names))]
    return joined(
        introduction, _figure("losses", "Training loss", names, panels, [_training_numbers(bands, names)], "one")
    )


def training_drawing(identity: str, bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    """The loss of both methods over the epochs."""
    epochs = len(bands[0].mean)
    x, y = Scale(1, max(2, epochs), *TRAINING_FRAME.x), _loss_scale(bands)
    ticks = [(x(value), text) for value, text in x.ticks(5) if value == int(value) and value <= epochs]
    words = " ".join(
        f"{name}: {band.mean[0]:.3g} in the first epoch, {band.mean[-1]:.3g} in the last."
        for name, band in zip(names, bands, strict=True)
    )
    drawn, marked = thinned(epochs, DRAWN), thinned(epochs, MARKED)
    return drawing(
        identity,
        TRAINING_FRAME,
        left_axis(TRAINING_FRAME, y),
        bottom_axis(TRAINING_FRAME, ticks, label="epoch"),
        *_curves(bands, [x(i + 1) for i in range(epochs)], y, drawn=drawn, marked=marked, size=2.4),
        title="Training loss over epochs",
        description=words,
    )


def _loss_scale(bands: Sequence[Band]) -> Scale:
    return around([value for band in bands for value in band.extremes], *TRAINING_FRAME.y, may_be_logarithmic=True)


def _training_numbers(bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    epochs = thinned(len(bands[0].mean), LISTED)
    caption = "Training loss" + ("" if len(epochs) == len(bands[0].mean) else "; every epoch is in training.csv below")
    labels = {i: str(i + 1) for i in epochs}
    return _numbers(caption, names, bands, labels, first="epoch", form=".4g", label="Training loss")


def _figure(
    key: str, title: str, names: tuple[str, str], panels: Iterable[Markup], numbers: Iterable[Markup], columns: str
) -> Markup:
    ranges = "from the lowest to the highest seed"
    return figure(
        key,
        title=title,
        words=f"Lines: means over the seeds. Bands: {ranges}.",
        legend=[*method_entries(names), band_entry(ranges)],
        panels=panels,
        numbers=numbers,
        columns=columns,
    )


def _curves(
    bands: Sequence[Band],
    places: Sequence[float],
    y: Scale,
    *,
    drawn: Iterable[int],
    marked: Iterable[int],
    size: float = 3.2,
) -> Iterator[Markup]:
    """Bands with the means on top, through the points ``drawn``, with markers at ``marked``."""

    def along(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(places[i], y(values[i])) for i in drawn]

    for band, look in zip(bands, METHODS, strict=True):
        yield area(along(band.low), along(band.high), look=look)
    for band, look in zip(bands, METHODS, strict=True):
        yield curve(along(band.mean), look=look)
        yield from (marker(places[i], y(band.mean[i]), look=look, size=size) for i in marked)


def _numbers(
    caption: str,
    names: tuple[str, str],
    bands: Sequence[Band],
    rows: Mapping[int, str],
    *,
    first: str,
    form: str,
    label: str,
) -> Markup:
    """The table of a panel; ``rows`` maps the points shown to their names."""
    header = [first, *(f"{name}, {part}" for name in names for part in ("mean", "lowest", "highest"))]
    cells = [
        [name, *(format(part[i], form) for band in bands for part in (band.mean, band.low, band.high))]
        for i, name in rows.items()
    ]
    return table(caption, header, cells, label=label)


def _listed(values: Iterable[float], form: str) -> str:
    return ", ".join(format(value, form) for value in values)
