"""Predictions of logits on a GPU by one Triton kernel: one pass, float64, and no copy of the logits.

This module does not import Triton. Where the kernel does not apply, `predictions.of_logits` computes the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from torch import Tensor

from ..imports import has_triton
from .inputs import Scores
from .predictions import Predictions, of_logits, of_probabilities
from .rows import Rows

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
AT_ONCE = 1 << 20
"""Rows at a time: their values and what is computed from them take about 100 MiB, for any number of classes."""


class Tile(NamedTuple):
    """Rows and classes that a thread block reads at a time, its warps and its pipeline stages."""

    rows: int
    lanes: int
    warps: int
    stages: int


class Part(NamedTuple):
    """Predictions of some samples, with their labels and weights."""

    predictions: Predictions
    labels: Tensor
    weights: Tensor | None


MANY = Tile(1, 1024, 4, 1)
"""For many classes that are neighbors in memory: a row at a time, half as many lanes if rows are not aligned."""
APART = Tile(256, 1, 4, 1)
"""For classes that are apart in memory, as in maps: neighboring positions together."""
MANY_APART = Tile(32, 32, 4, 1)
"""The same for 128 classes or more, as of tokens (n, vocabulary, length)."""


def predicted(rows: Rows, name: Scores, asked: Collection[str], k: int) -> Iterator[Part]:
    """The predictions of all samples from logits or probabilities, some at a time: by the kernel if it applies."""
    if name == "logits" and is_fused(rows, asked):
        yield from of_rows(rows, asked, k)
        return
    source = of_logits if name == "logits" else of_probabilities
    for scores, labels, weights in rows.blocks():
        yield Part(source(scores, labels, asked, k), labels, weights)


def is_fused(rows: Rows, asked: Collection[str]) -> bool:
    """True if the kernel computes these predictions: on a GPU, with Triton."""
    return rows.scores.is_cuda and fits(rows, asked) and has_triton()


def fits(rows: Rows, asked: Collection[str]) -> bool:
    """True if the kernel supports these scores and metrics: at most float32, and not every probability is needed.

    >>> rows = Rows(torch.zeros(4, 3), torch.zeros(4, dtype=torch.long))
    >>> fits(rows, {"ece", "top5_accuracy"}), fits(rows, {"ece_classwise"})
    (True, False)
    """
    is_plain = type(rows.scores) is Tensor and rows.scores.dtype in DTYPES and rows.pair is None
    return is_plain and "ece_classwise" not in asked and matrices(rows.scores) is not None


def of_rows(rows: Rows, asked: Collection[str], k: int) -> Iterator[Part]:
    """The predictions of all samples, some at a time."""
    scores = matrices(rows.scores)
    assert scores is not None
    labels = rows.labels if rows.is_kept is None else rows.labels.where(rows.is_kept, -1)
    outer, inner = scores.shape[:2]
    columns = [None if each is None else each.reshape(outer, inner) for each in (labels, rows.weights)]
    images = max(1, AT_ONCE // inner)
    for image in range(0, outer, images):
        for place in range(0, inner, AT_ONCE):
            here = slice(image, image + images), slice(place, place + AT_ONCE)
            truth, weights = (None if each is None else each[here].reshape(-1) for each in columns)
            assert truth is not None
            yield _part(scores[here], truth, weights, asked, k, is_whole=rows.is_kept is None)


def _part(
    scores: Tensor, labels: Tensor, weights: Tensor | None, asked: Collection[str], k: int, *, is_whole: bool
) -> Part:
    values, before = row_values(scores, labels, with_variance="logit_variance" in asked)
    if not is_whole:
        is_kept = labels >= 0
        values, before, labels = values[:, is_kept], before[is_kept], labels[is_kept]
        weights = None if weights is None else weights[is_kept]
    confidence, loss, brier, entropy, max_logit, variance = values
    in_top_k = before < k if "top5_accuracy" in asked else None
    spread = variance if "logit_variance" in asked else None
    return Part(
        Predictions(confidence, before == 0, loss, brier, entropy, in_top_k, max_logit, spread, None), labels, weights
    )


def row_values(
    scores: Tensor, labels: Tensor, *, with_variance: bool, tile: Tile | None = None
) -> tuple[Tensor, Tensor]:
    """Six values of each row of scores (outer, inner, classes) in float64, and the classes before its label.

    The values are confidence, loss, Brier score, entropy, largest |logit| and variance of the logits.
    """
    from .predictions_triton import predictions_kernel

    outer, inner, classes = scores.shape
    rows, lanes, warps, stages = tile or tile_of(scores)
    values = torch.empty(6, len(labels), dtype=torch.float64, device=scores.device)
    before = torch.empty(len(labels), dtype=torch.int32, device=scores.device)
    each = 16 // scores.element_size() if rows == 1 and has_aligned_rows(scores) else 1
    strides = scores.stride() if outer > 1 else (0, *scores.stride()[1:])  # 0 does not depend on the number of rows
    sizes = len(labels), inner, classes, *strides
    with _current(scores.device):
        predictions_kernel[(outer * -(-inner // rows),)](
            scores, labels, values, before, *sizes, rows, lanes, each, stages, with_variance, num_warps=warps
        )
    return values, before


def tile_of(scores: Tensor) -> Tile:
    """The tile for scores (outer, inner, classes)."""
    classes = scores.shape[2]
    if scores.stride(2) != 1:
        return APART if classes < 4 * MANY_APART.lanes else MANY_APART
    if classes >= MANY.lanes // 2:
        return MANY if has_aligned_rows(scores) else MANY._replace(lanes=MANY.lanes // 2)
    lanes = 1 << (classes - 1).bit_length()
    return Tile(max(1, APART.rows * 4 // lanes), lanes, APART.warps, 1)


def has_aligned_rows(scores: Tensor) -> bool:
    """True if Triton can load 16 bytes at a time: then each thread holds as many classes, next to each other."""
    return scores.stride(2) == 1 and scores.data_ptr() % 16 == 0 and all(size % 16 == 0 for size in scores.stride()[:2])


def matrices(scores: Tensor) -> Tensor | None:
    """A view of scores (…, classes) as (outer, inner, classes); None if that would need a copy."""
    for outer in (1, len(scores)):
        try:
            return scores.view(outer, -1, scores.shape[-1])
        except RuntimeError:
            continue
    return None


def _current(device: torch.device) -> AbstractContextManager[object]:
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
