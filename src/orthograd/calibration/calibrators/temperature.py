"""Temperature scaling: divides all logits by one number.

The loss is convex in the inverse temperature β = 1/T, so its minimum is the root of an increasing function of one
variable. It is computed by Newton's method in float64 inside a bracket, for many problems at once, with a certificate.
General-purpose minimizers can stop early or diverge here.

Reference: Guo et al., "On Calibration of Modern Neural Networks", 2017.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from ..inputs import checked_logits
from ..rows import Block
from ..values import callers_level, computing_dtype
from .calibrator import CalibrationWarning, Calibrator, refuse_unfit

NEAR = 1e-9
"""Excess loss in nats at which one more Newton step reaches float64 precision."""

AT_ONCE = 1 << 24
"""Logits in float64 processed at once: 128 MiB, plus two temporaries of that size."""


@dataclass(frozen=True)
class TemperatureFit:
    """Fitted temperatures with a certificate, one value per problem.

    The gradient of the loss with respect to 1/T is negative at the temperature ``high`` and positive at ``low``, so the
    optimum lies between. ``excess`` estimates the distance of the loss from its minimum, in nats.
    """

    temperature: Tensor
    loss: Tensor
    gradient: Tensor
    excess: Tensor
    low: Tensor
    high: Tensor
    at_zero: Tensor  # every label has the highest score: the loss decreases as T → 0
    at_infinity: Tensor  # the scores do not predict the labels: the loss decreases as T → ∞
    is_flat: Tensor  # all scores are equal: every temperature has the same loss

    def __getitem__(self, index: Any) -> TemperatureFit:
        return TemperatureFit(*(getattr(self, part.name)[index] for part in fields(self)))

    def __str__(self) -> str:
        if self.temperature.ndim:
            return f"{self.temperature.numel()} temperatures, excess loss at most {float(self.excess.max()):.1g}"
        value = f"T = {float(self.temperature):.6g}"
        if self.at_zero:
            return f"{value}, but the loss keeps falling as T → 0: every label has the highest score"
        if self.at_infinity:
            return f"{value}, but the loss keeps falling as T → ∞: the scores do not predict the labels"
        if self.is_flat:
            return f"{value}, with the same loss as any other: all scores are equal"
        return (
            f"{value}, between {float(self.low):.9g} and {float(self.high):.9g}, "
            f"gradient {float(self.gradient):.1g}, excess loss {float(self.excess):.1g}"
        )


class TemperatureScaling(Calibrator):
    """z / T with the temperature T that minimizes the loss. ``certificate`` is a `TemperatureFit`.

    If the best T is 0 or infinite, a warning is given, and T is finite with a loss within 1e-13 of the limit, so that
    the ranking of the classes stays.

    >>> logits = torch.tensor([[4.0, 0.0], [4.0, 0.0], [4.0, 0.0], [4.0, 0.0]])
    >>> scaling = TemperatureScaling().fit(logits, torch.tensor([0, 0, 0, 1]))  # three of four are correct
    >>> scaling.probabilities(logits[:1])
    tensor([[0.7500, 0.2500]])
    """

    FITTED = ("temperature",)
    NEEDS_FIXED_CLASSES = False
    temperature: Tensor
    certificate: TemperatureFit | None = None

    def _fitted_to(self, every: list[list[Block]]) -> dict[str, Tensor]:
        fits = [best_temperature(parts) for parts in every]
        for label, fit in enumerate(fits):
            if fit.at_zero or fit.at_infinity or fit.is_flat:
                which = f"label {label}: " if self.form.task == "multilabel" else ""
                warnings.warn(f"{which}{fit}", CalibrationWarning, stacklevel=callers_level())
        self.certificate = fits[0]
        if self.form.task == "multilabel":
            columns = ([getattr(fit, each.name) for fit in fits] for each in fields(TemperatureFit))
            self.certificate = TemperatureFit(*map(torch.stack, columns))
        return {"temperature": self.certificate.temperature}

    def _in_shape(self, logits: Tensor) -> Tensor:
        if self.form.task == "binary":
            return self._calibrated(logits)
        rows = self.form.classes_last(logits, "logits")
        if self.form.task == "multilabel" and rows.shape[-1:] != self.temperature.shape:
            raise ValueError(f"expected logits of {len(self.temperature)} labels, as in fit, got {tuple(rows.shape)}")
        calibrated = self._calibrated(rows)
        return calibrated if self.form.classes_dim is None else calibrated.movedim(-1, self.form.classes_dim)

    def _of_choices(self, logits: Tensor, offsets: Tensor, *, is_list: bool) -> Any:
        scaled = self._calibrated(logits.to(computing_dtype(logits.dtype))).to(logits.dtype)
        return list(scaled.split(offsets.diff().tolist())) if is_list else scaled

    def _calibrated(self, logits: Tensor) -> Tensor:
        return logits / self.temperature.to(logits.dtype)


def best_temperature(parts: Sequence[Block]) -> TemperatureFit:
    """The fit to samples in float64, in one block for each number of classes."""
    groups = [_Problems.of(logits[None], labels[None], weights) for logits, labels, weights in parts]
    if len(groups) == 1:
        return _solved(groups[0])[0]
    sizes = [len(labels) if weights is None else float(weights.sum()) for _, labels, weights in parts]
    return _solved(_Groups(groups, [size / sum(sizes) for size in sizes]))[0]


@torch.no_grad()
def fit_temperatures(logits: Any, labels: Any) -> TemperatureFit:
    """Fit a temperature to each of many problems at once.

    Args:
        logits: (…, n, classes).
        labels: (…, n), or (n,) for all problems.

    Returns:
        A `TemperatureFit` whose tensors have the leading shape (…).

    Raises:
        ValueError: for other shapes, or logits that are not finite.

    >>> logits = torch.tensor([[[4.0, 0.0]] * 4, [[2.0, 0.0]] * 4])
    >>> fit_temperatures(logits, torch.tensor([0, 0, 0, 1])).temperature
    tensor([3.6410, 1.8205], dtype=torch.float64)
    """
    scores, truth = torch.as_tensor(logits), torch.as_tensor(labels)
    if scores.ndim < 3:
        raise ValueError(f"expected logits (…, n, classes) of several problems, got {tuple(scores.shape)}")
    if truth.shape not in (scores.shape[:-1], scores.shape[-2:-1]):
        either = f"{tuple(scores.shape[:-1])} or {tuple(scores.shape[-2:-1])}"
        raise ValueError(f"expected labels {either} for logits {tuple(scores.shape)}, got {tuple(truth.shape)}")
    problems = scores.shape[:-2]
    scores, truth = scores.flatten(0, -3), truth.expand(scores.shape[:-1]).flatten(0, -2)
    checked_logits(scores.flatten(0, 1), truth.flatten())
    refuse_unfit(scores.flatten(0, 1))
    size = max(1, AT_ONCE // scores[0].numel())
    parts = [_solved(_Problems.of(z, y)) for z, y in zip(scores.split(size), truth.long().split(size), strict=True)]
    joined = (torch.cat([getattr(part, field.name) for part in parts]) for field in fields(TemperatureFit))
    return TemperatureFit(*(values.view(problems) for values in joined))


class _Problems:
    """Losses of several problems as functions of β; d = z − max z in float64, as (classes, problems, n).

    Means are over ``share`` (n,), which sums to 1; None: all samples are equal.
    """

    def __init__(self, d: Tensor, own: Tensor, share: Tensor | None = None) -> None:
        self.d, self.own, self.share = d, own, share
        self.own_mean = self._mean(own)

    @classmethod
    def of(cls, logits: Tensor, labels: Tensor, weights: Tensor | None = None) -> _Problems:
        d = torch.empty((logits.shape[2], *logits.shape[:2]), dtype=torch.float64, device=logits.device)
        torch.mul(logits.permute(2, 0, 1).double(), 1.0, out=d)  # a transposed copy, in parallel
        d -= d.amax(0)
        return cls(d, d.gather(0, labels[None])[0], None if weights is None else weights / weights.sum())

    @property
    def samples(self) -> int:
        return self.own.shape[1]

    def every(self, step: int) -> _Problems:
        share = None if self.share is None else self.share[::step] / self.share[::step].sum()
        return _Problems(self.d[..., ::step].contiguous(), self.own[:, ::step], share)

    def labels_lead(self) -> Tensor:
        """True for problems in which every label has the highest score."""
        return (self.own == 0).all(-1)

    def scale(self) -> Tensor:
        """Mean of −d."""
        return self._mean(-self.d.mean(0))

    def coldest_loss(self) -> Tensor:
        """The loss as β → ∞ if labels lead: the log of the number of classes that share the highest score."""
        return self._mean((self.d == 0).sum(0).double().log())

    def _mean(self, values: Tensor) -> Tensor:
        return values.mean(-1) if self.share is None else values @ self.share

    def derivatives_at_zero(self) -> tuple[Tensor, Tensor]:
        """The derivatives at β = 0, where all classes are equally likely and no exponentials are needed."""
        mean = self.d.mean(0)
        square = (self.d - mean).square_().mean(0)
        return self._mean(mean) - self.own_mean, self._mean(square)

    def derivatives(self, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The loss, mean of log Σ e^(βd) − β d_y, and its derivatives, means of E_p[d] − d_y and of Var_p[d]."""
        e, s, mean = self._weighted(beta)
        square = e.mul_(self.d).sum(0).div_(s)
        loss = self._mean(s.log_()) - beta * self.own_mean
        return loss, self._mean(mean) - self.own_mean, self._mean(square.addcmul_(mean, mean, value=-1))

    def gradient(self, beta: Tensor) -> Tensor:
        """The first derivative."""
        return self._mean(self._weighted(beta)[2]) - self.own_mean

    def _weighted(self, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """e^(βd) d, the sum of e^(βd), and E_p[d]."""
        e = (self.d * beta[:, None]).exp_()
        s = e.sum(0)
        e.mul_(self.d)
        return e, s, e.sum(0).div_(s)


class _Groups:
    """One problem whose samples have different numbers of classes: the mean over groups of one number each."""

    def __init__(self, groups: list[_Problems], shares: list[float]) -> None:
        self.groups, self.shares = groups, shares

    @property
    def samples(self) -> int:
        return sum(group.samples for group in self.groups)

    def every(self, step: int) -> _Groups:
        return _Groups([group.every(step) for group in self.groups], self.shares)

    def labels_lead(self) -> Tensor:
        return torch.stack([group.labels_lead() for group in self.groups]).all(0)

    def scale(self) -> Tensor:
        return self._mean([group.scale() for group in self.groups])

    def coldest_loss(self) -> Tensor:
        return self._mean([group.coldest_loss() for group in self.groups])

    def derivatives_at_zero(self) -> tuple[Tensor, Tensor]:
        slopes, curvatures = zip(*(group.derivatives_at_zero() for group in self.groups), strict=True)
        return self._mean(slopes), self._mean(curvatures)

    def derivatives(self, beta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        losses, slopes, curvatures = zip(*(group.derivatives(beta) for group in self.groups), strict=True)
        return self._mean(losses), self._mean(slopes), self._mean(curvatures)

    def gradient(self, beta: Tensor) -> Tensor:
        return self._mean([group.gradient(beta) for group in self.groups])

    def _mean(self, values: Sequence[Tensor]) -> Tensor:
        return torch.stack([share * value for share, value in zip(self.shares, values, strict=True)]).sum(0)


def _solved(problems: _Problems | _Groups) -> TemperatureFit:
    """The fit of each problem."""
    slope, curvature = problems.derivatives_at_zero()
    is_flat = curvature == 0
    at_infinity = ~is_flat & (slope >= 0)
    at_zero = ~is_flat & problems.labels_lead()
    is_inside = ~(is_flat | at_infinity | at_zero)
    scale = problems.scale().clamp_min(1e-300)
    # The first step of Newton's method from β = 0. It scales with the logits, so the number of steps does not.
    start = torch.where(slope < 0, -slope / curvature, 1 / scale)
    beta = torch.where(at_infinity, 1e-13 / torch.maximum(slope, scale), 1.0)
    if bool(is_inside.any()):
        beta = torch.where(is_inside, _root(problems, _first_guess(problems, start), is_inside), beta)
    if bool(at_zero.any()):
        beta = torch.where(at_zero, _cold(problems, start, at_zero), beta)
    return _certified(problems, beta, at_zero, at_infinity, is_flat)


def _first_guess(problems: _Problems | _Groups, beta: Tensor) -> Tensor:
    """The root for a sixteenth of the samples, if it has one: it saves expensive steps."""
    if problems.samples < 4096:
        return beta
    few = problems.every(16)
    is_open = ~few.labels_lead()
    guess = _root(few, beta, is_open, enough=1e-4)
    return torch.where(is_open & (guess > 0) & (guess < 64 * beta), guess, beta)


def _root(problems: _Problems | _Groups, beta: Tensor, is_wanted: Tensor, *, enough: float = NEAR) -> Tensor:
    """The β with zero gradient, by Newton's method in log β inside a bracket."""
    low, high = torch.zeros_like(beta), torch.full_like(beta, torch.inf)
    for _ in range(200):
        _, gradient, curvature = problems.derivatives(beta)
        low, high = torch.where(gradient < 0, beta, low), torch.where(gradient >= 0, beta, high)
        step = beta * (-gradient / (beta * curvature)).clamp(-2, 2).exp()
        is_inside = (step > low) & (step < high)
        is_near = is_inside & (gradient.square() <= 2 * enough * curvature)
        if bool((is_near | ~is_wanted | (high <= low * (1 + 4e-16))).all()):
            return torch.where(is_inside, step, beta)
        between = torch.where(high.isinf(), 8 * beta, torch.where(low > 0, (low * high).sqrt(), high / 8))
        beta = torch.where(is_inside, step, between)
    return beta


def _cold(problems: _Problems | _Groups, beta: Tensor, is_wanted: Tensor) -> Tensor:
    """A β with a loss within 1e-13 of its limit."""
    limit = problems.coldest_loss()
    for _ in range(100):
        is_far = is_wanted & (problems.derivatives(beta)[0] - limit > 1e-13)
        if not bool(is_far.any()):
            break
        beta = torch.where(is_far, 2 * beta, beta)
    return beta


def _certified(
    problems: _Problems | _Groups, beta: Tensor, at_zero: Tensor, at_infinity: Tensor, is_flat: Tensor
) -> TemperatureFit:
    loss, gradient, curvature = problems.derivatives(beta)
    is_inside = ~(is_flat | at_infinity | at_zero)
    below, above = beta, beta
    for width in (1e-7, 1e-5, 1e-3, 1e-1):  # the first is enough, unless rounding hides the sign
        below, above = beta * (1 - width), beta * (1 + width)
        signs = (problems.gradient(below) < 0) & (problems.gradient(above) > 0)
        if bool((signs | ~is_inside).all()):
            break
    zero, infinity = torch.zeros_like(beta), torch.full_like(beta, torch.inf)
    is_any = at_infinity | is_flat
    return TemperatureFit(
        temperature=1 / beta,
        loss=loss,
        gradient=gradient,
        excess=torch.where(is_inside, gradient.square() / (2 * curvature.clamp_min(1e-300)), zero),
        low=torch.where(at_zero | is_flat, zero, 1 / above),
        high=torch.where(is_any, infinity, torch.where(at_zero, 1 / beta, 1 / below)),
        at_zero=at_zero,
        at_infinity=at_infinity,
        is_flat=is_flat,
    )
