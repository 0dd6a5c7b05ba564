"""Small networks for small images."""

from __future__ import annotations

import math
from itertools import pairwise

from torch import nn


def cnn(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Two convolutions and two linear layers without BatchNorm: every weight has a radial gradient."""
    return _convolutional(shape, classes, batchnorm=False)


def cnn_batchnorm(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """`cnn` with BatchNorm after each convolution, whose weight gradients are then orthogonal already."""
    return _convolutional(shape, classes, batchnorm=True)


def mlp(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Two hidden layers of 128 units."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(channels * height * width, 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, classes),
    )


def mlp_no_bias(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """Two hidden layers of 200 units without biases, as Prieto et al. train on modular addition."""
    sizes = (math.prod(shape), 200, 200, classes)
    first, second, last = (nn.Linear(inputs, outputs, bias=False) for inputs, outputs in pairwise(sizes))
    return nn.Sequential(nn.Flatten(), first, nn.ReLU(), second, nn.ReLU(), last)


def _convolutional(shape: tuple[int, int, int], classes: int, *, batchnorm: bool) -> nn.Module:
    channels, height, width = shape
    layers: list[nn.Module] = []
    for inputs, outputs in ((channels, 16), (16, 32)):
        layers.append(nn.Conv2d(inputs, outputs, 3, padding=1))
        layers += [nn.BatchNorm2d(outputs)] if batchnorm else []
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    features = 32 * (height // 4) * (width // 4)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, 64), nn.ReLU(), nn.Linear(64, classes))
