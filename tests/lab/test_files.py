from __future__ import annotations

import errno
import os
import threading

import pytest

from orthograd.lab import files


@pytest.mark.parametrize("step", ["open", "fsync", "replace", "folder"])
def test_a_failing_step_leaves_the_old_file_and_no_leftovers(tmp_path, monkeypatch, step):
    path = tmp_path / "record.json"
    files.write(path, b"old")

    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if step == "open":
        monkeypatch.setattr(files, "open", full, raising=False)
    elif step == "folder":
        monkeypatch.setattr(files, "flush_folder", full)
    else:
        monkeypatch.setattr(os, step, full)
    with pytest.raises(files.FileError, match=r"record.json: cannot be written: No space left on device"):
        files.write(path, b"new")
    assert path.read_bytes() == (b"new" if step == "folder" else b"old")
    assert list(tmp_path.iterdir()) == [path]


def test_a_block_that_fails_leaves_the_old_file_and_no_leftovers(tmp_path):
    path = tmp_path / "figure.png"
    files.write(path, b"old")

    def draw(unfinished):
        assert unfinished.suffix == ".png"
        unfinished.write_bytes(b"half")
        assert files.leftovers(tmp_path) == [unfinished]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), files.replacing(path) as unfinished:
        draw(unfinished)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_text_is_written_into_folders_that_are_made(tmp_path):
    path = files.write_text(tmp_path / "tables" / "a.md", "⊥\n")
    assert path.read_bytes() == "⊥\n".encode()


def test_a_lock_can_be_waited_for(tmp_path):
    path, is_waiting = tmp_path / "lock", threading.Event()
    answers = []

    def wait():
        with files.exclusive(path, before_waiting=is_waiting.set) as is_ours:
            answers.append(is_ours)

    waiter = threading.Thread(target=wait)
    with files.exclusive(path) as is_ours:
        waiter.start()
        assert is_ours
        assert is_waiting.wait(timeout=60)
        assert not answers
    waiter.join(timeout=60)
    assert answers == [True]


@pytest.mark.skipif(files.fcntl is None, reason="needs locks")
def test_a_disk_without_locks_is_named(tmp_path, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", unsupported)
    with pytest.raises(files.NoLocksError, match="lock: cannot be locked: No locks available"):
        files.exclusive(tmp_path / "lock").__enter__()
