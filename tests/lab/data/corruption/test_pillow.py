"""JPEG and box filter equal Pillow's, value by value."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

from orthograd.lab.data.corruption.digital import resized
from orthograd.lab.data.corruption.jpeg import cosine_matrix, recompressed
from tests.lab.data.corruption.reference import arrays


def photographs(height, width, count=3):
    """Crops of a mosaic of real images."""
    mosaic = arrays("clean").unflatten(0, (8, 8)).permute(2, 0, 3, 1, 4).reshape(3, 256, 256)
    return torch.stack([mosaic[:, 30 * i : 30 * i + height, 25 * i : 25 * i + width] for i in range(count)])


def pillow(images, change):
    changed = [np.array(change(Image.fromarray(image.permute(1, 2, 0).numpy()))) for image in images]
    return torch.from_numpy(np.stack(changed)).permute(0, 3, 1, 2)


def jpeg(quality):
    def saved(image):
        file = io.BytesIO()
        image.save(file, "JPEG", quality=quality)
        return Image.open(file)

    return saved


@pytest.mark.parametrize("quality", [1, 10, 40, 50, 58, 65, 80, 95, 100])
@pytest.mark.parametrize(("height", "width"), [(32, 32), (8, 8), (17, 33), (31, 18), (47, 64), (100, 85)])
def test_jpeg_is_that_of_libjpeg(quality, height, width):
    images = photographs(height, width)
    assert torch.equal(recompressed(images, quality), pillow(images, jpeg(quality)))


def test_jpeg_of_extreme_colors_is_that_of_libjpeg():
    noise = torch.randint(0, 2, (20, 3, 24, 24)).mul(255).to(torch.uint8)
    assert torch.equal(recompressed(noise, 30), pillow(noise, jpeg(30)))


def test_cosines_are_those_of_mathematics_up_to_rounding():
    k, i = torch.arange(8.0, dtype=torch.float64)[:, None], torch.arange(8.0, dtype=torch.float64)
    exact = 8192 * 2**0.5 * torch.cos((2 * i + 1) * k * torch.pi / 16)
    exact[0] /= 2**0.5
    assert (cosine_matrix(torch.device("cpu")) - exact).abs().max() <= 1.5


@pytest.mark.parametrize(("size", "target"), [((32, 32), (20, 20)), ((20, 20), (32, 32)), ((33, 47), (28, 39))])
def test_box_filter_is_that_of_pillow(size, target):
    images = photographs(*size)
    expected = pillow(images, lambda image: image.resize(target[::-1], Image.Resampling.BOX))
    assert torch.equal(resized(images, *target), expected)
