"""How `orthograd evaluate` computes: the metrics of each file, before and after a temperature, and differences."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest

from torch import Tensor

from .. import calibration
from ..calibration import Evaluation, TemperatureScaling
from ..calibration.inputs import checked_probabilities
from ..predictions_file import PredictionsFile
from .results import Column, Difference, Results, Settings, Temperature, have_same_labels


def evaluated(files: Sequence[PredictionsFile], held_out: Sequence[PredictionsFile], settings: Settings) -> Results:
    """Evaluate files, each also after a temperature: one for all of them, or the one of its own held-out file."""
    if len({file.path for file in files}) < len(files):
        raise ValueError(f"expected different files, got {', '.join(str(file.path) for file in files)}")
    if len(held_out) not in (0, 1, len(files)):
        raise ValueError(f"expected a held-out file for all or one for each of {len(files)}, got {len(held_out)}")
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
    """Put the file's name before what is wrong with what it holds."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file.path}: {error}") from error


def _fitted(held_out: PredictionsFile) -> Temperature:
    with _naming(held_out), warnings.catch_warnings():
        warnings.simplefilter("ignore", calibration.CalibrationWarning)  # the certificate says the same
        return Temperature(held_out, TemperatureScaling().fit(_logits(held_out), held_out.labels))


def _logits(file: PredictionsFile) -> Tensor:
    """Logits, or the logarithm of probabilities, whose softmax are the probabilities."""
    if not file.is_probabilities:
        return file.scores
    probabilities, _ = checked_probabilities(file.scores, file.labels)
    zeros = (probabilities == 0).any(1).nonzero()
    if len(zeros):
        raise ValueError(
            f"a temperature needs log p, got a probability of exactly 0 in row {int(zeros[0])} "
            f"and {len(zeros) - 1} more rows: save the logits instead"
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
    """Compare like with like: files as they are with the first, scaled ones with the first scaled."""
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
