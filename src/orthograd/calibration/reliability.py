"""Reliability curves: the accuracy of predictions by confidence. `orthograd.figures` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from . import binned
from .sums import BinSums

PER_BIN = ("share", "confidence", "accuracy", "low", "high")
"""Attributes with one value per bin."""


@dataclass(frozen=True)
class ReliabilityCurve:
    """The data of a reliability diagram. Tensors hold one value per bin, NaN for an empty bin.

    ``share`` is the share of samples in the bin, ``confidence`` their mean confidence, ``accuracy`` their accuracy.
    ``low`` and ``high`` bound the accuracy; ``band`` says how.

    >>> from orthograd.calibration import Evaluation
    >>> evaluation = Evaluation(bins=2)
    >>> evaluation.update(torch.tensor([[2.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]))
    >>> evaluation.reliability().accuracy
    tensor([   nan, 0.5000], dtype=torch.float64)
    """

    share: Tensor
    confidence: Tensor
    accuracy: Tensor
    low: Tensor
    high: Tensor
    band: str
    top1_accuracy: float
    mean_confidence: float
    ece: float
    ece_by_chance: float
    ece_by_chance_limit: float
    samples: int
    runs: int = 1

    @property
    def edges(self) -> Tensor:
        """The edges of the bins."""
        return torch.linspace(0, 1, len(self.share) + 1, dtype=torch.float64)

    def as_dict(self) -> dict[str, Any]:
        """The curve as plain data for JSON; empty bins are None."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ReliabilityCurve:
        """The curve from the data of `as_dict`, exactly. Raises ValueError for missing or unknown entries."""
        names = [field.name for field in fields(cls)]
        if set(data) != set(names):
            raise ValueError(f"expected a curve of {', '.join(names)}, got {', '.join(data)}")
        bins = len(data["share"]) if isinstance(data["share"], list) else 0
        for name, value in data.items():
            expected = f"a list of {bins} numbers" if name in PER_BIN else "text" if name == "band" else "a number"
            if not _is_part(name, value, bins):
                raise ValueError(f"expected {name} of a curve to be {expected}, got {value!r}")
        values: dict[str, Any] = {name: _tensor(data[name]) if name in PER_BIN else data[name] for name in names}
        return cls(**values)

    @classmethod
    def of(cls, sums: BinSums) -> ReliabilityCurve:
        """The curve of one model, with the 95% Wilson interval of each bin's accuracy."""
        count, hits, confidence, variance = (
            values.double().cpu() for values in (sums.count, sums.hits, sums.confidence, sums.variance)
        )
        n = float(count.sum())
        empty = count == 0
        safe = torch.where(empty, torch.nan, count)
        low, high = wilson(hits, safe)
        return cls(
            share=count / n,
            confidence=confidence / safe,
            accuracy=hits / safe,
            low=low,
            high=high,
            band="95% interval of a bin's accuracy",
            top1_accuracy=100 * float(hits.sum()) / n,
            mean_confidence=float(confidence.sum()) / n,
            ece=float(binned.ece(count, hits, confidence)),
            ece_by_chance=binned.ece_by_chance(count, confidence, variance),
            ece_by_chance_limit=binned.ece_by_chance_limit(count, confidence, variance),
            samples=int(n),
        )


def average(curves: Sequence[ReliabilityCurve]) -> ReliabilityCurve:
    """The mean curve over runs, with a band of one standard deviation.

    Each bin is averaged over the runs that have samples in it. A bin that is empty in more than half of the runs is
    left empty.

    Args:
        curves: one curve per run, all with the same number of bins.

    Raises:
        ValueError: for no curves, different numbers of bins, or curves that are averages already.
    """
    if not curves:
        raise ValueError("expected at least one curve to average, got none")
    if len({len(curve.share) for curve in curves}) > 1:
        raise ValueError(f"expected curves with the same number of bins, got {[len(curve.share) for curve in curves]}")
    if len(curves) == 1:
        return curves[0]
    if any(curve.runs > 1 for curve in curves):
        raise ValueError(f"expected curves of one run each, got averages of {[curve.runs for curve in curves]} runs")
    accuracy, confidence = (
        torch.stack([getattr(each, name) for each in curves]) for name in ("accuracy", "confidence")
    )
    is_rare = 2 * accuracy.isnan().logical_not().sum(0) < len(curves)
    mean, deviation = accuracy.nanmean(0).masked_fill(is_rare, math.nan), _deviation(accuracy)

    def over_runs(name: str) -> float:
        return float(sum(getattr(curve, name) for curve in curves)) / len(curves)

    return ReliabilityCurve(
        share=torch.stack([curve.share for curve in curves]).mean(0),
        confidence=confidence.nanmean(0).masked_fill(is_rare, math.nan),
        accuracy=mean,
        low=(mean - deviation).clamp_min(0),
        high=(mean + deviation).clamp_max(1),
        band=f"± one standard deviation over {len(curves)} runs",
        top1_accuracy=over_runs("top1_accuracy"),
        mean_confidence=over_runs("mean_confidence"),
        ece=over_runs("ece"),
        ece_by_chance=over_runs("ece_by_chance"),
        ece_by_chance_limit=over_runs("ece_by_chance_limit"),
        samples=curves[0].samples,
        runs=len(curves),
    )


def wilson(hits: Tensor, count: Tensor, z: float = 1.959963984540054) -> tuple[Tensor, Tensor]:
    """The Wilson score interval of a proportion. It lies in [0, 1] and is valid at both ends.

    >>> low, high = wilson(torch.tensor(9.0), torch.tensor(10.0))
    >>> f"{low:.3f} {high:.3f}"
    '0.596 0.982'
    """
    share = hits / count
    center = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * (share * (1 - share) / count + (z / (2 * count)).square()).sqrt()
    # Rounding must not exclude the share itself.
    return torch.minimum(center - half, share).clamp_min(0), torch.maximum(center + half, share).clamp_max(1)


def _deviation(values: Tensor) -> Tensor:
    """Unbiased standard deviation over the first dimension, ignoring NaN; zero for a single value."""
    known = values.isnan().logical_not()
    squares = (values - values.nanmean(0)).square().nansum(0)
    freedom = known.sum(0) - 1
    return torch.where(known.any(0), (squares / freedom.clamp_min(1)).sqrt(), math.nan)


def _is_part(name: str, value: Any, bins: int) -> bool:
    if name in PER_BIN:
        return isinstance(value, list) and len(value) == bins > 0
    return isinstance(value, str if name == "band" else (int, float))


def _plain(value: Any) -> Any:
    if not isinstance(value, Tensor):
        return value
    return [None if math.isnan(number) else number for number in value.tolist()]


def _tensor(values: list[float | None]) -> Tensor:
    return torch.tensor([math.nan if value is None else value for value in values], dtype=torch.float64)
