"""Evaluates files of predictions: metrics before and after temperature scaling, and differences between files."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest

import torch
from torch import Tensor

from ... import calibration
from ..bootstrap import RESAMPLED
from ..calibrators.temperature import TemperatureScaling
from ..evaluation import Evaluation
from ..inputs import checked_probabilities, look_like_probabilities
from ..metrics import CONVENTIONS, Interval, Metrics
from ..reliability import ReliabilityCurve
from .reading import PredictionsFile


@dataclass(frozen=True)
class Settings:
    """Settings of an evaluation. With ``resamples=0`` there are no intervals."""

    bins: int = 10
    resamples: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Temperature:
    """A temperature and the held-out file that it was fitted on."""

    fitted_on: PredictionsFile
    scaling: TemperatureScaling

    def __str__(self) -> str:
        value = float(self.scaling.temperature)
        return f"T={value:.2f}" if 0.01 <= value < 1000 else f"T={value:.0e}"


@dataclass(frozen=True, eq=False)
class Column:
    """The results of one file, before or after temperature scaling."""

    name: str
    file: PredictionsFile
    metrics: Metrics
    curve: ReliabilityCurve
    temperature: Temperature | None = None


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference of a file to the first file, which has the same labels."""

    column: Column
    first: Column
    values: Mapping[str, float | None]
    intervals: Mapping[str, Interval]

    @property
    def name(self) -> str:
        """The title, such as "b.npz − a.npz"."""
        return f"{self.column.name} − {self.first.name}"

    def excludes_zero(self, name: str) -> bool:
        """True if the interval of this difference excludes zero."""
        low, high = self.intervals.get(name, (0.0, 0.0))
        return low > 0 or high < 0

    def verdict(self, name: str) -> str:
        """``"better"``, ``"worse"`` or ``"different"`` if the interval excludes zero, otherwise empty."""
        if not self.excludes_zero(name):
            return ""
        better = CONVENTIONS[name].better
        if better is None:
            return "different"
        return "better" if (self.intervals[name][0] > 0) == (better == "higher") else "worse"


@dataclass(frozen=True)
class Results:
    """The results that are printed, drawn and written."""

    columns: list[Column]
    differences: list[Difference]
    settings: Settings

    @property
    def files(self) -> dict[str, PredictionsFile]:
        """All files by name, or by path where two have the same name."""
        fitted_on = (column.temperature.fitted_on for column in self.columns if column.temperature is not None)
        plain = (column.file for column in self.columns if column.temperature is None)
        files = {file.path: file for file in (*plain, *fitted_on)}.values()
        count = Counter(file.name for file in files)
        return {file.name if count[file.name] == 1 else str(file.path): file for file in files}

    @property
    def doubtful(self) -> dict[str, PredictionsFile]:
        """Files of logits that look like probabilities."""
        return {
            name: file
            for name, file in self.files.items()
            if not file.is_probabilities and look_like_probabilities(file.scores)
        }


def without_interval(values: Mapping[str, float | None], intervals: Mapping[str, Interval]) -> list[str]:
    """Metrics without an interval, because they are the same in every resample."""
    return [name for name in RESAMPLED if values[name] is not None and name not in intervals]


def have_same_labels(first: PredictionsFile, second: PredictionsFile) -> bool:
    """True if two files have the same labels."""
    return torch.equal(first.labels.long(), second.labels.long())


def are_same(first: PredictionsFile, second: PredictionsFile) -> bool:
    """True if two files hold the same predictions."""
    return torch.equal(first.scores, second.scores) and have_same_labels(first, second)


def evaluated(files: Sequence[PredictionsFile], held_out: Sequence[PredictionsFile], settings: Settings) -> Results:
    """Evaluate files, each also after temperature scaling if there are held-out files: one for all, or one each."""
    if len({file.path for file in files}) < len(files):
        raise ValueError(f"expected different files, got {', '.join(str(file.path) for file in files)}")
    if len(held_out) not in (0, 1, len(files)):
        raise ValueError(f"expected one held-out file, or one for each of {len(files)} files, got {len(held_out)}")
    fitted = [_fitted(file) for file in held_out]
    temperatures: Sequence[Temperature | None] = fitted * len(files) if len(fitted) == 1 else fitted
    columns = []
    for name, file, temperature in zip_longest(_names(files), files, temperatures):
        with _naming(file):
            columns.append(_column(name, file, settings))
            if temperature is not None:
                columns.append(_scaled(name, file, temperature, settings))
    return Results(columns, list(_differences(columns, settings)), settings)


