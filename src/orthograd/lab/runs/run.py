"""What every run of a comparison does: train, predict, evaluate, and say all of it in a record."""

from __future__ import annotations

import platform
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ... import __version__
from ...diagnosis import Pass, chosen_samples, recorded_diagnosis
from ..gpu.precision import autocast, ensured
from ..gpu.slots import make_kernels, network_on_gpu, replayed
from ..jobs.record import SAME_EACH_TIME, Fingerprint, difference
from ..training.arms import arm_named
from ..training.checkpoint import Keeper
from ..training.config import Config
from ..training.fingerprint import fingerprint
from ..training.objective import loss
from ..training.steps import one_hot
from ..training.task import Task, initial_model
from .judgement import source_of_shifts
from .measuring import BINS, measured_in
from .prediction import predicted
from .training import training

_DIAGNOSING = threading.Lock()
"""Held by the one run of a process that is at it: thousands of small launches, for which threads would queue."""


class Folder(Keeper, Protocol):
    """Where a run keeps what it makes: a `RunFolder` of the store."""

    def write_tensors(self, name: str, content: dict[str, Tensor]) -> Path:
        """Keep tensors under a name; where they lie."""


def run(
    config: dict[str, Any],
    folder: Folder,
    report: Callable[[dict[str, Any]], None],
    *,
    expected: Fingerprint | None = None,
) -> dict[str, Any]:
    """Train the network of a config, from its checkpoint if there is one; the record says how it went.

    Where a fingerprint is expected, which all runs of a comparison share, another one is refused.
    """
    settings = Config.from_dict(config)
    task = Task.of(settings)
    start = fingerprint(settings, task.dataset)
    if words := difference(expected or {}, start):
        raise ValueError(f"expected what the runs beside this one have, got here {words}: {SAME_EACH_TIME}")
    exactly = ensured(settings.precision) if settings.device == "cuda" else nullcontext()
    with exactly, training(settings, task, keeper=folder, report=report) as trained:
        predictions = predicted(trained.model, task, settings)
        parameters = torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()])
        diagnosis = diagnosed(settings, task, trained.model)
    path = folder.write_tensors("predictions", predictions)
    record = {
        "evaluated": {
            "samples": len(predictions["labels"]),
            "classes": predictions["logits.clean"].shape[1],
            "bins": BINS,
        },
        **measured_in(path, predictions),
        "losses": trained.losses,
        "weight_norm": float(parameters.double().norm()),
        "parameters": parameters.numel(),
        "fingerprint": start,
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
    if config.device != "cuda":
        return _diagnosed(config, task, model, lambda taken: taken)
    return _diagnosed(config, task, model, replayed)


def prepare_diagnosis(config: Config) -> None:
    """Make the kernels that diagnosing networks of this kind on a GPU takes."""
    task = Task.of(config)
    model = network_on_gpu(config, task.dataset)
    make_kernels(model, lambda: _diagnosed(config, task, model, lambda taken: taken))


def _diagnosed(config: Config, task: Task, model: nn.Module, repeated: Callable[[Pass], Pass]) -> dict[str, Any]:
    rows, arm = chosen_samples(len(task.labels)), arm_named(config.arm)
    start = initial_model(config, task.dataset).to(config.device)
    images = task.dataset.normalised(task.images[rows].to(config.device))
    targets = one_hot(task)[rows].to(config.device)
    with _DIAGNOSING, autocast(config.precision):
        return recorded_diagnosis(
            start, model, lambda logits, wanted: loss(arm, logits, wanted), images, targets, repeated=repeated
        )


def hardware(config: Config) -> dict[str, Any]:
    """What trained and judged the network."""
    found = {"machine": platform.machine(), "threads": torch.get_num_threads()}
    return found | {"gpu": torch.cuda.get_device_name()} if config.device == "cuda" else found
