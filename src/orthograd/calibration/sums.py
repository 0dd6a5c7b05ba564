"""What an evaluation adds up: int64 counts and float64 sums, a few for each bin, whatever the number of samples.

Sums of two parts add to the sums of the whole, so batches, ranks and bootstrap resamples are all the same to them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor

from . import binned, smooth
from .predictions import Predictions

Sums = dict[str, Tensor]

MEANS = ("loss", "brier", "entropy", "max_logit", "logit_variance")
"""Metrics that are the mean of a number that each sample has."""


def checked_bins(bins: Any) -> int:
    """A number of bins, at least one, as a plain int; anything else raises."""
    if isinstance(bins, bool) or not hasattr(bins, "__index__"):
        raise TypeError(f"expected a whole number of bins, got {bins!r}")
    if bins < 1:
        raise ValueError(f"expected at least one bin, got {bins}")
    return int(bins)


def sums_of(predictions: Predictions, labels: Tensor, asked: Collection[str], bins: int) -> Sums:
    """The sums of one block of predictions."""
    confidence, correct = predictions.confidence, predictions.correct
    # Bin b holds the samples that were wrong, bin b + bins those that were right.
    cell = binned.bin_of(confidence, bins).add_(correct, alpha=bins)
    wide = confidence.double()
    sums = {
        "count": torch.bincount(cell, minlength=2 * bins),
        "confidence": _added(cell, wide, 2 * bins),
        "confidence_square": _added(cell, wide.square(), 2 * bins),
    }
    for name in MEANS:
        values = getattr(predictions, name)
        if name in asked and values is not None:
            sums[name] = values.sum(dtype=torch.float64)
    if predictions.in_top_k is not None:
        sums["in_top_k"] = predictions.in_top_k.sum()
    if predictions.probabilities is not None:
        sums |= classwise_sums(predictions.probabilities, labels, bins)
    if "smooth_ece" in asked:
        sums["residual_grid"] = smooth.on_grid(wide, wide - correct.double())
    return sums


def classwise_sums(probabilities: Tensor, labels: Tensor, bins: int) -> Sums:
    """Count, hits and probability of every class (rows) in every bin.

    Most probabilities are small and lie in the first bin, which gets what the others leave of the totals.
    """
    classes, n = probabilities.shape
    row, sample = (probabilities > 1 / bins * (1 - 1e-3)).nonzero(as_tuple=True)
    values = probabilities[row, sample]
    cell = binned.bin_of(values, bins).add_(row, alpha=bins)
    count = torch.bincount(cell, minlength=classes * bins).view(classes, bins)
    hits = torch.bincount(cell[labels[sample] == row], minlength=classes * bins).view(classes, bins)
    total = _added(cell, values.double(), classes * bins).view(classes, bins)
    count[:, 0] += n - count.sum(1)
    hits[:, 0] += torch.bincount(labels, minlength=classes) - hits.sum(1)
    total[:, 0] += probabilities.sum(1, dtype=torch.float64) - total.sum(1)
    return {"class_count": count, "class_hits": hits, "class_confidence": total}


def added(left: Sums, right: Sums) -> Sums:
    """The sums of both together."""
    return {name: left[name] + right[name] for name in left} if left else right


def _added(cell: Tensor, values: Tensor, cells: int) -> Tensor:
    return values.new_zeros(cells).index_add_(0, cell, values)
