"""The runs of a comparison, checked before any is trained, and the time that one takes."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..data.corruption import CORRUPTIONS, SEVERITIES
from ..files import FileError
from ..jobs.executors import Executor, execute
from ..jobs.files import JsonObject, read_object
from ..jobs.jobs import Grid
from ..jobs.record import CONFIG, SAME_EACH_TIME, Fingerprint, difference, fingerprint_of
from ..jobs.store import RunFolder, Store
from ..runs.evaluation import evaluation
from ..runs.prediction import check_shifts, predicted
from ..runs.run import device_of, diagnosed, training
from ..training.config import Config
from ..training.fingerprint import fingerprint
from ..training.loop import Report
from ..training.methods import method_named
from ..training.task import Task, initial_model

TRIAL = 8  # images
TIMED = 4  # batches
TESTED = 1000  # images
SECONDS = 1.5


def planned(base: Config, seeds: range, methods: tuple[str, str], store: Store) -> tuple[Grid, Fingerprint]:
    """The runs seed by seed, so that pairs are complete early, and the fingerprint of their network and data.

    Raises ValueError where a run cannot be trained, or where stored runs have another network or other data.
    """
    if methods[0] == methods[1]:
        raise ValueError(f"expected two different methods, got {methods[0]} twice")
    configs = [dataclasses.replace(base, method=method, seed=seed) for seed in seeds for method in methods]
    now, again = (trial(config) for config in configs[:2])
    if words := difference(now, again):
        raise ValueError(
            f"expected {base.dataset} to give the same images and labels each time, because runs that share a seed are "
            f"paired; got {words}: {SAME_EACH_TIME}"
        )
    _require_same_as_before(configs[0], store, now)
    return Grid(config.as_dict() for config in configs), now


def trial(config: Config) -> Fingerprint:
    """The fingerprint of a run, after a trial forward pass; ValueError where it cannot be trained."""
    method_named(config.method)
    task = Task.of(config)
    config.batches_of(len(task.labels))
    model, images = initial_model(config, task.dataset), task.dataset.normalized(task.images[:TRIAL])
    for name, parameter in model.named_parameters():
        if isinstance(parameter, torch.nn.UninitializedParameter):
            expected = f"expected {config.model} to have parameters whose shapes are known"
            raise ValueError(f"{expected}, got {name} without: use Linear instead of LazyLinear")
    if not _logits(config, model.train(), images, task.dataset.classes).requires_grad:
        raise ValueError(f"expected {config.model} to have trainable parameters, got none that its logits depend on")
    with torch.no_grad():
        _logits(config, model.eval(), images, task.dataset.classes)
    check_shifts(config, task.dataset)
    return fingerprint(config, task.dataset)


def _logits(config: Config, model: torch.nn.Module, images: torch.Tensor, classes: int) -> torch.Tensor:
    """The logits of the trial, checked for their shape."""
    expected, when = (len(images), classes), "in training" if model.training else "in evaluation"
    try:
        logits = model(images.clone())
    except RuntimeError as error:
        raise ValueError(f"expected {config.model} to take images {tuple(images.shape)}, got {error}") from error
    if not isinstance(logits, torch.Tensor) or logits.shape != expected:
        actual = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ValueError(f"expected {config.model} to give logits {expected} {when}, got {actual}")
    return logits


def _require_same_as_before(config: Config, store: Store, now: Fingerprint) -> None:
    """Raise ValueError where stored runs with the same settings have another network or other data."""
    shared = _shared(config.as_dict())
    for path in sorted(store.folder.glob(f"*/{CONFIG}")):
        before: Fingerprint = {}
        with suppress(FileError):  # the plan names broken files
            stored = read_object(path)
            before = _known(store.get(stored)) if _shared(stored) == shared else {}
        if words := difference(before, now):
            raise ValueError(
                f"{path.parent}: expected a run of {config.model} on {config.dataset} as they are now, "
                f"got {words} now. Nothing was written. Use another --out for the new code, or restore the old code to "
                f"continue here. If the code is unchanged, it is not deterministic: {SAME_EACH_TIME}"
            )


def _shared(config: dict[str, Any]) -> dict[str, Any]:
    return config | {"method": None, "seed": None}


def _known(run: RunFolder) -> Fingerprint:
    """The fingerprint stored with a run, finished or not."""
    if run.is_finished:
        return fingerprint_of(run.record())
    fingerprint_then: Fingerprint = (run.load_checkpoint() or ({}, {}))[1].get("fingerprint", {})
    return fingerprint_then


def seconds_per_run(config: Config) -> float:
    """The estimated training time of a run alone, from three short epochs on its device and in its precision.

    The first epoch is a warm-up. On a CPU an epoch is a few batches.
    """
    whole = Task.of(config)
    task = whole if config.device == "cuda" else _part(whole, config)
    ends: list[float] = []

    def note(_: dict[str, Any]) -> None:
        ends.append(time.perf_counter())

    with device_of(config) as gpu, training(dataclasses.replace(config, epochs=3), task, gpu, report=note):
        seconds = (ends[-1] - ends[0]) / 2
    return seconds * config.epochs * len(whole.labels) / len(task.labels)


def seconds_on_cores(grid: Grid, executor: Executor, at_once: int) -> tuple[float, float]:
    """The estimated seconds of a run on a CPU, and those that pass before the first one begins.

    Runs of both methods are timed, as many at once as there will be: they share cores.
    """
    count = min(len(grid), max(2, at_once + at_once % 2))
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        timed = execute([grid[index] for index in range(count)], timed_run, Store(Path(folder)), executor=executor)
        passed = time.perf_counter() - begun
    start = passed - sum(each["passed"] for each in timed) / min(at_once, count)
    return sum(each["seconds"] for each in timed) / count, max(0.0, start)


def timed_run(settings: JsonObject, folder: RunFolder, report: Report) -> dict[str, Any]:
    """The estimated seconds of a run on a CPU with its checkpoints and evaluation, and those that passed here.

    It trains for about `SECONDS` on a few batches, and evaluates on some test images. CIFAR-10-C is neither made nor
    read: each of its sets counts as another one of clean images.
    """
    begun, config = time.perf_counter(), Config.from_dict(settings)
    whole = Task.of(config)
    task, keeper, sets = _part(whole, config), _Clock(folder), 1
    if config.shifts == "cifar10c":
        config, sets = dataclasses.replace(config, shifts="none"), 1 + len(CORRUPTIONS) * len(SEVERITIES)
    loaded, ends = time.perf_counter(), list[float]()
    with training(
        dataclasses.replace(config, epochs=2), task, None, report=lambda _: ends.append(time.perf_counter())
    ):  # a warm-up
        epochs = max(1, min(config.epochs, int(SECONDS / (ends[1] - ends[0]))))
    ready = time.perf_counter()
    with training(dataclasses.replace(config, epochs=epochs), task, None, keeper=keeper) as trained:
        ended = time.perf_counter()
        evaluation(predicted(trained.model, task, config))
        diagnosed(config, task, trained.model, None)
    stopped = time.perf_counter()
    steps = (ended - ready - keeper.seconds) * len(whole.labels) / len(task.labels)
    tested = (stopped - ended) * sets * len(whole.dataset.test_labels) / len(task.dataset.test_labels)
    seconds = loaded - begun + (steps + keeper.seconds) * config.epochs / epochs + tested
    return {"seconds": seconds, "passed": loaded - begun + stopped - ready}  # the warm-up is part of the start


def _part(whole: Task, config: Config) -> Task:
    """The first few batches, and some of the test images."""
    count, data = TIMED * config.batch_size, whole.dataset
    every = -(-len(data.test_labels) // TESTED)
    data = dataclasses.replace(data, test_images=data.test_images[::every], test_labels=data.test_labels[::every])
    return dataclasses.replace(whole, dataset=data, images=whole.images[:count], labels=whole.labels[:count])


class _Clock:
    """Keeps checkpoints in a folder; the seconds that this has taken."""

    def __init__(self, folder: RunFolder) -> None:
        self.seconds, self._folder = 0.0, folder

    def save_checkpoint(self, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
        begun = time.perf_counter()
        self._folder.save_checkpoint(tensors, state)
        self.seconds += time.perf_counter() - begun

    def load_checkpoint(self) -> None:
        """None: these runs are not resumed."""
