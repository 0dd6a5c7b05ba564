"""Concurrent runs in threads: the executor for a GPU, tested on a CPU."""

from __future__ import annotations

import os
import signal
from contextlib import nullcontext

import pytest
import torch

from orthograd.lab.gpu import QUEUES
from orthograd.lab.jobs.executors import InProcess, execute
from orthograd.lab.jobs.files import config_hash
from orthograd.lab.jobs.jobs import ExperimentError, Grid
from orthograd.lab.jobs.store import Store
from orthograd.lab.runs import concurrent
from orthograd.lab.runs.concurrent import ConcurrentRuns
from orthograd.lab.runs.run import run
from orthograd.lab.training.config import Config
from orthograd.lab.versions import source
from tests.lab.jobs import toy_runs
from tests.lab.jobs.drivers import INTERRUPTED, Driver
from tests.lab.jobs.test_kills import assert_all_is_whole, results


@pytest.fixture
def one_thread():
    """One CPU thread, as in concurrent runs."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("one_thread")
def test_concurrent_runs_end_as_those_done_one_by_one(tmp_path, store):
    grid = toy_runs.grid(7)
    told = []
    done = execute(grid, toy_runs.train, store, executor=ConcurrentRuns(3), on_event=told.append)
    assert results(done) == results(execute(grid, toy_runs.train, Store(tmp_path / "alone")))
    types = [event.type for event in told]
    assert types.count("started") == types.count("finished") == 7
    assert types.index("finished") > types.index("started") + 2  # several were started before one was finished
    assert [event.type for event in _again(grid, store)] == ["skipped"] * 7


def _again(grid, store):
    told = []
    execute(grid, toy_runs.train, store, executor=ConcurrentRuns(3), on_event=told.append)
    return told


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_networks_that_start_at_once_start_as_they_would_alone(tmp_path):
    grid = Grid(
        Config(epochs=1, seed=seed, method=method).as_dict()
        for seed in range(3)
        for method in ("baseline", "orthograd")
    )
    together = execute(grid, run, Store(tmp_path / "together"), executor=ConcurrentRuns(4))
    alone = execute(grid, run, Store(tmp_path / "alone"), executor=InProcess())
    assert [record["losses"] for record in together] == [record["losses"] for record in alone]
    assert [record["files"] for record in together] == [record["files"] for record in alone]
    assert {record["versions"]["source"] for record in together} == {source()}


def test_each_network_in_a_row_has_its_own_number_of_concurrent_runs(store, monkeypatch):
    asked = []

    def fastest(job, most, gpu):
        asked.append((job.config["model"], most))
        return 1

    monkeypatch.setattr("orthograd.lab.runs.concurrent.fastest_concurrency", fastest)
    models = ["small", "small", "large", "large", "small"]
    grid = Grid({"epochs": 1, "seed": seed, "model": model} for seed, model in enumerate(models))
    execute(grid, toy_runs.train, store, executor=ConcurrentRuns())
    assert asked == [("small", 2), ("large", 2), ("small", 1)]


@pytest.mark.parametrize(("fastest", "begun"), [(1, 2), (4, 5)])
def test_more_are_begun_than_train_best_since_some_are_evaluated(store, monkeypatch, fastest, begun):
    monkeypatch.setattr("orthograd.lab.runs.concurrent.fastest_concurrency", lambda job, most, gpu: fastest)
    assign, working = concurrent._Crew.assign, []

    def watched(crew, job):
        assign(crew, job)
        working.append(crew.working)

    monkeypatch.setattr(concurrent._Crew, "assign", watched)
    execute(toy_runs.grid(9), toy_runs.train, store, executor=ConcurrentRuns())
    assert max(working) == begun


@pytest.mark.parametrize(("device", "ready"), [("cuda", [0]), ("cpu", [])])
def test_what_evaluates_networks_is_ready_before_they_train(store, monkeypatch, device, ready):
    begun, made = set(), []

    def epochs(config, folder, report, *, gpu=None, helpers=None):
        assert (gpu is not None) == (helpers is not None) == (device == "cuda")
        begun.add(config["seed"])
        return {}

    def prepare(config, gpu):
        made.append(len(begun))
        raise RuntimeError("whoever is evaluated first will meet it")

    monkeypatch.setattr("orthograd.lab.runs.concurrent.prepare_prediction", prepare)
    grid = Grid(Config(seed=seed, device=device).as_dict() for seed in range(5))
    expected = pytest.warns(UserWarning, match="could not prepare .*will meet it") if ready else nullcontext()
    with expected:
        assert len(execute(grid, epochs, store, executor=ConcurrentRuns(3))) == 5
    assert made == ready


def test_a_run_that_fails_does_not_stop_the_others(store):
    grid = Grid({"epochs": 2, "seed": seed, "how": how} for seed, how in enumerate(["raise", "well", "exit", "well"]))
    with pytest.raises(ExperimentError, match="2 of 4 runs failed") as caught:
        execute(grid, toy_runs.fragile, store, executor=ConcurrentRuns(2))
    assert [failure.config["how"] for failure in caught.value.failures] == ["raise", "exit"]
    assert [store.get(config).is_finished for config in grid] == [False, True, False, True]


@pytest.mark.slow
def test_ctrl_c_ends_every_run_at_the_end_of_its_epoch_and_all_go_on_later(tmp_path, store):
    grid = toy_runs.grid(4, epochs=60)
    driver = Driver(grid, store, ConcurrentRuns(3))
    for config in list(grid)[:3]:
        assert driver.wait_for(f"progress {config_hash(config)}")
    driver.signal(signal.SIGINT, group=False)
    assert driver.join(10) == INTERRUPTED
    assert "failed" not in {name for name, _ in driver.events()}
    assert_all_is_whole(grid, store)
    assert len(grid.plan(store).resumable) == 3
    assert Driver(grid, store, ConcurrentRuns(3)).join(30) == 0
    assert [toy_runs.epochs_trained(store.get(config)) for config in grid] == [list(range(60))] * 4


def test_the_number_of_runs_is_checked():
    with pytest.raises(ValueError, match="runs of at least 1, got 0"):
        ConcurrentRuns(0)


def test_what_runs_leave_to_the_cpu_takes_one_thread_each(store):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        runs = execute(Grid({"seed": seed} for seed in range(3)), toy_runs.threads, store, executor=ConcurrentRuns(3))
        assert [run["threads"] for run in runs] == [1, 1, 1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_runs_have_queues_of_their_own_unless_said_otherwise(monkeypatch):
    name, most = QUEUES
    monkeypatch.delenv(name, raising=False)
    ConcurrentRuns()
    assert os.environ[name] == most
    monkeypatch.setenv(name, "8")
    ConcurrentRuns()
    assert os.environ[name] == "8"
