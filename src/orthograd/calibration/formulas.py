"""Metrics as functions of sums. Sums may have leading dimensions, so many resamples are evaluated at once."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from . import binned, chance, smooth
from .sums import MEANS, Sums


@dataclass(frozen=True)
class BinSums:
    """For each bin: samples, hits among them, Σ confidence, and Σ c (1 − c), the variance that hits should have."""

    count: Tensor
    hits: Tensor
    confidence: Tensor
    variance: Tensor


def bin_sums(sums: Sums) -> BinSums:
    """The sums of right and wrong samples of a bin together."""
    count, confidence, square = (_by_outcome(sums[name]) for name in ("count", "confidence", "confidence_square"))
    total = confidence.sum(-2)
    return BinSums(count.sum(-2), count[..., 1, :], total, (total - square.sum(-2)).clamp_min(0))


def from_sums(sums: Sums, asked: Collection[str]) -> dict[str, Tensor]:
    """Every metric that was asked for and that these sums can tell; NaN where it is undefined."""
    sums = {name: value.double() for name, value in sums.items()}  # torch divides whole numbers in float32
    bins = bin_sums(sums)
    top_label = (bins.count, bins.hits, bins.confidence)
    n = bins.count.sum(-1)
    values = {name: sums[name] / n for name in MEANS if name in sums}
    values |= {
        "top1_accuracy": 100 * bins.hits.sum(-1) / n,
        "max_softmax": bins.confidence.sum(-1) / n,
        "confidence_accuracy_correlation": _correlation(sums),
        "ece": binned.ece(*top_label),
        "ece_l2": binned.l2(*top_label),
        "ece_debiased": binned.debiased(*top_label),
        "mce": binned.mce(*top_label),
    }
    if "in_top_k" in sums:
        values["top5_accuracy"] = 100 * sums["in_top_k"] / n
    if "class_count" in sums:
        values |= _classwise(sums, values["brier"])
    for name in ("ece_by_chance", "ece_by_chance_limit"):
        if name in asked:
            values[name] = _scalar(getattr(chance, name)(bins.count, bins.confidence, bins.variance))
    if "smooth_ece" in asked:
        values["smooth_ece"] = _scalar(smooth.smooth_ece(sums["residual_grid"], int(n)))
    return {name: value for name, value in values.items() if name in asked}


def _classwise(sums: Sums, brier: Tensor) -> dict[str, Tensor]:
    count, hits, confidence = (sums[f"class_{name}"] for name in ("count", "hits", "confidence"))
    reliability = binned.brier_reliability(count, hits, confidence)
    uncertainty = binned.brier_uncertainty(count, hits)
    return {
        "ece_classwise": binned.classwise(count, hits, confidence),
        "brier_reliability": reliability,
        # Within a bin probabilities still differ; what that gains or costs belongs to resolution, so that
        # brier = reliability − resolution + uncertainty holds to the last digit.
        "brier_resolution": reliability + uncertainty - brier,
        "brier_uncertainty": uncertainty,
    }


def _correlation(sums: Sums) -> Tensor:
    """cov(c, a) / √(var c · var a) over the samples, c being confidence and a correctness."""
    count, confidence = (_by_outcome(sums[name]).sum(-1) for name in ("count", "confidence"))
    n = count.sum(-1)
    accuracy, mean = count[..., 1] / n, confidence.sum(-1) / n
    variance = sums["confidence_square"].sum(-1) / n - mean.square()
    # Confidences that differ by less than float32 can tell do not vary.
    variance = torch.where(variance > 1e-14, variance, torch.nan)
    covariance = confidence[..., 1] / n - mean * accuracy
    spread = torch.where((accuracy > 0) & (accuracy < 1), accuracy * (1 - accuracy), torch.nan)
    return covariance / (variance * spread).sqrt()


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _by_outcome(values: Tensor) -> Tensor:
    """(…, 2 · bins) as (…, 2, bins): wrong samples first, then right ones."""
    return values.view(*values.shape[:-1], 2, values.shape[-1] // 2)
