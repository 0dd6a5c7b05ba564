"""Evaluates files of predictions: metrics before and after temperature scaling, and differences between files."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ... import calibration
from ..bootstrap import RESAMPLED
from ..calibrators.temperature import TemperatureScaling
from ..evaluation import TOP_K, Evaluation
from ..inputs import InputWarning, problems
from ..metrics import ALL, CONVENTIONS, Interval, Metrics, defined
from ..predictions import of_logits, of_probabilities
from ..reliability import ReliabilityCurve
from .calibrated import NoLogitsError, calibrated, fitted, joined
from .formats import offsets_of
from .reading import PredictionsFile

POOLED = "all tasks"
"""The name of the column of all tasks of lm-evaluation-harness together."""


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

    @property
    def summary(self) -> str:
        """The certificate in words; for a multi-label problem, the range of its temperatures."""
        values = self.scaling.temperature
        if values.ndim == 0:
            return str(self.scaling.certificate)
        return f"T from {float(values.min()):.3g} to {float(values.max()):.3g}, one for each of {len(values)} labels"

    def __str__(self) -> str:
        if self.scaling.temperature.ndim:
            return "T per label"
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

    @property
    def is_pooled(self) -> bool:
        """True for all tasks of lm-evaluation-harness together."""
        return self.file.benchmark == POOLED


@dataclass(frozen=True, eq=False)
class Difference:
    """The difference of a file to the first file, which has the same samples."""

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
    unscaled: Mapping[str, str] = field(default_factory=dict)
    """Why a column has no twin after temperature scaling, by its name."""

    @property
    def files(self) -> dict[str, PredictionsFile]:
        """All files by name, or by path where two have the same name."""
        fitted_on = (column.temperature.fitted_on for column in self.columns if column.temperature is not None)
        plain = (column.file for column in self.columns if column.temperature is None and not column.is_pooled)
        files = {file.path: file for file in (*plain, *fitted_on)}.values()
        count = Counter(file.name for file in files)
        return {file.name if count[file.name] == 1 else str(file.path): file for file in files}

    @cached_property
    def doubtful(self) -> dict[str, PredictionsFile]:
        """Files of logits that look like probabilities."""
        return doubtful_among(self.files)

    @property
    def doubts(self) -> list[str]:
        """Warnings: probabilities that are read as logits, a file that was left out, a temperature that is too good."""
        doubts = doubts_about(self.doubtful)
        doubts += [f"{name}: not evaluated after temperature scaling: {why}." for name, why in self.unscaled.items()]
        plain = {column.file.path: column.file for column in self.columns if column.temperature is None}
        fits = [(column.file.path, column.temperature) for column in self.columns if column.temperature is not None]
        if any(are_same(plain[path], fit.fitted_on) for path, fit in fits):
            doubts.append("A temperature was fitted on the samples it is evaluated on, so that result is too good.")
        return doubts


def doubtful_among(files: Mapping[str, PredictionsFile]) -> dict[str, PredictionsFile]:
    """The files of logits that look like probabilities."""
    return {name: file for name, file in files.items() if _is_warned_of(file)}


def _is_warned_of(file: PredictionsFile) -> bool:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", InputWarning)
        problems(file.scores, file.labels, file.form, name=file.kind, offsets=file.offsets)
    return any(warning.category is InputWarning for warning in caught)


def doubts_about(doubtful: Mapping[str, PredictionsFile]) -> list[str]:
    """A sentence about the files of logits that look like probabilities, if there are any."""
    names: dict[tuple[str, str], list[str]] = {}
    for name, file in doubtful.items():
        is_binary = file.form.task in ("binary", "multilabel")
        what = "score lies in [0, 1]" if is_binary else "row lies in [0, 1] and sums to 1"
        array = re.match("logits '(.+?)', labels", file.source)  # the columns of a table have no such key
        names.setdefault((what, f" and --scores-key {array[1]}" if array else ""), []).append(name)
    return [
        f"{', '.join(those)}: every {what}, as probabilities do, but it is evaluated as logits. If they are "
        f"probabilities, pass --probabilities{key}."
        for (what, key), those in names.items()
    ]


def without_interval(values: Mapping[str, float | None], intervals: Mapping[str, Interval]) -> list[str]:
    """Metrics without an interval, because they are the same in every resample."""
    return [name for name in RESAMPLED if values[name] is not None and name not in intervals]


def have_same_labels(first: PredictionsFile, second: PredictionsFile) -> bool:
    """True if two files have the same labels, and the same numbers of choices."""
    if first.offsets is not None and second.offsets is not None and not torch.equal(first.offsets, second.offsets):
        return False
    return first.form == second.form and torch.equal(first.labels.long(), second.labels.long())


def are_paired(first: PredictionsFile, second: PredictionsFile) -> bool:
    """True if sample i of one file is sample i of the other: the same labels, and the same task of the harness."""
    # Labels alone do not say so: in BLiMP every task has as many sentences, and label 0 for all.
    return have_same_labels(first, second) and first.benchmark == second.benchmark


def are_same(first: PredictionsFile, second: PredictionsFile) -> bool:
    """True if two files hold the same predictions."""
    scores = (file.scores.nan_to_num() for file in (first, second))  # padding may be NaN
    return torch.equal(*scores) and have_same_labels(first, second)


def evaluated(files: Sequence[PredictionsFile], held_out: Sequence[PredictionsFile], settings: Settings) -> Results:
    """Evaluate files, each also after temperature scaling if there are held-out files: one for all, or one each.

    Several tasks of lm-evaluation-harness are also evaluated together.
    """
    if len({file.path for file in files}) < len(files):
        raise ValueError(f"expected different files, got {', '.join(str(file.path) for file in files)}")
    if len(held_out) not in (0, 1, len(files)):
        raise ValueError(f"expected one held-out file, or one for each of {len(files)} files, got {len(held_out)}")
    scalings = [_fitted(file) for file in held_out]
    every = [*files, *_pooled(files)]
    temperatures: Sequence[Temperature | None] = scalings * len(every) if len(scalings) == 1 else scalings
    columns, unscaled = [], {}
    for name, file, temperature in zip_longest(names_of(every), every, temperatures):
        with naming(file):
            columns.append(column_of(name, file, settings))
            if temperature is not None:
                try:
                    columns.append(_scaled(name, file, temperature, settings))
                except NoLogitsError as error:
                    unscaled[name] = file.in_lines(str(error))
    return Results(columns, list(_differences(columns, settings)), settings, unscaled)


def names_of(files: Sequence[PredictionsFile]) -> list[str]:
    """Tasks of lm-evaluation-harness, or names of files, or paths: the first of them that tells the files apart."""
    for names in ([file.benchmark or file.name for file in files], [file.name for file in files]):
        if len(set(names)) == len(names):
            return names
    return [str(file.path) for file in files]


def _pooled(files: Sequence[PredictionsFile]) -> Iterator[PredictionsFile]:
    """All samples together if the files are different tasks of lm-evaluation-harness."""
    tasks = {file.benchmark for file in files}
    if len(files) > 1 and None not in tasks and len(tasks) == len(files):
        yield replace(joined(files), path=Path(POOLED), benchmark=POOLED)


@contextmanager
def naming(file: PredictionsFile) -> Iterator[None]:
    """Put the path of the file in front of errors about its content, and its lines into them."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise ValueError(f"{file.path}: {file.in_lines(str(error))}") from error


