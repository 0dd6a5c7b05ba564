"""Small networks whose gradients are known."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Vector(nn.Module):
    """Parameters w = (0, 2) and b = 3, with the loss 3 w₁ + 4 w₂ + b²: gradients (3, 4) and 6."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([0.0, 2.0]))
        self.b = nn.Parameter(torch.tensor([3.0]))

    def forward(self, slope: Tensor) -> Tensor:
        return (self.w @ slope + self.b**2).reshape(())


SLOPE = torch.tensor([3.0, 4.0])


def output(model: nn.Module, batch: Tensor) -> Tensor:
    """The loss is what the network says."""
    return model(batch)


def images(count: int = 32) -> tuple[Tensor, Tensor]:
    """Noise with labels, in the shape of the digits."""
    return torch.randn(count, 1, 8, 8), torch.randint(10, (count,))
