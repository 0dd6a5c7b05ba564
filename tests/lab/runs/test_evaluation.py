"""Evaluation of predictions, in this process and in others."""

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
from torch.nn import functional

from orthograd import calibration
from orthograd.lab.jobs import files
from orthograd.lab.runs import evaluation
from orthograd.lab.runs.evaluation import Helpers, evaluation_by
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


def as_recorded(result):
    return json.loads(json.dumps(result))


def test_without_helpers_it_is_done_here(path, predictions):
    assert evaluation_by(None, path.with_name("none"), predictions) == evaluation.evaluation(predictions)


def test_helpers_say_the_same(path, predictions):
    wanted = as_recorded(evaluation.evaluation(predictions))
    with Helpers(1) as helpers, pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "evaluation", lambda _: pytest.fail("expected a helper to evaluate"))
        results = [evaluation_by(helpers, path, predictions)]
        threads = [
            threading.Thread(target=lambda: results.append(evaluation_by(helpers, path, predictions))) for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert results == [wanted] * 4


def test_what_a_helper_cannot_do_is_done_here(path, predictions, capfd):
    with Helpers(1) as helpers:
        helper = helpers._all[0]
        path.write_bytes(b"no tensors")
        assert evaluation_by(helpers, path, predictions) == evaluation.evaluation(predictions)
        assert "could not evaluate" in capfd.readouterr().err
        path.write_bytes(files.as_bytes(predictions))
        assert helpers.evaluation(path) is not None, "it goes on with the next"
        helper.kill()
        assert evaluation_by(helpers, path, predictions) == evaluation.evaluation(predictions)
        assert helpers.evaluation(path) is None


def test_a_result_that_is_cut_short_is_none(path, predictions, monkeypatch):
    with Helpers(1) as helpers:
        monkeypatch.setattr(evaluation, "_reply", lambda helper, path: '{"metrics": {"clean"')
        assert evaluation_by(helpers, path, predictions) == evaluation.evaluation(predictions)
        assert helpers.evaluation(path) is None


def test_no_helper_outlives_the_block():
    with Helpers(3) as helpers:
        made = list(helpers._all)
    assert made
    assert all(helper.returncode is not None for helper in made)


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks for the process in /proc")
def test_helpers_end_with_a_parent_that_is_killed():
    code = "from orthograd.lab.runs.evaluation import Helpers; import time\n"
    code += "with Helpers(1) as helpers: print(helpers._all[0].pid, flush=True); time.sleep(60)"
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


def test_shifted_images_are_evaluated_after_the_temperature_of_clean_ones(predictions):
    scaled = evaluation.evaluation(predictions)["after_temperature"]
    fit = calibration.fit_temperatures(predictions["logits.held_out"][None], predictions["labels.held_out"])[0]
    fog = predictions["logits.fog.1"].double() / fit.temperature
    expected = functional.cross_entropy(fog, predictions["labels"])
    assert list(scaled["shifted"]) == ["fog.1"]
    assert scaled["shifted"]["fog.1"]["loss"] == pytest.approx(float(expected), rel=1e-12)
    assert scaled["shifted"]["fog.1"]["loss"] != evaluation.evaluation(predictions)["metrics"]["fog.1"]["loss"]
