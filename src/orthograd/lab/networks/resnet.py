"""Residual networks for small images: the first convolution is 3 × 3 with stride 1, without pooling.

Reference: He et al., "Deep Residual Learning for Image Recognition", 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...imports import has_triton
from ..kernels.eligible import Ways
from ..kernels.layers import walked

Shape = tuple[int, int, int]


def resnet18(shape: Shape, classes: int) -> ResNet:
    """ResNet-18: eight blocks of two convolutions.

    >>> sum(p.numel() for p in resnet18((3, 32, 32), 10).parameters())
    11173962
    """
    return ResNet(Basic, (2, 2, 2, 2), shape[0], classes)


def resnet50(shape: Shape, classes: int) -> ResNet:
    """ResNet-50: sixteen blocks of three convolutions, the last one four times as wide.

    >>> sum(p.numel() for p in resnet50((3, 32, 32), 10).parameters())
    23520842
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), shape[0], classes)


class Block(nn.Module):
    """A residual with a shortcut, which is a convolution where the shapes differ."""

    widening = 1

    def __init__(self, residual: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = residual
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, ways: Ways) -> Ways:
        """relu(residual(x) + shortcut(x)), twice: as the next block's input and for its shortcut."""
        x, beside = ways
        shortcut = walked(self.shortcut, beside)[0] if isinstance(self.shortcut, nn.Sequential) else beside
        return walked(self.residual, x, plus=shortcut, relu=True)


class Basic(Block):
    """Block of two 3 × 3 convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        residual = nn.Sequential(
            *convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *convolution(width, width, 3)
        )
        super().__init__(residual, inputs, width, stride)


class Bottleneck(Block):
    """Block of 1 × 1, 3 × 3 and 1 × 1 convolutions, the last one four times as wide."""

    widening = 4

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        residual = nn.Sequential(
            *convolution(inputs, width, 1),
            nn.ReLU(inplace=True),
            *convolution(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *convolution(width, 4 * width, 1),
        )
        super().__init__(residual, inputs, 4 * width, stride)


class ResNet(nn.Module):
    """Four stages of blocks, each with half the resolution and twice the channels of the one before."""

    def __init__(self, block: type[Basic] | type[Bottleneck], blocks: tuple[int, ...], channels: int, classes: int):
        super().__init__()
        self.stem = nn.Sequential(*convolution(channels, 64, 3), nn.ReLU(inplace=True))
        inputs, stages = 64, []
        for stage, count in enumerate(blocks):
            width = 64 * 2**stage
            for index in range(count):
                stages.append(block(inputs, width, 2 if stage > 0 and index == 0 else 1))
                inputs = width * block.widening
        self.blocks = nn.Sequential(*stages)
        self.classifier = Classifier(inputs, classes)
        self.apply(_initialize)

    @property
    def has_own_kernels(self) -> bool:
        """True if it runs on orthograd's own kernels on a GPU, so that compiling it does not pay."""
        return has_triton()

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        features, _ = self.blocks(walked(self.stem, images))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


class Classifier(nn.Linear):
    """The last layer, in float32 also under autocast: bfloat16 resolves a logit of 16 only to 0.06."""

    def forward(self, features: Tensor) -> Tensor:
        """The logits."""
        with torch.autocast("cuda", enabled=False):
            return super().forward(features.to(self.weight.dtype))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """A padded convolution without bias, and its BatchNorm."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)


def _initialize(layer: nn.Module) -> None:
    """Kaiming initialization by fan-out, as in torchvision."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
