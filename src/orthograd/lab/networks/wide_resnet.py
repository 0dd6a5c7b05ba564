"""Wide residual networks: few layers of many channels, with BatchNorm before each convolution.

Reference: Zagoruyko and Komodakis, "Wide Residual Networks", 2016.
"""

from __future__ import annotations

from torch import Tensor, nn

from ...imports import has_triton
from ..kernels.layers import convolved, convolved_norm_relu, sum_norm_relu
from .resnet import Classifier, Shape


def wide_resnet28_10(shape: Shape, classes: int) -> nn.Module:
    """Wide ResNet-28-10: 28 layers, ten times as wide as the thin network of that depth.

    >>> sum(p.numel() for p in wide_resnet28_10((3, 32, 32), 10).parameters())
    36479194
    """
    return WideResNet(4, 10, shape[0], classes)


class Block(nn.Module):
    """x + conv(relu(norm(conv(relu(norm(x)))))), with a convolution as shortcut where the shapes differ."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first_norm = nn.BatchNorm2d(inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(outputs)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = None if is_same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, ways: tuple[Tensor, Tensor | None]) -> tuple[Tensor, Tensor]:
        """Residual and shortcut, which the next norm adds; the shortcut's convolution takes the normalized input."""
        x, normalized = sum_norm_relu(self.first_norm, *ways)
        shortcut: Tensor = x if self.shortcut is None else convolved(self.shortcut, normalized)[0]
        inner, _ = convolved_norm_relu(self.first, self.second_norm, normalized)
        return convolved(self.second, inner)[0], shortcut


class WideResNet(nn.Module):
    """Three stages of ``blocks`` blocks, of 16, 32 and 64 times ``width`` channels."""

    def __init__(self, blocks: int, width: int, channels: int, classes: int) -> None:
        super().__init__()
        self.stem = nn.Conv2d(channels, 16, 3, padding=1, bias=False)
        inputs, stages = 16, []
        for stage in range(3):
            outputs = 16 * width * 2**stage
            for index in range(blocks):
                stages.append(Block(inputs, outputs, 2 if stage > 0 and index == 0 else 1))
                inputs = outputs
        self.blocks = nn.Sequential(*stages)
        self.norm = nn.BatchNorm2d(inputs)
        self.classifier = Classifier(inputs, classes)
        self.apply(_initialize)

    @property
    def has_own_kernels(self) -> bool:
        """See `ResNet.has_own_kernels`."""
        return has_triton()

    def forward(self, images: Tensor) -> Tensor:
        """The logits."""
        _, features = sum_norm_relu(self.norm, *self.blocks((convolved(self.stem, images)[0], None)))
        logits: Tensor = self.classifier(features.mean((2, 3)))
        return logits


def _initialize(layer: nn.Module) -> None:
    if isinstance(layer, nn.Conv2d):
        nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    elif isinstance(layer, nn.Linear):
        nn.init.zeros_(layer.bias)
