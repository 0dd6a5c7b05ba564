"""Values per prediction (confidence, loss, entropy …), in one pass over blocks that stay in the cache.

`Rows` makes the blocks. Whole-tensor operations take several times as long. Here samples are along the last dimension:
few classes are transposed, so that every operation reads memory in order; many classes stay rows.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .values import computing_dtype

MANY_CLASSES, PART = 64, 1 << 19
"""From this many classes on, a CPU leaves rows as they are, and takes this many elements at a time."""

MOST_KEPT = 1 << 20
"""Memory for at most as many elements is kept, twice."""


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
    sums = _Sums.of_parts(logits, labels, asked, k)
    log_s, confidence = sums.s.log(), sums.s.reciprocal()
    probabilities = sums.probabilities
    return Predictions(
        confidence,
        _is_first(sums.own == 0, confidence, logits, labels),
        log_s - sums.own,
        sums.square.mul_(confidence).sub_(sums.own.exp(), alpha=2).mul_(confidence).add_(1),
        log_s.addcmul_(sums.weighted, confidence, value=-1),
        sums.in_top_k,
        sums.max_logit,
        sums.variance,
        None if probabilities is None else probabilities.mul_(confidence),
    )


class _Buffers:
    """Memory for two values of each class and sample, which is used again: new memory takes longer than arithmetic."""

    def __init__(self) -> None:
        self._kept: dict[int, Tensor] = {}

    def first(self, rows: Tensor) -> Tensor:
        """Memory for (n, classes), in float64."""
        return self._like(rows, 0)

    def second(self, columns: Tensor) -> Tensor:
        """Memory for (classes, n), in float64 for many classes; until the next call."""
        return self._like(columns.t(), 1).t() if _has_many_classes(columns) else torch.empty_like(columns)

    def _like(self, rows: Tensor, number: int) -> Tensor:
        size = rows.numel()
        if size > MOST_KEPT or not rows.is_contiguous():
            return torch.empty_like(rows, dtype=torch.float64)
        if number not in self._kept or len(self._kept[number]) < size:
            with torch.inference_mode(False):  # else it could not be written to outside of it
                self._kept[number] = torch.empty(max(size, PART), dtype=torch.float64, device=rows.device)
        return self._kept[number][:size].view(rows.shape)


class _Thread(threading.local):
    """The memory that this thread keeps. Taken while in use: a signal handler may evaluate inside an evaluation."""

    buffers: _Buffers | None = None

    def take(self) -> _Buffers:
        buffers, self.buffers = self.buffers, None
        return buffers or _Buffers()


_THREAD = _Thread()


class _Sums(NamedTuple):
    """For each sample d_y, s, Σ eᵈ d and Σ e²ᵈ, and what else was requested; eᵈ is (classes, n)."""

    own: Tensor
    s: Tensor
    weighted: Tensor
    square: Tensor
    in_top_k: Tensor | None
    max_logit: Tensor | None
    variance: Tensor | None
    probabilities: Tensor | None

    @classmethod
    def of_parts(cls, logits: Tensor, labels: Tensor, asked: Collection[str], k: int) -> _Sums:
        """The sums of a block; of many classes in smaller parts, since these are computed in float64."""
        if not _has_many_classes(logits.t()) or "ece_classwise" in asked:
            return cls.of(logits, labels, asked, k)
        rows = max(1, PART // logits.shape[1])
        parts = [cls.of(*part, asked, k) for part in zip(logits.split(rows), labels.split(rows), strict=True)]
        together = (None if values[0] is None else torch.cat(values) for values in zip(*parts, strict=True))
        return cls(*together)  # type: ignore[arg-type]  # None only where it may be

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, asked: Collection[str], k: int) -> _Sums:
        buffers = _THREAD.take()
        d, max_logit = _below_highest(logits, buffers, with_largest="max_logit" in asked)
        own = d.gather(0, labels[None])[0]
        in_top_k = _in_top(k, d, own, labels, buffers) if "top5_accuracy" in asked else None
        variance = _variance(d, buffers) if "logit_variance" in asked else None
        # Not the faster exp2, whose last digit depends on the memory address.
        e = torch.exp(d, out=buffers.second(d))
        weighted = _total(torch.mul(e, d, out=d)).clone()  # the memory of d is used again
        square = _total(torch.mul(e, e, out=d))
        probabilities = e.clone() if "ece_classwise" in asked else None
        s = _total(e)
        _THREAD.buffers = buffers
        return cls(own, s, weighted, square, in_top_k, max_logit, variance, probabilities)


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
        _in_top(k, p, own, labels, _Buffers()) if "top5_accuracy" in asked else None,
        None,
        None,
        p if "ece_classwise" in asked else None,
    )


def _has_many_classes(columns: Tensor) -> bool:
    return len(columns) >= MANY_CLASSES and columns.device.type == "cpu"


def _below_highest(logits: Tensor, buffers: _Buffers, *, with_largest: bool) -> tuple[Tensor, Tensor | None]:
    """Logits minus the highest of their row, as (classes, n), and if asked the largest size of each row's logits.

    Many classes are computed in float64, which costs little there.
    """
    if _has_many_classes(logits.t()):
        highest = logits.amax(1, keepdim=True)
        largest = torch.maximum(highest[:, 0].abs(), logits.amin(1).abs()) if with_largest else None
        return buffers.first(logits).copy_(logits).sub_(highest).t(), largest
    z = _columns(logits, torch.neg)
    lowest = z.amin(0)
    largest = torch.maximum(lowest.abs(), z.amax(0).abs()) if with_largest else None
    return torch.sub(lowest, z, out=z), largest


def _columns(scores: Tensor, operation: Callable[..., Tensor]) -> Tensor:
    """The result of an operation on the scores, as (classes, n). An operation transposes faster than a copy."""
    wide = scores.to(computing_dtype(scores.dtype)).t()
    if _has_many_classes(wide):
        return operation(wide)
    return operation(wide, out=torch.empty_like(wide, memory_format=torch.contiguous_format))


def _total(values: Tensor) -> Tensor:
    """Σ over the classes; it may use up `values`.

    A row is summed by itself. Where the classes are apart in memory, a plain sum can use another order at the end of a
    block, and a prediction would depend on its neighbors. Adding halves onto each other has one order everywhere.
    """
    if _has_many_classes(values):
        return values.sum(0)
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


def _in_top(k: int, scores: Tensor, own: Tensor, labels: Tensor, buffers: _Buffers) -> Tensor:
    """True where the label is among the k highest scores; ties go to the lower class number."""
    inside = _total(torch.ge(scores, own, out=buffers.second(scores))) <= k
    is_tied = _total(torch.gt(scores, own, out=buffers.second(scores))) < k
    doubtful = (is_tied & ~inside).nonzero()[:, 0]
    if len(doubtful):
        columns, score, truth = scores[:, doubtful], own[doubtful], labels[doubtful]
        earlier = torch.arange(len(scores), device=scores.device)[:, None] < truth
        inside[doubtful] = ((columns > score) | ((columns == score) & earlier)).sum(0) < k
    return inside


def _variance(d: Tensor, buffers: _Buffers) -> Tensor:
    """The unbiased variance over the classes of each sample."""
    classes = len(d)
    total, square = _total(buffers.second(d).copy_(d)), _total(torch.mul(d, d, out=buffers.second(d)))
    return square.addcmul_(total, total, value=-1 / classes).div_(classes - 1)
