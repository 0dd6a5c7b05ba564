"""What every run of a comparison does: train, predict, evaluate, and say all of it in a record."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from .. import __version__, calibration
from ..calibration.calibrators.temperature import TemperatureFit
from ..training import Config, Task, predicted, train
from ..training.checkpoint import Keeper


class Folder(Keeper, Protocol):
    """Where a run keeps what it makes: a `RunFolder` of the store."""

    def write_tensors(self, name: str, content: dict[str, Tensor]) -> object:
        """Keep tensors under a name."""


def run(config: dict[str, Any], folder: Folder, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Train the network of a config, from its checkpoint if there is one; the record says how it went."""
    settings = Config.from_dict(config)
    started = time.perf_counter()
    task = Task.of(settings)
    trained = train(settings, task, keeper=folder, report=report)
    ended = time.perf_counter()
    predictions = predicted(trained, task)
    folder.write_tensors("predictions", predictions)
    parameters = torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()])
    return {
        "metrics": evaluated(predictions),
        "after_temperature": after_temperature(predictions),
        "losses": trained.losses,
        "weight_norm": float(parameters.double().norm()),
        "parameters": parameters.numel(),
        "versions": {"orthograd": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "hardware": {"machine": platform.machine(), "threads": torch.get_num_threads()},
        "seconds": {"training": ended - started, "evaluation": time.perf_counter() - ended},
    }


def evaluated(predictions: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    """All metrics of clean test images, and of each shift at each severity."""
    found = {}
    for name, logits in predictions.items():
        kind, _, images = name.partition(".")
        if kind == "logits" and images != "held_out":
            found[images] = calibration.evaluate(logits, predictions["labels"]).as_dict()["metrics"]
    return found


def after_temperature(predictions: dict[str, Tensor]) -> dict[str, Any] | None:
    """The metrics of clean test images after the temperature that suits held-out images best; None without such."""
    if "logits.held_out" not in predictions:
        return None
    fit: TemperatureFit = calibration.fit_temperatures(
        predictions["logits.held_out"][None], predictions["labels.held_out"]
    )[0]
    logits = predictions["logits.clean"].double() / fit.temperature
    return {
        "temperature": float(fit.temperature),
        "certificate": str(fit),
        "metrics": calibration.evaluate(logits, predictions["labels"]).as_dict()["metrics"],
    }
