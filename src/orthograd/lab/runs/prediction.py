"""What a trained network says of the images that it is judged by."""

from __future__ import annotations

from functools import partial
from threading import Lock

import torch
from torch import Tensor, nn

from ..data import Dataset
from ..gpu.compilation import SETTING_UP, forward
from ..gpu.slots import SLOTS, is_full, make_kernels, network_on_gpu
from ..training.config import Config
from ..training.task import Task
from .judgement import judged_by

BATCH = {"cpu": 1024, "cuda": 5000}
# Runs that began together end together: one after another they fall out of step, and some train while one is judged.
_ONE_AT_A_TIME = Lock()


@torch.no_grad()
def predicted(model: nn.Module, task: Task, config: Config) -> dict[str, Tensor]:
    """Logits and labels, on the CPU: of clean test images, of every shift at every severity, of held-out images."""
    try:
        return _predicted(model, task, config)
    except RuntimeError as error:
        if config.device == "cpu" or not is_full(error):
            raise
    with SETTING_UP:
        SLOTS.drop()  # networks that nobody trains make room
    return _predicted(model, task, config)


def _predicted(model: nn.Module, task: Task, config: Config) -> dict[str, Tensor]:
    answer = partial(logits, model, task.dataset, config=config, is_compiled=config.shifts == "cifar10c")
    with _ONE_AT_A_TIME:
        sets = judged_by(config, task.dataset)
        with SETTING_UP:  # the first set may have to compile
            name, images = next(sets)
            tensors = {f"logits.{name}": answer(images)}
        tensors |= {f"logits.{name}": answer(images) for name, images in sets}
        if len(task.held_out_labels):
            tensors["logits.held_out"] = answer(task.held_out_images.to(config.device))
        tensors = {name: values.cpu() for name, values in tensors.items()}
    labels = {"labels": task.dataset.test_labels, "labels.held_out": task.held_out_labels}
    return tensors | {name: values for name, values in labels.items() if len(values)}


@torch.no_grad()
def prepare(config: Config) -> None:
    """Do what judging networks of this kind on a GPU takes but once: kernels, and images."""
    if config.shifts != "cifar10c":
        return
    data = Task.of(config).dataset
    with torch.cuda.stream(torch.cuda.Stream()), _ONE_AT_A_TIME, SETTING_UP:
        sets = judged_by(config, data)
        model, (_, images) = network_on_gpu(config, data).eval(), next(sets)
        answer = partial(logits, model, data, images, config, is_compiled=True)
        make_kernels(model, answer)
        answer()
        next(sets, None)  # makes all of them
        torch.cuda.current_stream().synchronize()


def logits(model: nn.Module, data: Dataset, images: Tensor, config: Config, *, is_compiled: bool = False) -> Tensor:
    """The network's logits in float32, in the precision of its training; compiled at most where it has no kernels."""
    size, is_gpu = BATCH[config.device], config.device == "cuda"
    is_compiled = is_compiled and is_gpu and not getattr(model, "has_own_kernels", False)
    layout = torch.channels_last if is_gpu else torch.contiguous_format
    found = []
    for part in images.split(size):
        compute = forward(config, is_compiled=is_compiled and len(part) == size)
        found.append(compute(model, data.normalised(part).contiguous(memory_format=layout)))
    return torch.cat(found)
