"""One run of a comparison: train, predict, evaluate, record."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ...diagnosis import Pass, chosen_samples, recorded_diagnosis
from ..gpu.compilation import autocast
from ..gpu.gpu import GPU
from ..gpu.slot import make_kernels, network_on_gpu
from ..jobs.files import JsonObject
from ..jobs.record import SAME_EACH_TIME, Fingerprint, difference
from ..training.config import Config
from ..training.fingerprint import fingerprint
from ..training.loop import Keeper, Report, Trained, train_by
from ..training.methods import method_named
from ..training.steps import EagerSteps, Steps, loss, one_hot
from ..training.task import Task, initial_model
from ..versions import versions
from .evaluation import BINS, Helpers, evaluation_by
from .prediction import predicted, source_of_shifts


class Folder(Keeper, Protocol):
    """Storage for checkpoints and predictions of a run: a `RunFolder` of the store."""

    def write_tensors(self, name: str, content: dict[str, Tensor]) -> Path:
        """Write tensors under a name; return their path."""


def run(
    settings: JsonObject,
    folder: Folder,
    report: Report,
    *,
    expected: Fingerprint | None = None,
    gpu: GPU | None = None,
    helpers: Helpers | None = None,
) -> dict[str, Any]:
    """Train the network of a config, from its checkpoint if there is one, evaluate it, and return its record.

    Args:
        settings: A `Config` as plain data.
        folder: Keeps checkpoints and predictions.
        report: Called after each epoch.
        expected: The fingerprint that all runs of a comparison share; another one raises ValueError.
        gpu: The open GPU that concurrent runs share. Without it, a run on a GPU opens one.
        helpers: Processes that evaluate predictions; by default this one does.
    """
    made_by = versions()  # before training: files of the source may change meanwhile
    config = Config.from_dict(settings)
    task = Task.of(config)
    start = fingerprint(config, task.dataset)
    if words := difference(expected or {}, start):
        raise ValueError(f"expected the data and network of the other runs, got {words}: {SAME_EACH_TIME}")
    with device_of(config, gpu) as device, training(config, task, device, keeper=folder, report=report) as trained:
        predictions = predicted(trained.model, task, config, device)
        parameters = torch.cat([parameter.detach().flatten() for parameter in trained.model.parameters()])
        diagnosis = diagnosed(config, task, trained.model, device)
    path = folder.write_tensors("predictions", predictions)
    record = {
        "evaluated": {
            "samples": len(predictions["labels"]),
            "classes": predictions["logits.clean"].shape[1],
            "bins": BINS,
        },
        **evaluation_by(helpers, path, predictions),
        "losses": trained.losses,
        "weight_norm": float(parameters.double().norm()),
        "parameters": parameters.numel(),
        "fingerprint": start,
        "diagnosis": diagnosis,
        "versions": made_by,
        "hardware": hardware(config),
        "shifts": source_of_shifts(config),
    }
    return record | clocks(trained.stretches)


def device_of(config: Config, gpu: GPU | None = None) -> AbstractContextManager[GPU | None]:
    """The given GPU, or one opened for the block; None for a run on the CPU."""
    if config.device == "cpu":
        return nullcontext()
    return GPU(config.precision) if gpu is None else nullcontext(gpu)


@contextmanager
def training(
    config: Config, task: Task, gpu: GPU | None, *, keeper: Keeper | None = None, report: Report = lambda _: None
) -> Iterator[Trained]:
    """Train to the last epoch: see `train_by`. On a GPU the network is valid only inside the block.

    A new slot captures the CUDA graphs of its steps before it is lent: `Slot.capture`.
    """
    begun = time.time()
    steps: AbstractContextManager[Steps] = (
        nullcontext(EagerSteps(config, task)) if gpu is None else gpu.slot(config, task, waits=True)
    )
    with steps as taken:
        yield train_by(taken, config, task, begun=begun, keeper=keeper, report=report)


def clocks(stretches: list[list[float]]) -> dict[str, Any]:
    """Seconds of training, over all stretches, and of the evaluation, which ends now."""
    ended = max(time.time(), stretches[-1][1])
    seconds = {"training": sum(end - begin for begin, end in stretches), "evaluation": ended - stretches[-1][1]}
    return {"seconds": seconds, "stretches": stretches, "ended": ended}


def diagnosed(config: Config, task: Task, model: nn.Module, gpu: GPU | None) -> dict[str, Any]:
    """Diagnosis of where ⊥Grad acts, before the first step and after the last, on some training images."""
    if gpu is None:
        return _diagnosed(config, task, model, nullcontext(), _as_it_is)
    return _diagnosed(config, task, model, gpu.diagnosing, gpu.replayed)


def prepare_diagnosis(config: Config, gpu: GPU) -> None:
    """Compile the kernels for diagnosing networks of this config on a GPU."""
    task = Task.of(config)
    model = network_on_gpu(config, task.dataset)
    make_kernels(model, lambda: _diagnosed(config, task, model, gpu.diagnosing, _as_it_is))


def _as_it_is(taken: Pass) -> Pass:
    return taken


def _diagnosed(
    config: Config,
    task: Task,
    model: nn.Module,
    one_at_a_time: AbstractContextManager[object],
    repeated: Callable[[Pass], Pass],
) -> dict[str, Any]:
    rows, method = chosen_samples(len(task.labels)), method_named(config.method)
    start = initial_model(config, task.dataset).to(config.device)
    images = task.dataset.normalized(task.images[rows].to(config.device))
    targets = one_hot(task)[rows].to(config.device)
    with one_at_a_time, autocast(config.precision):
        return recorded_diagnosis(
            start, model, lambda logits, wanted: loss(method, logits, wanted), images, targets, repeated=repeated
        )


def hardware(config: Config) -> dict[str, Any]:
    """Hardware that trained and evaluated the network."""
    machine = {"machine": platform.machine(), "threads": torch.get_num_threads()}
    return machine | {"gpu": torch.cuda.get_device_name()} if config.device == "cuda" else machine
