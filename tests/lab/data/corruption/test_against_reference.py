"""Corruptions agree with the public generator on the same images, by pixel or in distribution."""

from __future__ import annotations

import pytest
import torch

from orthograd.lab.data.corruption import SEVERITIES, corrupt
from orthograd.lab.data.corruption.filters import streaked
from orthograd.lab.data.corruption.frost import frost_canvas
from tests.lab.data.corruption.fidelity import agreement, bound, deviations
from tests.lab.data.corruption.reference import DETERMINISTIC, RANDOM, arrays

pytestmark = pytest.mark.slow

DRAWS = 24
# Fewer values are equal where results are integers up to rounding: truncation gives that integer or one less.
EQUAL = dict.fromkeys(DETERMINISTIC, 0.99) | {"pixelate": 1, "jpeg_compression": 1, "contrast": 0.999, "saturate": 0.98}


@pytest.mark.parametrize("name", DETERMINISTIC)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_deterministic_corruptions_have_the_pixels_of_the_reference(name, severity):
    equal, near = agreement(name, severity)
    assert near >= 0.999
    assert equal >= EQUAL[name]


@pytest.mark.parametrize("name", RANDOM, indirect=True)
@pytest.mark.parametrize(
    "severity", [SEVERITIES[0], *(pytest.param(s, marks=pytest.mark.slow) for s in SEVERITIES[1:])]
)
def test_random_corruptions_have_the_distribution_of_the_reference(name, severity):
    off = deviations(name, severity, DRAWS)
    assert off.abs().max() < bound(DRAWS), off


def test_glass_at_its_mildest_copies_from_above_and_from_the_left():
    reference = arrays("glass_blur")[0]
    clean = arrays("clean")[: len(reference)]
    for images in (reference, corrupt(clean, "glass_blur", severity=1)):
        assert torch.equal(images[:, :, :2], clean[:, :, :2])
        assert torch.equal(images[..., :2], clean[..., :2])
        sources = torch.stack([clean.roll((down, right), (2, 3)) for down in (0, 1) for right in (0, 1)])
        copied = (images == sources).all(2).any(0)
        assert copied[:, 2:, 2:].all()


def test_the_direction_of_each_streak_of_the_reference_can_be_found():
    angles = torch.linspace(-45, 45, 361)
    for images, (radius, sigma) in zip(
        arrays("motion_blur"), [(6, 1.0), (6, 1.5), (6, 2.0), (8, 2.0), (9, 2.5)], strict=True
    ):
        for clean, expected in zip(arrays("clean"), images, strict=False):
            streaks = streaked(clean.expand(len(angles), -1, -1, -1), radius, sigma, angles)
            close = ((streaks - expected).abs() <= 1).double().mean((1, 2, 3))
            assert close.max() > 0.99


@pytest.mark.usefixtures("frost")
@pytest.mark.parametrize(("severity", "kept", "added"), [(1, 1, 0.2), (3, 0.9, 0.4), (5, 0.75, 0.45)])
def test_the_piece_of_frost_of_each_image_of_the_reference_can_be_found(severity, kept, added):
    canvas, sides = frost_canvas(32, 32)
    windows = canvas.unfold(2, 32, 1).unfold(3, 32, 1)
    for clean, expected in zip(arrays("clean"), arrays("frost")[severity - 1], strict=False):
        few = kept * clean[:, ::8, ::8] + added * windows[..., ::8, ::8].movedim(1, 3)
        error = (few.clamp(0, 255) - expected[:, ::8, ::8]).abs().mean((-3, -2, -1))
        texture, row, column = (int(index) for index in torch.unravel_index(error.argmin(), error.shape))
        assert row < sides[texture, 0] - 32
        assert column < sides[texture, 1] - 32
        result = (
            (kept * clean.double() + added * windows[texture, :, row, column].double()).clamp(0, 255).to(torch.uint8)
        )
        assert torch.equal(result, expected)
