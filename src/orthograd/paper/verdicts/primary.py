"""The primary comparison: the same rows and one family of tests for every pair of methods."""

from __future__ import annotations

from ...lab.comparison.pair import MethodPair
from ...statistics import Comparison, compare
from ..evidence import values_of
from .numbers import differences

METRICS = ("top1_accuracy", "loss", "ece", "brier", "aurc")
ROWS = {
    "clean": ("top1_accuracy", "confidence", "loss", "calibration", "refinement", "ece", "brier", "aurc"),
    "shifted": ("top1_accuracy", "confidence", "loss", "ece", "brier", "aurc"),
    "after_temperature": ("confidence", "loss", "ece", "brier", "aurc"),
    "shifted_after_temperature": ("confidence", "loss", "ece", "brier", "aurc"),
}
"""The metrics of every comparison by images, in order. Temperature scaling does not change accuracy."""
QUANTITIES = tuple(f"{images}.{metric}" for images, metrics in ROWS.items() for metric in metrics)
FAMILY = tuple(name for name in QUANTITIES if name.rpartition(".")[2] in METRICS)
"""The rows that are tested together; the others stand beside them, without a test."""


def primary(pair: MethodPair) -> dict[str, Comparison]:
    """The rows for which every run has a number, in order; those of `FAMILY` have Holm's correction for all of these.

    The other rows have no corrected p.
    """
    methods = {name: (values_of(pair.baseline, name), values_of(pair.candidate, name)) for name in QUANTITIES}
    known = {name: both for name, both in methods.items() if all(both)}
    tested = differences({name: both for name, both in known.items() if name in FAMILY})
    return {name: tested[name] if name in tested else compare(*both) for name, both in known.items()}
