"""Predictions of a trained network for clean images, and for distribution shifts at five severities."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache, partial
from itertools import product

import torch
from torch import Tensor, nn

from ..data import Dataset, cifar10c, corruption
from ..data.shifts import SEVERITIES, SHIFTS, shifted
from ..gpu.compilation import forward
from ..gpu.gpu import GPU
from ..gpu.slot import is_full, make_kernels, network_on_gpu
from ..training.config import Config
from ..training.task import Task

Images = tuple[str, Tensor]
BATCH = {"cpu": 1024, "cuda": 5000}


@torch.no_grad()
def predicted(model: nn.Module, task: Task, config: Config, gpu: GPU | None = None) -> dict[str, Tensor]:
    """Logits and labels, on the CPU, for clean test images, every shift at every severity, and held-out images."""
    try:
        return _predicted(model, task, config, gpu)
    except RuntimeError as error:
        if gpu is None or not is_full(error):
            raise
    with gpu.setting_up:
        gpu.drop_slots()  # frees networks that no run is training
    return _predicted(model, task, config, gpu)


def _predicted(model: nn.Module, task: Task, config: Config, gpu: GPU | None) -> dict[str, Tensor]:
    compute = partial(logits, model, task.dataset, config=config, is_compiled=config.shifts == "cifar10c")
    one_at_a_time: AbstractContextManager[object] = gpu.evaluating if gpu else nullcontext()
    setting_up: AbstractContextManager[object] = gpu.setting_up if gpu else nullcontext()
    with one_at_a_time:
        sets = evaluation_images(config, task.dataset, gpu)
        with setting_up:  # the first set may have to compile
            name, images = next(sets)
            tensors = {f"logits.{name}": compute(images)}
        tensors |= {f"logits.{name}": compute(images) for name, images in sets}
        if len(task.held_out_labels):
            tensors["logits.held_out"] = compute(task.held_out_images.to(config.device))
        tensors = {name: values.cpu() for name, values in tensors.items()}
    labels = {"labels": task.dataset.test_labels, "labels.held_out": task.held_out_labels}
    return tensors | {name: values for name, values in labels.items() if len(values)}


@torch.no_grad()
def prepare_prediction(config: Config, gpu: GPU) -> None:
    """Compile the kernels and make the images for evaluating networks of this config, once per GPU."""
    if config.shifts != "cifar10c":
        return
    data = Task.of(config).dataset
    with torch.cuda.stream(torch.cuda.Stream()), gpu.evaluating, gpu.setting_up:
        sets = evaluation_images(config, data, gpu)
        model, (_, images) = network_on_gpu(config, data).eval(), next(sets)
        compute = partial(logits, model, data, images, config, is_compiled=True)
        make_kernels(model, compute)
        compute()
        next(sets, None)  # makes all of them
        torch.cuda.current_stream().synchronize()


def logits(model: nn.Module, data: Dataset, images: Tensor, config: Config, *, is_compiled: bool = False) -> Tensor:
    """Logits in float32, computed in the precision of training; compiled only if the model has no own kernels."""
    size, is_gpu = BATCH[config.device], config.device == "cuda"
    is_compiled = is_compiled and is_gpu and not getattr(model, "has_own_kernels", False)
    layout = torch.channels_last if is_gpu else torch.contiguous_format
    parts = []
    for part in images.split(size):
        compute = forward(config, is_compiled=is_compiled and len(part) == size)
        parts.append(compute(model, data.normalized(part).contiguous(memory_format=layout)))
    return torch.cat(parts)


def evaluation_images(config: Config, data: Dataset, gpu: GPU | None = None) -> Iterator[Images]:
    """Names such as "clean" and "fog.3", and images on the run's device."""
    yield "clean", data.test_images.to(config.device)
    if config.shifts == "simple":
        plain = data.test_images.float() / 255 if data.test_images.dtype == torch.uint8 else data.test_images
        for name in SHIFTS:
            for severity in SEVERITIES:
                yield f"{name}.{severity}", shifted(plain, name, severity=severity).to(config.device)
    elif config.shifts == "cifar10c":
        if gpu is None:
            yield from _corrupted_on_cpu(config.dataset, _Shared(data))
        else:
            key = config.dataset, data.name
            yield from gpu.evaluation_images(key, partial(_corrupted, config.dataset, data, config.device))


def source_of_shifts(config: Config) -> str:
    """Source of the images under shift: "official" files, or "made" before or during the run."""
    if config.shifts == "cifar10c" and _is_read(config.dataset):
        return cifar10c.source() or "made"
    return "none" if config.shifts == "none" else "made"


class _Shared:
    """A data set that hashes by name: each run loads it again, but its test images are the same."""

    def __init__(self, data: Dataset) -> None:
        self.data = data

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shared) and self.data.name == other.data.name

    def __hash__(self) -> int:
        return hash(self.data.name)


@lru_cache(maxsize=1)  # per process: all runs on the CPU use the same images
def _corrupted_on_cpu(dataset: str, shared: _Shared) -> list[Images]:
    return _corrupted(dataset, shared.data, "cpu")


def _corrupted(dataset: str, data: Dataset, device: str) -> list[Images]:
    """The 15 corruptions of CIFAR-10-C at five severities."""
    sets = []
    for name, severity in _ways():
        if _is_read(dataset):
            images = cifar10c.load(name, severity)[0].to(device)
        else:
            images = corruption.corrupt(data.test_images.to(device), name, severity=severity)
        sets.append((f"{name}.{severity}", images))
    return sets


def check_shifts(config: Config, data: Dataset) -> None:
    """Raise before training if a network could not be evaluated on these shifts."""
    if config.shifts == "cifar10c":
        _check_corruptions(config.dataset, _Shared(data))


@lru_cache(maxsize=1)  # per process: the files are the same for both methods
def _check_corruptions(dataset: str, shared: _Shared) -> None:
    if not _is_read(dataset):
        images = shared.data.test_images
        if images.dtype != torch.uint8 or images.dim() != 4 or images.shape[1] != 3:
            raise ValueError(
                "corruptions: expected images of bytes (n, 3, height, width), such as cifar10, got "
                f"{dataset} of {str(images.dtype).removeprefix('torch.')} {tuple(images.shape)}"
            )
        for name in corruption.CORRUPTIONS:
            corruption.corrupt(shared.data.test_images[:1], name, severity=1)
        return
    for name, severity in _ways():
        if (count := len(cifar10c.load(name, severity)[1])) != len(shared.data.test_labels):
            expected = f"{len(shared.data.test_labels)} images under {name}, as there are test images"
            raise ValueError(f"{cifar10c.place()}: expected {expected}, got {count}")


def _ways() -> Iterator[tuple[str, int]]:
    return product(corruption.CORRUPTIONS, SEVERITIES)


def _is_read(dataset: str) -> bool:
    """True if corrupted images of the data set are on disk; only CIFAR-10 can have them."""
    return dataset == "cifar10" and cifar10c.source() is not None
