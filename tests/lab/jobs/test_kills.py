from __future__ import annotations

import random
import signal
import time
from itertools import pairwise

import pytest

from orthograd.lab.jobs.executors import InProcess, execute
from orthograd.lab.jobs.files import StoreError
from orthograd.lab.jobs.processes import ProcessPool
from orthograd.lab.jobs.store import Store
from tests.lab.jobs import toy_runs
from tests.lab.jobs.drivers import INTERRUPTED, Driver
from tests.patience import PATIENCE


def results(records):
    return [{name: part for name, part in record.items() if name not in ("timings", "sha256")} for record in records]


def wait_until(is_so):
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def assert_all_is_whole(grid, store):
    for config in grid:
        run = store.get(config)
        if run.is_finished:
            run.verify()
        elif (checkpoint := run.load_checkpoint()) is not None:
            epoch = checkpoint[1]["epoch"]
            assert len(checkpoint[1]["losses"]) == epoch
            assert float(checkpoint[0]["weights"].square().mean()) == checkpoint[1]["losses"][-1]


@pytest.mark.slow
def test_a_grid_killed_at_six_instants_ends_as_one_left_in_peace(tmp_path, store):
    instants, kills, epochs = random.Random(0), 6, 100  # more work than a fast machine does between the kills
    grid = toy_runs.grid(6, epochs=epochs)
    for kill in range(kills):
        driver = Driver(grid, store, ProcessPool(2))
        if kill % 5 == 3:  # while the workers are starting
            time.sleep(instants.uniform(0, 2.5))
        else:
            assert driver.wait_for("started")
            time.sleep(instants.uniform(0, 0.12))
        driver.signal(signal.SIGKILL, group=True)
        assert driver.join() == -signal.SIGKILL, "it ended before it could be killed"
        driver.wait_for_all()
        assert_all_is_whole(grid, store)
    assert Driver(grid, store, ProcessPool(2)).join() == 0

    peace = Store(tmp_path / "peace")
    undisturbed = execute(grid, toy_runs.train, peace, executor=ProcessPool(2))
    assert results(store.get(config).record() for config in grid) == results(undisturbed)
    for config in grid:
        run, other = store.get(config), peace.get(config)
        assert (run.path / "logits.safetensors").read_bytes() == (other.path / "logits.safetensors").read_bytes()
        assert sorted(path.name for path in run.path.iterdir()) == sorted(path.name for path in other.path.iterdir())
        trained = toy_runs.epochs_trained(run)
        assert set(trained) == set(range(epochs))
        assert all(later - earlier in (0, 1) for earlier, later in pairwise(trained))
        assert len(trained) <= epochs + kills
    assert sum(len(toy_runs.epochs_trained(store.get(config))) for config in grid) <= 6 * epochs + 2 * kills


@pytest.mark.parametrize(
    "executors",
    [(InProcess(), InProcess()), pytest.param((ProcessPool(2), ProcessPool(1)), marks=pytest.mark.slow)],
    ids=["in process", "pools"],
)
def test_two_drivers_do_every_run_once(store, executors):
    grid = toy_runs.grid(6)
    drivers = [Driver(grid, store, executor) for executor in executors]
    assert [driver.join() for driver in drivers] == [0, 0]
    events = [driver.events() for driver in drivers]
    finished = [name for told in events for event, name in told if event == "finished"]
    assert sorted(finished) == sorted(store.get(config).hash for config in grid)
    for told in events:
        assert len([event for event, _ in told if event in ("finished", "skipped")]) == len(grid)
    assert [toy_runs.epochs_trained(store.get(config)) for config in grid] == [list(range(20))] * 6
    for config in grid:
        store.get(config).verify()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "group"),
    [
        (signal.SIGINT, True),  # like Ctrl-C in a terminal
        (signal.SIGINT, False),
        (signal.SIGTERM, False),
        (signal.SIGKILL, False),
    ],
)
def test_the_end_of_the_driver_is_the_end_of_its_workers(store, number, group):
    # Quiet, so that no worker notices by a failed report. Left alone, the runs would take far longer than PATIENCE.
    grid = toy_runs.grid(3, epochs=1_000_000, is_quiet=True)
    driver = Driver(grid, store, ProcessPool(2))
    assert driver.wait_for("started")
    wait_until(lambda: store.get(grid[0]).is_resumable)
    driver.signal(number, group=group)
    assert driver.join() == (INTERRUPTED if number == signal.SIGINT else -number)
    driver.wait_for_all()
    assert "failed" not in {event for event, _ in driver.events()}
    assert grid.plan(store).resumable
    assert_all_is_whole(grid, store)
    with store.get(grid[0]).claim() as is_ours:
        assert is_ours


def test_a_killed_owner_frees_its_run(store):
    grid = toy_runs.grid(1, epochs=30)
    driver = Driver(grid, store, InProcess())
    assert driver.wait_for("progress")
    run = store.get(grid[0])
    with run.claim() as is_ours:
        assert not is_ours
    with pytest.raises(StoreError, match="cannot be written outside"):
        run.save_checkpoint({}, 1)
    driver.signal(signal.SIGKILL, group=True)
    driver.join()
    events = []
    execute(grid, toy_runs.train, store, on_event=events.append)
    assert events[0].type == "started"
    assert events[1].progress["epoch"] > 1
