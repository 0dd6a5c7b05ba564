"""The sufficient statistics of an evaluation, int64 counts and float64 sums per bin, and the metrics from them.

Sums are additive, so batches, ranks and bootstrap resamples are treated alike. They may have leading dimensions, to
evaluate many resamples at once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from . import binned, unbinned
from .predictions import Predictions

Sums = dict[str, Tensor]

MEANS = ("loss", "brier", "entropy", "max_logit", "logit_variance")
"""Metrics that are the mean of a value per sample."""


def sums_of(
    predictions: Predictions, labels: Tensor, asked: Collection[str], bins: int, weights: Tensor | None = None
) -> Sums:
    """The sums of one block of predictions. With weights, counts are sums of weights in float64."""
    confidence, correct = predictions.confidence, predictions.correct
    # Cell b holds the wrong samples of bin b, cell b + bins the correct ones.
    cell = binned.bin_of(confidence, bins).add_(correct, alpha=bins)
    wide = confidence.double()
    sums = {
        "count": torch.bincount(cell, weights, minlength=2 * bins),
        "confidence": _added(cell, wide, 2 * bins, weights),
        "confidence_square": _added(cell, wide.square(), 2 * bins, weights),
    }
    if weights is not None:
        sums["samples"] = torch.tensor(len(labels), device=labels.device)
    for name in MEANS:
        values = getattr(predictions, name)
        if name in asked and values is not None:
            sums[name] = values.sum(dtype=torch.float64) if weights is None else values.double() @ weights
    if predictions.in_top_k is not None:
        sums["in_top_k"] = predictions.in_top_k.sum() if weights is None else predictions.in_top_k.double() @ weights
    if predictions.probabilities is not None:
        sums |= _classwise_sums(predictions.probabilities, labels, bins, weights)
    if "smooth_ece" in asked:
        residual = wide - correct.double()
        sums["residual_grid"] = unbinned.on_grid(wide, residual if weights is None else residual * weights)
    return sums


def _classwise_sums(probabilities: Tensor, labels: Tensor, bins: int, weights: Tensor | None) -> Sums:
    """Count, hits and probability of every class (rows) in every bin.

    Most probabilities are small and fall into the first bin, which is computed as the total minus the other bins.
    """
    classes, n = probabilities.shape
    row, sample = (probabilities > 1 / bins * (1 - 1e-3)).nonzero(as_tuple=True)
    values = probabilities[row, sample]
    cell = binned.bin_of(values, bins).add_(row, alpha=bins)
    is_hit = labels[sample] == row
    weight = None if weights is None else weights[sample]
    count = torch.bincount(cell, weight, minlength=classes * bins).view(classes, bins)
    hit_weight = None if weight is None else weight[is_hit]
    hits = torch.bincount(cell[is_hit], hit_weight, minlength=classes * bins).view(classes, bins)
    total = _added(cell, values.double(), classes * bins, weight).view(classes, bins)
    if weights is None:
        everything, of_class = n, probabilities.sum(1, dtype=torch.float64)
    else:
        everything, of_class = weights.sum(), probabilities.double() @ weights  # type: ignore[assignment]
        count, hits = count.double(), hits.double()  # integers if no weight was counted
    count[:, 0] += everything - count.sum(1)
    hits[:, 0] += torch.bincount(labels, weights, minlength=classes) - hits.sum(1)
    total[:, 0] += of_class - total.sum(1)
    return {"class_count": count, "class_hits": hits, "class_confidence": total}


def added(left: Sums, right: Sums) -> Sums:
    """The sums of two parts together."""
    return {name: left[name] + right[name] for name in left} if left else right


def _added(cell: Tensor, values: Tensor, cells: int, weights: Tensor | None) -> Tensor:
    """The sum of the values in each cell, times their weights."""
    return binned.sum_by_cell(cell, values if weights is None else values * weights, cells)


@dataclass(frozen=True)
class BinSums:
    """Per bin: samples, hits, Σ confidence, and Σ c (1 − c), the variance of the hits of a calibrated model."""

    count: Tensor
    hits: Tensor
    confidence: Tensor
    variance: Tensor


def bin_sums(sums: Sums) -> BinSums:
    """The sums of each bin, over wrong and correct samples."""
    count, confidence, square = (_by_outcome(sums[name]) for name in ("count", "confidence", "confidence_square"))
    total = confidence.sum(-2)
    return BinSums(count.sum(-2), count[..., 1, :], total, (total - square.sum(-2)).clamp_min(0))


def from_sums(sums: Sums, asked: Collection[str]) -> dict[str, Tensor]:
    """The requested metrics that these sums determine; NaN where a metric is undefined."""
    sums = {name: value.double() for name, value in sums.items()}  # torch divides integers in float32
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
            values[name] = _scalar(getattr(binned, name)(bins.count, bins.confidence, bins.variance))
    if "smooth_ece" in asked:
        values["smooth_ece"] = _scalar(unbinned.smooth_ece(sums["residual_grid"], float(n)))
    return {name: value for name, value in values.items() if name in asked}


def _classwise(sums: Sums, brier: Tensor) -> dict[str, Tensor]:
    count, hits, confidence = (sums[f"class_{name}"] for name in ("count", "hits", "confidence"))
    reliability = binned.brier_reliability(count, hits, confidence)
    uncertainty = binned.brier_uncertainty(count, hits)
    return {
        "ece_classwise": binned.classwise(count, hits, confidence),
        "brier_reliability": reliability,
        # Probabilities differ within a bin. That part counts as resolution, so that
        # brier = reliability − resolution + uncertainty holds exactly.
        "brier_resolution": reliability + uncertainty - brier,
        "brier_uncertainty": uncertainty,
    }


def _correlation(sums: Sums) -> Tensor:
    """cov(c, a) / √(var c · var a) over the samples, with confidence c and correctness a."""
    count, confidence = (_by_outcome(sums[name]).sum(-1) for name in ("count", "confidence"))
    n = count.sum(-1)
    accuracy, mean = count[..., 1] / n, confidence.sum(-1) / n
    variance = sums["confidence_square"].sum(-1) / n - mean.square()
    # Below the resolution of float32, confidences count as constant.
    variance = torch.where(variance > 1e-14, variance, torch.nan)
    covariance = confidence[..., 1] / n - mean * accuracy
    spread = torch.where((accuracy > 0) & (accuracy < 1), accuracy * (1 - accuracy), torch.nan)
    return covariance / (variance * spread).sqrt()


def _scalar(value: float) -> Tensor:
    return torch.tensor(value, dtype=torch.float64)


def _by_outcome(values: Tensor) -> Tensor:
    """(…, 2 · bins) as (…, 2, bins): wrong samples first, then correct ones."""
    return values.view(*values.shape[:-1], 2, values.shape[-1] // 2)
