"""Which parameters of a network are of which kind: its head, its batch norms' scales and shifts, its convolutions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ..networks import MODELS
from .arms import LAYERS


def parameters_of(model: nn.Module, kind: str) -> list[Tensor]:
    """The parameters of one kind; the head is the last linear layer, with its bias; a "weight" is what is no vector.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    >>> [tuple(parameter.shape) for parameter in parameters_of(model, "head")]
    [(3, 8), (3,)]
    """
    chosen = _of_kind(model, kind)
    if not chosen:
        raise ValueError(f"expected a network with parameters of the kind {kind}, got {type(model).__name__} without")
    return chosen


def _of_kind(model: nn.Module, kind: str) -> list[Tensor]:
    layers = list(model.modules())
    if kind == "head":
        heads = [layer for layer in layers if isinstance(layer, nn.Linear)]
        return list(heads[-1].parameters()) if heads else []
    if kind == "weight":
        return [parameter for parameter in model.parameters() if parameter.ndim > 1]
    if kind == "convolution":
        return [layer.weight for layer in layers if isinstance(layer, _ConvNd)]
    name = {"norm_scale": "weight", "norm_shift": "bias"}[kind]
    norms = [layer for layer in layers if isinstance(layer, _BatchNorm)]
    return [parameter for layer in norms if (parameter := getattr(layer, name)) is not None]


@lru_cache
def kinds_of(model: str) -> Mapping[str, str]:
    """The kinds of a network's parameters by their names, as far as they have one; no memory is spent on weights.

    Nothing for a network that is not ours, which might take other images or look at its weights.

    >>> kinds_of("resnet18")["stem.0.weight"], kinds_of("resnet18")["stem.1.bias"]
    ('convolution', 'norm_shift')
    """
    if model not in MODELS:
        return {}
    with torch.device("meta"):
        network = MODELS[model]((3, 32, 32), 10)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {names[id(parameter)]: kind for kind in LAYERS for parameter in _of_kind(network, kind)}


def decay_groups(model: nn.Module, kind: str) -> list[dict[str, Any]]:
    """Param groups for an optimizer: the parameters of a kind, which decay, and all others, which do not.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    >>> [len(group["params"]) for group in decay_groups(model, "convolution")]
    [1, 5]
    """
    chosen = parameters_of(model, kind)
    known = {id(parameter) for parameter in chosen}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    return [{"params": chosen}, {"params": others, "weight_decay": 0.0}]


def confined_to(model: nn.Module, kind: str) -> Callable[[str, Tensor], bool]:
    """The choice of parameters, as `orthograd.attach` takes it."""
    chosen = {id(parameter) for parameter in parameters_of(model, kind)}
    return lambda name, parameter: id(parameter) in chosen
