"""CIFAR-10-C, published or made here: the same layout, read by the same function."""

from __future__ import annotations

import json
import os
import shutil
import signal

import numpy as np
import pytest
import torch

from orthograd.lab.data import cifar10, cifar10c, corruption
from tests.lab.data import small_cifar10 as small

COUNT = small.EACH


@pytest.fixture(autouse=True)
def _no_other_data(tmp_path, monkeypatch):
    monkeypatch.setenv("ORTHOGRAD_DATA", str(tmp_path / "data of the user"))


@pytest.fixture
def folder(tmp_path):
    small.written(small.batches(), tmp_path / "batches")
    cifar10.fetch(tmp_path / "data", source=tmp_path / "batches", data=small.SMALL)
    return tmp_path / "data"


def published(folder):
    """The published layout, with a different color for each severity."""
    folder.mkdir(parents=True)
    blocks = np.arange(1, 6, dtype=np.uint8).repeat(COUNT)
    np.save(folder / "fog.npy", np.broadcast_to(blocks[:, None, None, None], (5 * COUNT, 32, 32, 3)) * np.uint8(10))
    np.save(folder / "labels.npy", np.tile(small.TEST_LABELS, 5))
    return folder


def load(name, severity, folder):
    return cifar10c.load(name, severity, folder, data=small.SMALL)


class Darker:
    """A recognizable corruption that counts how often it is called with all images."""

    def __init__(self):
        self.asked = []

    def __call__(self, images, name, *, severity, seed):
        if len(images) > 1:
            self.asked.append((name, severity, seed))
        return images // (severity + seed + 1)


def make(folder, corrupt, **options):
    return cifar10c.make(folder, corrupt=corrupt, data=small.SMALL, **options)


def test_the_published_files_are_read_by_severity(folder):
    published(folder / "CIFAR-10-C")
    assert cifar10c.source(folder) == "official"
    for severity in range(1, 6):
        images, labels = load("fog", severity, folder)
        assert images.shape == (COUNT, 3, 32, 32)
        assert images.dtype == torch.uint8
        assert images.unique().tolist() == [10 * severity]
        assert labels.tolist() == small.TEST_LABELS.tolist()
        assert labels.dtype == torch.int64


def test_the_published_folder_may_be_given_itself(tmp_path):
    place = published(tmp_path / "elsewhere")
    assert load("fog", 2, place)[0].unique().tolist() == [20]
    assert cifar10c.verify(place, data=small.SMALL) == ["fog"]


def test_the_published_files_go_before_those_made_here(folder):
    make(folder, Darker(), names=["fog"])
    assert cifar10c.source(folder) == "made"
    published(folder / "CIFAR-10-C")
    assert cifar10c.source(folder) == "official"
    assert cifar10c.place(folder) == folder / "CIFAR-10-C"
    assert cifar10c.source(folder / "cifar10c-made") == "made"


def test_without_any_it_is_said_how_to_make_one(folder):
    assert cifar10c.source(folder) is None
    with pytest.raises(FileNotFoundError, match="`orthograd data cifar10c` makes one"):
        load("fog", 1, folder)


def test_wrong_names_and_severities_are_refused(folder):
    published(folder / "CIFAR-10-C")
    with pytest.raises(FileNotFoundError, match=r"snow\.npy: no such file"):
        load("snow", 1, folder)
    with pytest.raises(ValueError, match=r"expected the name of a corruption, such as gaussian_noise, got '\.\./fog'"):
        load("../fog", 1, folder)
    for severity in (0, 6, 1.5):
        with pytest.raises(ValueError, match="expected a severity of fog among"):
            load("fog", severity, folder)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.zeros((COUNT, 32, 32, 3), np.uint8), rf"expected an array \({5 * COUNT}, 32, 32, 3\) of uint8"),
        (np.zeros((5 * COUNT, 3, 32, 32), np.uint8), "expected an array"),
        (np.zeros((5 * COUNT, 32, 32, 3), np.float32), "got .* of float32"),
        (np.array([{}], dtype=object), "cannot be read as .npy"),
    ],
)
def test_published_files_of_another_shape_or_type_are_named(folder, array, words):
    place = published(folder / "CIFAR-10-C")
    np.save(place / "fog.npy", array, allow_pickle=True)
    with pytest.raises(ValueError, match=rf"fog\.npy: .*{words}"):
        load("fog", 1, folder)
    with pytest.raises(ValueError, match=r"fog\.npy"):
        cifar10c.verify(folder, data=small.SMALL)


def test_a_cut_published_file_is_named(folder):
    path = published(folder / "CIFAR-10-C") / "fog.npy"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"fog\.npy: cannot be read as \.npy, is it whole"):
        load("fog", 1, folder)


def test_the_real_files_have_fifty_thousand_images(folder):
    published(folder / "CIFAR-10-C")
    with pytest.raises(
        ValueError, match=rf"labels\.npy: expected 50000 whole numbers, got \({5 * COUNT},\)|50000, 32, 32"
    ):
        cifar10c.load("fog", 1, folder / "CIFAR-10-C")


def test_labels_must_be_those_of_the_test_images(folder):
    place = published(folder / "CIFAR-10-C")
    np.save(place / "labels.npy", np.roll(np.tile(small.TEST_LABELS, 5), 1))
    with pytest.raises(ValueError, match=r"labels\.npy: expected the labels of CIFAR-10's test images"):
        load("fog", 1, folder)
    np.save(place / "labels.npy", np.zeros(5 * COUNT, np.float32))
    with pytest.raises(ValueError, match=r"whole numbers, got .* of float32"):
        load("fog", 1, folder)


