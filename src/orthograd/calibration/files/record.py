"""The results of an evaluation as plain data for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from ... import __version__
from .evaluation import Column, Difference, Results, Temperature


def as_record(results: Results) -> dict[str, Any]:
    """The results as plain data, with the settings and versions that reproduce them."""
    record: dict[str, Any] = strict(
        {
            "orthograd": __version__,
            "torch": torch.__version__,
            **asdict(results.settings),
            "logits_that_look_like_probabilities": [str(file.path) for file in results.doubtful.values()],
            "left_out_after_temperature": results.unscaled,
            "files": [_file(column) for column in results.columns],
            "differences": [_difference(difference) for difference in results.differences],
        }
    )
    return record


def strict(value: Any) -> Any:
    """Plain data for JSON; infinity and NaN become strings.

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
        "benchmark": column.file.benchmark,
        "temperature": temperature,
        **column.metrics.as_dict(),
    }


def _temperature(temperature: Temperature) -> dict[str, Any]:
    fit = temperature.scaling.certificate
    return {
        "value": temperature.scaling.temperature,
        "fitted_on": str(temperature.fitted_on.path),
        "certificate": None if fit is None else asdict(fit),
        "summary": temperature.summary,
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
