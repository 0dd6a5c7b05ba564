from __future__ import annotations

import os

import pytest
import torch

from orthograd.lab.jobs import checkpoints
from orthograd.lab.jobs.checkpoints import SLOTS

CONFIG = {"seed": 0}


def saved(run, epochs):
    for epoch in epochs:
        run.save_checkpoint({"weights": torch.full((100 + epoch % 3,), float(epoch))}, epoch)


def loaded_epoch(run):
    tensors, epoch = run.load_checkpoint()
    assert torch.equal(tensors["weights"], torch.full((100 + epoch % 3,), float(epoch)))
    return epoch


def test_between_two_flushes_the_slots_take_turns(store):
    run = store.get(CONFIG)
    with run.claim():
        saved(run, range(1, 2))
        whole = (run.path / "checkpoint.safetensors").read_bytes()
        for epoch in range(2, 8):
            saved(run, [epoch])
            assert loaded_epoch(store.get(CONFIG)) == epoch
        assert (run.path / "checkpoint.safetensors").read_bytes() == whole
        assert all((run.path / name).exists() for name in SLOTS)


@pytest.mark.parametrize("epochs", [2, 3, 4, 7, 8])
@pytest.mark.parametrize("length", [0, 10, 200, -1])
def test_a_slot_half_written_costs_one_epoch(store, epochs, length):
    run = store.get(CONFIG)
    with run.claim():
        saved(run, range(1, epochs + 1))
    newest = run.path / SLOTS[epochs % 2]
    size = newest.stat().st_size
    os.truncate(newest, length % size)
    assert loaded_epoch(store.get(CONFIG)) == epochs - 1


def test_a_slot_of_old_and_new_bytes_is_not_taken_for_whole(store):
    run = store.get(CONFIG)
    with run.claim():
        saved(run, [1, 2, 3, 4])
        old, path = (run.path / SLOTS[0]).read_bytes(), run.path / SLOTS[0]
        saved(run, [5, 6])
        path.write_bytes(path.read_bytes()[:120] + old[120:])
    assert loaded_epoch(store.get(CONFIG)) == 5


def test_a_machine_that_loses_what_was_not_flushed_has_the_last_flush(store, monkeypatch):
    monkeypatch.setattr(checkpoints, "FLUSH_EVERY", 0.0)
    run = store.get(CONFIG)
    with run.claim():
        saved(run, [1, 2, 3])
        assert not any((run.path / name).exists() for name in SLOTS)
        monkeypatch.setattr(checkpoints, "FLUSH_EVERY", 1e9)
        saved(run, [4, 5])
    for name in SLOTS:
        (run.path / name).write_bytes(b"")
    assert loaded_epoch(store.get(CONFIG)) == 3


def test_a_run_taken_up_again_counts_on_from_its_newest_checkpoint(store):
    run = store.get(CONFIG)
    with run.claim():
        saved(run, [1, 2, 3, 4, 5])
    again = store.get(CONFIG)
    with again.claim():
        saved(again, [6])  # the first checkpoint of a process is flushed, and newer than the slots
        assert loaded_epoch(store.get(CONFIG)) == 6
        saved(again, [7])
        assert loaded_epoch(store.get(CONFIG)) == 7
        again.finish({})
    assert sorted(path.name for path in run.path.iterdir()) == ["config.json", "lock", "record.json"]
