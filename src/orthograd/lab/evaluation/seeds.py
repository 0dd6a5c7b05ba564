"""Files of predictions as the seeds of two methods."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from glob import escape, glob
from pathlib import Path
from typing import Any

import torch

from ... import __version__
from ...calibration import ReliabilityCurve, TemperatureScaling, average
from ...calibration.evaluation import TOP_K
from ...calibration.files.calibrated import cross_fitted
from ...calibration.files.evaluation import (
    Column,
    Settings,
    column_of,
    doubtful_among,
    doubts_about,
    have_same_labels,
    naming,
)
from ...calibration.files.reading import PredictionsFile
from ...statistics import ComparisonTable
from ..comparison.pair import compared

GIVEN, SCALED = "as given", "after temperature scaling, cross-fitted in five folds"


@dataclass(frozen=True)
class Method:
    """The name of a method, and its files by seed."""

    name: str
    paths: Mapping[str, Path]


@dataclass(frozen=True)
class SeedPairs:
    """The results of both methods for each seed, before and after temperature scaling."""

    names: tuple[str, str]
    seeds: list[str]
    columns: Mapping[str, tuple[list[Column], list[Column]]]
    """By "as given" or "after …", the columns of the baseline and of the candidate."""

    settings: Settings
    unscaled: str = ""
    """Why there are no columns after temperature scaling; empty if there are."""

    @cached_property
    def tables(self) -> dict[str, ComparisonTable]:
        """The comparison of both methods, before and after temperature scaling."""
        return {when: compared(*(_rows(method) for method in both)) for when, both in self.columns.items()}

    @property
    def remarks(self) -> list[str]:
        """How to read the intervals beside the verdict, which follows the corrected p."""
        given, n = self.tables[GIVEN], len(self.seeds)
        remarks = ["Intervals are not corrected."]
        for name, metric in {"ECE": "ece", "Accuracy": "top1_accuracy"}.items():
            row = given[metric]
            low, high = row.interval
            if row.verdict == "inconclusive" and (low > 0 or high < 0):
                looks = "better" if (low > 0) == (row.better == "higher") else "worse"
                remarks.append(
                    f"{name} looks {looks}, inconclusive at n = {n}: its interval excludes 0, but its corrected p is "
                    f"not below {row.alpha:g}."
                )
        return remarks

    @property
    def curves(self) -> dict[str, ReliabilityCurve]:
        """The mean reliability curve of each method, before and after temperature scaling."""
        return {
            f"{name}, {when.partition(',')[0]}": average([column.curve for column in method])
            for when, both in self.columns.items()
            for name, method in zip(self.names, both, strict=True)
        }

    @cached_property
    def doubtful(self) -> dict[str, PredictionsFile]:
        """Files of logits that look like probabilities, by path."""
        return doubtful_among({str(each.file.path): each.file for method in self.columns[GIVEN] for each in method})

    @property
    def doubts(self) -> list[str]:
        """Warnings about logits that look like probabilities, and about what was left out."""
        left_out = [f"No comparison {SCALED}: {self.unscaled}."] if self.unscaled else []
        return doubts_about(self.doubtful) + left_out

    def as_record(self) -> dict[str, Any]:
        """The comparison as plain data for JSON."""
        paths = {
            name: [str(column.file.path) for column in method]
            for name, method in zip(self.names, self.columns[GIVEN], strict=True)
        }
        return {
            "orthograd": __version__,
            "torch": torch.__version__,
            "bins": self.settings.bins,
            "seed": self.settings.seed,
            "seeds": self.seeds,
            "files": paths,
            "logits_that_look_like_probabilities": list(self.doubtful),
            "left_out_after_temperature": self.unscaled or None,
            "differences": "candidate − baseline",
            "tables": {when: table.as_dict() for when, table in self.tables.items()},
        }


def method_of(text: str) -> Method:
    """The files of NAME=PATTERN. The part of a path that * stands for is its seed.

    Raises:
        ValueError: without a name, with other than one *, or for a pattern that matches nothing.
    """
    name, is_named, pattern = text.partition("=")
    if not (is_named and name and pattern.count("*") == 1):
        raise ValueError(
            f"expected NAME=PATTERN with one * for the seed, such as 'sgd=runs/sgd-*.npz' in quotes, got {text}"
        )
    before, after = pattern.split("*")
    expression = re.compile(f"{re.escape(before)}([^/]*){re.escape(after)}")
    found = (expression.fullmatch(path) for path in glob(f"{escape(before)}*{escape(after)}"))
    paths = {match[1]: Path(match[0]) for match in found if match}
    if not paths:
        raise ValueError(f"{pattern}: no such files")
    return Method(name, paths)


def seed_pairs(
    baseline: Method, candidate: Method, read: Callable[[Path], PredictionsFile], settings: Settings
) -> SeedPairs:
    """Evaluate both methods on every seed. Both files of a seed must have the same labels.

    Raises:
        ValueError: for methods of one name, fewer than two seeds, or a seed that only one method has.
    """
    if baseline.name == candidate.name:
        raise ValueError(f"expected two different names, got {baseline.name} twice")
    alone = sorted(baseline.paths.keys() ^ candidate.paths.keys(), key=_in_order)
    if alone:
        raise ValueError(f"expected files of both methods for every seed, got only one for {', '.join(alone)}")
    seeds = sorted(baseline.paths, key=_in_order)
    if len(seeds) < 2:
        raise ValueError(f"expected at least 2 seeds, got {len(seeds)}")
    quick = replace(settings, resamples=0)  # the seeds give the intervals
    given = [_evaluated(seed, read(baseline.paths[seed]), read(candidate.paths[seed]), quick) for seed in seeds]
    columns, unscaled = {GIVEN: _by_method(given)}, ""
    try:
        columns[SCALED] = _by_method([_scaled(column, quick) for column in pair] for pair in given)
    except (ValueError, RuntimeError) as error:  # the comparison of the files as given holds without it
        unscaled = str(error)
    return SeedPairs((baseline.name, candidate.name), seeds, columns, settings, unscaled)


def _by_method(pairs: Iterable[Sequence[Column]]) -> tuple[list[Column], list[Column]]:
    """The columns of the baseline and of the candidate, from those of each seed."""
    baseline, candidate = zip(*pairs, strict=True)
    return list(baseline), list(candidate)


def _evaluated(
    seed: str, baseline: PredictionsFile, candidate: PredictionsFile, settings: Settings
) -> tuple[Column, Column]:
    if not have_same_labels(baseline, candidate):
        raise ValueError(f"expected the same labels in both files of a seed, got others in {candidate.path}")
    return _column(seed, baseline, settings), _column(seed, candidate, settings)


def _column(seed: str, file: PredictionsFile, settings: Settings) -> Column:
    with naming(file):
        return column_of(seed, file, settings)


def _scaled(column: Column, settings: Settings) -> Column:
    with naming(column.file):
        scaled = cross_fitted(TemperatureScaling, column.file, seed=settings.seed)
        return column_of(column.name, scaled, settings)


def _in_order(seed: str) -> tuple[int, str]:
    """10 after 9."""
    return len(seed) if seed.isdigit() else 0, seed


def _rows(columns: Sequence[Column]) -> list[dict[str, float | None]]:
    """The metrics of each seed. With five classes or fewer, top-5 accuracy is always 100%: nothing to test."""
    return [
        column.metrics.as_row() | ({"top5_accuracy": None} if column.metrics.classes <= TOP_K else {})
        for column in columns
    ]
