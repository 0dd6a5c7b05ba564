"""A real Ray cluster of two nodes: deaths lose no finished run and change no bit of a result."""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from itertools import accumulate

import pytest
import torch

from orthograd.lab.jobs.cluster.executor import RayCluster
from orthograd.lab.jobs.cluster.node import local_store
from orthograd.lab.jobs.executors import InProcess, execute
from orthograd.lab.jobs.jobs import ExperimentError, Grid
from orthograd.lab.jobs.store import Store
from orthograd.lab.runs.concurrent import ConcurrentRuns
from orthograd.lab.runs.run import run
from orthograd.lab.training.config import Config
from tests.lab.jobs import toy_runs
from tests.lab.jobs.ray_nodes import SMALL, Driver, has_mount_namespaces, two_nodes, wait_until, workers_at_work
from tests.lab.jobs.test_kills import assert_all_is_whole, results

pytestmark = [pytest.mark.slow]
ray = pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture(scope="module")
def cluster():
    nodes = two_nodes()
    yield nodes
    nodes.shutdown()


def are_quiet():
    """True if no worker does a run for two seconds: a starting one does not show yet."""
    for _ in range(20):
        if workers_at_work():
            return False
        time.sleep(0.1)
    return True


@pytest.fixture(scope="module")
def connected(cluster):
    """This process as a driver, for tests that do not kill it: its workers are kept and import torch once."""
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()


@pytest.fixture(autouse=True)
def _no_remains(store):
    """Remove checkpoints that failed runs of shipping workers leave on this machine."""
    yield
    shutil.rmtree(local_store(store.folder), ignore_errors=True)


