"""Cross-fitting: every sample is calibrated by a calibrator that was fitted to other samples."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .calibrators.calibrator import Calibrator
from .inputs import Form, choices
from .values import as_tensor, whole_number


@dataclass(frozen=True)
class CrossFit:
    """Calibrated predictions of samples, each by a calibrator that was not fitted to it.

    Args:
        calibrator: fitted to all samples; the one to use from now on.
        logits, probabilities: calibrated out of fold, in the shape of the given logits; these are the ones to evaluate.
        fold: number of the fold of each sample, (n,).
    """

    calibrator: Calibrator
    logits: Any
    probabilities: Any
    fold: Tensor


def cross_fit(
    calibrator: Calibrator,
    logits: Any,
    labels: Any,
    *,
    folds: int = 5,
    seed: int = 0,
    groups: Any = None,
    ignore_index: int | None = None,
    weights: Any = None,
    offsets: Any = None,
) -> CrossFit:
    """Fit a calibrator and evaluate it on the same samples, if there are too few to hold some out.

    Each fold is calibrated by a calibrator that was fitted to the others. The model must not have been trained on these
    samples: take the logits of cross-validation, each by a model that was trained on the other folds.

    Args:
        calibrator: with its options. It is copied, and stays as it is.
        logits, labels: of the calibrator's form.
        folds: number of folds, at least 2.
        seed: seed of the random folds.
        groups: a value for each sample, such as its patient. Equal values share a fold. Without groups, labels (n,) are
            spread evenly over the folds. Maps and sequences always stay whole.
        ignore_index, weights, offsets: as in `evaluate`.

    Raises:
        TypeError: for a class instead of a calibrator.
        ValueError: for fewer samples or groups than folds, and as in ``Calibrator.fit``.

    >>> from orthograd.calibration import TemperatureScaling, evaluate
    >>> generator = torch.Generator().manual_seed(0)
    >>> logits = 2 * torch.randn(500, 3, generator=generator)
    >>> labels = torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]
    >>> fitted = cross_fit(TemperatureScaling(), 3 * logits, labels)
    >>> print(evaluate(fitted.logits, labels, metrics=["loss"]))
    500 samples, 3 classes, 10 bins
      loss   0.6193 nats
    >>> f"T = {float(fitted.calibrator.temperature):.2f}"
    'T = 3.21'
    """
    if not isinstance(calibrator, Calibrator):
        raise TypeError(f"expected a calibrator such as TemperatureScaling(), got {calibrator!r}")
    settings: dict[str, Any] = {"ignore_index": ignore_index, "weights": weights, "offsets": offsets}
    whole = deepcopy(calibrator).fit(logits, labels, **settings)
    samples = Samples.of(logits, labels, weights, offsets, calibrator.form)
    fold = fold_numbers(samples, folds=folds, seed=seed, groups=groups)
    calibrated = samples.together(list(out_of_fold(calibrator, samples, fold, ignore_index)))
    if offsets is not None:
        calibrated = torch.cat(calibrated)
    elif calibrator.form.classes_dim is not None:
        calibrated = calibrated.movedim(-1, calibrator.form.classes_dim)
    return CrossFit(whole, calibrated, whole._probabilities(calibrated, offsets), fold)


@dataclass(frozen=True)
class Samples:
    """Predictions with the samples first and the classes last, so that an index selects samples."""

    logits: Any
    labels: Tensor
    weights: Tensor | None
    form: Form

    @classmethod
    def of(cls, logits: Any, labels: Any, weights: Any, offsets: Any, form: Form) -> Samples:
        """Samples from predictions of any form."""
        truth, weight = as_tensor(labels, "labels"), None if weights is None else as_tensor(weights, "weights")
        if form.task == "multiple_choice":
            flat, ends = choices(logits, offsets)
            return cls(list(flat.split(ends.diff().tolist())), truth, weight, form)
        values = as_tensor(logits, "logits")
        if form.classes_dim is None:
            return cls(values, truth, weight, form)
        if form.task == "multilabel":
            truth = truth.movedim(form.classes_dim, -1)
            if weight is not None and weight.ndim == truth.ndim:
                weight = weight.movedim(form.classes_dim, -1)
        return cls(form.classes_last(values, "logits"), truth, weight, replace(form, classes_dim=-1))

    def __len__(self) -> int:
        return len(self.logits)

    def __getitem__(self, index: Tensor) -> Samples:
        logits = [self.logits[k] for k in index.tolist()] if isinstance(self.logits, list) else _at(self.logits, index)
        weights = None if self.weights is None else _at(self.weights, index)
        return Samples(logits, _at(self.labels, index), weights, self.form)

    def together(self, parts: list[tuple[Tensor, Any]]) -> Any:
        """Logits of some samples each, in the order of all."""
        if isinstance(self.logits, list):
            rows = {number: row for index, part in parts for number, row in zip(index.tolist(), part, strict=True)}
            return [rows[number] for number in range(len(self))]
        order = torch.cat([index for index, _ in parts]).argsort()
        return _at(torch.cat([part for _, part in parts]), order)


def fold_numbers(samples: Samples, *, folds: int, seed: int, groups: Any = None) -> Tensor:
    """The number of the fold of each sample (n,); random, with labels (n,) spread evenly.

    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1])
    >>> fold = fold_numbers(Samples(torch.zeros(6, 2), labels, None, Form()), folds=2, seed=0)
    >>> labels[fold == 0], labels[fold == 1]
    (tensor([0, 0, 1]), tensor([0, 0, 1]))
    """
    if whole_number(folds, "folds") < 2:
        raise ValueError(f"expected at least 2 folds, got {folds}")
    if groups is None:
        strata = samples.labels.cpu() if samples.labels.ndim == 1 else torch.zeros(len(samples), dtype=torch.long)
        return _dealt(strata, folds, seed, "sample")
    names = groups.tolist() if hasattr(groups, "tolist") else list(groups)
    if len(names) != len(samples):
        raise ValueError(f"expected a group for each of {len(samples)} samples, got {len(names)}")
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    fold = _dealt(torch.zeros(len(numbers), dtype=torch.long), folds, seed, "group")
    return fold[torch.tensor([numbers[name] for name in names])]


def _dealt(strata: Tensor, folds: int, seed: int, what: str) -> Tensor:
    """Fold numbers: shuffled, sorted by stratum, and dealt in turn."""
    count = len(strata)
    if count < folds:
        raise ValueError(f"expected at least one {what} for each of {folds} folds, got {count}")
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    order = order[strata[order].argsort(stable=True)]
    return torch.empty_like(order).index_copy_(0, order, torch.arange(count) % folds)


def out_of_fold(
    calibrator: Calibrator, samples: Samples, fold: Tensor, ignore_index: int | None
) -> Iterator[tuple[Tensor, Any]]:
    """The index of the samples of each fold, and their logits, calibrated by a fit to the others."""
    for number in fold.unique().tolist():
        rest, index = samples[(fold != number).nonzero()[:, 0]], (fold == number).nonzero()[:, 0]
        fitted = deepcopy(calibrator)
        fitted.form = samples.form
        fitted.fit(rest.logits, rest.labels, ignore_index=ignore_index, weights=rest.weights)
        part = samples[index]
        yield index, fitted(without_padding(part.logits, part.labels, replace(samples.form, ignore_index=ignore_index)))


def without_padding(logits: Any, labels: Tensor, form: Form) -> Any:
    """The logits, with 0 where they are not finite and ignored, since most calibrators refuse such logits.

    >>> logits, labels = torch.tensor([[1.0, 2.0], [torch.nan, 3.0]]), torch.tensor([0, -100])
    >>> without_padding(logits, labels, Form(ignore_index=-100))
    tensor([[1., 2.],
            [0., 3.]])
    """
    if form.ignore_index is None or form.task == "multiple_choice":  # a temperature leaves them as they are
        return logits
    return logits.masked_fill(ignored_at(labels, form).to(logits.device) & logits.isfinite().logical_not_(), 0)


def ignored_at(labels: Tensor, form: Form) -> Tensor:
    """True at ignored labels, with one class where the scores have several."""
    assert form.ignore_index is not None
    is_ignored = labels.long().eq(form.ignore_index)
    if form.task != "multiclass":
        return is_ignored
    return is_ignored.unsqueeze(-1 if form.classes_dim is None else form.classes_dim)


def _at(values: Tensor, index: Tensor) -> Tensor:
    return values[index.to(values.device)]
