"""Residual networks for small images: a first convolution of 3 × 3 that keeps the size, and no pooling behind it.

References: He et al., "Deep Residual Learning for Image Recognition", 2016.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...engine.compilation import has_triton
from ..kernels.eligible import Ways
from ..kernels.layers import walked

Shape = tuple[int, int, int]


def resnet18(shape: Shape, classes: int) -> ResNet:
    """Eight blocks of two convolutions.

    >>> sum(p.numel() for p in resnet18((3, 32, 32), 10).parameters())
    11173962
    """
    return ResNet(Basic, (2, 2, 2, 2), shape[0], classes)


def resnet50(shape: Shape, classes: int) -> ResNet:
    """Sixteen blocks of three convolutions, the middle one a quarter as wide.

    >>> sum(p.numel() for p in resnet50((3, 32, 32), 10).parameters())
    23520842
    """
    return ResNet(Bottleneck, (3, 4, 6, 3), shape[0], classes)


class Block(nn.Module):
    """What is added to a shortcut, which is a convolution where the sizes differ."""

    widening = 1

    def __init__(self, residual: nn.Sequential, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.residual = residual
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*convolution(inputs, outputs, 1, stride))

    def forward(self, ways: Ways) -> Ways:
        """relu(residual(x) + shortcut(x)), of an x that comes both ways, and for the two ways of the next block."""
        x, beside = ways
        shortcut = walked(self.shortcut, beside)[0] if isinstance(self.shortcut, nn.Sequential) else beside
        return walked(self.residual, x, plus=shortcut, relu=True)


class Basic(Block):
    """Two convolutions of 3 × 3."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        residual = nn.Sequential(
            *convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *convolution(width, width, 3)
        )
        super().__init__(residual, inputs, width, stride)


class Bottleneck(Block):
    """Convolutions of 1 × 1, 3 × 3 and 1 × 1, the last one four times as wide."""

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
    """Four stages of blocks, each half as large and twice as wide as the one before."""

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
        self.apply(_initialise)

    @property
    def has_own_kernels(self) -> bool:
        """Whether kernels of ours train and evaluate it on a GPU, so that compiling it is not worth while."""
        return has_triton()

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        features, _ = self.blocks(walked(self.stem, images))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


class Classifier(nn.Linear):
    """The last layer, in its own precision whatever autocast has for the rest: bfloat16 knows a logit of 16 to 0.06."""

    def forward(self, features: Tensor) -> Tensor:
        """The logits."""
        with torch.autocast("cuda", enabled=False):
            return super().forward(features.to(self.weight.dtype))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> tuple[nn.Conv2d, nn.BatchNorm2d]:
    """A convolution that keeps the size but for its stride, and its batch norm."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(outputs)


def _initialise(layer: nn.Module) -> None:
    """As torchvision does: what comes out of a convolution's gradient keeps its variance."""
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
