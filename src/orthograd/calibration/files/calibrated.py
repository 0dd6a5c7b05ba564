"""Files of predictions after a calibrator that was fitted on held-out samples, or cross-fitted on the file itself."""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ... import calibration
from ..calibrators.calibrator import CalibrationWarning, Calibrator
from ..calibrators.scaling import MatrixScaling, StructuredMatrixScaling
from ..cross_fitting import ignored_at, without_padding
from ..inputs import problems
from .formats import offsets_of
from .reading import PredictionsFile

FOLDS = 5
PAIRWISE = (MatrixScaling, StructuredMatrixScaling)
MOST_CLASSES = 50
"""With more classes, calibrators with a parameter for each pair of classes are left out: they overfit and take long."""


class NoLogitsError(ValueError):
    """Probabilities of 0 or 1, which have no finite logits."""


def calibrators_for(file: PredictionsFile) -> dict[str, type[Calibrator]]:
    """Every calibrator of `orthograd.calibration` that this form of predictions has, by name; temperature first.

    >>> from pathlib import Path
    >>> next(iter(calibrators_for(PredictionsFile(Path("a.npz"), torch.zeros(2, 3), torch.zeros(2), False, ""))))
    'Temperature scaling'
    """
    every = {name: value for name in calibration.__all__ if _is_calibrator(value := getattr(calibration, name))}
    is_large = (file.classes or 0) > MOST_CLASSES
    is_ragged = file.form.task == "multiple_choice"
    return {
        re.sub("(?<=[a-z])(?=[A-Z])", " ", name).capitalize(): each
        for name, each in sorted(every.items(), key=lambda item: item[0] != "TemperatureScaling")
        if not (is_ragged and each.NEEDS_FIXED_CLASSES) and not (is_large and issubclass(each, PAIRWISE))
    }


def _is_calibrator(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Calibrator) and value is not Calibrator


def fitted(kind: type[Calibrator], held_out: PredictionsFile) -> Calibrator:
    """A calibrator that is fitted to a file."""
    calibrator = kind(task=held_out.form.task, classes_dim=held_out.form.classes_dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)  # the certificate has the same message
        return calibrator.fit(
            logits_of(held_out), held_out.labels, ignore_index=held_out.form.ignore_index, offsets=held_out.offsets
        )


def calibrated(calibrator: Calibrator, file: PredictionsFile, fitted_on: PredictionsFile) -> PredictionsFile:
    """The file after a calibrator that was fitted to another one of the same form."""
    if file.form.task != fitted_on.form.task:
        raise ValueError(f"expected task {fitted_on.form.task!r} as in {fitted_on.path}, got {file.form.task!r}")
    if file.classes != fitted_on.classes:
        raise ValueError(f"expected {fitted_on.classes} classes as in {fitted_on.path}, got {file.classes}")
    return _with(file, calibrator(without_padding(logits_of(file), file.labels, file.form), file.offsets))


def cross_fitted(kind: type[Calibrator], file: PredictionsFile, *, seed: int = 0, remedy: str = "") -> PredictionsFile:
    """The file after calibrators that were each fitted to all samples but those they calibrate, in five folds.

    Maps and sequences stay together in one fold. ``remedy`` ends the error if there is only one.
    """
    count = len(file.labels)
    if count < 2:
        raise ValueError(f"expected at least 2 samples to cross-fit a calibrator, got {count}{remedy}")
    calibrator = kind(task=file.form.task, classes_dim=file.form.classes_dim)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        found = calibration.cross_fit(
            calibrator,
            logits_of(file),
            file.labels,
            folds=min(FOLDS, count),
            seed=seed,
            ignore_index=file.form.ignore_index,
            offsets=file.offsets,
        )
    return _with(file, found.logits)


def joined(files: Sequence[PredictionsFile]) -> PredictionsFile:
    """The samples of several files, one after the other, under the name of the first."""
    counts = [count for file in files if file.offsets is not None for count in file.offsets.diff().tolist()]
    return replace(
        files[0],
        scores=torch.cat([file.scores for file in files]),
        labels=torch.cat([file.labels for file in files]),
        offsets=offsets_of(counts).to(files[0].labels.device) if counts else None,
        lines=(),
    )


def _with(file: PredictionsFile, logits: Tensor) -> PredictionsFile:
    """The file with other logits: as probabilities if it holds probabilities."""
    if not file.is_probabilities:
        return replace(file, scores=logits)
    if file.form.task in ("binary", "multilabel"):
        return replace(file, scores=logits.sigmoid())
    if file.offsets is not None:
        rows = logits.split(file.offsets.diff().tolist())
        return replace(file, scores=torch.cat([row.softmax(0) for row in rows]))
    return replace(file, scores=logits.softmax(1 if file.form.classes_dim is None else file.form.classes_dim))


def logits_of(file: PredictionsFile) -> Tensor:
    """The logits, or the logarithm (for binary problems the log-odds) of the probabilities: of 0.5 where ignored."""
    if not file.is_probabilities:
        return file.scores
    problems(file.scores, file.labels, file.form, name="probabilities", offsets=file.offsets)  # raises for others
    probabilities = file.scores.double()
    if file.form.ignore_index is not None:
        is_ignored = ignored_at(file.labels, file.form)
        counts = 1 if file.offsets is None else file.offsets.diff()
        probabilities = probabilities.masked_fill(is_ignored.repeat_interleave(counts, 0), 0.5)
    is_binary = file.form.task in ("binary", "multilabel")
    broken = (probabilities <= 0) | (is_binary & (probabilities >= 1))
    rows = broken.reshape(len(broken), -1).any(1).nonzero()[:, 0]
    if file.offsets is not None:
        rows = torch.bucketize(rows, file.offsets[1:], right=True).unique()
    if len(rows):
        limits, got = ("between 0 and 1", "0 or 1") if is_binary else ("above 0", "0")
        raise NoLogitsError(
            f"expected probabilities {limits} for a calibrator, got {got} in row {int(rows[0])} and "
            f"{len(rows) - 1} more rows: save the logits instead"
        )
    return probabilities.logit() if is_binary else probabilities.log()
