"""Isotonic regression for each class: the best probabilities that rise with those of the model.

All classes are solved at once and exactly, in whole numbers.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from .calibrator import Calibrator
from .one_vs_rest import checked_floor, normalised
from .scaling import accurate


class IsotonicCalibration(Calibrator):
    """p_k ∝ f_k(softmax(z)_k), f_k being the rising function with the least Σ (f_k(p_k) − [y = k])².

    f_k is constant on blocks of samples, linear between them, and constant outside. Values below ``floor`` become
    ``floor``, since log 0 is no logit. Where f_k is constant, classes can tie that the model told apart.

    >>> logits = torch.tensor([[2.0, 0.0]] * 5 + [[0.0, 2.0]] * 5)
    >>> isotonic = IsotonicCalibration().fit(logits, torch.tensor([0, 0, 0, 0, 1, 1, 1, 1, 1, 0]))
    >>> isotonic.probabilities(logits[:1])
    tensor([[0.8000, 0.2000]])

    Reference: as for `one_vs_rest`.
    """

    FITTED = ("knots", "values")
    knots: Tensor
    values: Tensor

    def __init__(self, *, floor: float = 1e-6) -> None:
        super().__init__()
        self.floor = checked_floor(floor)

    def _fitted(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        is_own = labels == torch.arange(logits.shape[1], device=labels.device)[:, None]
        knots, values = isotonic_functions(logits.softmax(1).T, is_own)
        return {"knots": knots, "values": values}

    def _calibrated(self, logits: Tensor) -> Tensor:
        p = accurate(logits, len(self.knots)).softmax(1).T.contiguous()
        return normalised(interpolated(p, self.knots.double(), self.values.double()).T, self.floor)


def isotonic_functions(scores: Tensor, hits: Tensor) -> tuple[Tensor, Tensor]:
    """Knots and values (problems, longest) of the isotonic regressions of hits on scores, both (problems, n).

    Each block of equal values gives two knots, its ends; the last one is repeated to fill the row.

    >>> knots, values = isotonic_functions(torch.tensor([[0.1, 0.2, 0.3, 0.4]]), torch.tensor([[0, 1, 0, 1]]))
    >>> knots
    tensor([[0.1000, 0.1000, 0.2000, 0.3000, 0.4000, 0.4000]])
    >>> values
    tensor([[0.0000, 0.0000, 0.5000, 0.5000, 1.0000, 1.0000]], dtype=torch.float64)
    """
    problems, n = scores.shape
    ordered, order = scores.sort(1)
    flat, problem = ordered.flatten(), torch.arange(problems, device=scores.device).repeat_interleave(n)
    hits_until = hits.gather(1, order).flatten().long().cumsum(0)
    is_last = (flat[1:] != flat[:-1]) | (problem[1:] != problem[:-1])  # of equal scores
    ends = torch.cat([is_last, is_last.new_ones(1)]).nonzero()[:, 0]
    ends = _pooled(ends, hits_until, problem)
    starts = torch.cat([ends.new_zeros(1), ends[:-1] + 1])
    value = _counts(hits_until[ends]).double() / _counts(ends + 1)
    sizes = (2 * problem[ends].bincount(minlength=problems)).tolist()
    knots = torch.stack([flat[starts], flat[ends]], 1).flatten()
    return _rows(knots, sizes), _rows(value.repeat_interleave(2), sizes)


def _pooled(ends: Tensor, hits_until: Tensor, problem: Tensor) -> Tensor:
    """Last samples of the blocks that remain when no block has a higher share of hits than the next one.

    Every pair that does so has one value in the solution, so that all of them can be merged at a time.
    """
    while True:
        hits, count = _counts(hits_until[ends]), _counts(ends + 1)
        # hits / count of a block ≥ that of the next one, without rounding
        is_above = (hits[:-1] * count[1:] >= hits[1:] * count[:-1]) & (problem[ends[:-1]] == problem[ends[1:]])
        if not bool(is_above.any()):
            return ends
        ends = ends[torch.cat([~is_above, is_above.new_ones(1)])]


def _counts(until: Tensor) -> Tensor:
    """What each block has, from totals that run through all problems."""
    return until.diff(prepend=until.new_zeros(1))


def _rows(flat: Tensor, sizes: list[int]) -> Tensor:
    """Pieces of given sizes as rows, the shorter ones filled with their last element."""
    rows = pad_sequence(list(flat.split(sizes)), batch_first=True)
    lengths = torch.tensor(sizes, device=flat.device)[:, None]
    columns = torch.arange(rows.shape[1], device=flat.device)
    return rows.gather(1, torch.minimum(columns, lengths - 1))


def interpolated(scores: Tensor, knots: Tensor, values: Tensor) -> Tensor:
    """Values at scores (problems, n): linear between knots (problems, m) that rise, constant outside.

    >>> interpolated(torch.tensor([[0.0, 0.25, 9.0]]), torch.tensor([[0.2, 0.4]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0.0000, 0.2500, 1.0000]])
    """
    right = torch.searchsorted(knots, scores, right=True).clamp_max_(knots.shape[1] - 1)
    left = (right - 1).clamp_min_(0)
    low, high = knots.gather(1, left), knots.gather(1, right)
    # Two knots may be one point, and then so is what lies between them.
    share = ((scores - low) / (high - low).where(high > low, torch.ones_like(low))).clamp(0, 1)
    return torch.lerp(values.gather(1, left), values.gather(1, right), share)