def undisturbed(grid, folder, train=toy_runs.train):
    """Records of the same runs, done one after another with as many threads as a worker has."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return execute(grid, train, Store(folder / "alone"), executor=InProcess())
    finally:
        torch.set_num_threads(before)


def assert_same_bits(grid, store, other):
    for config in grid:
        one, two = store.get(config), other.get(config)
        names = sorted(path.name for path in two.path.glob("[!.]*"))
        assert sorted(path.name for path in one.path.glob("[!.]*")) == names
        for path in one.path.glob("*.safetensors"):
            assert path.read_bytes() == (two.path / path.name).read_bytes()


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("shared", [None, False], ids=["shared", "shipped"])
def test_runs_in_a_cluster_end_as_those_done_one_by_one(tmp_path, store, shared):
    grid, told = toy_runs.grid(6, epochs=4), []
    executor = RayCluster(shared_store=shared)
    records = execute(grid, toy_runs.train, store, executor=executor, on_event=told.append)
    assert results(records) == results(undisturbed(grid, tmp_path))
    assert_same_bits(grid, store, Store(tmp_path / "alone"))
    for config in grid:
        types = [event.type for event in told if event.config == config]
        assert types == ["started", *["progress"] * 4, "finished"]
        assert toy_runs.epochs_trained(store.get(config)) == [0, 1, 2, 3]
    assert not list(store.folder.glob(".*")), "the driver left its marker"
    assert execute(grid, toy_runs.fragile, store, executor=executor) == records


@pytest.mark.usefixtures("connected")
def test_networks_trained_in_a_cluster_have_the_same_bits(tmp_path, store):
    grid = Grid(Config(epochs=1, method=method).as_dict() for method in ("baseline", "orthograd"))
    records, alone = execute(grid, run, store, executor=RayCluster()), undisturbed(grid, tmp_path, run)
    for name in ("metrics", "losses", "files", "weight_norm", "hardware"):
        assert [record[name] for record in records] == [record[name] for record in alone], name


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "shipped"])
def test_a_run_that_fails_is_explained_beside_it_and_does_not_stop_the_others(store, shared):
    grid = Grid({"epochs": 2, "seed": seed, "how": how} for seed, how in enumerate(["raise", "well", "exit", "well"]))
    with pytest.raises(ExperimentError, match="2 of 4 runs failed") as caught:
        execute(grid, toy_runs.fragile, store, executor=RayCluster(shared_store=shared))
    assert [failure.config["how"] for failure in caught.value.failures] == ["raise", "exit"]
    assert [store.get(config).is_finished for config in grid] == [False, True, False, True]
    path = store.get(grid[0]).path / "failure.txt"
    assert f"kept in {path}" in str(caught.value)
    for words in ("ArithmeticError: diverged at seed 0", "toy_runs.py", "process", "output in "):
        assert words in path.read_text()
    execute(grid[:1], toy_runs.train, store, executor=RayCluster(shared_store=shared))
    assert not path.exists()


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("shared", [True, False], ids=["shared", "shipped"])
def test_a_worker_that_dies_is_tried_again_from_its_checkpoint_but_not_for_ever(store, shared):
    grid, told = Grid({"epochs": 8, "seed": 1, "how": how} for how in ("die", "die_after_record", "well")), []
    executor = RayCluster(shared_store=shared)
    (record, *_) = execute(grid, toy_runs.fragile, store, executor=executor, on_event=told.append)
    assert [event.type for event in told if event.is_last] == ["finished"] * 3
    assert toy_runs.epochs_trained(store.get(grid[0])) == [5, 6, 7]
    assert len(record["metrics"]["losses"]) == 3
    dies = Grid([{"epochs": 8, "seed": 2, "how": "die"}])
    with pytest.raises(ExperimentError, match=r"process \d+(.|\n)*the worker died, in 1 of 1 attempts"):
        execute(dies, toy_runs.fragile, store, executor=RayCluster(shared_store=shared, retries=0))


def test_a_worker_killed_and_a_node_killed_cost_only_their_unfinished_runs(tmp_path, connected, store):
    grid, told, killed = toy_runs.grid(6, epochs=20, seconds=0.03), [], set()
    node = connected.add_node(**SMALL)

    def notice(event):
        told.append(event)
        if event.type == "progress" and event.progress["epoch"] == 5 and not killed:
            killed.add("worker")
            os.kill(workers_at_work()[0], signal.SIGKILL)
        if event.type == "finished" and "node" not in killed:
            killed.add("node")
            threading.Thread(target=connected.remove_node, args=(node,), kwargs={"allow_graceful": False}).start()

    records = execute(grid, toy_runs.train, store, executor=RayCluster(), on_event=notice)
    assert killed == {"worker", "node"}
    assert results(records) == results(undisturbed(grid, tmp_path))
    assert sorted(event.hash for event in told if event.type == "finished") == sorted(store.get(c).hash for c in grid)
    for config in grid:  # from their checkpoints: at most the current epoch is repeated
        assert len(toy_runs.epochs_trained(store.get(config))) <= 20 + len(killed)


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "shipped"])
def test_a_driver_killed_and_started_again_ends_as_one_left_in_peace(tmp_path, cluster, store, shared):
    grid = toy_runs.grid(5, epochs=12, seconds=0.05)
    driver = Driver(cluster.address, store, runs=5, epochs=12, shared=shared)
    driver.wait_for("finished")
    driver.wait_for("progress")
    assert driver.end(signal.SIGKILL) == -signal.SIGKILL
    wait_until(are_quiet)  # workers outlive it for a while, and may finish another run meanwhile
    assert_all_is_whole(grid, store)
    before = {config["seed"] for config in grid if store.get(config).is_finished}
    assert before
    second = Driver(cluster.address, store, runs=5, epochs=12, shared=shared)
    assert second.end() == 0
    assert set(second.told("skipped")) == {store.get(config).hash for config in grid if config["seed"] in before}
    assert results(store.get(config).record() for config in grid) == results(undisturbed(grid, tmp_path))
    for config in grid:
        epochs = toy_runs.epochs_trained(store.get(config))
        assert set(epochs) == set(range(12))
        assert len(epochs) <= 12 + (config["seed"] not in before)


def test_ctrl_c_ends_the_runs_and_leaves_them_resumable(cluster, store):
    grid = toy_runs.grid(3, epochs=100_000, seconds=0.05)
    driver = Driver(cluster.address, store, runs=3, epochs=100_000)
    driver.wait_for("progress")
    assert driver.end(signal.SIGINT) == 130
    assert not driver.told("failed")
    wait_until(lambda: not workers_at_work())  # left alone, the runs would take hours
    assert_all_is_whole(grid, store)
    assert grid.plan(store).resumable
    with store.get(grid[0]).claim() as is_ours:
        assert is_ours


@pytest.mark.usefixtures("connected")
def test_functions_and_modules_of_the_user_reach_the_workers(tmp_path, store, monkeypatch):
    (tmp_path / "my_nets.py").write_text("def number():\n    return 7\n")
    monkeypatch.syspath_prepend(tmp_path)

    def by_import_path(config, folder, report):
        from importlib import import_module

        return {"metrics": {"number": import_module("my_nets").number()}}

    (record,) = execute([{"seed": 0}], by_import_path, store, executor=RayCluster())
    assert record["metrics"] == {"number": 7}


@pytest.mark.skipif(not has_mount_namespaces(), reason="this user may not make a mount namespace")
def test_workers_that_do_not_see_the_disk_of_the_store_ship_their_results(tmp_path, cluster, store):
    store.folder.mkdir()
    grid, copy = toy_runs.grid(3, epochs=3, seconds=0.05), Store(tmp_path / "copy")
    assert Driver(cluster.address, store, runs=3, epochs=3, shared=None, copy=copy.folder).end() == 0
    assert results(copy.runs()) == results(sorted(undisturbed(grid, tmp_path), key=lambda record: record["hash"]))
    assert_same_bits(grid, copy, Store(tmp_path / "alone"))
    assert not list(store.folder.iterdir()), "a worker wrote to its own disk under the name of the store"


@pytest.mark.parametrize(("share", "at_once"), [(0.5, 2), (1.0, 1)])
def test_runs_with_a_share_of_a_gpu_share_the_machine_that_has_one(tmp_path, connected, store, share, at_once):
    """Ray counts the GPUs that a node declares; these runs use none, so any machine can run this."""
    node = connected.add_node(**SMALL | {"num_cpus": 4, "num_gpus": 1})
    grid, told = toy_runs.grid(4, epochs=10, seconds=0.05, at_once=at_once), []
    records = execute(grid, toy_runs.meeting, store, executor=RayCluster(gpus_per_run=share), on_event=told.append)
    connected.remove_node(node)
    changes = [{"started": 1, "finished": -1}.get(event.type, 0) for event in told]
    assert max(accumulate(changes)) == at_once
    assert results(records) == results(undisturbed(grid, tmp_path))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU: two runs on one are not tried")
def test_two_runs_share_a_gpu(tmp_path, store):
    ray.shutdown()  # the cluster of the other tests has no GPU
    grid = Grid(Config(epochs=1, method=method, device="cuda").as_dict() for method in ("baseline", "orthograd"))
    told = []
    executor = RayCluster(gpus_per_run=0.5)
    records = execute(grid, run, store, executor=executor, on_event=told.append)
    types = [event.type for event in told if event.type in ("started", "finished")]
    assert types[:2] == ["started", "started"], "one waited for the other"
    alone = execute(grid, run, Store(tmp_path / "alone"), executor=ConcurrentRuns(1))
    assert [record["losses"] for record in records] == [record["losses"] for record in alone]
