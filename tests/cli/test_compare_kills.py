"""`orthograd compare` interrupted and killed: the runs end in the same bits, and no stop costs more than an epoch."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from orthograd.lab.jobs.store import Store
from tests.patience import PATIENCE

COMMAND = [sys.executable, "-m", "orthograd", "compare", "--seeds", "2", "--epochs", "120", "--out"]
# Each stop is a start of three processes. The store is killed at six instants in tests/lab/jobs/test_kills.py.
STOPS = ("Ctrl-C", "killed", "killed as it starts")


def started(folder):
    with folder.with_suffix(".stderr").open("w") as said:
        command = [*COMMAND, str(folder)]
        return subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=said)


def stop(process, how, folder):
    if how == "Ctrl-C":
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
        assert "Run the same command again to resume" in folder.with_suffix(".stderr").read_text()
    else:
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL


def epochs_done(store):
    """Epochs that the checkpoint of each begun run has, by its folder; all of them for a finished one."""
    done = {}
    for path in sorted(store.folder.glob("*/config.json")):
        run = store.get(json.loads(path.read_text()))
        checkpoint = None if run.is_finished else run.load_checkpoint()
        done[run.hash] = 120 if run.is_finished else len(checkpoint[1]["losses"]) if checkpoint else 0
    return done


def wait_for_progress(store, process):
    """Wait for a checkpoint: a run stopped before its first one begins anew, and its record does not tell."""
    before, deadline = sum(epochs_done(store).values()), time.monotonic() + PATIENCE
    while sum(epochs_done(store).values()) == before:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_comparison_stopped_again_and_again_ends_as_one_left_in_peace(tmp_path):
    instants, store = random.Random(0), Store(tmp_path / "torn" / "runs")
    for how in STOPS:
        before = epochs_done(store)
        process = started(tmp_path / "torn")
        if how == "killed as it starts":
            time.sleep(instants.uniform(0, 3))
        else:
            wait_for_progress(store, process)
            time.sleep(instants.uniform(0, 0.15))
        stop(process, how, tmp_path / "torn")
        after = epochs_done(store)
        assert all(after[name] >= epochs for name, epochs in before.items()), "a stop took epochs away"
    assert started(tmp_path / "torn").wait(PATIENCE) == 0
    assert started(tmp_path / "peace").wait(PATIENCE) == 0

    peace = Store(tmp_path / "peace" / "runs")
    for undisturbed, killed in zip(peace.runs(), store.runs(), strict=True):
        for part in ("config", "files", "metrics", "after_temperature", "reliability", "losses", "weight_norm"):
            assert undisturbed[part] == killed[part], part  # files: sizes and SHA-256 of all logits
        store.get(killed["config"]).verify()
        assert len(undisturbed["stretches"]) == 1
        assert killed["seconds"]["training"] == sum(end - begin for begin, end in killed["stretches"])
    assert max(len(killed["stretches"]) for killed in store.runs()) > 1  # and their clocks tell of all of them
    pages = [(tmp_path / name / "comparison.json").read_bytes() for name in ("torn", "peace")]
    assert pages[0] == pages[1]
