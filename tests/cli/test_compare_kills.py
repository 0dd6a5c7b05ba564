"""`orthograd compare` killed again and again: the runs end in the same bits, and no kill costs more than an epoch."""

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

COMMAND = [sys.executable, "-m", "orthograd", "compare", "--seeds", "2", "--epochs", "260", "--out"]
KILLS = 7  # each is a start of three processes; the store is killed at twenty instants in tests/lab/jobs/test_kills.py


def started(folder):
    return subprocess.Popen([*COMMAND, str(folder)], start_new_session=True, stdout=subprocess.DEVNULL)


def epochs_done(store):
    """Epochs that the checkpoint of each begun run has, by its folder; all of them for a finished one."""
    done = {}
    for path in sorted(store.folder.glob("*/config.json")):
        run = store.get(json.loads(path.read_text()))
        checkpoint = None if run.is_finished else run.load_checkpoint()
        done[run.hash] = 260 if run.is_finished else len(checkpoint[1]["losses"]) if checkpoint else 0
    return done


def wait_for_progress(store, process):
    before, deadline = epochs_done(store), time.monotonic() + PATIENCE
    while epochs_done(store) == before:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_comparison_killed_again_and_again_ends_as_one_left_in_peace(tmp_path):
    instants, store = random.Random(0), Store(tmp_path / "torn" / "runs")
    for kill in range(KILLS):
        before = epochs_done(store)
        process = started(tmp_path / "torn")
        if kill % 6 == 5:  # while it starts
            time.sleep(instants.uniform(0, 3))
        else:
            wait_for_progress(store, process)
            time.sleep(instants.uniform(0, 0.15))
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait(PATIENCE) == -signal.SIGKILL
        after = epochs_done(store)
        assert all(after[name] >= epochs for name, epochs in before.items()), "a kill took epochs away"
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
