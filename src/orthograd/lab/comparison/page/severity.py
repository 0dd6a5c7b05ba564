"""Metrics over the severity of a shift, with the range of the seeds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ....calibration import CONVENTIONS
from ..formats import TITLES
from ..pair import ArmPair
from ..values import by_severity, shifts
from .bands import Band, bands_of
from .figure import ARMS, arm_entries, band_entry, figure, listed, table
from .markup import Markup, joined, tag
from .pairs import MAIN
from .panel import Frame, area, bottom_axis, curve, drawing, left_axis, marker, panel
from .scale import Scale, around

FRAME = Frame()
SMALL = Frame(width=200, height=170, left=42, right=8, top=8, bottom=38)
BY_SHIFT = ("ece", "top1_accuracy")


def section(pair: ArmPair, names: tuple[str, str]) -> Markup:
    """The mean over all shifts, then each shift by itself."""
    if not pair.is_shifted:
        return tag("p", "This section is missing: these runs were judged on clean images alone.", class_="missing")
    kinds = shifts(pair.baseline[0])
    introduction = tag(
        "p",
        f"Test images are shifted in {len(kinds)} ways ({', '.join(kinds)}), from severity 1 to "
        f"{_levels(pair) - 1}; severity 0 is clean. A network that knows when it is wrong loses confidence as it "
        "loses accuracy.",
    )
    return joined(introduction, _over_all(pair, names), (_by_shift(pair, names, kinds, metric) for metric in BY_SHIFT))


def _levels(pair: ArmPair) -> int:
    return len(by_severity(pair.baseline[:1], "ece")[0])


def _over_all(pair: ArmPair, names: tuple[str, str]) -> Markup:
    found = {metric: severity_bands(pair, metric) for metric in MAIN}
    shown = {TITLES[metric]: (metric, bands) for metric, bands in found.items() if bands is not None}
    return _figure("The mean over all shifts", shown, names, FRAME, "three", "severity")


def _by_shift(pair: ArmPair, names: tuple[str, str], kinds: Sequence[str], metric: str) -> Markup | None:
    found = {shift: severity_bands(pair, metric, shift) for shift in kinds}
    shown = {shift: (metric, bands) for shift, bands in found.items() if bands is not None}
    if not shown:
        return None
    title = TITLES[metric].removesuffix(", %")
    return _figure(f"{title[0].upper()}{title[1:]} under each shift", shown, names, SMALL, "five", f"shift-{metric}")


def severity_bands(pair: ArmPair, metric: str, shift: str | None = None) -> list[Band] | None:
    """Means and ranges of both arms; None where any run has no number."""
    arms = [by_severity(arm, metric, shift=shift) for arm in (pair.baseline, pair.candidate)]
    is_known = all(math.isfinite(value) for arm in arms for run in arm for value in run)
    return [bands_of(arm) for arm in arms] if is_known else None


def _figure(
    title: str,
    shown: dict[str, tuple[str, list[Band]]],
    names: tuple[str, str],
    frame: Frame,
    columns: str,
    key: str,
) -> Markup:
    ranges = "from the lowest to the highest seed"
    # Panels of one metric share their axis, so that shifts compare by eye.
    is_shared = len({metric for metric, _ in shown.values()}) == 1
    everything = [value for _, bands in shown.values() for band in bands for value in band.extremes]
    panels = [
        panel(
            name,
            "",
            severity_drawing(f"{key}-{i}", name, metric, bands, names, frame, everything if is_shared else None),
        )
        for i, (name, (metric, bands)) in enumerate(shown.items())
    ]
    return figure(
        key,
        title=title,
        words=f"Lines are means over the seeds; bands reach {ranges}.",
        legend=[*arm_entries(names), band_entry(ranges)],
        panels=panels,
        numbers=[_numbers(f"{title}: {name}", metric, bands, names) for name, (metric, bands) in shown.items()],
        columns=columns,
    )


def severity_drawing(
    identity: str,
    title: str,
    metric: str,
    bands: Sequence[Band],
    names: tuple[str, str],
    frame: Frame = FRAME,
    extent: Sequence[float] | None = None,
) -> Markup:
    """A metric over severity, both arms with their ranges; ``extent`` are values that the axis must show."""
    form = f".{min(3, CONVENTIONS[metric].digits)}f"
    words = " ".join(f"{name}: {listed(band.mean, form)}." for name, band in zip(names, bands, strict=True))
    y = around(extent or [value for band in bands for value in band.extremes], *frame.y)
    levels = len(bands[0].mean)
    x = Scale(0, max(1, levels - 1), frame.left + 8, frame.width - frame.right - 8)
    axes = joined(left_axis(frame, y), bottom_axis(frame, ((x(i), str(i)) for i in range(levels)), label="severity"))
    return drawing(
        identity,
        frame,
        axes,
        *_curves(bands, x, y),
        title=f"{title} over severity",
        description=f"Means at severities 0 to {levels - 1}. {words}",
    )


def _curves(bands: Sequence[Band], x: Scale, y: Scale) -> Iterator[Markup]:
    places = [x(level) for level in range(len(bands[0].mean))]
    for band, look in zip(bands, ARMS, strict=True):
        lower, upper = (list(zip(places, map(y, ends), strict=True)) for ends in (band.low, band.high))
        yield area(lower, upper, look=look)
    for band, look in zip(bands, ARMS, strict=True):
        points = list(zip(places, map(y, band.mean), strict=True))
        yield curve(points, look=look)
        yield from (marker(*point, look=look) for point in points)


def _numbers(title: str, metric: str, bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    header = ["severity", *(f"{name}, {part}" for name in names for part in ("mean", "lowest", "highest"))]
    form = f".{CONVENTIONS[metric].digits}f"
    rows = [
        [str(level), *(format(part[level], form) for band in bands for part in (band.mean, band.low, band.high))]
        for level in range(len(bands[0].mean))
    ]
    return table(title, header, rows, label=title)
