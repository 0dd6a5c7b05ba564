"""One class against the rest: what is known of two classes, done for each class, then made to sum to one.

Reference: Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability estimates", 2002.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from ..inputs import checked_bins
from . import newton
from .calibrator import CalibrationWarning, Calibrator
from .scaling import PRECISION, accurate

RIDGE = 1e-8
"""On the slope for scores of size one: it makes the slope zero, and unique, where a class has one score only."""


class PlattScaling(Calibrator):
    """p_k ∝ σ(a_k s_k + b_k) with the log-odds s_k = log(p_k / (1 − p_k)) of the softmax.

    a_k and b_k minimise the cross-entropy with the targets (N₊ + 1)/(N₊ + 2) for the N₊ samples of the class and
    1/(N₋ + 2) for the N₋ others, which keeps them finite on any data.

    >>> logits = torch.tensor([[2.0, 0.0]] * 8 + [[0.0, 2.0]] * 8)
    >>> scaling = PlattScaling().fit(logits, torch.tensor([0] * 6 + [1] * 2 + [1] * 6 + [0] * 2))
    >>> scaling.probabilities(logits[:1])  # (6 · 0.9 + 2 · 0.1) / 8
    tensor([[0.7000, 0.3000]])

    Reference: Platt, "Probabilistic Outputs for Support Vector Machines", 1999.
    """

    FITTED = ("slope", "intercept")
    slope: Tensor
    intercept: Tensor
    gradient: float = math.nan
    """Certificate: the largest |∂objective| at the solution, NaN unless fitted here."""

    def _fitted(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        is_own = labels == torch.arange(logits.shape[1], device=labels.device)[:, None]
        own = is_own.sum(1, keepdim=True)
        targets = torch.where(is_own, (own + 1) / (own + 2).double(), 1 / (len(labels) - own + 2).double())
        scores = log_odds(logits).T
        centre, size = scores.mean(1, keepdim=True), scores.std(1, correction=0, keepdim=True)
        size = size.where(size > 1e-12 * centre.abs(), torch.ones_like(size))  # below that it is rounding
        start = torch.stack([torch.zeros_like(centre[:, 0]), targets.mean(1).logit()], 1)
        found, self.gradient = newton.minimum(_Sigmoids((scores - centre) / size, targets), start)
        if not self.gradient <= PRECISION:
            message = f"PlattScaling stopped at a gradient of {self.gradient:.1g}, above {PRECISION:g}"
            warnings.warn(message, CalibrationWarning, stacklevel=4)
        slope = found[:, 0] / size[:, 0]
        return {"slope": slope, "intercept": found[:, 1] - slope * centre[:, 0]}

    def _calibrated(self, logits: Tensor) -> Tensor:
        scores = log_odds(accurate(logits, len(self.slope)))
        # A class that is ruled out has a score of −∞, of which even a slope of zero would make NaN.
        return logsigmoid(torch.where(self.slope == 0, 0, scores * self.slope) + self.intercept).log_softmax(1)


@dataclass(frozen=True)
class _Sigmoids:
    """mean_i (log(1 + eᵘ) − t_i u) + RIDGE · a² with u = a s_i + b, for scores and targets (classes, n)."""

    scores: Tensor
    targets: Tensor

    def value_and_gradient(self, parameters: Tensor) -> tuple[Tensor, Tensor]:
        u = self._u(parameters)
        slope = parameters[:, 0]
        value = (-logsigmoid(-u) - self.targets * u).mean(1) + RIDGE * slope.square()
        residual = u.sigmoid() - self.targets
        return value, torch.stack([(residual * self.scores).mean(1) + 2 * RIDGE * slope, residual.mean(1)], 1)

    def step(self, parameters: Tensor, gradient: Tensor) -> Tensor:
        u = self._u(parameters)
        curvature = u.sigmoid() * (-u).sigmoid()
        by_score = curvature * self.scores
        mixed = by_score.mean(1)
        entries = [(by_score * self.scores).mean(1) + 2 * RIDGE, mixed, mixed, curvature.mean(1)]
        return newton.solved(torch.stack(entries, 1).view(-1, 2, 2), gradient)

    def _u(self, parameters: Tensor) -> Tensor:
        return parameters[:, :1] * self.scores + parameters[:, 1:]


class HistogramBinning(Calibrator):
    """p_k ∝ how often class k is the label among the samples whose softmax probability of k is in the same bin.

    Bins are (lower, upper]. Those of equal mass end halfway between the samples of ranks n/bins, 2n/bins …, rounded up,
    and the next; an empty one of equal width gives its centre. Frequencies below ``floor`` become ``floor``, since
    log 0 is no logit.

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

    def __init__(self, *, bins: int = 15, equal_width: bool = False, floor: float = 1e-6) -> None:
        super().__init__()
        self.bins, self.equal_width, self.floor = checked_bins(bins), equal_width, checked_floor(floor)

    def _fitted(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        p = logits.softmax(1).T.contiguous()
        upper = self._edges(p)
        classes = torch.arange(len(p), device=p.device)
        # Numbers of bins through all classes, so that one count serves them all.
        position = _bin_of(p, upper) + self.bins * classes[:, None]
        own = position[labels, torch.arange(len(labels), device=p.device)]
        count = position.flatten().bincount(minlength=upper.numel()).view_as(upper)
        hits = own.bincount(minlength=upper.numel()).view_as(upper)
        centre = upper - upper.diff(dim=1, prepend=torch.zeros_like(upper[:, :1])) / 2
        return {"upper": upper, "frequency": torch.where(count > 0, hits.double() / count, centre)}

    def _edges(self, p: Tensor) -> Tensor:
        """Upper ends of the bins, (classes, bins); beyond the last there is nothing."""
        numbers = torch.arange(1, self.bins + 1, device=p.device)
        if self.equal_width:
            return (numbers.double() / self.bins).repeat(len(p), 1)
        ranks = (numbers * p.shape[1] + self.bins - 1).div(self.bins, rounding_mode="floor")
        ordered = p.sort(1).values
        # Halfway to the next sample: an edge on a sample itself would leave its bin to rounding.
        edges = (ordered[:, ranks - 1] + ordered[:, ranks.clamp_max(p.shape[1] - 1)]) / 2
        edges[:, -1] = 1
        return edges

    def _calibrated(self, logits: Tensor) -> Tensor:
        p = accurate(logits, len(self.upper)).softmax(1).T.contiguous()
        found = self.frequency.double().gather(1, _bin_of(p, self.upper.double()))
        return normalised(found.where(p.isfinite(), torch.nan).T, self.floor)  # NaN is in no bin


def _bin_of(p: Tensor, upper: Tensor) -> Tensor:
    # Rounding may lift a probability above 1.
    return torch.searchsorted(upper, p).clamp_max_(upper.shape[1] - 1)


def log_odds(logits: Tensor) -> Tensor:
    """log(p_k / (1 − p_k)) of the softmax, exact where p_k is 0 or 1 up to rounding.

    >>> log_odds(torch.tensor([[100.0, 0.0, 0.0]]))
    tensor([[  99.3069, -100.0000, -100.0000]])
    """
    top, first = logits.max(1, keepdim=True)
    e = (logits - top).exp()
    # All but the first have p ≤ 1/2, so that Σ e − e_k loses no digits. The first takes the sum of the others.
    others = (e.sum(1, keepdim=True) - e).log() + top
    without_first = logits.scatter(1, first, -torch.inf).logsumexp(1, keepdim=True)
    return logits - others.scatter(1, first, without_first)


def normalised(p: Tensor, floor: float) -> Tensor:
    """log(max(p, floor) / Σ max(p, floor)): logits of probabilities that may be zero, and need not sum to one."""
    p = p.clamp_min(floor)
    return (p / p.sum(1, keepdim=True)).log()


def checked_floor(floor: float) -> float:
    """A floor that is one: above zero, and below what any class may need."""
    if not 0 < floor < 1:
        raise ValueError(f"expected a floor between 0 and 1, got {floor}")
    return float(floor)
