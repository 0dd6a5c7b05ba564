from __future__ import annotations

import pytest
import torch

from orthograd.lab.data import Dataset, digits
from orthograd.lab.data.shifts import SEVERITIES, SHIFTS, shifted


def test_digits_are_split_the_same_way_each_time():
    first, second = digits(), digits()
    assert first.shape == (1, 8, 8)
    assert (len(first.train_labels), len(first.test_labels)) == (1000, 797)
    assert torch.equal(first.test_images, second.test_images)
    assert first.train_images.min() == 0
    assert first.train_images.max() == 1
    assert set(first.test_labels.tolist()) == set(range(10))


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    data, theirs = digits(), load_digits()
    images, labels = torch.cat([data.test_images, data.train_images]), torch.cat([data.test_labels, data.train_labels])
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    assert torch.equal(images[:, 0], torch.from_numpy(theirs.images).float()[order] / 16)
    assert torch.equal(labels, torch.from_numpy(theirs.target).long()[order])


def test_a_few_of_each_class_are_drawn_by_seed_and_the_rest_is_known():
    data = digits()
    images, labels, left = data.few(5, seed=3)
    assert torch.bincount(labels).tolist() == [5] * 10
    assert len(left) == 950
    chosen = {tuple(image.flatten().tolist()) for image in images}
    assert len(chosen.intersection(tuple(data.train_images[row].flatten().tolist()) for row in left)) <= 1  # duplicates
    assert torch.equal(images, data.few(5, seed=3)[0])
    assert not torch.equal(images, data.few(5, seed=4)[0])
    with pytest.raises(ValueError, match=r"expected 500 training images of class 0 of digits, got \d+"):
        data.few(500, seed=0)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [
        (torch.zeros(2, 1, 8, 8, dtype=torch.int16), torch.tensor([0, 1]), "uint8, got torch.int16"),
        (torch.zeros(2, 8, 8), torch.tensor([0, 1]), r"got torch.float32 \(2, 8, 8\)"),
        (torch.zeros(2, 1, 8, 8), torch.tensor([0, 1, 1]), r"2 train labels of int64, got torch.int64 \(3,\)"),
        (torch.zeros(2, 1, 8, 8), torch.tensor([0, 2]), r"labels from 0 to 1, got \[0, 2\]"),
        (
            torch.full((2, 1, 8, 8), 16.0),
            torch.tensor([0, 1]),
            "train images in float32 from 0 to 1, got 16 to 16: divide",
        ),
        (torch.full((2, 1, 8, 8), -0.5), torch.tensor([0, 1]), "from 0 to 1, got -0.5 to -0.5"),
        (torch.full((2, 1, 8, 8), torch.nan), torch.tensor([0, 1]), "from 0 to 1, got nan to nan"),
        (torch.full((2, 1, 8, 8), 16, dtype=torch.uint8), torch.tensor([0, 1]), "from 0 to 255, got none above 16"),
    ],
)
def test_a_data_set_that_is_none_is_named(images, labels, words):
    with pytest.raises(ValueError, match=words):
        Dataset("mine", images, labels, torch.zeros(1, 1, 8, 8), torch.tensor([0]), classes=2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train_images": torch.ones(2, 1, 4, 4, requires_grad=True)}, r"without gradients, .*detach\(\)"),
        ({"test_images": torch.ones(1, 1, 4, 4, device="meta")}, r"on the CPU, got meta"),
        ({"test_images": torch.ones(1, 1, 8, 8)}, r"test images of \(1, 4, 4\) as in training, got \(1, 8, 8\)"),
        ({"mean": (0.5,), "deviation": (0.0,)}, r"a deviation above 0, got \(0.5,\) and \(0.0,\)"),
        ({"mean": (float("nan"),), "deviation": (0.5,)}, r"a finite mean and a deviation above 0, got \(nan,\)"),
        ({"mean": (0.5,), "deviation": (float("nan"),)}, r"a deviation above 0, got \(0.5,\) and \(nan,\)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_what_networks_could_not_be_trained_or_evaluated_by_is_named(change, words):
    labels = torch.tensor([0, 1])
    parts = {"train_images": torch.ones(2, 1, 4, 4), "test_images": torch.ones(1, 1, 4, 4)}
    assert Dataset("mine", **parts, train_labels=labels, test_labels=labels[:1], classes=2)
    with pytest.raises(ValueError, match=words):
        Dataset("mine", **parts | change, train_labels=labels, test_labels=labels[:1], classes=2)


@pytest.mark.parametrize("name", SHIFTS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 32, 20)])
def test_shifts_keep_shape_and_range_repeat_by_seed_and_grow_with_severity(name, shape):
    images = torch.rand(40, *shape, generator=torch.Generator().manual_seed(1))
    changes = []
    for severity in SEVERITIES:
        result = shifted(images, name, severity=severity, seed=2)
        assert result.shape == images.shape
        assert result.dtype == torch.float32
        assert result.min() >= 0
        assert result.max() <= 1
        assert torch.equal(result, shifted(images, name, severity=severity, seed=2))
        changes.append(float((result - images).square().mean()))
    assert changes[0] > 0
    assert changes == sorted(changes)


def test_shifts_by_hand():
    image = torch.zeros(1, 1, 9, 9)
    image[0, 0, 4, 4] = 1
    blurred = shifted(image, "blur", severity=2)
    assert float(blurred.sum()) == pytest.approx(1, abs=1e-5)  # nothing is lost
    assert torch.equal(blurred, blurred.flip(2))
    half = torch.full((1, 1, 100, 100), 0.5)
    assert float(shifted(half, "noise", severity=1).std()) == pytest.approx(0.1, rel=0.05)
    assert float((shifted(half, "dropout", severity=3) == 0).float().mean()) == pytest.approx(0.3, abs=0.02)
    assert torch.equal(shifted(half, "contrast", severity=5), half)


@pytest.mark.parametrize(("name", "severity", "words"), [("fog", 1, "got fog"), ("blur", 6, "from 1 to 5, got 6")])
def test_unknown_shifts_are_named(name, severity, words):
    with pytest.raises(ValueError, match=words):
        shifted(torch.zeros(1, 1, 8, 8), name, severity=severity)


def test_a_network_that_changes_its_input_does_not_change_the_data():
    data = digits()
    before = data.test_images.clone()
    data.normalized(data.test_images[:10]).zero_()
    assert torch.equal(data.test_images, before)
