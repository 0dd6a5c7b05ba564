"""Values per prediction (confidence, loss, entropy …), in one pass over blocks that stay in the cache.

`Rows` makes the blocks. Whole-tensor operations take twice as long. Here samples are along the last dimension, so that
every operation reads memory in order.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from .inputs import computing_dtype

MANY_CLASSES = 64
"""From this many classes on, rows are summed without a transposition."""


@dataclass(frozen=True)
class Predictions:
    """One value per sample. None: not requested, or not defined for probabilities."""

    confidence: Tensor
    correct: Tensor
    loss: Tensor
    brier: Tensor
    entropy: Tensor
    in_top_k: Tensor | None
    max_logit: Tensor | None
    logit_variance: Tensor | None
    probabilities: Tensor | None  # (classes, n)


Source = Callable[[Tensor, Tensor, Collection[str], int], Predictions]
"""Computes predictions from scores, labels, the requested metrics, and k for the top-k accuracy."""


def of_logits(logits: Tensor, labels: Tensor, asked: Collection[str], k: int) -> Predictions:
    """Predictions from logits z, with d = z − max z and s = Σ eᵈ.

    confidence 1/s, loss log s − d_y, entropy log s − Σ eᵈ d / s, Brier score Σ e²ᵈ / s² − 2 e^(d_y) / s + 1.
    """
    z = _columns(logits, torch.neg)
    lowest = z.amin(0)
    max_logit = torch.maximum(lowest.abs(), z.amax(0).abs()) if "max_logit" in asked else None
    d = torch.sub(lowest, z, out=z)
    own = d.gather(0, labels[None])[0]
    in_top_k = _in_top(k, d, own, labels) if "top5_accuracy" in asked else None
    variance = _variance(d) if "logit_variance" in asked else None
    e = d.exp()  # not the faster exp2, whose last digit depends on the memory address
    square, weighted = _total(e * e), _total(torch.mul(e, d, out=d))
    probabilities = e.clone() if "ece_classwise" in asked else None
    s = _total(e)
    log_s, confidence = s.log(), s.reciprocal()
    return Predictions(
        confidence,
        _is_first(own == 0, confidence, logits, labels),
        log_s - own,
        square.mul_(confidence).sub_(own.exp(), alpha=2).mul_(confidence).add_(1),
        log_s.addcmul_(weighted, confidence, value=-1),
        in_top_k,
        max_logit,
        variance,
        None if probabilities is None else probabilities.mul_(confidence),
    )


def of_probabilities(probabilities: Tensor, labels: Tensor, asked: Collection[str], k: int) -> Predictions:
    """Predictions from probabilities; the loss is infinite where the label has probability zero."""
    p = _columns(probabilities, torch.abs)
    own = p.gather(0, labels[None])[0]
    confidence = p.amax(0)
    return Predictions(
        confidence,
        _is_first(own == confidence, confidence, probabilities, labels),
        -own.log(),
        _total(p * p).sub_(own, alpha=2).add_(1),
        _total(torch.special.entr(p)),
        _in_top(k, p, own, labels) if "top5_accuracy" in asked else None,
        None,
        None,
        p if "ece_classwise" in asked else None,
    )


def _columns(scores: Tensor, operation: Callable[..., Tensor]) -> Tensor:
    """The result of an operation on the scores, as (classes, n). An operation transposes faster than a copy."""
    n, classes = scores.shape
    wide = scores.to(computing_dtype(scores.dtype))
    rows_stay = classes >= MANY_CLASSES and scores.device.type == "cpu"
    columns = wide.new_empty((n, classes)).t() if rows_stay else wide.new_empty((classes, n))
    return operation(wide.t(), out=columns)


def _total(values: Tensor) -> Tensor:
    """Σ over the classes; it may use up `values`.

    A plain sum can use another order at the end of a block, and a prediction would depend on its neighbors. Adding
    halves onto each other has one order everywhere.
    """
    rows = len(values)
    while rows > 1:
        half = rows // 2
        values[:half] += values[rows - half : rows]
        rows -= half
    return values[0]


def _is_first(leads: Tensor, confidence: Tensor, scores: Tensor, labels: Tensor) -> Tensor:
    """True where the label is the prediction: the first of the classes with the highest score.

    Ties are possible only at a confidence of at most one half, so only those samples are checked again.
    """
    doubtful = (leads & (confidence <= 0.501)).nonzero()[:, 0]
    leads[doubtful] = scores[doubtful].argmax(1) == labels[doubtful]
    return leads


def _in_top(k: int, scores: Tensor, own: Tensor, labels: Tensor) -> Tensor:
    """True where the label is among the k highest scores; ties go to the lower class number."""
    inside = _total(torch.ge(scores, own, out=torch.empty_like(scores))) <= k
    doubtful = (~inside).nonzero()[:, 0]  # outside, unless there is a tie
    columns, score, truth = scores[:, doubtful], own[doubtful], labels[doubtful]
    earlier = torch.arange(len(scores), device=scores.device)[:, None] < truth
    inside[doubtful] = ((columns > score) | ((columns == score) & earlier)).sum(0) < k
    return inside


def _variance(d: Tensor) -> Tensor:
    """The unbiased variance over the classes of each sample."""
    classes = len(d)
    total, square = _total(d.clone()), _total(d * d)
    return square.addcmul_(total, total, value=-1 / classes).div_(classes - 1)
