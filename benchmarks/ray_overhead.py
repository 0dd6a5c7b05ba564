"""Claim: Ray takes at most 1.15 × the wall time of the process pool, and per run 20 ms of the driver and no memory."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import torch
from _record import conclude, parser

from orthograd.lab.bench.claim import Claim, Key
from orthograd.lab.jobs.cluster.executor import RayCluster
from orthograd.lab.jobs.executors import Executor, execute
from orthograd.lab.jobs.jobs import Event, Grid
from orthograd.lab.jobs.processes import ProcessPool
from orthograd.lab.jobs.store import Store
from orthograd.lab.runs.run import run
from orthograd.lab.training.config import Config

WORKERS, RUNS, EPOCHS, TURNS, TRIVIAL = 2, 20, 5, 3, 1000


def claims() -> Iterator[Claim]:
    import ray

    ray.init(
        address="local", num_cpus=WORKERS, include_dashboard=False, object_store_memory=100 << 20, log_to_driver=False
    )
    turns: dict[str, list[float]] = {"pool, s": [], "Ray, s": []}
    for turn in range(TURNS):
        for name in sorted(turns, reverse=turn % 2 == 1):
            turns[name].append(short_runs(RayCluster() if name == "Ray, s" else ProcessPool(WORKERS)))
    seconds = {name: median(times) for name, times in turns.items()}
    ratio = seconds["Ray, s"] / seconds["pool, s"]
    key = Key("Ray over the process pool", setting=f"{RUNS} runs of {EPOCHS} epochs, after start-up")
    yield Claim(key, ratio, 1.15, seconds)
    yield from trivial_runs()
    ray.shutdown()


def short_runs(executor: Executor) -> float:
    """Seconds of the runs, after a first one per worker, which includes imports."""
    grid = Grid(Config(epochs=EPOCHS, seed=seed).as_dict() for seed in range(WORKERS + RUNS))
    finished: list[float] = []

    def notice(event: Event) -> None:
        if event.type == "finished":
            finished.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        execute(grid, run, Store(folder), executor=executor, on_event=notice)
    return finished[-1] - finished[WORKERS - 1]


def trivial_runs() -> Iterator[Claim]:
    grid = Grid.product({}, seed=range(TRIVIAL))
    memory: list[float] = []

    def notice(event: Event) -> None:
        if event.type == "finished":
            memory.append(resident())

    with tempfile.TemporaryDirectory() as folder:
        execute(grid[:WORKERS], trivial, Store(Path(folder, "first")), executor=RayCluster())
        busy, started = time.process_time(), time.perf_counter()
        execute(grid, trivial, Store(folder), executor=RayCluster(), on_event=notice)
        busy, wall = time.process_time() - busy, time.perf_counter() - started
    others = {"wall ms a run, with the runs": 1e3 * wall / TRIVIAL}
    driver = Key("driver", setting=f"{TRIVIAL} trivial runs", unit="ms a run")
    yield Claim(driver, 1e3 * busy / TRIVIAL, 20.0, others)
    growth = Key("driver's memory", setting=f"from run 200 to run {TRIVIAL}", unit="MiB")
    yield Claim(growth, memory[-1] - memory[199], 8.0)


def trivial(config: dict[str, Any], folder: Any, report: Any) -> dict[str, Any]:
    return {"double": 2 * config["seed"]}


def resident() -> float:
    """Resident memory of this process in MiB (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    conclude(claims(), torch.device("cpu"), parser(__doc__).parse_args().record)
