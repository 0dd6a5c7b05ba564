"""Reliability diagrams of both methods, averaged over the seeds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....calibration import ReliabilityCurve, average
from ...page.markup import Markup, joined, tag
from ...page.reliability import reliability_figure, reliability_introduction
from ..pair import MethodPair
from ..records import Record

TITLES = {
    "clean": "as trained",
    "after_temperature": "after temperature scaling",
    "shifted": "all corrupted images together",
}


def section(pair: MethodPair, names: tuple[str, str]) -> Markup:
    """Clean images before and after temperature scaling, then corrupted images."""
    if any(not record.get("reliability") for record in pair.records):
        return tag(
            "p",
            "This section is missing: the records of these runs were written by an earlier version, which stored no "
            "bins. New runs store them.",
            class_="missing",
        )
    return joined(reliability_introduction("network"), _figures(pair, names))


def curves_of(records: Sequence[Record], images: str) -> ReliabilityCurve | None:
    """The mean curve over the runs; None where a run has no such images."""
    curves: list[Any] = [record["reliability"][images] for record in records]
    return average([ReliabilityCurve.from_dict(each) for each in curves]) if all(curves) else None


def _figures(pair: MethodPair, names: tuple[str, str]) -> Iterator[Markup]:
    for title, sets in (
        ("Clean test samples", ("clean", "after_temperature")),
        ("Corrupted test samples", ("shifted",)),
    ):
        shown = {
            (f"{name}, {TITLES[images]}", f"reliability-{images}-{place}"): curve
            for images in sets
            for place, (name, method) in enumerate(zip(names, (pair.baseline, pair.candidate), strict=True))
            if (curve := curves_of(method, images)) is not None
        }
        if shown:
            named = {name: curve for (name, _), curve in shown.items()}
            yield reliability_figure(f"reliability-{sets[0]}", title, named, [identity for _, identity in shown])
