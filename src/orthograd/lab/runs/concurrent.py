"""Concurrent runs on one GPU, in threads of this process: each waits for the GPU most of the time."""

from __future__ import annotations

import dataclasses
import itertools
import os
import queue
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

import torch

from ..gpu import QUEUES
from ..gpu.gpu import GPU
from ..jobs.jobs import Agenda, Event, Job, OnEvent, attempt
from ..training.config import Config
from .evaluation import Helpers
from .prediction import prepare_prediction
from .run import prepare_diagnosis

BEING_EVALUATED = 1
"""Runs beyond the fastest concurrency, since some run is usually computing metrics without the GPU."""


class ConcurrentRuns:
    """Concurrent runs on the GPU of this machine: a given number, or the fastest by measurement.

    Concurrent runs do not change the bits of a run. Precisions are done one after another, each on a GPU opened for it.
    The number of concurrent runs is measured for each network. It can do runs on the CPU as well.
    """

    def __init__(self, runs: int | None = None) -> None:
        if runs is not None and runs < 1:
            raise ValueError(f"expected runs of at least 1, got {runs}")
        self.runs = runs
        os.environ.setdefault(*QUEUES)

    def perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        """See `Executor.perform`."""
        with _one_thread_each(), ExitStack() as opened:
            has_gpu = any(_is_on_gpu(job) for job in jobs)
            helpers = opened.enter_context(Helpers(self.runs or len(jobs))) if has_gpu else None
            for precision, group in itertools.groupby(sorted(jobs, key=_precision), key=_precision):
                self._perform_in(precision, list(group), on_event, helpers)

    def _perform_in(self, precision: str, jobs: Sequence[Job], on_event: OnEvent, helpers: Helpers | None) -> None:
        with GPU(precision) as gpu:
            for _, group in itertools.groupby(jobs, key=_model):
                gpu.drop_slots()  # frees the memory of the networks before
                self._perform([_on(gpu, helpers, job) for job in group], on_event, gpu)

    def _perform(self, jobs: Sequence[Job], on_event: OnEvent, gpu: GPU) -> None:
        runs = min(len(jobs), self.runs or fastest_concurrency(jobs[0], len(jobs), gpu) + BEING_EVALUATED)
        if _is_on_gpu(jobs[0]):
            _get_ready(Config.from_dict(jobs[0].config), gpu)
        agenda, crew = Agenda(jobs), _Crew()
        try:
            while agenda or crew.working:
                while crew.working < runs and (job := agenda.take()):
                    crew.assign(job)
                has_room = crew.working < runs
                news = crew.event(agenda.seconds_to_wait() if has_room else None)
                if news and (news[1].type != "busy" or agenda.postpone(*news)):
                    on_event(news[1])
        finally:
            crew.stop()


def fastest_concurrency(job: Job, most: int, gpu: GPU) -> int:
    """Fastest number of concurrent runs like this one, up to ``most``.

    The measurement captures the CUDA graphs of that many slots, which the first runs then use.
    """
    return gpu.fastest_concurrency(Config.from_dict(job.config), most) if _is_on_gpu(job) else 1


def _on(gpu: GPU, helpers: Helpers | None, job: Job) -> Job:
    """The job; a job on a GPU gets this one and the helpers."""
    if not _is_on_gpu(job):
        return job
    run = partial(job.run, gpu=gpu, helpers=helpers)  # type: ignore[call-arg] # jobs know nothing of GPUs
    return dataclasses.replace(job, run=run)


def _is_on_gpu(job: Job) -> bool:
    return job.config.get("device") == "cuda"


def _precision(job: Job) -> str:
    return str(job.config.get("precision", "float32"))


def _model(job: Job) -> str:
    return str(job.config.get("model"))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Use one CPU thread per run: if each took all cores, runs that end together would wait for one another.

    Sums then do not depend on the number of cores either.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # for this thread and those started from now on
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _get_ready(config: Config, gpu: GPU) -> None:
    """Load kernels for evaluation before training: during training that is slow, and runs would wait."""
    try:
        prepare_prediction(config, gpu)
        prepare_diagnosis(config, gpu)
    except Exception as error:  # the first evaluation tries again
        warnings.warn(f"could not prepare the evaluation, so the first networks wait for it: {error!r}", stacklevel=1)


class _Stopped(BaseException):
    """Raised to stop a run; not an Exception, so that it does not count as a failure."""


class _Crew:
    """One thread per run in progress."""

    def __init__(self) -> None:
        self._news: queue.Queue[tuple[Job, Event]] = queue.Queue()
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
        """The next event; None after the timeout in seconds. A run that has ended has no thread."""
        try:
            # Wait at most a second: some systems would not notice Ctrl-C.
            job, event = self._news.get(timeout=1.0 if timeout is None else min(timeout, 1.0))
        except queue.Empty:
            return None
        if event.is_last or event.type == "busy":
            self._threads.pop(event.hash).join()
        return job, event

    def stop(self) -> None:
        """Stop each run at the end of its epoch or evaluation."""
        self._is_stopping.set()
        for thread in self._threads.values():
            thread.join()

    def _do(self, job: Job) -> None:
        def tell(event: Event) -> None:
            if self._is_stopping.is_set():
                raise _Stopped
            self._news.put((job, event))

        try:
            self._news.put((job, attempt(job, tell)))
        except _Stopped:
            return
