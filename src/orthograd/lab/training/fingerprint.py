"""The fingerprint of a run: its data, and its network before training, as numbers that a record keeps."""

from __future__ import annotations

import hashlib
import json
import math
import threading
from typing import Any

import torch
from torch import Tensor, nn

from ..data import Dataset
from ..jobs.record import difference
from ..networks import MODELS
from .config import Config
from .task import initial_model, seeded

PROBES = 8  # images

Sketch = list[float]

# Of the process: what a model's name and the data's hash stand for is the same for all of its runs.
_NETWORKS: dict[tuple[str, str], dict[str, Any]] = {}
_LOOKING = threading.Lock()


def fingerprint(config: Config, data: Dataset) -> dict[str, Any]:
    """The hash of all images and labels; the network's parameters, their initial values and its logits at seed 0.

    Images, labels and the shapes of parameters are hashed: they must be the same to the last bit. Of values and logits
    sums and norms are kept, which another machine may round differently. Networks are looked at once a process.
    """
    images = [list(part.shape) for part in (data.train_images, data.test_images)]
    return {"data": data.sha256, "images": images, **_network(config, data)}


def _network(config: Config, data: Dataset) -> dict[str, Any]:
    with _LOOKING:  # runs in other threads need the same one
        key = config.model, data.sha256
        if key not in _NETWORKS:
            _NETWORKS[key] = _look_at_network(config, data)
        return _NETWORKS[key]


def _look_at_network(config: Config, data: Dataset) -> dict[str, Any]:
    config = Config(dataset=config.dataset, model=config.model)
    model = initial_model(config, data)
    if config.model in MODELS:
        return _start_of(config, model, data)
    other, before = initial_model(config, data), _buffers(model)
    start = _start_of(config, other, data)
    _require_own_memory(config, model, other, before)
    if words := difference(start, _start_of(config, model, data)):
        raise ValueError(
            f"expected {config.model} to make the same network each time for the same seed, got {words}: paired runs "
            "need the same start. Draw with torch, which is seeded there, or seed what else draws (numpy, random)"
        )
    return start


def _start_of(config: Config, model: nn.Module, data: Dataset) -> dict[str, Any]:
    parameters = dict(model.named_parameters())
    kinds = [(name, list(each.shape), str(each.dtype), each.requires_grad) for name, each in parameters.items()]
    kinds += [(name, list(each.shape), str(each.dtype), False) for name, each in model.named_buffers()]
    values = {name: _sketch(each) for name, each in parameters.items()}
    logits = _logits(config, model, data)
    for name, sketch in (*values.items(), *(("its logits", sketch) for sketch in logits)):
        if not all(map(math.isfinite, sketch)):
            raise ValueError(f"expected {config.model} to begin with finite numbers, got infinity or NaN in {name}")
    return {
        "parameters": sum(each.numel() for each in parameters.values()),
        "structure": hashlib.sha256(json.dumps(kinds).encode()).hexdigest(),
        "values": values,
        "logits": logits,
    }


def _require_own_memory(config: Config, model: nn.Module, other: nn.Module, before: dict[str, Sketch]) -> None:
    """What learns, weights and what buffers gather when another network runs, must be new; constants may be shared."""
    places = {each.data_ptr() for each in other.parameters() if each.requires_grad and each.numel()}
    shared = [name for name, each in model.named_parameters() if each.data_ptr() in places]
    shared += [name for name, sketch in _buffers(model).items() if sketch != before[name]]
    if shared:
        raise ValueError(
            f"expected {config.model} to make a new network each time, got {shared[0]} in common with the last one: "
            "runs would begin with what others have learned. Make its layers inside the function"
        )


def _buffers(model: nn.Module) -> dict[str, Sketch]:
    return {name: _sketch(each) for name, each in model.named_buffers()}


@torch.no_grad()
def _logits(config: Config, model: nn.Module, data: Dataset) -> list[Sketch]:
    """Of some training images: while training, where dropout shows, then after it, where batch norm's momentum does."""
    images = data.normalized(data.train_images[:PROBES].cpu())
    with seeded(config.seed):
        return [_sketch(each) for logits in (model.train()(images), model.eval()(images)) for each in logits]


def _sketch(values: Tensor) -> Sketch:
    """Sum and norm: another draw of as many values has another sum, by about the norm."""
    plain = torch.view_as_real(values.detach()) if values.is_complex() else values.detach()
    return [float(plain.double().sum()), float(plain.double().norm())]
