"""A file before and after each calibrator."""

from __future__ import annotations

from dataclasses import dataclass, replace

from .calibrated import FOLDS, MOST_CLASSES, calibrated, calibrators_for, cross_fitted, fitted
from .evaluation import Column, Results, Settings, column_of
from .reading import PredictionsFile


@dataclass(frozen=True, eq=False)
class Recalibration:
    """A file after one calibrator, or the reason why there is none."""

    name: str
    column: Column | None
    failure: str = ""


def recalibrations(column: Column, held_out: PredictionsFile | None, settings: Settings) -> list[Recalibration]:
    """The file after each calibrator: fitted on the held-out file, or cross-fitted if there is none."""
    return [_recalibration(name, column, held_out, settings) for name in calibrators_for(column.file)]


def how_fitted(file: PredictionsFile, held_out: PredictionsFile | None) -> str:
    """How the calibrators were fitted, in words."""
    left_out = f" Those with a parameter for each pair of classes are left out above {MOST_CLASSES} classes."
    more = left_out if (file.classes or 0) > MOST_CLASSES else ""
    if held_out is not None:
        return f"Each calibrator was fitted on {held_out.path}.{more}"
    what = "samples" if file.labels.ndim == 1 else "maps or sequences"
    return (
        f"Each calibrator was cross-fitted: in {min(FOLDS, len(file.labels))} folds, every fold of {what} is "
        f"calibrated by a calibrator that was fitted to the others. With --fit, it is fitted on other samples.{more}"
    )


def best(results: list[Recalibration]) -> Recalibration | None:
    """The calibrator with the lowest loss; None if all failed."""
    known = [each for each in results if each.column is not None]
    return min(known, key=_loss, default=None)


def held_out_of(results: Results, column: Column) -> PredictionsFile | None:
    """The file that the temperature of a column was fitted on; None if there is none."""
    scaled = (each.temperature for each in results.columns if each.file.path == column.file.path and each.temperature)
    return next((temperature.fitted_on for temperature in scaled), None)


def _recalibration(name: str, column: Column, held_out: PredictionsFile | None, settings: Settings) -> Recalibration:
    kind = calibrators_for(column.file)[name]
    try:
        if held_out is None:
            after = cross_fitted(kind, column.file, seed=settings.seed, remedy=": pass --fit with others")
        else:
            after = calibrated(fitted(kind, held_out), column.file, held_out)
        return Recalibration(name, column_of(name, after, replace(settings, resamples=0)))
    except (ValueError, RuntimeError) as error:
        return Recalibration(name, None, column.file.in_lines(str(error)))


def _loss(recalibration: Recalibration) -> float:
    loss = None if recalibration.column is None else recalibration.column.metrics.loss
    return float("inf") if loss is None else loss
