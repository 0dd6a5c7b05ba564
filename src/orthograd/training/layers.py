"""Which parameters of a network are of which kind: its head, its batch norms' scales and shifts, its convolutions."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd


def parameters_of(model: nn.Module, kind: str) -> list[Tensor]:
    """The parameters of one kind; the head is the last linear layer, with its bias.

    >>> model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 3))
    >>> [tuple(parameter.shape) for parameter in parameters_of(model, "head")]
    [(3, 8), (3,)]
    """
    layers = list(model.modules())
    if kind == "head":
        heads = [layer for layer in layers if isinstance(layer, nn.Linear)]
        found: list[Tensor] = list(heads[-1].parameters()) if heads else []
    elif kind == "convolution":
        found = [layer.weight for layer in layers if isinstance(layer, _ConvNd)]
    else:
        name = {"norm_scale": "weight", "norm_shift": "bias"}[kind]
        norms = [layer for layer in layers if isinstance(layer, _BatchNorm)]
        found = [parameter for layer in norms if (parameter := getattr(layer, name)) is not None]
    if not found:
        raise ValueError(f"expected a network with parameters of the kind {kind}, got {type(model).__name__} without")
    return found


def confined_to(model: nn.Module, kind: str) -> Callable[[str, Tensor], bool]:
    """The choice of parameters, as `orthograd.attach` takes it."""
    chosen = {id(parameter) for parameter in parameters_of(model, kind)}
    return lambda name, parameter: id(parameter) in chosen
