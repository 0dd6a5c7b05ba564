"""What a run was made of, as numbers that a record keeps: its data, and its network before training.

A config names functions. What they give may change behind their names, or with every call; then runs of one config are
not alike, and no difference between them is one between methods.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..datasets import Dataset
from ..models import MODELS
from .config import Config
from .task import initial_model, seeded

PROBES = 8  # images
ROUNDING, ROUNDING_OF_LOGITS = 1e-4, 1e-2
"""Relative differences that other CPUs and versions of torch may make; logits have gone through many layers."""
SAME_EACH_TIME = "draw with a seed (torch.Generator().manual_seed(0)), or save what was drawn once and load it"
"""What to do with a data function that gives something else each time."""

Fingerprint = Mapping[str, Any]
Sketch = list[float]

_NETWORKS: dict[tuple[str, str], dict[str, Any]] = {}
_LOOKING = threading.Lock()


def fingerprint(config: Config, data: Dataset) -> dict[str, Any]:
    """The hash of all images and labels; the network's parameters, their initial values and its logits at seed 0.

    Images, labels and the shapes of parameters are hashed: they must be the same to the last bit. Of values and logits
    sums and norms are kept, which another machine may round differently. Networks are looked at once a process.
    """
    images = [list(part.shape) for part in (data.train_images, data.test_images)]
    return {"data": data.sha256, "images": images, **_network(config, data)}


def fingerprint_of(record: Mapping[str, Any]) -> Fingerprint:
    """That of a record; those of earlier versions have the number of parameters alone."""
    found: Fingerprint = record.get("fingerprint") or {name: record[name] for name in ("parameters",) if name in record}
    return found


def difference(one: Fingerprint, other: Fingerprint) -> str:
    """What sets two of them apart, as far as both tell; nothing where that is no more than rounding.

    >>> difference({"parameters": 275}, {"parameters": 17411})
    'another network: 275 parameters, and 17,411'
    >>> difference({"parameters": 275}, {})
    ''
    """
    shared = one.keys() & other.keys()
    if "data" in shared and one["data"] != other["data"]:
        return f"other data: {_words(one)}, and {_words(other)}"
    if "parameters" in shared and one["parameters"] != other["parameters"]:
        return f"another network: {one['parameters']:,} parameters, and {other['parameters']:,}"
    if "structure" not in shared:
        return ""
    if one["structure"] != other["structure"]:
        return "another network: other names, shapes or kinds of its parameters"
    for name, sketch in one["values"].items():
        if not _agree(sketch, other["values"][name], ROUNDING):
            return f"another network: other initial values of {name}"
    logits = zip(one.get("logits", ()), other.get("logits", ()), strict=False)
    if not all(_agree(*pair, ROUNDING_OF_LOGITS) for pair in logits):
        return "another network: with the same initial values other logits"
    return ""


def _network(config: Config, data: Dataset) -> dict[str, Any]:
    with _LOOKING:  # runs in other threads need the same one
        key = config.model, data.sha256
        if key not in _NETWORKS:
            _NETWORKS[key] = _look_at_network(config, data)
        return _NETWORKS[key]


def _look_at_network(config: Config, data: Dataset) -> dict[str, Any]:
    config = Config(dataset=config.dataset, model=config.model)
    model = initial_model(config, data)
    found = _start_of(model)
    _require_finite(config, found["values"].items())
    if config.model not in MODELS:
        _require_same_for_a_seed(config, model, found, initial_model(config, data))
    found["logits"] = _logits(config, model, data)
    _require_finite(config, (("its logits", sketch) for sketch in found["logits"]))
    return found


def _require_finite(config: Config, sketches: Iterable[tuple[str, Sketch]]) -> None:
    for name, sketch in sketches:
        if not all(map(math.isfinite, sketch)):
            raise ValueError(f"expected {config.model} to begin with finite numbers, got infinity or NaN in {name}")


def _start_of(model: nn.Module) -> dict[str, Any]:
    parameters = dict(model.named_parameters())
    kinds = [(name, list(each.shape), str(each.dtype), each.requires_grad) for name, each in parameters.items()]
    kinds += [(name, list(each.shape), str(each.dtype), False) for name, each in model.named_buffers()]
    return {
        "parameters": sum(each.numel() for each in parameters.values()),
        "structure": hashlib.sha256(json.dumps(kinds).encode()).hexdigest(),
        "values": {name: _sketch(each) for name, each in parameters.items()},
    }


def _require_same_for_a_seed(config: Config, model: nn.Module, found: Fingerprint, again: nn.Module) -> None:
    places = {each.data_ptr() for each in again.parameters() if each.numel()}
    if shared := [name for name, each in model.named_parameters() if each.data_ptr() in places]:
        raise ValueError(
            f"expected {config.model} to make a new network each time, got one that shares the memory of {shared[0]} "
            "with the last: runs would begin with what others have learned. Make its layers inside the function"
        )
    if words := difference(found, _start_of(again)):
        raise ValueError(
            f"expected {config.model} to make the same network each time for the same seed, got {words}: paired runs "
            "need the same start. Draw with torch, which is seeded there, or seed what else draws (numpy, random)"
        )


@torch.no_grad()
def _logits(config: Config, model: nn.Module, data: Dataset) -> list[Sketch]:
    """Of some training images: while training, where dropout shows, then after it, where batch norm's momentum does."""
    images = data.normalised(data.train_images[:PROBES].cpu())
    with seeded(config.seed):
        return [_sketch(each) for logits in (model.train()(images), model.eval()(images)) for each in logits]


def _sketch(values: Tensor) -> Sketch:
    """Sum and norm: another draw of as many values has another sum, by about the norm."""
    plain = torch.view_as_real(values.detach()) if values.is_complex() else values.detach()
    return [float(plain.double().sum()), float(plain.double().norm())]


def _agree(one: Iterable[float], other: Iterable[float], tolerance: float) -> bool:
    pairs = list(zip(one, other, strict=True))
    scale = max(abs(number) for pair in pairs for number in pair)
    return all(abs(left - right) <= tolerance * scale for left, right in pairs)


def _words(found: Fingerprint) -> str:
    train, test = found["images"]
    return f"{train[0]} + {test[0]} images of {' × '.join(map(str, train[1:]))} with SHA-256 {found['data'][:8]}…"
