"""What records say of predictions, found in this process and in others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from orthograd.lab.jobs import files
from orthograd.lab.runs import measuring
from tests.patience import PATIENCE


@pytest.fixture
def predictions():
    generator = torch.Generator().manual_seed(0)
    names = ("logits.clean", "logits.fog.1", "logits.held_out")
    made = {name: 3 * torch.randn(40, 4, generator=generator) for name in names}
    labels = {name: torch.randint(4, (40,), generator=generator) for name in ("labels", "labels.held_out")}
    return made | labels


@pytest.fixture
def path(tmp_path, predictions):
    made = tmp_path / "ünd spaces\n.safetensors"
    made.write_bytes(files.as_bytes(predictions))
    return made


def as_recorded(found):
    return json.loads(json.dumps(found))


def test_without_helpers_it_is_measured_here(path, predictions):
    assert measuring.measured_in(path.with_name("none"), predictions) == measuring.measured(predictions)


def test_helpers_find_the_same(path, predictions):
    wanted = as_recorded(measuring.measured(predictions))
    with measuring.helpers(1), pytest.MonkeyPatch.context() as patch:
        patch.setattr(measuring, "measured", lambda _: pytest.fail("expected a helper to measure"))
        found = [measuring.measured_in(path, predictions)]
        threads = [
            threading.Thread(target=lambda: found.append(measuring.measured_in(path, predictions))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [wanted] * 4


def test_what_a_helper_cannot_do_is_done_here(path, predictions, capfd):
    with measuring.helpers(1):
        helper = measuring._helpers._all[0]
        path.write_bytes(b"no tensors")
        assert measuring.measured_in(path, predictions) == measuring.measured(predictions)
        assert "could not measure" in capfd.readouterr().err
        path.write_bytes(files.as_bytes(predictions))
        assert measuring._helpers.measured(path) is not None, "it goes on with the next"
        helper.kill()
        assert measuring.measured_in(path, predictions) == measuring.measured(predictions)
        assert measuring._helpers.measured(path) is None


def test_an_answer_that_is_cut_short_is_none(path, predictions, monkeypatch):
    with measuring.helpers(1):
        monkeypatch.setattr(measuring, "_answer", lambda helper, path: '{"metrics": {"clean"')
        assert measuring.measured_in(path, predictions) == measuring.measured(predictions)
        assert measuring._helpers.measured(path) is None


def test_no_helper_outlives_the_block():
    with measuring.helpers(3):
        made = list(measuring._helpers._all)
    assert made
    assert all(helper.returncode is not None for helper in made)
    assert measuring._helpers is None


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks for the process in /proc")
def test_helpers_end_with_a_parent_that_is_killed():
    code = "from orthograd.lab.runs import measuring as m; import time\n"
    code += "with m.helpers(1): print(m._helpers._all[0].pid, flush=True); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    helper = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + PATIENCE
    while _lives(helper) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _lives(helper)


def _lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
