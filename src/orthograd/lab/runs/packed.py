"""Several runs at once on one GPU, in threads of this process: each waits for the GPU most of the time."""

from __future__ import annotations

import itertools
import os
import queue
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from ..gpu.packing import fastest_pack as measured
from ..gpu.precision import precision
from ..gpu.queues import QUEUES
from ..gpu.slots import SLOTS
from ..jobs.files import Config
from ..jobs.jobs import Agenda, Event, Job, OnEvent, attempt
from ..training.config import Config as Settings
from .measuring import helpers
from .prediction import prepare
from .run import prepare_diagnosis

BEING_JUDGED = 1
"""Runs beyond the fastest pack: one or another is at its metrics, which leave the GPU to the rest."""


class PackedGPU:
    """Runs side by side on the GPU of this machine; as many as are fastest, found out by trying, if not said.

    A run ends in the same bits whatever runs beside it. Runs of different precision come one kind after another, for
    PyTorch knows only one at a time; networks in a row each have their own pack.
    """

    def __init__(self, runs: int | None = None) -> None:
        if runs is not None and runs < 1:
            raise ValueError(f"expected at least 1 run at a time, got {runs}")
        self.runs = runs
        os.environ.setdefault(*QUEUES)

    def perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        """See `Executor.perform`."""
        by_precision = sorted(jobs, key=_precision)
        has_gpu = any(job.config.get("device") == "cuda" for job in jobs)
        with _one_thread_each(), helpers(self.runs or len(jobs)) if has_gpu else nullcontext():
            for (name, _), group in itertools.groupby(by_precision, key=_kind):
                SLOTS.drop()  # those of the networks before: these need the memory
                with precision(name):
                    self._perform(list(group), on_event)

    def _perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        runs = min(len(jobs), self.runs or fastest_pack(jobs[0].config, len(jobs)) + BEING_JUDGED)
        if jobs[0].config.get("device") == "cuda":
            _get_ready(jobs[0].config)
        agenda, crew = Agenda(jobs), _Crew()
        try:
            while agenda or crew.working:
                while crew.working < runs and (job := agenda.take()):
                    crew.assign(job)
                has_room = crew.working < runs
                told = crew.event(agenda.seconds_to_wait() if has_room else None)
                if told and (told[1].kind != "busy" or agenda.postpone(*told)):
                    on_event(told[1])
        finally:
            crew.stop()


def fastest_pack(config: Config, most: int) -> int:
    """How many runs like this one, of so many at most, are best done side by side."""
    if config.get("device") != "cuda":
        return 1
    return measured(Settings.from_dict(config), most)


def _precision(job: Job) -> str:
    return str(job.config.get("precision", "float32"))


def _kind(job: Job) -> tuple[str, str]:
    return _precision(job), str(job.config.get("model"))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """For what runs leave to the CPU: where each takes all cores, runs that end together wait for one another.

    And sums do not depend on how many cores there are.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # of this thread, and of those that begin from now on
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _get_ready(config: Config) -> None:
    """For what comes after training: beside it kernels take long to load, and runs that end together would wait."""
    settings = Settings.from_dict(config)
    try:
        prepare(settings)
        prepare_diagnosis(settings)
    except Exception as error:  # the first network to be judged meets it again, or does better
        warnings.warn(f"not ready to judge, so that the first networks wait: {error!r}", stacklevel=1)


class _Stopped(BaseException):
    """Raised in a run that is to end now; not an Exception, so that it is no failure of the run."""


class _Crew:
    """A thread for each run that is being done."""

    def __init__(self) -> None:
        self._told: queue.Queue[tuple[Job, Event]] = queue.Queue()
        self._threads: dict[str, threading.Thread] = {}
        self._is_stopping = threading.Event()

    @property
    def working(self) -> int:
        return len(self._threads)

    def assign(self, job: Job) -> None:
        thread = threading.Thread(target=self._do, args=(job,), daemon=True)
        self._threads[Event("started", job.config).hash] = thread
        thread.start()

    def event(self, timeout: float | None) -> tuple[Job, Event] | None:
        """What was told next, waiting no longer than the timeout in seconds; a run that has ended has no thread."""
        try:
            # A wait without an end would not notice Ctrl-C everywhere.
            job, event = self._told.get(timeout=1.0 if timeout is None else min(timeout, 1.0))
        except queue.Empty:
            return None
        if event.is_last or event.kind == "busy":
            self._threads.pop(event.hash).join()
        return job, event

    def stop(self) -> None:
        """Let each run come to the end of its epoch, or of its judgement, and no further."""
        self._is_stopping.set()
        for thread in self._threads.values():
            thread.join()

    def _do(self, job: Job) -> None:
        def tell(event: Event) -> None:
            if self._is_stopping.is_set():
                raise _Stopped
            self._told.put((job, event))

        try:
            self._told.put((job, attempt(job, tell)))
        except _Stopped:
            return
