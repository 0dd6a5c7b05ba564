"""Parameter shapes of networks that people train, for measuring optimizers without the networks."""

from __future__ import annotations

import torch
from torch import Tensor, nn

Shape = tuple[int, ...]


def resnet18() -> list[Shape]:
    """ResNet-18 for 32×32 images: 62 tensors, 11,173,962 parameters."""
    shapes: list[Shape] = [(64, 3, 3, 3), (64,), (64,)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for block in range(2):
            channels = inputs if block == 0 else outputs
            shapes += [
                (outputs, channels, 3, 3),
                (outputs,),
                (outputs,),
                (outputs, outputs, 3, 3),
                (outputs,),
                (outputs,),
            ]
            if channels != outputs:
                shapes += [(outputs, channels, 1, 1), (outputs,), (outputs,)]
        inputs = outputs
    return [*shapes, (10, 512), (10,)]


def gpt2_small() -> list[Shape]:
    """GPT-2 small: 148 tensors, 124,439,808 parameters."""
    width = 768
    norm: list[Shape] = [(width,), (width,)]
    attention: list[Shape] = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    mlp: list[Shape] = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50257, width), (1024, width), *12 * [*norm, *attention, *norm, *mlp], *norm]


NETWORKS = {"ResNet-18": resnet18, "GPT-2 small": gpt2_small}


def parameters(shapes: list[Shape], device: torch.device) -> list[nn.Parameter]:
    """Random parameters with random gradients."""
    made = [nn.Parameter(_random(shape, device)) for shape in shapes]
    for parameter in made:
        parameter.grad = _random(tuple(parameter.shape), device)
    return made


def _random(shape: Shape, device: torch.device) -> Tensor:
    return torch.randn(shape, device=device) * 0.02
