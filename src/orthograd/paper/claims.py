"""The numbers that the paper prints, with as many digits as it prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Any

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Printed:
    """A number as printed: 0.400 stands for anything from 0.3995 to 0.4005.

    >>> Printed(Decimal("0.400")).rounding
    0.0005
    """

    decimal: Decimal

    @property
    def value(self) -> float:
        """The number."""
        return float(self.decimal)

    @property
    def digits(self) -> int:
        """Digits behind the point."""
        return max(0, -int(self.decimal.as_tuple().exponent))

    @property
    def rounding(self) -> float:
        """Half a unit of the last digit."""
        return float(Decimal(5).scaleb(int(self.decimal.as_tuple().exponent) - 1))

    def __str__(self) -> str:
        digits = len(self.decimal.as_tuple().digits)
        return f"{self.value:.{digits - 1}e}" if abs(self.value) < 0.001 and self.value else str(self.decimal)


@dataclass(frozen=True)
class Row:
    """Both arms' means of a quantity, and what the paper says of their difference, where it does.

    Quantities are named as `orthograd.paper.quantities` knows them. ``d`` is (baseline − candidate) / pooled SD.
    """

    quantity: str
    baseline: Printed
    candidate: Printed
    d: Printed | None = None
    interval: tuple[Printed, Printed] | None = None
    p: Printed | None = None


@dataclass(frozen=True)
class Section:
    """One table of the paper: how many seeds stand behind it, and its rows."""

    name: str
    seeds: int
    rows: tuple[Row, ...]

    def __getitem__(self, quantity: str) -> Row:
        return next(row for row in self.rows if row.quantity == quantity)


@lru_cache
def sections() -> dict[str, Section]:
    """Every table by its name in claims.json."""
    data = claims_data()
    twenty = int(data["table1_resnet18"]["seeds"])
    found = [
        Section("table1_resnet18", twenty, tuple(_rows(data["table1_resnet18"]["rows"]))),
        Section("temperature_scaling_resnet18", twenty, tuple(_temperature(data["temperature_scaling_resnet18"]))),
        Section("renormalisation_resnet18", 10, tuple(_variants(data["renormalisation_resnet18"]))),
        Section("extended_resnet18", 1, tuple(_extended(data["extended_resnet18"]))),
        Section("wideresnet_28_10", 5, tuple(_rows(data["wideresnet_28_10"]["rows"]))),
    ]
    for section in found:
        stated = data[section.name].get("seeds", section.seeds)
        if stated != section.seeds:
            raise ValueError(f"expected {section.seeds} seeds of {section.name} in claims.json, got {stated}")
    return {section.name: section for section in found}


@lru_cache
def claims_data() -> Data:
    """claims.json as it is, but that numbers keep their digits."""
    text = files(__package__).joinpath("claims.json").read_text(encoding="utf-8")
    found: Data = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return found


def _rows(rows: Data) -> Iterator[Row]:
    for name, row in rows.items():
        quantity = name if name == "weight_norm" else f"clean.{name}"
        yield _row(quantity, row)


def _row(quantity: str, row: Data) -> Row:
    interval = (Printed(row["ci"][0]), Printed(row["ci"][1])) if "ci" in row else None
    d, p = (Printed(row[name]) if name in row else None for name in ("d", "p"))
    return Row(quantity, Printed(row["sgd"]), Printed(row["orthograd"]), d, interval, p)


def _temperature(rows: Data) -> Iterator[Row]:
    names = {
        "temperature": "temperature",
        "ece_before": "clean.ece",
        "ece_after": "after_temperature.ece",
        "brier_mean_over_classes_before": "clean.brier_mean",
        "brier_mean_over_classes_after": "after_temperature.brier_mean",
    }
    yield from (_row(quantity, rows[name]) for name, quantity in names.items())


def _variants(rows: Data) -> Iterator[Row]:
    for metric, value in rows["renormalised"].items():
        yield Row(f"clean.{metric}", Printed(value), Printed(rows["plain"][metric]))


def _extended(rows: Data) -> Iterator[Row]:
    yield _row("clean.top1_accuracy", rows["clean_accuracy"])
    yield _row("shifted.top1_accuracy", rows["cifar10c_mean_accuracy"])
    for metric, arms in rows["by_severity"].items():
        name = "top1_accuracy" if metric == "accuracy" else metric
        for level, (first, second) in enumerate(zip(arms["sgd"], arms["orthograd"], strict=True), start=1):
            yield Row(f"severity_{level}.{name}", Printed(first), Printed(second))
