"""What the paper's numbers are of: each quantity by its name, out of the record of a run."""

from __future__ import annotations

from ..lab.comparison.formats import TITLES
from ..lab.comparison.records import Metrics, Record, after_temperature, by_severity, clean, is_number, mean_over_shifts

ALONE = {"temperature": "temperature", "weight_norm": "weight norm", "training_loss": "training loss, last epoch"}
IMAGES = {"clean": "", "after_temperature": " after temperature scaling", "shifted": ", corrupted images"}


def value_of(record: Record, quantity: str) -> float | None:
    """The quantity in one run; None where the run has no such number.

    >>> value_of({"weight_norm": 79.7}, "weight_norm")
    79.7
    """
    images, _, metric = quantity.partition(".")
    if quantity in ALONE:
        found = _alone(record, quantity)
    elif images.startswith("severity_"):
        levels = by_severity([record], metric)[0]
        level = int(images.removeprefix("severity_"))
        found = levels[level] if level < len(levels) else None
    elif images == "shifted":
        found = mean_over_shifts(record, metric)
    elif (metrics := _metrics(record, images)) is None:
        return None
    elif metric == "brier_mean":
        brier = metrics["brier"]
        found = brier / record["evaluated"]["classes"] if is_number(brier) else None
    else:
        found = metrics.get(metric)
    return float(found) if found is not None and is_number(found) else None


def values_of(records: tuple[Record, ...], quantity: str) -> list[float]:
    """The quantity in every run; nothing at all where any run has no such number."""
    found = [value_of(record, quantity) for record in records]
    known = [value for value in found if value is not None]
    return known if len(known) == len(found) else []


def title_of(quantity: str) -> str:
    """What people call it.

    >>> title_of("clean.ece"), title_of("severity_3.loss"), title_of("clean.brier_mean")
    ('ECE', 'loss, severity 3', 'Brier score, mean over classes')
    """
    if quantity in ALONE:
        return ALONE[quantity]
    images, _, metric = quantity.partition(".")
    name = "Brier score, mean over classes" if metric == "brier_mean" else TITLES[metric]
    if images.startswith("severity_"):
        return f"{name}, severity {images.removeprefix('severity_')}"
    return f"{name}{IMAGES[images]}"


def _alone(record: Record, quantity: str) -> float | None:
    if quantity == "weight_norm":
        return float(record["weight_norm"])
    if quantity == "training_loss":
        return float(record["losses"][-1])
    fitted = record["after_temperature"]
    return None if fitted is None else float(fitted["temperature"])


def _metrics(record: Record, images: str) -> Metrics | None:
    if images == "clean":
        return clean(record)
    return None if record["after_temperature"] is None else after_temperature(record)
