"""Numbers of the paper that cannot mean what they say, and others that ask for a word; each with its reason.

The tests compute every number that is named here from the paper's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Part = Literal["baseline", "candidate", "interval", "p"]


@dataclass(frozen=True)
class Oddity:
    """Which number, and why; a remark is about a number that may be right all the same."""

    section: str
    quantity: str
    part: Part
    reason: str
    is_remark: bool = False


_WELCH = (
    "is not Student's, as 14 of the 18 printed p are: d = {d} with 5 seeds an arm gives {p}. It lies where Welch's "
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
