"""What the draws of an epoch do to images, against the same done image by image."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from orthograd.datasets import Dataset
from orthograd.training import ARMS, Config
from orthograd.training.draws import Draws
from orthograd.training.preparation import cropped, prepared

CROPPED = Config(augmentation="crop_flip", batch_size=16)


def by_hand(image: torch.Tensor, top: int, left: int, is_flipped: bool) -> torch.Tensor:
    canvas = torch.zeros(image.shape[0], image.shape[1] + 8, image.shape[2] + 8, dtype=image.dtype)
    canvas[:, 4:-4, 4:-4] = image
    crop = canvas[:, top : top + image.shape[1], left : left + image.shape[2]]
    return crop.flip(2) if is_flipped else crop


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crops_and_flips_are_those_of_one_image_at_a_time(dtype):
    images = (255 * torch.rand(40, 3, 9, 7, generator=torch.Generator().manual_seed(0))).to(dtype)
    draws = Draws.of(CROPPED, ARMS["baseline"], 40, torch.Generator().manual_seed(1))
    found = cropped(images, draws.offsets, draws.is_flipped)
    assert found.dtype == dtype
    for image, (top, left), flip, one in zip(images, draws.offsets.tolist(), draws.is_flipped, found, strict=True):
        assert torch.equal(one, by_hand(image, top, left, bool(flip)))


def test_every_crop_and_both_directions_come_about_equally_often():
    generator = torch.Generator().manual_seed(0)
    draws = [Draws.of(CROPPED, ARMS["baseline"], 1000, generator) for _ in range(9)]
    offsets = torch.cat([draw.offsets for draw in draws])
    for axis in (0, 1):
        counts = torch.bincount(offsets[:, axis], minlength=9)
        assert len(counts) == 9
        assert float((counts - 1000).abs().max()) < 5 * (1000 * 8 / 9) ** 0.5
    flips = torch.cat([draw.is_flipped for draw in draws]).sum()
    assert abs(float(flips) - 4500) < 5 * (9000 / 4) ** 0.5


def test_an_epoch_has_every_image_once_and_black_margins_are_black_before_normalisation():
    images = torch.full((32, 2, 8, 8), 255, dtype=torch.uint8)
    data = Dataset("white", images, torch.zeros(32).long(), images, torch.zeros(32).long(), 2, (0.5, 0.25), (0.25, 0.5))
    draws = Draws.of(CROPPED, ARMS["baseline"], 32, torch.Generator().manual_seed(0))
    assert sorted(draws.rows.tolist()) == list(range(32))
    values, _ = prepared(data, images, torch.eye(32), draws, 16)
    assert set(values[:, 0].unique().tolist()) == {-2.0, 2.0}
    assert set(values[:, 1].unique().tolist()) == {-0.5, 1.5}


def test_draws_without_augmentation_are_an_order_alone():
    draws = Draws.of(dataclasses.replace(CROPPED, augmentation="none"), ARMS["orthograd"], 5, torch.Generator())
    assert [draws.offsets, draws.is_flipped, draws.partners, draws.shares] == [None] * 4
