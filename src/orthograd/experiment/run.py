"""What every run of a comparison does: train, predict, evaluate, and say all of it in a record."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from .. import __version__, calibration
from ..calibration.calibrators.temperature import TemperatureFit
from ..diagnosis import chosen_samples, recorded_diagnosis
from ..training import Config, Task, initial_model, predicted, training
from ..training.arms import arm_named
from ..training.checkpoint import Keeper
from ..training.judgement import source_of_shifts
from ..training.objective import loss
from ..training.precision import autocast, require
from ..training.steps import one_hot

BINS = 10
"""Of confidence, for every binned metric and for the reliability diagrams."""
MAIN = (*calibration.PAPER, "smooth_ece", "aurc")
"""The metrics of shifted images; clean ones have them all."""


class Folder(Keeper, Protocol):
    """Where a run keeps what it makes: a `RunFolder` of the store."""

    def write_tensors(self, name: str, content: dict[str, Tensor]) -> object:
        """Keep tensors under a name."""


def run(config: dict[str, Any], folder: Folder, report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    """Train the network of a config, from its checkpoint if there is one; the record says how it went."""
    settings = Config.from_dict(config)
    if settings.device == "cuda":
        require(settings.precision)
    task = Task.of(settings)
    with training(settings, task, keeper=folder, report=report) as trained:
        predictions = predicted(trained.model, task, settings)
        parameters = torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()])
        diagnosis = diagnosed(settings, task, trained.model)
    folder.write_tensors("predictions", predictions)
    scaled = after_temperature(predictions)
    record = {
        "evaluated": {
            "samples": len(predictions["labels"]),
            "classes": predictions["logits.clean"].shape[1],
            "bins": BINS,
        },
        "metrics": evaluated(predictions),
        "after_temperature": scaled,
        "after_temperature_on_test": after_temperature_on_test(predictions),
        "reliability": reliability(predictions, None if scaled is None else scaled["temperature"]),
        "losses": trained.losses,
        "weight_norm": float(parameters.double().norm()),
        "parameters": parameters.numel(),
        "diagnosis": diagnosis,
        "versions": {"orthograd": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "hardware": hardware(settings),
        "shifts": source_of_shifts(settings),
    }
    return record | clocks(trained.stretches)


def clocks(stretches: list[list[float]]) -> dict[str, Any]:
    """Seconds of training, in one go or several, and of what came after; now is when the run has ended."""
    ended = max(time.time(), stretches[-1][1])
    seconds = {"training": sum(end - begin for begin, end in stretches), "evaluation": ended - stretches[-1][1]}
    return {"seconds": seconds, "stretches": stretches, "ended": ended}


def diagnosed(config: Config, task: Task, model: nn.Module) -> dict[str, Any]:
    """Where ⊥Grad acts, before the first step and after the last, on some of the training images."""
    rows, arm = chosen_samples(len(task.labels)), arm_named(config.arm)
    start = initial_model(config, task.dataset).to(config.device)
    images = task.dataset.normalised(task.images[rows].to(config.device))
    targets = one_hot(task)[rows].to(config.device)
    with autocast(config.precision):
        return recorded_diagnosis(start, model, lambda logits, wanted: loss(arm, logits, wanted), images, targets)


def hardware(config: Config) -> dict[str, Any]:
    """What trained and judged the network."""
    found = {"machine": platform.machine(), "threads": torch.get_num_threads()}
    return found | {"gpu": torch.cuda.get_device_name()} if config.device == "cuda" else found


def evaluated(predictions: dict[str, Tensor]) -> dict[str, dict[str, Any]]:
    """All metrics of clean test images, and the main ones of each shift at each severity."""
    return {
        images: calibration.evaluate(
            logits, predictions["labels"], bins=BINS, metrics=calibration.ALL if images == "clean" else MAIN
        ).as_dict()["metrics"]
        for images, logits in _tested(predictions).items()
    }


def after_temperature(predictions: dict[str, Tensor]) -> dict[str, Any] | None:
    """The metrics of clean test images after the temperature that suits held-out images best; None without such."""
    if "logits.held_out" not in predictions:
        return None
    return _scaled(predictions, "logits.held_out", "labels.held_out", calibration.ALL)


def after_temperature_on_test(predictions: dict[str, Tensor]) -> dict[str, Any]:
    """The same after the temperature that suits the test images themselves: the best that there could be."""
    return _scaled(predictions, "logits.clean", "labels", MAIN)


def _scaled(predictions: dict[str, Tensor], logits: str, labels: str, metrics: Sequence[str]) -> dict[str, Any]:
    fit: TemperatureFit = calibration.fit_temperatures(predictions[logits][None], predictions[labels])[0]
    scaled = predictions["logits.clean"].double() / fit.temperature
    found = calibration.evaluate(scaled, predictions["labels"], bins=BINS, metrics=metrics)
    return {
        "temperature": float(fit.temperature),
        "certificate": str(fit),
        "metrics": found.as_dict()["metrics"],
    }


def reliability(predictions: dict[str, Tensor], temperature: float | None) -> dict[str, dict[str, Any] | None]:
    """What reliability diagrams show of clean images, of them at a temperature, and of all shifted ones together."""
    tested = _tested(predictions)
    clean = tested.pop("clean")
    scaled = [] if temperature is None else [clean.double() / temperature]
    return {
        "clean": _curve([clean], predictions["labels"]),
        "after_temperature": _curve(scaled, predictions["labels"]),
        "shifted": _curve(list(tested.values()), predictions["labels"]),
    }


def _curve(parts: list[Tensor], labels: Tensor) -> dict[str, Any] | None:
    if not parts:
        return None
    evaluation = calibration.Evaluation(bins=BINS, metrics=["ece"])
    for logits in parts:
        evaluation.update(logits, labels)
    return evaluation.reliability().as_dict()


def _tested(predictions: dict[str, Tensor]) -> dict[str, Tensor]:
    """The logits of test images by the name of the images."""
    parts = ((name.partition("."), logits) for name, logits in predictions.items())
    return {images: logits for (kind, _, images), logits in parts if kind == "logits" and images != "held_out"}
