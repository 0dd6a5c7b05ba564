"""One-vs-rest calibrators: a binary method for each class, with the probabilities normalized to sum to 1.

Reference: Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.nn.utils.rnn import pad_sequence

from ..inputs import Task, checked_bins
from ..values import callers_level
from . import newton
from .calibrator import CalibrationWarning, Calibrator
from .scaling import PRECISION, accurate

RIDGE = 1e-8
"""Penalty on the slope, so that it is unique (zero) if a class has a single score."""


class PlattScaling(Calibrator):
    """p_k ∝ σ(a_k s_k + b_k) with the log-odds s_k = log(p_k / (1 − p_k)) of the softmax.

    a_k and b_k minimize the cross-entropy with the targets (N₊ + 1)/(N₊ + 2) for the N₊ samples of the class and
    1/(N₋ + 2) for the N₋ others. These targets keep them finite on any data.

    >>> logits = torch.tensor([[2.0, 0.0]] * 8 + [[0.0, 2.0]] * 8)
    >>> scaling = PlattScaling().fit(logits, torch.tensor([0] * 6 + [1] * 2 + [1] * 6 + [0] * 2))
    >>> scaling.probabilities(logits[:1])  # (6 · 0.9 + 2 · 0.1) / 8
    tensor([[0.7000, 0.3000]])

    Reference: Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    """

    FITTED = ("slope", "intercept")
    slope: Tensor
    intercept: Tensor

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        is_own = labels == torch.arange(logits.shape[1], device=labels.device)[:, None]
        count = torch.ones_like(logits[:, 0]) if weights is None else weights
        own, share = (is_own * count).sum(1, keepdim=True), count / count.sum()
        targets = torch.where(is_own, (own + 1) / (own + 2), 1 / (count.sum() - own + 2))
        scores = log_odds(logits).T
        center = (scores * share).sum(1, keepdim=True)
        size = ((scores - center).square() * share).sum(1, keepdim=True).sqrt()
        size = size.where(size > 1e-12 * center.abs(), torch.ones_like(size))  # smaller sizes are rounding error
        start = torch.stack([torch.zeros_like(center[:, 0]), (targets * share).sum(1).logit()], 1)
        best, self.gradient = newton.minimum(_Sigmoids((scores - center) / size, targets, share), start)
        if not self.gradient <= PRECISION:
            message = f"PlattScaling stopped at a gradient of {self.gradient:.1g}, above {PRECISION:g}"
            warnings.warn(message, CalibrationWarning, stacklevel=callers_level())
        slope = best[:, 0] / size[:, 0]
        return {"slope": slope, "intercept": best[:, 1] - slope * center[:, 0]}

    def _calibrated(self, logits: Tensor) -> Tensor:
        scores = log_odds(accurate(logits, len(self.slope)))
        # An excluded class has a score of −∞, and −∞ times a slope of zero would be NaN.
        return logsigmoid(torch.where(self.slope == 0, 0, scores * self.slope) + self.intercept).log_softmax(1)


@dataclass(frozen=True)
class _Sigmoids:
    """Σ_i q_i (log(1 + eᵘ) − t_i u) + RIDGE · a² with u = a s_i + b, for scores and targets (classes, n), Σ q_i = 1."""

    scores: Tensor
    targets: Tensor
    share: Tensor

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        u = self._u(parameters)
        slope = parameters[:, 0]
        value = (-logsigmoid(-u) - self.targets * u) @ self.share + RIDGE * slope.square()
        residual = u.sigmoid() - self.targets
        by_score = (residual * self.scores) @ self.share + 2 * RIDGE * slope
        return value, torch.stack([by_score, residual @ self.share], 1)

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        u = self._u(parameters)
        curvature = u.sigmoid() * (-u).sigmoid() * self.share
        by_score = curvature * self.scores
        mixed = by_score.sum(1)
        entries = [(by_score * self.scores).sum(1) + 2 * RIDGE, mixed, mixed, curvature.sum(1)]
        return newton.solved(torch.stack(entries, 1).view(-1, 2, 2), gradient)

    def _u(self, parameters: Tensor) -> Tensor:
        return parameters[:, :1] * self.scores + parameters[:, 1:]


class HistogramBinning(Calibrator):
    """p_k ∝ the frequency of class k among the samples whose softmax probability of k is in the same bin.

    Args:
        bins: number of bins for each class.
        equal_width: bins of equal width instead of equal mass.
        floor: lowest frequency, since log 0 is not a logit.

    Bins are (lower, upper]. Bins of equal mass end halfway between the samples of ranks n/bins, 2n/bins …, rounded up,
    and the next. An empty bin of equal width predicts its center.

    >>> logits = torch.tensor([[2.0, 0.0]] * 5 + [[0.0, 2.0]] * 5)
    >>> binning = HistogramBinning(bins=2).fit(logits, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0]))
    >>> binning.probabilities(logits[:1])
    tensor([[0.8000, 0.2000]])

    Reference: Zadrozny and Elkan, "Obtaining calibrated probability estimates from decision trees and naive Bayesian
    classifiers", 2001.
    """

    FITTED = ("upper", "frequency")
    upper: Tensor
    frequency: Tensor

    def __init__(
        self,
        *,
        bins: int = 15,
        equal_width: bool = False,
        floor: float = 1e-6,
        task: Task = "multiclass",
        classes_dim: int | None = None,
    ) -> None:
        super().__init__(task=task, classes_dim=classes_dim)
        self.bins, self.equal_width, self.floor = checked_bins(bins), equal_width, checked_floor(floor)

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        p = logits.softmax(1).T.contiguous()
        upper = self._edges(p, weights)
        classes = torch.arange(len(p), device=p.device)
        # Bins are numbered across classes, so that one bincount is enough.
        position = _bin_of(p, upper) + self.bins * classes[:, None]
        own = position[labels, torch.arange(len(labels), device=p.device)]
        every_weight = None if weights is None else weights.repeat(len(p))
        count = position.flatten().bincount(every_weight, minlength=upper.numel()).view_as(upper)
        hits = own.bincount(weights, minlength=upper.numel()).view_as(upper)
        center = upper - upper.diff(dim=1, prepend=torch.zeros_like(upper[:, :1])) / 2
        return {"upper": upper, "frequency": torch.where(count > 0, hits.double() / count, center)}

    def _edges(self, p: Tensor, weights: Tensor | None) -> Tensor:
        """Upper edges of the bins, (classes, bins)."""
        numbers = torch.arange(1, self.bins + 1, device=p.device)
        if self.equal_width:
            return (numbers.double() / self.bins).repeat(len(p), 1)
        ordered, order = p.sort(1)
        if weights is None:
            last = (numbers * p.shape[1] + self.bins - 1).div(self.bins, rounding_mode="floor").expand(len(p), -1) - 1
        else:
            until = weights[order].cumsum(1)
            # Up to rounding, the first sample at which this share of the weight is complete.
            complete = until[:, -1:] * numbers / self.bins * (1 - 1e-12)
            last = torch.searchsorted(until, complete).clamp_max_(p.shape[1] - 1)
        # Halfway to the next sample of another value: with an edge on a sample, rounding would decide its bin.
        value = ordered.gather(1, last)
        following = torch.searchsorted(ordered, value, right=True)
        above = ordered.gather(1, following.clamp_max(p.shape[1] - 1))
        edges = torch.where(following < p.shape[1], (value + above) / 2, 1)
        edges[:, -1] = 1
        return edges

    def _calibrated(self, logits: Tensor) -> Tensor:
        p = accurate(logits, len(self.upper)).softmax(1).T.contiguous()
        frequency = self.frequency.double().gather(1, _bin_of(p, self.upper.double()))
        return normalized(frequency.where(p.isfinite(), torch.nan).T, self.floor)  # NaN is in no bin


def _bin_of(p: Tensor, upper: Tensor) -> Tensor:
    # Rounding can make a probability exceed 1.
    return _searched(upper, p).clamp_max(upper.shape[1] - 1)


def _searched(ends: Tensor, values: Tensor, *, right: bool = False) -> Tensor:
    """`torch.searchsorted` of values (problems, n) among ends (problems, m)."""
    if not torch.onnx.is_in_onnx_export():
        return torch.searchsorted(ends, values, right=right)
    # ONNX has no such operation. Comparing with every end takes m times the memory.
    ends, values = ends[:, None], values[..., None]
    return (ends <= values if right else ends < values).sum(-1)


class IsotonicCalibration(Calibrator):
    """p_k ∝ f_k(softmax(z)_k) with the increasing function f_k that minimizes Σ (f_k(p_k) − [y = k])².

    Args:
        floor: lowest value of f_k, since log 0 is not a logit.

    f_k is constant on blocks of samples, linear between them, and constant outside. Where it is constant, classes with
    different probabilities can become ties.

    >>> logits = torch.tensor([[2.0, 0.0]] * 5 + [[0.0, 2.0]] * 5)
    >>> isotonic = IsotonicCalibration().fit(logits, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0]))
    >>> isotonic.probabilities(logits[:1])
    tensor([[0.8000, 0.2000]])
    """

    FITTED = ("knots", "values")
    knots: Tensor
    values: Tensor

    def __init__(self, *, floor: float = 1e-6, task: Task = "multiclass", classes_dim: int | None = None) -> None:
        super().__init__(task=task, classes_dim=classes_dim)
        self.floor = checked_floor(floor)

    def _fitted(self, logits: Tensor, labels: Tensor, weights: Tensor | None) -> dict[str, Tensor]:
        is_own = labels == torch.arange(logits.shape[1], device=labels.device)[:, None]
        knots, values = isotonic_functions(logits.softmax(1).T, is_own, weights)
        return {"knots": knots, "values": values}

    def _calibrated(self, logits: Tensor) -> Tensor:
        p = accurate(logits, len(self.knots)).softmax(1).T.contiguous()
        return normalized(interpolated(p, self.knots.double(), self.values.double()).T, self.floor)


def isotonic_functions(scores: Tensor, hits: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Knots and values (problems, longest) of the isotonic regressions of hits on scores, both (problems, n).

    All problems are solved at once, without weights exactly, in integers. Each block of equal values gives two knots,
    its ends; the last one is repeated to fill the row. Weights (n,) are above zero.

    >>> knots, values = isotonic_functions(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[0, 1, 0, 1]]))
    >>> knots
    tensor([[0.1000, 0.1000, 0.2000, 0.3000, 0.4000, 0.4000]])
    >>> values
    tensor([[0.0000, 0.0000, 0.5000, 0.5000, 1.0000, 1.0000]], dtype=torch.float64)
    """
    problems, n = scores.shape
    ordered, order = scores.sort(1)
    flat, problem = ordered.flatten(), torch.arange(problems, device=scores.device).repeat_interleave(n)
    hits = hits.gather(1, order).flatten()
    if weights is None:
        hits_until, weight_until = hits.long().cumsum(0), torch.arange(1, problems * n + 1, device=scores.device)
    else:
        weight = weights[order].flatten()
        hits_until, weight_until = (hits * weight).cumsum(0), weight.cumsum(0)
    is_last = (flat[1:] != flat[:-1]) | (problem[1:] != problem[:-1])  # of equal scores
    ends = torch.cat([is_last, is_last.new_ones(1)]).nonzero()[:, 0]
    ends = _pooled(ends, hits_until, weight_until, problem)
    starts = torch.cat([ends.new_zeros(1), ends[:-1] + 1])
    value = _counts(hits_until[ends]).double() / _counts(weight_until[ends])
    sizes = (2 * problem[ends].bincount(minlength=problems)).tolist()
    knots = torch.stack([flat[starts], flat[ends]], 1).flatten()
    return _rows(knots, sizes), _rows(value.repeat_interleave(2), sizes)


