from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import ExitStack

import pytest

from orthograd.lab.jobs.executors import InProcess, execute
from orthograd.lab.jobs.files import StoreError
from orthograd.lab.jobs.jobs import ExperimentError, Grid
from orthograd.lab.jobs.processes import ProcessPool, available_cores
from orthograd.lab.jobs.store import Store
from orthograd.lab.runs.concurrent import ConcurrentRuns
from tests.lab.jobs import toy_runs
from tests.patience import PATIENCE


def types(events, config):
    return [event.type for event in events if event.config == config]


def test_records_come_in_the_order_of_the_configs_and_events_as_they_happen(store):
    grid, events = Grid.product({"epochs": 2, "seconds": 0}, seed=[3, 1, 2]), []
    records = execute(grid, toy_runs.train, store, on_event=events.append)
    assert [record["config"] for record in records] == list(grid)
    assert types(events, grid[0]) == ["started", "progress", "progress", "finished"]
    assert events[2].progress == {"epoch": 2, "epochs": 2}
    events.clear()
    assert execute(grid, toy_runs.fragile, store, on_event=events.append) == records
    assert [(event.type, event.config) for event in events] == [("skipped", config) for config in grid]


def test_a_failing_run_is_named_and_does_not_stop_the_others(store):
    grid = Grid.product({"epochs": 2, "seconds": 0, "seed": 7}, how=["raise", "well", "exit"])
    with pytest.raises(ExperimentError) as caught:
        execute(grid, toy_runs.fragile, store)
    assert [failure.config for failure in caught.value.failures] == [grid[0], grid[2]]
    for words in ("2 of 3 runs failed", "'how': 'raise'", store.get(grid[0]).hash, "toy_runs.py", "diverged at seed 7"):
        assert words in str(caught.value)
    assert [record["config"] for record in store.runs()] == [grid[1]]


@pytest.mark.parametrize(
    "executor",
    [InProcess(), pytest.param(ProcessPool(2), marks=pytest.mark.slow), ConcurrentRuns(2)],
    ids=lambda it: type(it).__name__,
)
def test_why_a_run_failed_is_beside_it_until_it_is_finished(store, executor):
    grid = Grid.product({"epochs": 2, "seconds": 0, "seed": 7}, how=["raise", "well", "exit"])
    with pytest.raises(ExperimentError) as caught:
        execute(grid, toy_runs.fragile, store, executor=executor)
    paths = [store.get(config).path / "failure.txt" for config in grid]
    assert [path.exists() for path in paths] == [True, False, True]
    for failure in caught.value.failures:
        path = store.get(failure.config).path / "failure.txt"
        assert path.read_text() == failure.error
        assert f"kept in {path}" in str(failure)
    assert paths[0].read_text().endswith("ArithmeticError: diverged at seed 7\n")
    execute(grid, toy_runs.train, store, executor=executor)
    assert not any(path.exists() for path in paths)


def test_the_reason_of_a_failure_outlives_no_finished_run(store):
    grid = toy_runs.grid(1, epochs=1)
    execute(grid, toy_runs.train, store)
    path = store.get(grid[0]).write_failure("told late, by a process that another one has overtaken")
    assert path.exists()
    execute(grid, toy_runs.fragile, store)
    assert not path.exists()


def test_a_disk_that_refuses_the_reason_of_a_failure_changes_nothing_else(tmp_path):
    refused = Store(tmp_path / "file")
    refused.folder.write_text("")  # where the folder should be
    with pytest.raises(ExperimentError, match="1 of 1 runs failed") as caught:
        execute([{"seed": 0, "how": "raise"}], toy_runs.fragile, refused)
    assert caught.value.failures[0].file is None
    assert "kept in" not in str(caught.value)


def test_a_record_that_is_not_sound_is_a_failure_and_stays_as_it_is(store):
    grid = toy_runs.grid(2, epochs=1)
    execute(grid, toy_runs.train, store)
    path = store.get(grid[0]).path / "record.json"
    path.write_text("{")
    with pytest.raises(ExperimentError, match=r"1 of 2 runs failed(.|\n)*record.json: expected JSON"):
        execute(grid, toy_runs.train, store)
    assert path.read_text() == "{"
    with pytest.raises(StoreError, match=r"record.json: expected JSON"):
        grid.plan(store)


