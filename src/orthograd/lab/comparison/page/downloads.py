"""The data behind the page as CSV files inside it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ....calibration import CONVENTIONS
from ..formats import as_csv, csv_text
from ..pair import ArmPair
from ..values import Record, image_sets
from .markup import Markup, tag


def section(pair: ArmPair, names: tuple[str, str]) -> Markup:
    """A list of links, each of which holds its file."""
    files = {
        "runs.csv": ("every metric of every run and image set, in full precision", runs_csv(pair)),
        "training.csv": ("the loss of every epoch of every run", training_csv(pair)),
    }
    for images, found in pair.tables.items():
        text = as_csv(found, baseline=names[0], candidate=names[1])
        files[f"comparison-{images}.csv"] = (f"the table of {images} test images", text)
    return tag("ul", (_link(name, words, text) for name, (words, text) in files.items()), class_="downloads")


def runs_csv(pair: ArmPair) -> str:
    """A row for each run and image set."""
    metrics = [name for name in CONVENTIONS if name in pair.baseline[0]["metrics"]["clean"]]
    lines = [["arm", "seed", "images", *metrics]]
    for record in pair.records:
        for images, found in _image_sets(record):
            lines.append([*_run(record), images, *(_text(found.get(name)) for name in metrics)])
    return csv_text(lines)


def training_csv(pair: ArmPair) -> str:
    """A row for each run and epoch."""
    lines = [["arm", "seed", "epoch", "loss"]]
    for record in pair.records:
        lines += [[*_run(record), str(i + 1), _text(loss)] for i, loss in enumerate(record["losses"])]
    return csv_text(lines)


def _image_sets(record: Record) -> Iterator[tuple[str, Any]]:
    yield from ((name, record["metrics"][name]) for name in ("clean", *image_sets(record)))
    if record["after_temperature"] is not None:
        yield "clean.after_temperature", record["after_temperature"]["metrics"]


def _run(record: Record) -> list[str]:
    return [str(record["config"]["arm"]), str(record["config"]["seed"])]


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _link(name: str, words: str, text: str) -> Markup:
    # Percent-encoding leaves digits, commas and points alone: shorter than base64, and readable.
    address = f"data:text/csv;charset=utf-8,{quote(text, safe=',.-+_')}"
    size = f"{len(text.encode()) / 1000:,.0f} kB" if len(text) >= 1000 else f"{len(text.encode())} bytes"
    return tag("li", tag("a", name, download=name, href=address), f": {words} ({size})")
