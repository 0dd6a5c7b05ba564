"""How training went: the loss of each epoch, with the range of the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..pair import ArmPair
from .bands import Band, bands_of, thinned
from .figure import ARMS, arm_entries, band_entry, figure, table
from .markup import Markup, joined, tag
from .panel import Frame, area, bottom_axis, curve, drawing, left_axis, marker, panel
from .scale import Scale, around

FRAME = Frame(width=360, height=220, left=48, right=18)
DRAWN, LISTED, MARKED = 400, 50, 8


def section(pair: ArmPair, names: tuple[str, str]) -> Markup:
    """One figure of both arms."""
    arms = [[record["losses"] for record in arm] for arm in (pair.baseline, pair.candidate)]
    if len({len(losses) for arm in arms for losses in arm}) > 1:
        return tag("p", "This section is missing: the runs have different numbers of epochs.", class_="missing")
    bands = [bands_of(arm) for arm in arms]
    last = " and ".join(f"{band.mean[-1]:.3g} under {name}" for name, band in zip(names, bands, strict=True))
    introduction = tag(
        "p",
        "The loss on the training images that each arm minimises, so arms with different losses do not compare. "
        f"The last epoch ends at {last}, the mean over the seeds.",
    )
    return joined(introduction, _figure(bands, names))


def _figure(bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    ranges = "from the lowest to the highest seed"
    return figure(
        "losses",
        title="Training loss",
        words=f"Lines are means over the seeds; bands reach {ranges}.",
        legend=[*arm_entries(names), band_entry(ranges)],
        panels=[_panel(bands, names)],
        numbers=[_numbers(bands, names)],
        columns="one",
    )


def _panel(bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    y = _scale(bands)
    return panel(
        "loss", "on a logarithmic axis" if y.is_logarithmic else "", training_drawing("training", bands, names)
    )


def _scale(bands: Sequence[Band]) -> Scale:
    return around([value for band in bands for value in band.extremes], *FRAME.y, may_be_logarithmic=True)


def training_drawing(identity: str, bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    """The loss of both arms over the epochs."""
    epochs = len(bands[0].mean)
    x, y = Scale(1, max(2, epochs), *FRAME.x), _scale(bands)
    ticks = [(x(value), text) for value, text in x.ticks(5) if value == int(value) and value <= epochs]
    words = " ".join(
        f"{name}: {band.mean[0]:.3g} in the first epoch, {band.mean[-1]:.3g} in the last."
        for name, band in zip(names, bands, strict=True)
    )
    return drawing(
        identity,
        FRAME,
        left_axis(FRAME, y),
        bottom_axis(FRAME, ticks, label="epoch"),
        *_curves(bands, x, y),
        title="Training loss over epochs",
        description=words,
    )


def _curves(bands: Sequence[Band], x: Scale, y: Scale) -> Iterator[Markup]:
    shown = thinned(len(bands[0].mean), DRAWN)

    def along(values: Sequence[float]) -> list[tuple[float, float]]:
        return [(x(epoch + 1), y(values[epoch])) for epoch in shown]

    for band, look in zip(bands, ARMS, strict=True):
        yield area(along(band.low), along(band.high), look=look)
    for band, look in zip(bands, ARMS, strict=True):
        yield curve(along(band.mean), look=look)
        yield from (marker(x(i + 1), y(band.mean[i]), look=look, size=2.4) for i in thinned(len(band.mean), MARKED))


def _numbers(bands: Sequence[Band], names: tuple[str, str]) -> Markup:
    epochs = thinned(len(bands[0].mean), LISTED)
    header = ["epoch", *(f"{name}, {part}" for name in names for part in ("mean", "lowest", "highest"))]
    rows = [
        [str(i + 1), *(f"{part[i]:.4g}" for band in bands for part in (band.mean, band.low, band.high))] for i in epochs
    ]
    caption = "Training loss" + ("" if len(epochs) == len(bands[0].mean) else "; every epoch is in training.csv below")
    return table(caption, header, rows, label="Training loss")
