"""Executor for a Ray cluster."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ... import files
from ..jobs import Job, OnEvent
from .driver import Driver, Fleet

LOOK_AGAIN = 2.0  # seconds between queries of the cluster's size
OBJECT_STORE = 200 << 20  # bytes; only results pass through it, and it spills to disk


class RayCluster:
    """Do runs as tasks of a Ray cluster, each with its share of cores and GPUs (``gpus_per_run=0.25``: four per GPU).

    Workers that share the disk of the store write to it directly. Others keep checkpoints on their own disk and ship
    results to this process, which writes them to the store. ``shared_store`` says which; by default it is detected.
    If a worker or machine dies, its runs resume from their last checkpoint, up to ``retries`` times. Whatever ends
    `perform` ends the runs. Without an address or RAY_ADDRESS, the cluster is this machine.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        max_concurrent: int | None = None,
        gpus_per_run: float | None = None,
        cpus_per_run: float = 1,
        retries: int = 3,
        shared_store: bool | None = None,
    ) -> None:
        if max_concurrent is not None and max_concurrent < 1:
            raise ValueError(f"expected max_concurrent of at least 1, got {max_concurrent}")
        if gpus_per_run is not None and gpus_per_run < 0:
            raise ValueError(f"expected gpus_per_run not below 0, got {gpus_per_run}")
        if cpus_per_run <= 0 or retries < 0:
            raise ValueError(f"expected cpus_per_run above 0 and retries not below 0, got {cpus_per_run}, {retries}")
        self.address, self.max_concurrent, self.shared_store = address, max_concurrent, shared_store
        self.gpus_per_run, self.cpus_per_run, self.retries = gpus_per_run, cpus_per_run, retries

    def perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        """See `Executor.perform`."""
        if not jobs:
            return
        with connected(self.address) as ray, marked(jobs[0].store) as marker:
            gpus = self._gpus(jobs[0])
            limit = _Limit(ray, self, gpus)
            fleet = Fleet(ray, cpus=self.cpus_per_run)
            driver = Driver(jobs, fleet, self, marker, gpus, on_event)
            try:
                while driver.is_at_work:
                    driver.advance(limit())
            finally:
                fleet.stop()

    def _gpus(self, job: Job) -> float:
        if self.gpus_per_run is not None:
            return self.gpus_per_run
        return 1.0 if job.config.get("device") == "cuda" else 0.0


class _Limit:
    """Most concurrent runs: more would only wait in the cluster's memory."""

    def __init__(self, ray: Any, options: RayCluster, gpus: float) -> None:
        self._ray, self._options, self._gpus = ray, options, gpus
        self._asked = time.monotonic()
        self._room = self._counted()
        if not self._room and options.max_concurrent is None:
            raise ValueError(
                f"expected a cluster with {options.cpus_per_run:g} cores and {gpus:g} GPUs for a run, "
                f"got one with {self._has('CPU'):g} and {self._has('GPU'):g}"
            )

    def __call__(self) -> int:
        if self._options.max_concurrent is not None:
            return self._options.max_concurrent
        if time.monotonic() - self._asked > LOOK_AGAIN:  # machines join and leave
            self._asked, self._room = time.monotonic(), self._counted()
        return max(1, self._room)

    def _counted(self) -> int:
        by_cpu = self._has("CPU") / self._options.cpus_per_run
        return int(min(by_cpu, self._has("GPU") / self._gpus) if self._gpus else by_cpu)

    def _has(self, resource: str) -> float:
        return float(self._ray.cluster_resources().get(resource, 0.0))


def imported_ray() -> Any:
    """The module ray; ImportError with the install command if it is missing."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("expected Ray to be installed: pip install '.[ray]'") from error
    return ray


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The module ray, connected: by the caller already, else to the address or to RAY_ADDRESS.

    Without these, to a cluster of this machine only.
    """
    ray = imported_ray()
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    alone = {"include_dashboard": False, "object_store_memory": OBJECT_STORE} if address == "local" else {}
    ray.init(address=address, log_to_driver=False, logging_level="error", **alone)
    try:
        yield ray
    finally:
        ray.shutdown()


@contextmanager
def marked(store: Path) -> Iterator[Path]:
    """Path of a temporary marker file in the store; a worker that sees it has the same disk as the driver.

    Its name is unique, so a copy of the store does not have it.
    """
    files.make_folder(store)
    path = store / f".driver-{uuid.uuid4().hex}"
    files.write(path, b"")
    try:
        yield path
    finally:
        files.remove(path)
