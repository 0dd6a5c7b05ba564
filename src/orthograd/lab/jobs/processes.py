"""Runs in worker processes of this machine, one per core."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

import torch

from .jobs import Agenda, Event, Job, OnEvent, attempt


def available_cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class ProcessPool:
    """Worker processes that share the cores; by default one per core, with one thread each.

    If a worker dies, only its run fails, and a new worker takes its place. Whatever ends `perform`, Ctrl-C included,
    ends the workers at once; their runs resume from their checkpoints next time. If this process is killed, the
    workers exit.
    """

    def __init__(self, workers: int | None = None) -> None:
        if workers is not None and workers < 1:
            raise ValueError(f"expected at least 1 worker, got {workers}")
        self.workers = available_cores() if workers is None else workers

    @property
    def threads(self) -> int:
        """Threads per worker. Few runs get no more threads: their number can change the last bits of a sum."""
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
                    if event.type != "busy" or agenda.postpone(job, event):
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
        """The next event of each worker; wait for the first, at most until the timeout in seconds."""
        busy = [worker for worker in self._workers if worker.job is not None]
        if not busy:
            time.sleep(timeout or 0.0)
            return
        # A process forked by a dead worker may keep its connection open, so poll whether the worker is alive.
        wait([worker.connection for worker in busy], 1.0 if timeout is None else min(timeout, 1.0))
        for worker in busy:
            job = worker.job
            if job is not None and (event := worker.event()) is not None:
                yield job, event
        self._workers = [worker for worker in self._workers if worker.job is not None or worker.process.is_alive()]

    def stop(self) -> None:
        """End all workers: idle ones by closing the connection, busy ones by SIGTERM, the rest by SIGKILL."""
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


def serve(connection: Connection, threads: int) -> None:
    """Do the jobs that arrive until the parent closes the connection."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        while True:
            connection.send(_reply(connection.recv_bytes(), connection))
    except (EOFError, OSError):
        return


def _reply(message: bytes, connection: Connection) -> Event | str:
    try:
        job: Job = pickle.loads(message)
    except Exception:  # the run's module cannot be imported here
        return traceback.format_exc()
    return attempt(job, connection.send)


def _exit_with_parent() -> None:
    """Exit when the parent is gone, even if it was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A process that the parent forked may keep the pipe open after its death, so the parent's id is checked too.
    while not wait([parent.sentinel], timeout=1.0) and (os.name == "nt" or os.getppid() == parent.pid):
        pass
    os._exit(1)


class Worker:
    """The parent's handle on one worker process and its job."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.job: Job | None = None
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, threads), name="orthograd-worker")
        with _environment(OMP_NUM_THREADS=str(threads)):  # torch reads it when imported, before `serve` can set it
            self.process.start()
        theirs.close()  # otherwise its death would not close the connection

    def assign(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        try:
            self.connection.send_bytes(pickle.dumps(job))
        except OSError:
            return  # it has died: `event` reports it

    def event(self) -> Event | None:
        """Its next event, or None. After a last event, a busy one or its death it has no job."""
        is_dead = not self.process.is_alive()  # asked first: events sent before its death are then in the connection
        try:
            if self.connection.poll():
                return self._received(self.connection.recv())
        except (EOFError, OSError):
            self.process.join(timeout=2.0)
            self.process.kill()
            self.process.join()
            is_dead = True
        return self._death() if is_dead else None

    def _death(self) -> Event:
        assert self.job is not None
        config, self.job = self.job.config, None
        return Event("failed", config, error=f"the worker died ({_ending(self.process.exitcode)})")

    def _received(self, message: Event | str) -> Event:
        assert self.job is not None
        event = Event("failed", self.job.config, error=message) if isinstance(message, str) else message
        if event.is_last or event.type == "busy":
            self.job = None
        return event


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C and timers to the end of the block; processes started in it ignore both: the parent stops them."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # its start, once per process, would let interrupts through
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGALRM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _ending(exitcode: int | None) -> str:
    if exitcode is None or exitcode >= 0:
        return f"exit code {exitcode}"
    return f"signal {-exitcode}, {signal.Signals(-exitcode).name}"
