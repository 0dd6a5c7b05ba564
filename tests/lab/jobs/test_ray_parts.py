"""The parts of the Ray executor that need no cluster."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys

import pytest

from orthograd.lab.jobs.cluster import node
from orthograd.lab.jobs.cluster.executor import RayCluster
from orthograd.lab.jobs.cluster.messages import Order, Place, Shipment, Surroundings, Unshared, packed, unpack
from orthograd.lab.jobs.executors import execute
from orthograd.lab.jobs.files import StoreError
from orthograd.lab.jobs.jobs import Job
from orthograd.lab.jobs.store import Store
from tests.lab.jobs import toy_runs


@pytest.fixture
def finished(tmp_path):
    """A finished run in another store."""
    elsewhere = Store(tmp_path / "elsewhere")
    execute(toy_runs.grid(1, epochs=2), toy_runs.train, elsewhere)
    return elsewhere.get(toy_runs.grid(1, epochs=2)[0])


def order(store, marker):
    (config,) = toy_runs.grid(1, epochs=2)
    return Order(pickle.dumps(Job(toy_runs.train, store.folder, config)), config, marker, Surroundings.here(), 1)


def test_ray_is_imported_only_when_it_is_used():
    code = "import sys, orthograd.lab.jobs, orthograd.lab.jobs.cluster; print('ray' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_without_ray_the_message_says_what_to_install(store, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install '\.\[ray\]'"):
        execute(toy_runs.grid(1), toy_runs.train, store, executor=RayCluster())


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"max_concurrent": 0}, "max_concurrent of at least 1, got 0"),
        ({"gpus_per_run": -1}, "gpus_per_run not below 0, got -1"),
        ({"cpus_per_run": 0}, "cpus_per_run above 0 and retries not below 0, got 0, 3"),
        ({"retries": -1}, "got 1, -1"),
    ],
)
def test_options_are_checked(options, words):
    with pytest.raises(ValueError, match=words):
        RayCluster(**options)


def test_a_shipped_run_is_the_same_in_the_other_store(finished, store):
    other = store.get(finished.config)
    with other.claim():
        unpack(packed(finished), other)
    assert other.record() == finished.record()
    other.verify()
    assert sorted(path.name for path in other.path.iterdir()) == sorted(path.name for path in finished.path.iterdir())


def test_what_was_altered_on_the_way_is_refused_and_leaves_no_record(finished, store):
    shipment, other = packed(finished), store.get(finished.config)
    cases = [
        (dataclasses.replace(shipment, files={**shipment.files, "logits.safetensors": b"?"}), "got .* from the worker"),
        (dataclasses.replace(shipment, files={**shipment.files, "../stray": b"?"}), "expected files of this folder"),
        (Shipment({**shipment.record, "hash": "0"}, shipment.files), "expected the result of run"),
    ]
    with other.claim():
        for altered, words in cases:
            with pytest.raises(StoreError, match=words):
                unpack(altered, other)
    assert not other.is_finished


def test_a_worker_that_does_not_see_the_store_says_so(store):
    messages = list(node.messages(order(store, store.folder / ".driver-1")))
    assert [type(message) for message in messages] == [Place, Unshared]


def test_a_worker_that_ships_keeps_nothing_behind(store, tmp_path, monkeypatch):
    monkeypatch.setattr(node.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    _, *events, shipment = node.messages(order(store, None))
    assert [event.type for event in events] == ["started", "progress", "progress"]
    assert set(shipment.files) == {"logits.safetensors", toy_runs.EPOCHS_LOG}
    assert not list(node.local_store(store.folder).iterdir())
    assert not store.folder.exists()


def test_a_run_that_cannot_be_imported_is_a_failure(store):
    unreadable = dataclasses.replace(order(store, None), job=b"cno_such_module\nrun\n.")
    _, event = node.messages(unreadable)
    assert event.type == "failed"
    assert "No module named 'no_such_module'" in event.error
