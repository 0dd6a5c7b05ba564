"""What `orthograd evaluate` finds out: columns of metrics, and differences between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from ..calibration import CONVENTIONS, Metrics, ReliabilityCurve, TemperatureScaling
from ..calibration.bootstrap import RESAMPLED
from ..calibration.inputs import look_like_probabilities
from ..predictions_file import PredictionsFile

Interval = tuple[float, float]


@dataclass(frozen=True)
class Settings:
    """How to evaluate; no resamples, no intervals."""

    bins: int = 10
    resamples: int = 1000
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Temperature:
    """A temperature and the held-out file that it suits best."""

    fitted_on: PredictionsFile
    scaling: TemperatureScaling

    def __str__(self) -> str:
        value = float(self.scaling.temperature)
        return f"T={value:.2f}" if 0.01 <= value < 1000 else f"T={value:.0e}"


@dataclass(frozen=True, eq=False)
class Column:
    """The results of one file, as it is or after a temperature."""

    name: str
    file: PredictionsFile
    metrics: Metrics
    curve: ReliabilityCurve
    temperature: Temperature | None = None


@dataclass(frozen=True, eq=False)
class Difference:
    """One file less the first, sample by sample: both hold the same labels."""

    column: Column
    first: Column
    values: Mapping[str, float | None]
    intervals: Mapping[str, Interval]

    @property
    def name(self) -> str:
        """As in "b.npz − a.npz"."""
        return f"{self.column.name} − {self.first.name}"

    def excludes_zero(self, name: str) -> bool:
        """Whether the interval of this difference lies on one side of zero."""
        low, high = self.intervals.get(name, (0.0, 0.0))
        return low > 0 or high < 0

    def verdict(self, name: str) -> str:
        """Better, worse or different where the interval excludes zero, else nothing."""
        if not self.excludes_zero(name):
            return ""
        better = CONVENTIONS[name].better
        if better is None:
            return "different"
        return "better" if (self.intervals[name][0] > 0) == (better == "higher") else "worse"


@dataclass(frozen=True)
class Results:
    """Everything that is printed, drawn and written."""

    columns: list[Column]
    differences: list[Difference]
    settings: Settings

    @property
    def files(self) -> dict[str, PredictionsFile]:
        """Every file that was read, by its name, or by its path where another has the same name."""
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
    """Metrics that are the same in every resample, so that the bootstrap cannot know how far off they are."""
    return [name for name in RESAMPLED if values[name] is not None and name not in intervals]


def have_same_labels(first: PredictionsFile, second: PredictionsFile) -> bool:
    """Whether two files are about the same samples, as far as labels tell."""
    return torch.equal(first.labels.long(), second.labels.long())


def are_same(first: PredictionsFile, second: PredictionsFile) -> bool:
    """Whether two files hold the same predictions, be they one file or copies."""
    return torch.equal(first.scores, second.scores) and have_same_labels(first, second)
