"""A process that does one run at a time: the part of it that runs there, and the parent's hold on it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait

import torch

from .events import Event
from .jobs import Job, attempt


def serve(connection: Connection, threads: int) -> None:
    """Do the jobs that arrive until the parent hangs up."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        while True:
            connection.send(_answer(connection.recv_bytes(), connection))
    except (EOFError, OSError):
        return


def _answer(message: bytes, connection: Connection) -> Event | str:
    try:
        job: Job = pickle.loads(message)
    except Exception:  # the run's module cannot be imported here
        return traceback.format_exc()
    return attempt(job, connection.send)


def _exit_with_parent() -> None:
    """A parent that was killed must not leave its workers training on."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    # A process that the parent forked may keep the pipe open after its death, so its number is looked at too.
    while not wait([parent.sentinel], timeout=1.0) and (os.name == "nt" or os.getppid() == parent.pid):
        pass
    os._exit(1)


class Worker:
    """The parent's hold on one worker process and the job that it has."""

    def __init__(self, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.job: Job | None = None
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, threads), name="orthograd-worker")
        with _environment(OMP_NUM_THREADS=str(threads)):  # torch reads it when imported, before `serve` can set it
            self.process.start()
        theirs.close()  # else its death would not end the connection

    def assign(self, job: Job) -> None:
        """Send it a job."""
        self.job = job
        try:
            self.connection.send_bytes(pickle.dumps(job))
        except OSError:
            return  # it has died: `event` will tell

    def event(self) -> Event | None:
        """What it has told next, if anything; after a last event, a busy one or its death it has no job."""
        is_dead = not self.process.is_alive()  # asked first: what it told before it died is then in the connection
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
        if event.is_last or event.kind == "busy":
            self.job = None
        return event


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Ctrl-C and timers wait for the end of the block; processes started in it see neither: the parent stops them."""
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
