"""The numbers that the paper prints, with the digits it prints, and notes on some of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

Data = Mapping[str, Any]
Part = Literal["difference", "baseline", "candidate", "interval", "p"]
"""A number of a row of a table."""


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
    """Both methods' means of a quantity, and the paper's statistics of their difference where it prints them.

    Quantities are named as in `orthograd.paper.evidence.value_of`. ``d`` is (candidate − baseline) / pooled SD, and
    ``interval`` is of d. The paper prints baseline − candidate: `sections` changes the signs.
    """

    quantity: str
    baseline: Printed
    candidate: Printed
    d: Printed | None = None
    interval: tuple[Printed, Printed] | None = None
    p: Printed | None = None


@dataclass(frozen=True)
class Section:
    """One table of the paper: its number of seeds, and its rows."""

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
        Section("renormalization_resnet18", 10, tuple(_variants(data["renormalization_resnet18"]))),
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
    """claims.json, with numbers that keep their digits."""
    text = files(__package__).joinpath("claims.json").read_text(encoding="utf-8")
    data: Data = json.loads(text, parse_float=Decimal, parse_int=Decimal)
    return data


def _rows(rows: Data) -> Iterator[Row]:
    for name, row in rows.items():
        quantity = name if name == "weight_norm" else f"clean.{name}"
        yield _row(quantity, row)


def _row(quantity: str, row: Data) -> Row:
    # The paper prints d and its interval as baseline − candidate.
    interval = (Printed(-row["ci"][1]), Printed(-row["ci"][0])) if "ci" in row else None
    d = Printed(-row["d"]) if "d" in row else None
    p = Printed(row["p"]) if "p" in row else None
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
    for metric, value in rows["renormalized"].items():
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
    """A note on a number of the paper. Unless it is a remark, the number contradicts others of the paper.

    The tests compute every number that a reason names from the paper's own.
    """

    section: str
    quantity: str
    part: Part
    reason: str
    is_remark: bool = False


_WELCH = (
    "can only be Welch's, while 14 of the 18 printed p are Student's: d = {d} with 5 seeds per method gives {p} by "
    "Student's test."
)

ODDITIES = (
    Oddity(
        "table1_resnet18",
        "clean.logit_variance",
        "interval",
        "The paper's interval ends at 2.77 (here −2.77), but any d that prints as 2.00 allows 2.7647 at most.",
    ),
    Oddity("wideresnet_28_10", "clean.ece", "p", "0.015 " + _WELCH.format(d="2.40", p="0.005"), is_remark=True),
    Oddity("wideresnet_28_10", "clean.max_logit", "p", "3e-6 " + _WELCH.format(d="11.20", p="1e-7"), is_remark=True),
    Oddity(
        "wideresnet_28_10", "clean.logit_variance", "p", "6e-6 " + _WELCH.format(d="15.45", p="8e-9"), is_remark=True
    ),
    Oddity(
        "wideresnet_28_10",
        "clean.top5_accuracy",
        "p",
        "0.44 is below the p of every t-test of d = 0.50, which is at least 0.448. It was cut off, not rounded.",
    ),
    Oddity(
        "table1_resnet18",
        "clean.loss",
        "p",
        "0.05 is called significant. After Holm's correction for the nine metrics of the table it is 0.25. Entropy, "
        "confidence, max logit and logit variance stay below 0.05.",
        is_remark=True,
    ),
    Oddity(
        "temperature_scaling_resnet18",
        "clean.brier_mean",
        "baseline",
        "0.041 is called Brier score, as is 0.408 in table 1. Here it is the mean over the ten classes, there the sum. "
        "Each is compared with the definition that it fits.",
        is_remark=True,
    ),
    Oddity(
        "renormalization_resnet18",
        "clean.max_logit",
        "baseline",
        "12.62 belongs to the same method and setting as 13.03 in table 1, with 10 seeds instead of 20. It lies 2.9 "
        "standard errors below it by table 1's own spread, so something else differed between the two tables.",
        is_remark=True,
    ),
    Oddity(
        "extended_resnet18",
        "severity_3.loss",
        "baseline",
        "2.62 lies above the 2.53 of severity 4, while accuracy, ECE and correlation get worse at every severity. "
        "2.26, with two digits swapped, would fit.",
        is_remark=True,
    ),
    Oddity(
        "wideresnet_28_10",
        "clean.top1_accuracy",
        "baseline",
        "The published code builds a ResNet-50 where the paper says WideResNet-28-10, so it is not known which network "
        "this table shows. We trained both and compare each with it.",
        is_remark=True,
    ),
)


def oddities_of(section: str) -> list[Oddity]:
    """The notes on one table, in order."""
    return [oddity for oddity in ODDITIES if oddity.section == section]


def number_of(oddity: Oddity) -> int:
    """The number of a note in the pages, from 1."""
    return ODDITIES.index(oddity) + 1