def test_what_is_made_has_the_published_layout_and_a_manifest(folder):
    place = make(folder, Darker(), names=["fog", "snow"], seed=1)
    assert place == folder / "cifar10c-made"
    pixels = np.load(place / "snow.npy", allow_pickle=False)
    assert pixels.shape == (5 * COUNT, 32, 32, 3)
    assert np.array_equal(pixels[COUNT : 2 * COUNT], small.TEST_IMAGES // 4)
    assert np.load(place / "labels.npy").tolist() == small.TEST_LABELS.tolist() * 5
    manifest = json.loads((place / "manifest.json").read_text())
    assert (manifest["seed"], manifest["images"]) == (1, COUNT)
    assert manifest["files"]["snow"] == {
        "sha256": small.sha256(pixels),
        "severities": [1, 2, 3, 4, 5],
        "device": "cpu",
        "orthograd": "0.1.0",
        "torch": torch.__version__,
    }
    images, labels = load("snow", 2, folder)
    assert np.array_equal(images.permute(0, 2, 3, 1), small.TEST_IMAGES // 4)
    assert labels.tolist() == small.TEST_LABELS.tolist()
    assert cifar10c.verify(folder, data=small.SMALL) == ["fog", "snow"]


def test_what_is_finished_is_never_made_again(folder):
    darker = Darker()
    make(folder, darker, names=["fog"], severities=[1, 2])
    make(folder, darker, names=["fog", "snow"], severities=[2])
    assert darker.asked == [("fog", 1, 0), ("fog", 2, 0), ("snow", 2, 0)]
    make(folder, darker, names=["snow"], severities=[5])
    assert darker.asked[3:] == [("snow", 2, 0), ("snow", 5, 0)], "what was there before stays there"
    assert torch.equal(load("snow", 5, folder)[0], cifar10.load("test", folder, data=small.SMALL)[0] // 6)
    with pytest.raises(ValueError, match=r"expected a severity of snow among \(2, 5\), got 1"):
        load("snow", 1, folder)
    with pytest.raises(FileNotFoundError, match="not made yet, only fog, snow; `orthograd data cifar10c --corruption"):
        load("frost", 1, folder)


def test_a_few_images_can_be_made_but_not_mixed_with_others(folder):
    make(folder, Darker(), names=["fog"], count=2)
    assert load("fog", 5, folder)[0].shape == (2, 3, 32, 32)
    for options, words in (({}, f"expected {COUNT} images made with seed 0"), ({"seed": 1, "count": 2}, "with seed 1")):
        with pytest.raises(ValueError, match=f"cifar10c-made: {words}, got 2 with seed 0|{words}"):
            make(folder, Darker(), names=["fog"], **options)


def test_damaged_files_are_found_and_made_again(folder):
    place = make(folder, Darker(), names=["fog"])
    content = bytearray((place / "fog.npy").read_bytes())
    (place / "fog.npy").write_bytes(content[:-1])
    make(folder, darker := Darker(), names=["fog"])
    assert len(darker.asked) == 5
    content[-1] ^= 1
    (place / "fog.npy").write_bytes(content)
    with pytest.raises(ValueError, match=r"fog\.npy: expected the SHA-256 .* of its manifest"):
        cifar10c.verify(folder, data=small.SMALL)
    (place / "manifest.json").write_text('{"files": {"fog": {"severities": [1]}}}')
    with pytest.raises(ValueError, match=r"manifest\.json: expected the manifest of a CIFAR-10-C made here"):
        load("fog", 1, folder)


def test_what_cannot_be_made_is_named_before_anything_is(folder):
    with pytest.raises(ValueError, match=r"expected a corruption among gaussian_noise.* got rain"):
        cifar10c.make(folder, names=["fog", "rain"], data=small.SMALL)
    with pytest.raises(ValueError, match="expected severities among"):
        make(folder, Darker(), names=["fog"], severities=[0])
    shutil.rmtree(folder / "cifar10")
    with pytest.raises(FileNotFoundError, match="`orthograd data cifar10` fetches it"):
        make(folder, Darker())
    assert not (folder / "cifar10c-made").exists()


def test_the_images_are_those_of_the_corruption(folder):
    cifar10c.make(folder, names=["gaussian_noise", "contrast"], severities=[3], seed=5, data=small.SMALL)
    clean, _ = cifar10.load("test", folder, data=small.SMALL)
    for name in ("gaussian_noise", "contrast"):
        assert torch.equal(load(name, 3, folder)[0], corruption.corrupt(clean, name, severity=3, seed=5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_making_killed_after_a_corruption_goes_on_with_the_next(folder):
    class Deadly(Darker):
        def __call__(self, images, name, *, severity, seed):
            if len(images) > 1 and (name, severity) == ("snow", 3):
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(images, name, severity=severity, seed=seed)

    if (child := os.fork()) == 0:
        torch.set_num_threads(1)  # a fork has no threads of its parent
        make(folder, Deadly(), names=["fog", "snow"])
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert cifar10c.verify(folder, data=small.SMALL) == ["fog"]
    make(folder, darker := Darker(), names=["fog", "snow"])
    assert {name for name, *_ in darker.asked} == {"snow"}
    assert cifar10c.verify(folder, data=small.SMALL) == ["fog", "snow"]