def _names(files: Sequence[PredictionsFile]) -> list[str]:
    names = [file.name for file in files]
    return names if len(set(names)) == len(names) else [str(file.path) for file in files]


@contextmanager
def _naming(file: PredictionsFile) -> Iterator[None]:
    """Put the path of the file in front of errors about its content."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file.path}: {error}") from error


def _fitted(held_out: PredictionsFile) -> Temperature:
    with _naming(held_out), warnings.catch_warnings():
        warnings.simplefilter("ignore", calibration.CalibrationWarning)  # the certificate has the same message
        return Temperature(held_out, TemperatureScaling().fit(_logits(held_out), held_out.labels))


def _logits(file: PredictionsFile) -> Tensor:
    """The logits, or the logarithm of the probabilities, whose softmax gives the probabilities."""
    if not file.is_probabilities:
        return file.scores
    probabilities, _ = checked_probabilities(file.scores, file.labels)
    zeros = (probabilities == 0).any(1).nonzero()
    if len(zeros):
        raise ValueError(
            f"expected probabilities above 0 for temperature scaling, got 0 in row {int(zeros[0])} and "
            f"{len(zeros) - 1} more rows: save the logits instead"
        )
    return probabilities.double().log()


def _column(name: str, file: PredictionsFile, settings: Settings) -> Column:
    evaluation = Evaluation(bins=settings.bins, metrics=calibration.ALL)
    add = evaluation.update_probabilities if file.is_probabilities else evaluation.update
    add(file.scores, file.labels)
    metrics = evaluation.compute()
    if settings.resamples:
        resample = calibration.intervals_probabilities if file.is_probabilities else calibration.intervals
        metrics = replace(metrics, intervals=resample(file.scores, file.labels, **_options(settings)))
    return Column(name, file, metrics, evaluation.reliability())


def _scaled(name: str, file: PredictionsFile, temperature: Temperature, settings: Settings) -> Column:
    held_out = temperature.fitted_on
    classes, expected = file.scores.shape[1], held_out.scores.shape[1]
    if classes != expected:
        raise ValueError(f"expected {expected} classes as in {held_out.path}, got {classes}")
    logits = temperature.scaling(_logits(file))
    scaled = replace(file, scores=logits.softmax(1) if file.is_probabilities else logits)
    return replace(_column(f"{name}, {temperature}", scaled, settings), temperature=temperature)


def _differences(columns: Sequence[Column], settings: Settings) -> Iterator[Difference]:
    """Differences to the first file: unscaled files to the first unscaled one, scaled files to the first scaled one."""
    for is_scaled in (False, True):
        alike = [column for column in columns if (column.temperature is not None) == is_scaled]
        for column in alike[1:]:
            if have_same_labels(alike[0].file, column.file):
                yield _difference(column, alike[0], settings)


def _difference(column: Column, first: Column, settings: Settings) -> Difference:
    of_first = first.metrics.as_row()
    values = {name: _less(value, of_first[name]) for name, value in column.metrics.as_row().items()}
    if not settings.resamples:
        return Difference(column, first, values, {})
    resample = (
        calibration.difference_intervals_probabilities
        if column.file.is_probabilities
        else calibration.difference_intervals
    )
    bounds = resample(column.file.scores, first.file.scores, first.file.labels, **_options(settings))
    return Difference(column, first, values, bounds)


def _less(value: float | None, first: float | None) -> float | None:
    return None if value is None or first is None else value - first


def _options(settings: Settings) -> dict[str, int]:
    return {"bins": settings.bins, "resamples": settings.resamples, "seed": settings.seed}
