"""The convolutions of a network alone."""

from __future__ import annotations

import torch

from orthograd.lab.bench.convolutions import products
from orthograd.lab.networks import resnet18


def test_each_convolution_is_a_step_forward_and_one_back_again_and_again():
    model, images = resnet18((3, 8, 8), 10), torch.zeros(2, 3, 8, 8)
    for _ in range(2):  # concurrent runs have several, from one network
        result = [step() for step in products(model, images, torch.bfloat16, "cpu")]
        assert len(result) == 2 * 20
        assert result[0].shape == (2, 64, 8, 8)
        of_images, of_weights, _ = result[-1]
        assert of_images is None
        assert of_weights.shape == (64, 3, 3, 3)
