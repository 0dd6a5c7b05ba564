"""The numbers that the paper prints, with as many digits as it prints, and what is odd about some of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

Data = Mapping[str, Any]
Part = Literal["baseline", "candidate", "interval", "p"]
"""Of a row of a table."""


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
    """Both methods' means of a quantity, and what the paper says of their difference, where it does.

    Quantities are named as `orthograd.paper.evidence.value_of` knows them. ``d`` is (baseline − candidate) / pooled SD.
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
    tables = [
        Section("table1_resnet18", twenty, tuple(_rows(data["table1_resnet18"]["rows"]))),
        Section("temperature_scaling_resnet18", twenty, tuple(_temperature(data["temperature_scaling_resnet18"]))),
        Section("renormalisation_resnet18", 10, tuple(_variants(data["renormalisation_resnet18"]))),
        Section("extended_resnet18", 1, tuple(_extended(data["extended_resnet18"]))),
        Section("wideresnet_28_10", 5, tuple(_rows(data["wideresnet_28_10"]["rows"]))),
    ]
    for section in tables:
        stated = data[section.name].get("seeds", section.seeds)
        if stated != section.seeds:
            raise ValueError(f"expected {section.seeds} seeds of {section.name} in claims.json, got {stated}")
    return {section.name: section for section in tables}


@lru_cache
def claims_data() -> Data:
    """claims.json as it is, but that numbers keep their digits."""
    text = files(__package__).joinpath("claims.json").read_text(encoding="utf-8")
    data: Data = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return data


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
    for metric, methods in rows["by_severity"].items():
        name = "top1_accuracy" if metric == "accuracy" else metric
        for level, (first, second) in enumerate(zip(methods["sgd"], methods["orthograd"], strict=True), start=1):
            yield Row(f"severity_{level}.{name}", Printed(first), Printed(second))


@dataclass(frozen=True)
class Oddity:
    """A number of the paper that cannot mean what it says, and why; a remark is about one that may be right after all.

    The tests compute every number that a reason names from the paper's own.
    """

    section: str
    quantity: str
    part: Part
    reason: str
    is_remark: bool = False


_WELCH = (
    "is not Student's, as 14 of the 18 printed p are: d = {d} with 5 seeds a method gives {p}. It lies where Welch's "
    "test can, whose degrees of freedom d does not tell."
)

ODDITIES = (
    Oddity(
        "table1_resnet18",
        "clean.logit_variance",
        "interval",
        "ends at 2.77, where 2.7647 is the most that any d which prints as 2.00 allows.",
    ),
    Oddity("wideresnet_28_10", "clean.ece", "p", "0.015 " + _WELCH.format(d="2.40", p="0.005")),
    Oddity("wideresnet_28_10", "clean.max_logit", "p", "3e-6 " + _WELCH.format(d="11.20", p="1e-7")),
    Oddity("wideresnet_28_10", "clean.logit_variance", "p", "6e-6 " + _WELCH.format(d="15.45", p="8e-9")),
    Oddity(
        "wideresnet_28_10",
        "clean.top5_accuracy",
        "p",
        "0.44 is below every t-test of d = 0.50, the least being 0.448: cut off, not rounded.",
    ),
    Oddity(
        "table1_resnet18",
        "clean.loss",
        "p",
        "0.05 is called significant. Corrected for the nine metrics of the table by Holm's rule it is 0.25; entropy, "
        "max softmax, max logit and logit variance stay below 0.05.",
        is_remark=True,
    ),
    Oddity(
        "temperature_scaling_resnet18",
        "clean.brier_mean",
        "baseline",
        "0.041 is called Brier score, as is 0.408 in table 1: here it is the mean over the ten classes, there the sum. "
        "Both are held against the definition that they fit.",
        is_remark=True,
    ),
    Oddity(
        "renormalisation_resnet18",
        "clean.max_logit",
        "baseline",
        "12.62 is of the same networks as 13.03 in table 1, on 10 seeds instead of 20, and lies 2.9 standard errors "
        "below it by table 1's own spread: something else differed between the two tables.",
        is_remark=True,
    ),
    Oddity(
        "extended_resnet18",
        "severity_3.loss",
        "baseline",
        "2.62 lies above the 2.53 of severity 4, while accuracy, ECE and correlation get worse at every step. 2.26, "
        "with two digits in the other order, would fit.",
        is_remark=True,
    ),
    Oddity(
        "wideresnet_28_10",
        "clean.top1_accuracy",
        "baseline",
        "The published code builds a ResNet-50 where the paper says WideResNet-28-10, so it is open which network this "
        "table is of. Both are trained here and held against it.",
        is_remark=True,
    ),
)


def oddities_of(section: str) -> list[Oddity]:
    """Those of one table, in the order of their numbers."""
    return [oddity for oddity in ODDITIES if oddity.section == section]


def number_of(oddity: Oddity) -> int:
    """Its place in the list of the document, from 1."""
    return ODDITIES.index(oddity) + 1
