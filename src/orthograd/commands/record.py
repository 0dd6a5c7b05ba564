"""What `orthograd evaluate` writes: strict JSON and a figure, each whole or not at all."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .. import __version__
from .results import Column, Difference, Results, Temperature


def write_record(results: Results, folder: Path) -> Path:
    """Write the numbers to evaluation.json in the folder."""
    text = json.dumps(strict(as_record(results)), indent=1, ensure_ascii=False, allow_nan=False)
    return replaced(folder / "evaluation.json", lambda path: path.write_text(text + "\n", encoding="utf-8"))


def write_figure(results: Results, folder: Path) -> Path:
    """Write the reliability diagrams to reliability.png in the folder."""
    from ..report import reliability_figure, save_figure  # with matplotlib, which no other command waits for

    figure = reliability_figure({column.name: column.curve for column in results.columns})
    return replaced(folder / "reliability.png", lambda path: save_figure(figure, path))


def as_record(results: Results) -> dict[str, Any]:
    """The results as plain data, with all that is needed to get them again."""
    return {
        "orthograd": __version__,
        "torch": torch.__version__,
        **asdict(results.settings),
        "logits_that_look_like_probabilities": [str(file.path) for file in results.doubtful.values()],
        "files": [_file(column) for column in results.columns],
        "differences": [_difference(difference) for difference in results.differences],
    }


def strict(value: Any) -> Any:
    """Plain data for JSON, which knows neither infinity nor NaN: they are strings.

    >>> strict({"high": torch.tensor(float("inf")), "is_flat": torch.tensor(False)})
    {'high': 'inf', 'is_flat': False}
    """
    if isinstance(value, Tensor):
        return strict(value.tolist())
    if isinstance(value, Mapping):
        return {name: strict(part) for name, part in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [strict(part) for part in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def _file(column: Column) -> dict[str, Any]:
    temperature = None if column.temperature is None else _temperature(column.temperature)
    return {
        "path": str(column.file.path),
        "source": column.file.source,
        "temperature": temperature,
        **column.metrics.as_dict(),
    }


def _temperature(temperature: Temperature) -> dict[str, Any]:
    fit = temperature.scaling.certificate
    return {
        "value": temperature.scaling.temperature,
        "fitted_on": str(temperature.fitted_on.path),
        "certificate": None if fit is None else asdict(fit),
        "summary": str(fit),
    }


def _difference(difference: Difference) -> dict[str, Any]:
    return {
        "path": str(difference.column.file.path),
        "minus": str(difference.first.file.path),
        "is_after_temperature": difference.column.temperature is not None,
        "metrics": difference.values,
        "intervals": difference.intervals,
        "excludes_zero": [name for name in difference.values if difference.excludes_zero(name)],
    }


def replaced(path: Path, write: Callable[[Path], object]) -> Path:
    """Write beside the path, then move there: who reads meanwhile finds the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(unfinished)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path
