"""Properties of every corruption."""

from __future__ import annotations

import pytest
import torch

from orthograd.lab.data import corruption
from orthograd.lab.data.corruption import CORRUPTIONS, EXTRA, SEVERITIES, corrupt, generation
from tests.lab.data.corruption.reference import DETERMINISTIC, RANDOM, arrays


def pictures(count, height, width):
    """Smooth random images, which blurs and noise change in different ways."""
    coarse = torch.rand(count, 3, 5, 5, generator=torch.Generator().manual_seed(3))
    return (torch.nn.functional.interpolate(coarse, (height, width), mode="bilinear") * 255).to(torch.uint8)


def test_the_names_are_those_of_the_published_files():
    assert len(CORRUPTIONS) == 15
    assert CORRUPTIONS[:4] == ("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur")
    assert CORRUPTIONS[-1] == "jpeg_compression"
    assert set(EXTRA) == {"speckle_noise", "gaussian_blur", "spatter", "saturate"}
    assert SEVERITIES == (1, 2, 3, 4, 5)
    assert set(corruption.__all__) >= {"corrupt", "CORRUPTIONS", "EXTRA", "SEVERITIES"}


def test_the_same_seed_makes_the_same_pixels_and_another_seed_others(name):
    images = arrays("clean")[:8]
    before = images.clone()
    corrupted = corrupt(images, name, severity=3, seed=5)
    assert torch.equal(images, before)
    assert corrupted.dtype == torch.uint8
    assert corrupted.shape == images.shape
    assert not torch.equal(corrupted, images)
    assert torch.equal(corrupted, corrupt(images, name, severity=3, seed=5))
    assert torch.equal(corrupted, corrupt(images, name, severity=3, seed=6)) == (name in DETERMINISTIC)


def test_an_image_does_not_depend_on_those_after_it(name, monkeypatch):
    monkeypatch.setattr(generation, "_BLOCK_PIXELS", 8 * 1024)
    images = arrays("clean")
    whole = corrupt(images[:21], name, severity=4)
    for count in (1, 7, 8, 9, 20):
        assert torch.equal(corrupt(images[:count], name, severity=4), whole[:count])


@pytest.mark.parametrize("name", RANDOM, indirect=True)
def test_equal_images_are_corrupted_differently(name, monkeypatch):
    monkeypatch.setattr(generation, "_BLOCK_PIXELS", 2 * 1024)
    corrupted = corrupt(arrays("clean")[:1].expand(6, -1, -1, -1), name, severity=2)
    assert len({tuple(image.flatten().tolist()) for image in corrupted}) >= 4  # two streaks may lie on the same pixels


@pytest.mark.parametrize(("height", "width"), [(8, 8), (16, 16), (33, 20), (20, 47), (96, 96), (224, 224)])
def test_other_sizes(name, height, width):
    images = pictures(2, height, width)
    assert corrupt(images, name, severity=1).shape == images.shape
    change = (corrupt(images, name, severity=5).double() - images.double()).abs().mean()
    assert 0 < change < 128


def test_no_images_and_images_in_any_layout(name):
    images = arrays("clean")[:4]
    assert corrupt(images[:0], name, severity=1).shape == (0, 3, 32, 32)
    expected = corrupt(images, name, severity=2)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(corrupt(last, name, severity=2), expected)
    wide = images.repeat_interleave(2, 3)[..., ::2]
    assert torch.equal(corrupt(wide, name, severity=2), expected)


@pytest.mark.parametrize("level", [0, 255])
def test_flat_images_do_not_break(name, level):
    images = torch.full((2, 3, 32, 32), level, dtype=torch.uint8)
    for severity in (2, 5):
        corrupted = corrupt(images, name, severity=severity)
        if name in ("pixelate", "defocus_blur", "motion_blur"):
            assert (corrupted.int() - images).abs().max() <= 1


@pytest.mark.parametrize(
    ("images", "name", "severity", "words"),
    [
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "rain", 1, "jpeg_compression, .*saturate, got rain"),
        (torch.zeros(1, 3, 32, 32, dtype=torch.uint8), "fog", 6, "from 1 to 5, got 6"),
        (torch.zeros(1, 3, 32, 32), "fog", 1, "torch.uint8 from 0 to 255, got torch.float32"),
        (torch.zeros(1, 32, 32, 3, dtype=torch.uint8), "fog", 1, r"\(n, 3, height, width\).*got \(1, 32, 32, 3\)"),
        (torch.zeros(3, 32, 32, dtype=torch.uint8), "fog", 1, r"got \(3, 32, 32\)"),
        (torch.zeros(1, 3, 32, 7, dtype=torch.uint8), "fog", 1, "sides of at least 8"),
    ],
)
def test_what_is_not_possible_is_named(images, name, severity, words):
    with pytest.raises(ValueError, match=words):
        corrupt(images, name, severity=severity)


def test_arrays_that_are_no_tensors_are_named():
    with pytest.raises(TypeError, match="expected a tensor of images, got ndarray"):
        corrupt(torch.zeros(1, 3, 32, 32, dtype=torch.uint8).numpy(), "fog", severity=1)