@pytest.mark.parametrize("is_finished_by_the_other", [True, False])
def test_a_busy_run_is_waited_for_and_told_once(store, is_finished_by_the_other):
    grid, events = toy_runs.grid(3, epochs=1), []
    other = store.get(grid[0])
    with ExitStack() as claim:
        claim.enter_context(other.claim())

        def notice(event):
            events.append(event)
            if event.type == "finished" and event.config == grid[2]:
                if is_finished_by_the_other:
                    other.finish({"metrics": {"by": "other"}})
                claim.close()

        records = execute(grid, toy_runs.train, store, on_event=notice)
    assert ("by" in records[0]["metrics"]) == is_finished_by_the_other
    last = ["skipped"] if is_finished_by_the_other else ["started", "progress", "finished"]
    assert types(events, grid[0]) == ["busy", *last]


def test_an_interrupt_leaves_the_run_resumable_and_free(store):
    grid = toy_runs.grid(2, epochs=4, seconds=0)

    def interrupt(event):
        if event.progress.get("epoch") == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute(grid, toy_runs.train, store, executor=InProcess(), on_event=interrupt)
    assert grid.plan(store).resumable == [grid[0]]
    execute(grid, toy_runs.train, store)
    assert [toy_runs.epochs_trained(store.get(config)) for config in grid] == [[0, 1, 2, 3]] * 2


def test_a_run_that_workers_cannot_import_is_refused_before_any_starts(store):
    with pytest.raises(TypeError, match="workers can import from a module, got <function"):
        execute(toy_runs.grid(1), lambda config, folder, report: {}, store, executor=ProcessPool(1))
    with pytest.raises(ValueError, match="at least 1 worker, got 0"):
        ProcessPool(0)


def test_workers_share_the_cores():
    cores = available_cores()
    assert (ProcessPool().workers, ProcessPool().threads) == (cores, 1)
    assert ProcessPool(1).threads == cores
    assert ProcessPool(2 * cores).threads == 1


@pytest.mark.slow
def test_a_pool_survives_the_death_of_a_worker_and_resumes_its_run(store, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    grid, events = Grid.product({"epochs": 8, "seed": 1}, how=["die", "raise", "well", "fine", "more"]), []
    with pytest.raises(ExperimentError) as caught:
        execute(grid, toy_runs.fragile, store, executor=ProcessPool(2), on_event=events.append)
    died, raised = caught.value.failures
    assert (died.config, died.error) == (grid[0], "the worker died (signal 9, SIGKILL)")
    assert (store.get(died.config).path / "failure.txt").read_text() == "the worker died (signal 9, SIGKILL)\n"
    assert raised.config == grid[1]
    assert "ArithmeticError: diverged at seed 1" in raised.error
    assert types(events, grid[0]) == ["started", "failed"]
    for config in grid[2:]:
        assert types(events, config) == ["started", *["progress"] * 8, "finished"]
    assert store.get(grid[2]).record()["threads"] * 2 <= max(2, available_cores())
    assert "OMP_NUM_THREADS" not in os.environ

    (record,) = execute(grid[:1], toy_runs.fragile, store)
    assert toy_runs.epochs_trained(store.get(grid[0])) == [5, 6, 7]
    assert len(record["metrics"]["losses"]) == 3


@pytest.mark.slow
def test_the_death_of_a_worker_is_noticed_though_its_child_lives_on(store):
    grid = Grid.product({"epochs": 2, "seed": 1}, how=["orphan", "well"])
    with pytest.raises(ExperimentError, match="the worker died") as caught:
        execute(grid, toy_runs.fragile, store, executor=ProcessPool(1))
    assert [failure.config for failure in caught.value.failures] == [grid[0]]
    assert store.get(grid[1]).is_finished
    run = store.get(grid[0])
    os.kill(int((run.path / "child").read_text()), signal.SIGKILL)


@pytest.mark.slow
def test_a_run_of_the_main_script_works_and_one_that_cannot_be_imported_is_explained(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run([sys.executable, script, tmp_path / "runs"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.split() == ["[0,", "2]", "ModuleNotFoundError"], done.stderr


SCRIPT = """
import sys
from orthograd.lab.jobs.executors import execute
from orthograd.lab.jobs.jobs import Grid
from orthograd.lab.jobs.jobs import ExperimentError
from orthograd.lab.jobs.processes import ProcessPool
from orthograd.lab.jobs.store import Store

def run(config, folder, report):
    return {"double": 2 * config["seed"]}

if __name__ == "__main__":
    store = Store(sys.argv[1])
    print([r["double"] for r in execute(Grid.product({}, seed=[0, 1]), run, store, executor=ProcessPool(1))])
    run.__module__ = "elsewhere"
    sys.modules["elsewhere"] = sys.modules["__main__"]
    try:
        execute([{"seed": 2}], run, store, executor=ProcessPool(1))
    except ExperimentError as error:
        print(error.failures[0].error.strip().splitlines()[-1].split(":")[0])
"""