def _pooled(ends: Tensor, hits_until: Tensor, weight_until: Tensor, problem: Tensor) -> Tensor:
    """The last sample of each block, after merging blocks with a higher share of hits than the next one.

    Such a pair has one value in the solution, so all of them can be merged at once.
    """
    while True:
        hits, count = _counts(hits_until[ends]), _counts(weight_until[ends])
        # hits / count of a block ≥ that of the next one, for integers without rounding
        is_above = (hits[:-1] * count[1:] >= hits[1:] * count[:-1]) & (problem[ends[:-1]] == problem[ends[1:]])
        if not bool(is_above.any()):
            return ends
        ends = ends[torch.cat([~is_above, is_above.new_ones(1)])]


def _counts(until: Tensor) -> Tensor:
    """The counts of each block, from cumulative totals over all problems."""
    return until.diff(prepend=until.new_zeros(1))


def _rows(flat: Tensor, sizes: list[int]) -> Tensor:
    """Pieces of the given sizes as rows, padded with their last element."""
    rows = pad_sequence(list(flat.split(sizes)), batch_first=True)
    lengths = torch.tensor(sizes, device=flat.device)[:, None]
    columns = torch.arange(rows.shape[1], device=flat.device)
    return rows.gather(1, torch.minimum(columns, lengths - 1))


