"""The layer type of each parameter: head, BatchNorm weight or bias, convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from ..networks import MODELS
from .methods import LAYER_TYPES


def parameters_of(model: nn.Module, layer_type: str) -> list[Tensor]:
    """Parameters of a layer type. The head is the last linear layer with its bias; "weight" means 2-D or more.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    >>> [tuple(parameter.shape) for parameter in parameters_of(model, "head")]
    [(3, 8), (3,)]
    """
    chosen = _of_type(model, layer_type)
    if not chosen:
        raise ValueError(f"expected a network with parameters of type {layer_type}, got {type(model).__name__} without")
    return chosen


def _of_type(model: nn.Module, layer_type: str) -> list[Tensor]:
    layers = list(model.modules())
    if layer_type in ("head", "head_weight"):
        heads = [layer for layer in layers if isinstance(layer, nn.Linear)][-1:]
        return [p for head in heads for p in ([head.weight] if layer_type == "head_weight" else head.parameters())]
    if layer_type == "weight":
        return [parameter for parameter in model.parameters() if parameter.ndim > 1]
    if layer_type == "convolution":
        return [layer.weight for layer in layers if isinstance(layer, _ConvNd)]
    name = {"norm_weight": "weight", "norm_bias": "bias"}[layer_type]
    norms = [layer for layer in layers if isinstance(layer, _BatchNorm)]
    return [parameter for layer in norms if (parameter := getattr(layer, name)) is not None]


@lru_cache
def layer_types_of(model: str) -> Mapping[str, str]:
    """Layer type of each named parameter that has one; weights are not allocated.

    Empty for a network at an import path, which might need other images or real weights.

    >>> layer_types_of("resnet18")["stem.0.weight"], layer_types_of("resnet18")["stem.1.bias"]
    ('convolution', 'norm_bias')
    """
    if model not in MODELS:
        return {}
    with torch.device("meta"):
        network = MODELS[model]((3, 32, 32), 10)
    names = {id(parameter): name for name, parameter in network.named_parameters()}
    return {
        names[id(parameter)]: layer_type for layer_type in LAYER_TYPES for parameter in _of_type(network, layer_type)
    }


def decay_groups(model: nn.Module, layer_type: str) -> list[dict[str, Any]]:
    """Parameter groups for an optimizer: weight decay on one layer type, and none on all other parameters.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    >>> [len(group["params"]) for group in decay_groups(model, "convolution")]
    [1, 5]
    """
    chosen = parameters_of(model, layer_type)
    known = {id(parameter) for parameter in chosen}
    others = [parameter for parameter in model.parameters() if id(parameter) not in known]
    return [{"params": chosen}, {"params": others, "weight_decay": 0.0}]


def confined_to(model: nn.Module, layer_type: str) -> Callable[[str, Tensor], bool]:
    """The ``where`` of `orthograd.attach` that selects one layer type."""
    chosen = {id(parameter) for parameter in parameters_of(model, layer_type)}
    return lambda name, parameter: id(parameter) in chosen
