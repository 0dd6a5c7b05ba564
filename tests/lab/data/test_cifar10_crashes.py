"""A fetch killed with SIGKILL at each disk access: no file is half-written, and the next fetch completes."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from orthograd.lab.data import cifar10
from tests.lab.data import small_cifar10 as small
from tests.lab.data.web_server import serving

DISK = {"open", "os.rename", "os.remove", "os.mkdir", "fcntl.flock"}


def fetch_killed(number, **arguments):
    """Fetch in another process, which kills itself at this disk access; return True if it did."""
    if (child := os.fork()) == 0:
        signal.alarm(60)  # so that nothing waits forever
        left = [number]

        def count(event, _):
            if event in DISK:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        try:
            cifar10.fetch(**arguments)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def assert_nothing_is_half(folder):
    for part in ("train", "test"):
        for path in (folder / "cifar10").glob(f"{part}_*.npy"):
            content = path.read_bytes()
            images, labels, _ = small.PARTS[part]
            expected = labels if "labels" in path.name else images.transpose(0, 3, 1, 2)
            assert content.endswith(expected.tobytes())


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("source", ["files", "official"])
def test_a_fetch_killed_at_every_touch_of_the_disk_is_completed_by_the_next(tmp_path, source, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    small.written(small.batches(), tmp_path / "files")
    kills = 0
    with serving(small.ARCHIVE) as server:
        data = small.served(server.url)
        where = source if source == "official" else tmp_path / "files"
        while fetch_killed(kills + 1, folder=(folder := tmp_path / f"data-{kills}"), source=where, data=data):
            assert_nothing_is_half(folder)
            cifar10.fetch(folder, source=where, data=data)
            cifar10.verify(folder, data=data)
            assert len(list((folder / "cifar10").iterdir())) == 5, "nothing is left over"
            kills += 1
    assert kills >= 12


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_same_folder_survives_kill_after_kill(tmp_path):
    small.written(small.batches(), tmp_path / "files")
    for number in range(1, 40):
        fetch_killed(number, folder=tmp_path / "data", source=tmp_path / "files", data=small.SMALL)
        assert_nothing_is_half(tmp_path / "data")
    cifar10.fetch(tmp_path / "data", source=tmp_path / "files", data=small.SMALL)
    cifar10.verify(tmp_path / "data", data=small.SMALL)
