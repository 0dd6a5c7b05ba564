"""CIFAR-10 on disk: `load` returns what was fetched, and names a damaged file."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from orthograd.lab.data import cifar10
from orthograd.lab.data.storage import data_folder, mapped
from tests.lab.data import small_cifar10 as small


@pytest.fixture
def folder(tmp_path):
    small.written(small.batches(), tmp_path / "batches")
    cifar10.fetch(tmp_path / "data", source=tmp_path / "batches", data=small.SMALL)
    return tmp_path / "data"


def test_images_and_labels_are_the_published_ones_in_their_order(folder):
    for part, (pixels, numbers, _) in small.PARTS.items():
        images, labels = cifar10.load(part, folder, data=small.SMALL)
        assert images.dtype == torch.uint8
        assert images.is_contiguous()
        assert labels.dtype == torch.int64
        assert np.array_equal(images.permute(0, 2, 3, 1), pixels)
        assert labels.tolist() == numbers.tolist()


def test_loading_maps_the_file_and_changes_stay_in_memory(folder):
    path = folder / "cifar10" / "test_images.npy"
    assert isinstance(mapped(path, (small.EACH, 3, 32, 32)), np.memmap)
    before = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns about read-only arrays
        images, _ = cifar10.load("test", folder, data=small.SMALL)
    images.zero_()
    assert path.read_bytes() == before


def test_files_have_no_pickles_and_are_laid_out_as_documented(folder):
    listed = sorted(path.name for path in (folder / "cifar10").iterdir())
    names = ["test_images.npy", "test_labels.npy", "train_images.npy", "train_labels.npy"]
    assert listed == [".lock", *names]
    for name in names:
        assert np.load(folder / "cifar10" / name, allow_pickle=False).dtype == np.uint8


def test_absent_data_says_which_command_brings_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train_images.npy: no such file; `orthograd data cifar10` fetches it"):
        cifar10.load("train", tmp_path)
    with pytest.raises(FileNotFoundError, match="orthograd data cifar10"):
        cifar10.verify(tmp_path)


def test_another_part_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected train or test, got 'validation'"):
        cifar10.load("validation", tmp_path)


def damaged(damage, path):
    content = path.read_bytes()
    if damage == "longer":
        path.write_bytes(content + b"0")
    elif damage == "of another type":
        np.save(path, np.load(path).astype(np.int64))
    elif damage == "of another shape":
        np.save(path, np.load(path)[:-1])
    elif damage == "a pickle":
        np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    elif damage == "in another order":
        np.save(path, np.asfortranarray(np.load(path)))
    else:
        path.write_bytes(
            {"cut": content[:-1], "without its header": content[:7], "empty": b"", "zeros": bytes(999)}[damage]
        )


@pytest.mark.parametrize("name", ["test_images.npy", "test_labels.npy"])
@pytest.mark.parametrize(
    "damage",
    ["cut", "without its header", "empty", "zeros", "longer", "of another type", "of another shape", "a pickle"],
)
def test_a_damaged_file_is_named_at_once_and_fetched_anew(folder, tmp_path, name, damage):
    path = folder / "cifar10" / name
    damaged(damage, path)
    with pytest.raises(ValueError, match=f"{name}: .*`orthograd data cifar10` fetches it again"):
        cifar10.load("test", folder, data=small.SMALL)
    news = []
    cifar10.fetch(folder, source=tmp_path / "batches", data=small.SMALL, report=news.append)
    assert str(path) in news[0].words
    cifar10.verify(folder, data=small.SMALL)


def test_images_in_fortran_order_are_refused(folder):
    damaged("in another order", folder / "cifar10" / "test_images.npy")
    with pytest.raises(ValueError, match="expected an array in C order"):
        cifar10.load("test", folder, data=small.SMALL)


@pytest.mark.parametrize("name", ["train_images", "train_labels", "test_images", "test_labels"])
def test_one_wrong_bit_is_found_by_its_checksum(folder, name):
    path = folder / "cifar10" / f"{name}.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name}.npy: expected the SHA-256 [0-9a-f]{{64}} of CIFAR-10, got"):
        cifar10.verify(folder, data=small.SMALL)


def test_a_complete_set_is_not_touched_again_and_may_lie_where_nobody_may_write(folder):
    before = {path: path.stat().st_mtime_ns for path in (folder / "cifar10").iterdir()}
    news = []
    (folder / "cifar10").chmod(0o500)
    try:
        cifar10.fetch(folder, source="/nowhere", data=small.SMALL, report=news.append)
    finally:
        (folder / "cifar10").chmod(0o700)
    assert {path: path.stat().st_mtime_ns for path in (folder / "cifar10").iterdir()} == before
    assert [step.words for step in news] == [f"CIFAR-10 is in {folder / 'cifar10'} already, verified by SHA-256"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    small.written(small.batches(), tmp_path / "batches")
    (tmp_path / "data").write_text("a file")
    with pytest.raises(OSError, match="data/cifar10: cannot be used: "):
        cifar10.fetch(tmp_path / "data", source=tmp_path / "batches", data=small.SMALL)


@pytest.mark.skipif(os.name != "posix", reason="the length of files can be limited on POSIX alone")
def test_a_full_disk_is_named(tmp_path):
    small.written(small.batches(), tmp_path / "batches")
    place = tmp_path / "data" / "cifar10"
    place.mkdir(parents=True)
    code = f"""
import resource, signal
from orthograd.lab.data import cifar10
from tests.lab.data import small_cifar10 as small
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
cifar10.fetch({str(tmp_path / "data")!r}, source={str(tmp_path / "batches")!r}, data=small.SMALL)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[3])
    assert "OSError" in run.stderr
    assert "train_images.npy: cannot be written: File too large" in run.stderr
    assert [path.name for path in place.iterdir()] == [".lock"]


def test_the_data_folder_is_the_one_given_or_named_or_in_the_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ORTHOGRAD_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data_folder() == tmp_path / ".cache" / "orthograd"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert data_folder() == tmp_path / ".cache" / "orthograd"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert data_folder() == tmp_path / "cache" / "orthograd"
    monkeypatch.setenv("ORTHOGRAD_DATA", "")
    assert data_folder() == tmp_path / "cache" / "orthograd"
    monkeypatch.setenv("ORTHOGRAD_DATA", "~/pictures")
    assert data_folder() == tmp_path / "pictures"
    assert data_folder(tmp_path / "mine") == tmp_path / "mine"


def test_importing_loads_nothing_beyond_torch_and_numpy():
    code = (
        "import sys, torch, numpy; import orthograd.lab.data.cifar10, orthograd.lab.data.cifar10c; print(*sys.modules)"
    )
    imported = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"PIL", "rich", "typer", "scipy", "sklearn"}.isdisjoint(name.split(".")[0] for name in imported)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_two_processes_at_once_end_with_one_whole_set(tmp_path):
    small.written(small.batches(), tmp_path / "batches")
    children = []
    for _ in range(6):
        if (child := os.fork()) == 0:
            code = 1
            try:
                cifar10.fetch(tmp_path / "data", source=tmp_path / "batches", data=small.SMALL)
                cifar10.verify(tmp_path / "data", data=small.SMALL)
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 6
    assert not list(tmp_path.rglob("*.unfinished*"))
