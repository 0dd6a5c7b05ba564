"""Runs in worker processes of this machine, one at a time in each."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait

from .events import Event
from .jobs import Agenda, Job, OnEvent
from .worker import Worker, interrupts_held_back


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessPool:
    """Worker processes that share the cores; by default one per core, with one thread each.

    A worker that dies costs its run alone: that is told as failed, and a fresh worker takes its place. Whatever ends
    `perform`, Ctrl-C too, ends the workers at once; their runs go on from their checkpoints next time. Should this
    process be killed, they end by themselves.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"expected at least 1 worker, got {workers}")
        self.workers = available_cores() if workers is None else workers

    @property
    def threads(self) -> int:
        """Threads for each worker. Not more when runs are few: their number can change the last bits of a sum."""
        return max(1, available_cores() // self.workers)

    def perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        """See `Executor.perform`."""
        _refuse_local_functions(jobs)
        agenda = Agenda(jobs)
        team = _Team(self.threads)
        try:
            while agenda or team.is_working:
                while team.working < self.workers and (job := agenda.take()):
                    team.assign(job)
                has_room = team.working < self.workers
                for job, event in team.events(agenda.seconds_to_wait() if has_room else None):
                    if event.kind != "busy" or agenda.postpone(job, event):
                        on_event(event)
        finally:
            team.stop()


class _Team:
    """The workers, started when first needed."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers: list[Worker] = []

    @property
    def working(self) -> int:
        return sum(worker.job is not None for worker in self._workers)

    @property
    def is_working(self) -> bool:
        return self.working > 0

    def assign(self, job: Job) -> None:
        idle = (worker for worker in self._workers if worker.job is None and worker.process.is_alive())
        worker = next(idle, None)
        if worker is None:
            with interrupts_held_back():
                worker = Worker(self._threads)
                self._workers.append(worker)
        worker.assign(job)

    def events(self, timeout: float | None) -> Iterator[tuple[Job, Event]]:
        """What each worker has told next, waiting a while for the first, but no longer than the timeout in seconds."""
        busy = [worker for worker in self._workers if worker.job is not None]
        if not busy:
            time.sleep(timeout or 0.0)
            return
        # What a dead worker has forked may keep its connection open, so whether it lives is asked now and then.
        wait([worker.connection for worker in busy], 1.0 if timeout is None else min(timeout, 1.0))
        for worker in busy:
            job = worker.job
            if job is not None and (event := worker.event()) is not None:
                yield job, event
        self._workers = [worker for worker in self._workers if worker.job is not None or worker.process.is_alive()]

    def stop(self) -> None:
        """End all: who is idle by hanging up, who works by SIGTERM, and who then still lives by SIGKILL."""
        for worker in self._workers:
            if worker.job is not None:
                worker.process.terminate()
            worker.connection.close()
        deadline = time.monotonic() + 2.0
        for worker in self._workers:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            worker.process.join()


def _refuse_local_functions(jobs: Sequence[Job]) -> None:
    for job in jobs[:1]:
        try:
            pickle.dumps(job.run)
        except Exception as error:
            raise TypeError(
                f"expected a run that workers can import from a module, got {job.run!r}: {error}"
            ) from error