def _fitted(held_out: PredictionsFile) -> Temperature:
    with naming(held_out):
        try:
            scaling = fitted(TemperatureScaling, held_out)
        except ValueError:
            # A fit does not count ignored rows, so its error may name the wrong one.
            column_of(held_out.name, held_out, Settings(resamples=0))
            raise
        assert isinstance(scaling, TemperatureScaling)
        return Temperature(held_out, scaling)


def column_of(name: str, file: PredictionsFile, settings: Settings) -> Column:
    """Metrics and reliability curve of a file, with intervals if its samples are independent."""
    evaluation = Evaluation(bins=settings.bins, metrics=_metrics(file), **asdict(file.form))
    add = evaluation.update_probabilities if file.is_probabilities else evaluation.update
    add(file.scores, file.labels, offsets=file.offsets)
    metrics = evaluation.compute()
    if settings.resamples and has_independent_samples(file):
        resample = calibration.intervals_probabilities if file.is_probabilities else calibration.intervals
        kept = _kept(file)
        metrics = replace(metrics, intervals=resample(kept.scores, kept.labels, **_options(kept, settings)))
    return Column(name, file, metrics, evaluation.reliability())


def _metrics(file: PredictionsFile) -> tuple[str, ...]:
    return defined(None, ALL, weighted=False, ragged=file.form.task == "multiple_choice")


