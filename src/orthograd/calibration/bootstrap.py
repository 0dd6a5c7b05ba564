"""Intervals of the metrics over the samples of a test set: Wilson's for accuracies, bootstrap for all others.

These metrics are functions of sums over samples, so a resample is a column of weights, and so is a jackknife sample.
Accuracies are proportions: Wilson's interval needs no resampling, and also holds if every prediction is correct.

References: Efron, "Better Bootstrap Confidence Intervals", 1987 (BCa); Brown, Cai and DasGupta, "Interval Estimation
for a Binomial Proportion", 2001 (Wilson's).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from . import binned
from .evaluation import TOP_K
from .inputs import Form, Scores, Task, checked_bins, problems
from .metrics import PAPER, Interval, checked
from .predictions import Predictions, Source, of_logits, of_probabilities
from .reliability import wilson
from .rows import Rows
from .sums import MEANS, Sums, from_sums
from .values import refuse_broken, whole_number

RESAMPLED = (*PAPER, "ece_l2", "ece_debiased", "mce")
"""Metrics that have intervals."""

PROPORTIONS = {"top1_accuracy": "correct", "top5_accuracy": "in_top_k"}
"""Metrics that are a share of samples, with the attribute of `Predictions` that they count."""

AT_ONCE = 1 << 22
"""Weights in float64 that are drawn at once: 32 MiB."""

Statistic = Callable[[Tensor], dict[str, Tensor]]
"""Maps weights (n, resamples) to metrics with one value per resample."""


def intervals(
    logits: Any, labels: Any, *, task: Task = "multiclass", offsets: Any = None, **options: Any
) -> dict[str, Interval]:
    """Confidence intervals of the metrics over test samples: Wilson's for accuracies, BCa bootstrap for all others.

    Args:
        logits: (n, classes); other forms by ``task``.
        labels: (n,).
        task, offsets: as in `evaluate`; a multi-label problem is refused, since its decisions are not independent.
        **options: ``bins=10``; ``metrics``, by default all that have intervals: those of the paper, ``ece_l2``,
            ``ece_debiased`` and ``mce``; ``resamples=1000``; ``level=0.95``; ``seed=0``.

    Returns:
        (low, high) by metric. A metric with the same value in every resample has no interval. An ECE is never below
        zero, so the interval of a nearly calibrated model can miss the true value: compare with ``ece_by_chance``.

    >>> logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]] * 50), torch.tensor([0, 1, 1] * 50)
    >>> low, high = intervals(logits, labels, metrics=["top1_accuracy"], resamples=500)["top1_accuracy"]
    >>> f"{low:.0f}% to {high:.0f}%"
    '59% to 74%'
    """
    return _intervals([logits], labels, task, offsets, "logits", options)


def intervals_probabilities(
    probabilities: Any, labels: Any, *, task: Task = "multiclass", offsets: Any = None, **options: Any
) -> dict[str, Interval]:
    """`intervals` for probabilities (n, classes). The same arguments and result otherwise."""
    return _intervals([probabilities], labels, task, offsets, "probabilities", options)


def difference_intervals(
    first_logits: Any,
    second_logits: Any,
    labels: Any,
    *,
    task: Task = "multiclass",
    offsets: Any = None,
    **options: Any,
) -> dict[str, Interval]:
    """Paired bootstrap intervals of first − second, for two models on the same samples.

    Args:
        first_logits: (n, classes) of the candidate.
        second_logits: (n, classes) of the baseline.
        labels: (n,).
        task, offsets: as in `intervals`.
        **options: as in `intervals`.

    Returns:
        (low, high) of the difference, by metric.

    >>> logits, labels = torch.tensor([[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]] * 50), torch.tensor([0, 1, 1] * 50)
    >>> low, high = difference_intervals(logits / 2, logits, labels, metrics=["loss"], resamples=500)["loss"]
    >>> low < high
    True
    """
    return _intervals([first_logits, second_logits], labels, task, offsets, "logits", options)


def difference_intervals_probabilities(
    first_probabilities: Any,
    second_probabilities: Any,
    labels: Any,
    *,
    task: Task = "multiclass",
    offsets: Any = None,
    **options: Any,
) -> dict[str, Interval]:
    """`difference_intervals` for probabilities (n, classes). The same arguments and result otherwise."""
    both = [first_probabilities, second_probabilities]
    return _intervals(both, labels, task, offsets, "probabilities", options)


OPTIONS = ("bins", "metrics", "resamples", "level", "seed")


def _intervals(
    each: list[Any], labels: Any, task: Task, offsets: Any, name: Scores, options: dict[str, Any]
) -> dict[str, Interval]:
    if unknown := sorted(set(options).difference(OPTIONS)):
        raise TypeError(f"expected options among {', '.join(OPTIONS)}, got {', '.join(unknown)}")
    return bca_intervals([_Samples(values, labels, task, offsets, name) for values in each], **options)


@torch.no_grad()
def bca_intervals(
    samples: Sequence[_Samples],
    *,
    bins: int = 10,
    metrics: Collection[str] = RESAMPLED,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval]:
    """BCa (bias-corrected and accelerated) intervals of one model, or of the difference between two.

    For one model, accuracies have Wilson's interval.
    """
    names = checked(metrics)
    without = [name for name in names if name not in RESAMPLED]
    if without:
        raise ValueError(f"expected metrics among {', '.join(RESAMPLED)}, got {', '.join(without)}, without intervals")
    if whole_number(resamples, "resamples") < 2 or not 0 < level < 1:
        raise ValueError(f"expected at least 2 resamples and a level between 0 and 1, got {resamples} and {level}")
    if not -(2**63) <= whole_number(seed, "seed") < 2**64:
        raise ValueError(f"expected a seed of 64 bits, got {seed}")
    statistics = [one.statistic(checked_bins(bins), names) for one in samples]

    def statistic(weights: Tensor) -> dict[str, Tensor]:
        first, *others = (each(weights) for each in statistics)
        return {name: value - sum(other[name] for other in others) for name, value in first.items()}

    n = samples[0].size
    whole = torch.ones(n, 1, dtype=torch.float64)
    point, sizes = statistic(whole), [each(whole) for each in statistics]
    drawn = _joined(statistic(weights) for weights in _resampled(n, resamples, seed))
    left_out = _joined(statistic(weights) for weights in _jackknifed(n))
    rounding = {name: 1e-12 * (1 + sum(abs(float(size[name])) for size in sizes)) for name in point}
    bounds = {
        name: _bca(float(value), drawn[name], left_out[name], level)
        for name, value in point.items()
        if not bool(value.isnan()) and _varies(drawn[name], rounding[name])
    }
    if len(samples) == 1:
        bounds |= {name: samples[0].proportion(name, level) for name in PROPORTIONS if name in names}
    return bounds


class _Samples:
    """The contribution of each sample to the sums, so that weighted sums are matrix products."""

    def __init__(self, values: Any, labels: Any, task: Task, offsets: Any, name: Scores) -> None:
        if task == "multilabel":
            raise ValueError("expected one decision per sample, got task 'multilabel', whose decisions depend")
        (every,) = problems(values, labels, Form(task), name=name, offsets=offsets)
        source = of_logits if name == "logits" else of_probabilities
        self.parts = [part for rows in every for part in _predictions(rows, source)]
        self.size, self.classes = sum(len(rows.labels) for rows in every), max(rows.classes for rows in every)
        numbers = [rows.numbers for rows in every if rows.numbers is not None]
        self.order = torch.cat(numbers).argsort().cpu() if numbers else slice(None)

    def column(self, name: str) -> Tensor:
        """The values in the order of the samples as given, so that those of two models are pairs."""
        return torch.cat([getattr(part, name) for part in self.parts]).cpu()[self.order]

    def proportion(self, name: str, level: float) -> Interval:
        """The Wilson interval of an accuracy in percent; [100, 100] for top-5 accuracy with at most five classes."""
        if name == "top5_accuracy" and self.classes <= TOP_K:
            return 100.0, 100.0
        hits = self.column(PROPORTIONS[name]).sum().double()
        z = float(torch.special.ndtri(torch.tensor((1 + level) / 2, dtype=torch.float64)))
        low, high = wilson(hits, torch.tensor(float(self.size), dtype=torch.float64), z)
        return 100 * float(low), 100 * float(high)

    def statistic(self, bins: int, names: Collection[str]) -> Statistic:
        confidence, correct = self.column("confidence"), self.column("correct")
        cell = binned.bin_of(confidence, bins).add_(correct, alpha=bins)
        order = cell.argsort()
        until = [0, *torch.bincount(cell, minlength=2 * bins).cumsum(0).tolist()]
        wide = confidence.double()
        binwise = torch.stack([torch.ones_like(wide), wide, wide.square()])[:, order]
        named = [name for name in (*MEANS, "in_top_k") if getattr(self.parts[0], name) is not None]
        means = torch.stack([self.column(name).double() for name in named])

        def metrics(weights: Tensor) -> dict[str, Tensor]:
            ordered = weights[order]
            cells = [binwise[:, a:b] @ ordered[a:b] for a, b in pairwise(until)]
            count, total, square = torch.stack(cells, 2).unbind(0)
            sums: Sums = {"count": count, "confidence": total, "confidence_square": square}
            return from_sums(sums | dict(zip(named, means @ weights, strict=True)), names)

        return metrics


def _predictions(rows: Rows, source: Source) -> list[Predictions]:
    parts = [source(z, y, PAPER, min(TOP_K, rows.classes)) for z, y, _ in rows.blocks()]
    # −∞ leaves a loss finite, and an entropy never.
    if source is of_logits and not all(bool((part.loss + part.entropy).isfinite().all()) for part in parts):
        refuse_broken(rows)
    return parts


def _resampled(n: int, resamples: int, seed: int) -> Iterator[Tensor]:
    """Resampling counts of each sample, (n, a few resamples) at a time."""
    generator = torch.Generator().manual_seed(seed)
    for few in _portions(resamples, max(1, AT_ONCE // n)):
        drawn = torch.randint(n, (n, few), generator=generator).mul_(few).add_(torch.arange(few))
        yield torch.bincount(drawn.flatten(), minlength=n * few).view(n, few).double()


def _jackknifed(n: int, groups: int = 500) -> Iterator[Tensor]:
    """Jackknife weights: each leaves out one of up to 500 groups of samples."""
    member = torch.arange(n).remainder_(groups)
    start = 0
    for few in _portions(min(n, groups), max(1, AT_ONCE // n)):
        yield (member[:, None] != torch.arange(start, start + few)).double()
        start += few


def _portions(total: int, most: int) -> Iterator[int]:
    for start in range(0, total, most):
        yield min(most, total - start)


def _joined(parts: Iterator[dict[str, Tensor]]) -> dict[str, Tensor]:
    dicts = list(parts)
    return {name: torch.cat([part[name] for part in dicts]) for name in dicts[0]}


def _varies(drawn: Tensor, rounding: float) -> bool:
    """True if resamples differ by more than rounding, or the metric is infinite."""
    finite = drawn[drawn.isfinite()]
    return math.isinf(rounding) or (len(finite) > 0 and float(finite.max() - finite.min()) > rounding)


def _bca(point: float, drawn: Tensor, left_out: Tensor, level: float) -> Interval:
    """Quantiles of the resampled values, corrected for bias and skewness."""
    drawn, left_out = drawn[drawn.isfinite()], left_out[left_out.isfinite()]
    if math.isinf(point):
        return point, point
    below = ((drawn < point).double().mean() + (drawn == point).double().mean() / 2).clamp(
        1 / (len(drawn) + 1), len(drawn) / (len(drawn) + 1)
    )
    bias = torch.special.ndtri(below)
    influence = left_out.mean() - left_out
    spread = influence.square().sum().pow(1.5)
    skewness = influence.pow(3).sum() / (6 * spread) if float(spread) > 0 else torch.zeros(())
    ends = torch.special.ndtri(torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)) + bias
    low, high = drawn.quantile(torch.special.ndtr(bias + ends / (1 - skewness * ends))).tolist()
    return low, high
