"""Fingerprint of a run: hashes and sums of its data and its initial network, kept in its record."""

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

# One cache per process: a model's name and the data's hash mean the same for all of its runs.
_NETWORKS: dict[tuple[str, str], dict[str, Any]] = {}
_EXAMINING = threading.Lock()


def fingerprint(config: Config, data: Dataset) -> dict[str, Any]:
    """Hash of all images and labels; the network's parameters, their initial values and its logits at seed 0.

    Images, labels and the shapes of parameters are hashed: they must be equal bit for bit. For values and logits, sums
    and norms are kept, which another machine may round differently. Each network is examined once per process.
    """
    images = [list(part.shape) for part in (data.train_images, data.test_images)]
    return {"data": data.sha256, "images": images, **_network(config, data)}


def _network(config: Config, data: Dataset) -> dict[str, Any]:
    with _EXAMINING:  # runs in other threads use the same one
        key = config.model, data.sha256
        if key not in _NETWORKS:
            _NETWORKS[key] = _examined(config, data)
        return _NETWORKS[key]


def _examined(config: Config, data: Dataset) -> dict[str, Any]:
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
            "need the same start. Draw with torch, which is seeded there, or seed the other sources (numpy, random)"
        )
    return start


def _start_of(config: Config, model: nn.Module, data: Dataset) -> dict[str, Any]:
    parameters = dict(model.named_parameters())
    structure = [(name, list(each.shape), str(each.dtype), each.requires_grad) for name, each in parameters.items()]
    structure += [(name, list(each.shape), str(each.dtype), False) for name, each in model.named_buffers()]
    values = {name: _sketch(each) for name, each in parameters.items()}
    logits = _logits(config, model, data)
    for name, sketch in (*values.items(), *(("its logits", sketch) for sketch in logits)):
        if not all(map(math.isfinite, sketch)):
            raise ValueError(f"expected {config.model} to begin with finite numbers, got infinity or NaN in {name}")
    return {
        "parameters": sum(each.numel() for each in parameters.values()),
        "structure": hashlib.sha256(json.dumps(structure).encode()).hexdigest(),
        "values": values,
        "logits": logits,
    }


def _require_own_memory(config: Config, model: nn.Module, other: nn.Module, before: dict[str, Sketch]) -> None:
    """Raise if two networks share trainable parameters or updated buffers; constants may be shared."""
    places = {each.data_ptr() for each in other.parameters() if each.requires_grad and each.numel()}
    shared = [name for name, each in model.named_parameters() if each.data_ptr() in places]
    shared += [name for name, sketch in _buffers(model).items() if sketch != before[name]]
    if shared:
        raise ValueError(
            f"expected {config.model} to make a new network each time, got {shared[0]} in common with the last one: "
            "runs would start from weights that others have trained. Make its layers inside the function"
        )


def _buffers(model: nn.Module) -> dict[str, Sketch]:
    return {name: _sketch(each) for name, each in model.named_buffers()}


@torch.no_grad()
def _logits(config: Config, model: nn.Module, data: Dataset) -> list[Sketch]:
    """Logits of some training images in train mode, which shows dropout, then in eval mode, which shows BatchNorm."""
    images = data.normalized(data.train_images[:PROBES].cpu())
    with seeded(config.seed):
        return [_sketch(each) for logits in (model.train()(images), model.eval()(images)) for each in logits]


def _sketch(values: Tensor) -> Sketch:
    """Sum and norm; the sum of another draw of as many values differs by about the norm."""
    plain = torch.view_as_real(values.detach()) if values.is_complex() else values.detach()
    return [float(plain.double().sum()), float(plain.double().norm())]