def has_independent_samples(file: PredictionsFile) -> bool:
    """True if every label is a sample of its own: not for maps, sequences and multi-label problems."""
    return file.form.task != "multilabel" and file.labels.numel() == len(file.labels)


def _kept(file: PredictionsFile) -> PredictionsFile:
    """The independent samples that are not ignored, with labels (n,)."""
    form, labels = file.form, file.labels.flatten().long()
    is_kept = torch.ones_like(labels, dtype=torch.bool) if form.ignore_index is None else labels != form.ignore_index
    own = replace(file, labels=labels[is_kept])
    if file.offsets is not None:
        counts = file.offsets.diff()
        offsets = offsets_of(counts[is_kept].tolist()).to(labels.device)
        return replace(own, scores=file.scores[is_kept.repeat_interleave(counts)], offsets=offsets)
    scores = file.scores if form.task == "binary" else form.classes_last(file.scores, file.kind)
    return replace(own, scores=scores.reshape(len(labels), *scores.shape[file.labels.ndim :])[is_kept])


def confidences(file: PredictionsFile) -> tuple[Tensor, Tensor]:
    """The confidence of every sample, and whether it is correct: (n,) both, in no particular order."""
    source = of_probabilities if file.is_probabilities else of_logits
    every = problems(file.scores, file.labels, file.form, name=file.kind, offsets=file.offsets)
    parts = [
        source(scores, labels, (), min(TOP_K, rows.classes))
        for problem in every
        for rows in problem
        for scores, labels, _ in rows.blocks()
    ]
    return torch.cat([part.confidence for part in parts]), torch.cat([part.correct for part in parts])


def _scaled(name: str, file: PredictionsFile, temperature: Temperature, settings: Settings) -> Column:
    scaled = calibrated(temperature.scaling, file, temperature.fitted_on)
    return replace(column_of(f"{name}, {temperature}", scaled, settings), temperature=temperature)


def _differences(columns: Sequence[Column], settings: Settings) -> Iterator[Difference]:
    """Differences to the first file: unscaled files to the first unscaled one, scaled files to the first scaled one."""
    for is_scaled in (False, True):
        alike = [column for column in columns if (column.temperature is not None) == is_scaled]
        for column in alike[1:]:
            if are_paired(alike[0].file, column.file):
                yield _difference(column, alike[0], settings)


def _difference(column: Column, first: Column, settings: Settings) -> Difference:
    of_first = first.metrics.as_row()
    values = {name: _less(value, of_first[name]) for name, value in column.metrics.as_row().items()}
    if not (settings.resamples and has_independent_samples(column.file)):
        return Difference(column, first, values, {})
    resample = (
        calibration.difference_intervals_probabilities
        if column.file.is_probabilities
        else calibration.difference_intervals
    )
    kept, kept_first = _kept(column.file), _kept(first.file)
    bounds = resample(kept.scores, kept_first.scores, kept.labels, **_options(kept, settings))
    return Difference(column, first, values, bounds)


def _less(value: float | None, first: float | None) -> float | None:
    return None if value is None or first is None else value - first


def _options(file: PredictionsFile, settings: Settings) -> dict[str, Any]:
    return {**asdict(settings), "task": file.form.task, "offsets": file.offsets}
