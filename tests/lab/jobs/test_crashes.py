from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile

import pytest
import torch

from orthograd.lab import files
from orthograd.lab.jobs.executors import execute
from orthograd.lab.jobs.files import config_hash, refuse_other_than_json
from orthograd.lab.jobs.store import Store
from tests.lab.jobs import toy_runs
from tests.lab.jobs.finished_runs import CONFIG, finished, names


def in_a_fork(act):
    """Exit code of a process that only does this, and its FileError."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            act()
            os._exit(0)
        except files.FileError as error:
            os.write(writing, str(error).encode())
            os._exit(7)
        finally:
            os._exit(9)
    os.close(writing)
    with open(reading) as file:
        text = file.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


def test_a_disk_that_takes_only_half_of_a_file_leaves_the_old_one(store):
    run = store.get(CONFIG)
    with run.claim():
        run.save_checkpoint({"a": torch.zeros(8)}, 1)

    def overflow():
        with run.claim():
            resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))  # a real, partial write
            run.save_checkpoint({"a": torch.zeros(5000)}, 2)

    code, text = in_a_fork(overflow)
    assert (code, text) == (7, f"{run.path}/.checkpoint-0: cannot be written: File too large")
    assert run.load_checkpoint()[1] == 1
    assert files.leftovers(run.path) == []


def test_a_folder_that_may_not_be_written_is_named_and_can_be_read():
    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        run = finished(store)
        for path in (run.path, store.folder):
            path.chmod(0o555)

        def write_another():
            if os.geteuid() == 0:
                os.setuid(65534)  # nobody: root may write everywhere
            assert execute([CONFIG], toy_runs.train, store) == list(store.runs())
            with store.get({"seed": 1}).claim():
                pass

        code, text = in_a_fork(write_another)
        for path in (store.folder, run.path):
            path.chmod(0o755)
    assert code == 7
    assert text == f"{folder}/{config_hash({'seed': 1})}: cannot be made a folder: Permission denied"


WITHOUT_DISK = {refuse_other_than_json.__code__}
"""It walks what is to be written, in many lines between which a death is the same."""


def dying_at(line, act):
    """True if a process that does this dies at this line of the writing code, without cleaning up."""
    left = [line]

    def trace(frame, event, argument):
        code = frame.f_code
        if not code.co_filename.endswith(("files.py", "store.py", "record.py")) or code in WITHOUT_DISK:
            return None
        left[0] -= event == "line"
        if left[0] < 0:
            os._exit(1)
        return trace

    def traced():
        sys.settrace(trace)
        act()

    return in_a_fork(traced)[0] == 1


@pytest.mark.slow
def test_death_at_any_line_leaves_old_or_new_and_the_next_owner_goes_on(store):
    run = store.get(CONFIG)

    def work():
        mine = store.get(CONFIG)
        with mine.claim():
            epoch = (mine.load_checkpoint() or (None, 0))[1]
            mine.save_checkpoint({"weights": torch.full((3,), epoch + 1.0)}, epoch + 1)
            mine.write_tensors("logits", {"logits": torch.ones(2)})
            mine.finish({"metrics": {}})

    line, finishes, seen = 0, 0, 0
    while dying_at(line, work):
        line += 1
        if run.is_finished:
            finishes += 1
            assert run.record()["files"].keys() == {"logits.safetensors"}
            run.verify()
            with run.claim():
                assert names(run) == ["config.json", "lock", "logits.safetensors", "record.json"]
            shutil.rmtree(run.path)
            seen = 0
            continue
        tensors, epoch = run.load_checkpoint() or ({"weights": torch.zeros(3)}, 0)
        assert tensors["weights"].tolist() == [epoch] * 3
        assert epoch in (seen, seen + 1)
        seen = epoch
    assert line > 100
    assert finishes > 2


def test_leftovers_are_cleaned_by_the_next_owner_only(store):
    run = store.get(CONFIG)
    with run.claim():
        leftover = run.path / f".record.json-1{files.UNFINISHED}"
        leftover.write_text("{")
        with store.get(CONFIG).claim() as is_theirs:
            assert not is_theirs
        assert leftover.exists()
        assert not run.is_finished
    with run.claim():
        assert not leftover.exists()