def interpolated(scores: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Values at scores (problems, n): linear between knots (problems, m) that rise, constant outside.

    >>> interpolated(torch.tensor([[0.0, 0.25, 9.0]]), torch.tensor([[0.2, 0.4]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0.0000, 0.2500, 1.0000]])
    """
    right = _searched(knots, scores, right=True).clamp_max(knots.shape[1] - 1)
    left = (right - 1).clamp_min(0)
    low, high = knots.gather(1, left), knots.gather(1, right)
    # Two knots can coincide.
    share = ((scores - low) / (high - low).where(high > low, torch.ones_like(low))).clamp(0, 1)
    return torch.lerp(values.gather(1, left), values.gather(1, right), share)


def log_odds(logits: Tensor) -> Tensor:
    """log(p_k / (1 − p_k)) of the softmax, accurate also where p_k rounds to 0 or 1.

    >>> log_odds(torch.tensor([[100.0, 0.0, 0.0]]))
    tensor([[  99.3069, -100.0000, -100.0000]])
    """
    top, first = logits.max(1, keepdim=True)
    e = (logits - top).exp()
    # All but the first have p ≤ 1/2, so Σ e − e_k loses no digits. For the first the others are summed.
    others = (e.sum(1, keepdim=True) - e).log() + top
    without_first = logits.scatter(1, first, -torch.inf).logsumexp(1, keepdim=True)
    return logits - others.scatter(1, first, without_first)


def normalized(p: Tensor, floor: float) -> Tensor:
    """log(max(p, floor) / Σ max(p, floor)): logits of values that may be zero and need not sum to one."""
    p = p.clamp_min(floor)
    return (p / p.sum(1, keepdim=True)).log()


def checked_floor(floor: float) -> float:
    """The floor, checked to be between 0 and 1."""
    if not 0 < floor < 1:
        raise ValueError(f"expected a floor between 0 and 1, got {floor}")
    return float(floor)
