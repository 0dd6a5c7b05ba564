"""Execute the runs of a grid in this process, or by another executor."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from .files import JsonObject
from .jobs import Agenda, Event, ExperimentError, Failure, Grid, Job, OnEvent, Run, attempt
from .store import Store


class Executor(Protocol):
    """Brings every job to its last event: finished, skipped or failed.

    An implementation calls `attempt` for each job, in any process, and passes all events to on_event in this process.
    It tries busy jobs again until another process has finished or dropped them.
    """

    def perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        """Return when every job has had its last event."""


class InProcess:
    """Do one run after another in this process: the simplest to debug."""

    def perform(self, jobs: Sequence[Job], on_event: OnEvent) -> None:
        """See `Executor.perform`."""
        agenda = Agenda(jobs)
        while agenda:
            if (job := agenda.take()) is None:
                time.sleep(agenda.seconds_to_wait() or 0.0)
                continue
            event = attempt(job, on_event)
            if event.type != "busy" or agenda.postpone(job, event):
                on_event(event)


def execute(
    configs: Iterable[JsonObject],
    run: Run,
    store: Store,
    *,
    executor: Executor | None = None,
    on_event: OnEvent = lambda event: None,
) -> list[dict[str, Any]]:
    """Do every run that is not finished; return all records in the order of the configs.

    A run resumes from its checkpoint, if `run` supports that. If another process is doing a run, this one waits: it
    uses that record, or does the run itself if the other process drops it. A run that fails does not stop the others.
    Its error is in failure.txt in its folder until it is finished. At the end, ExperimentError has all failures.

    >>> import tempfile
    >>> def run(config, folder, report):
    ...     report({"epoch": 1, "epochs": 1})
    ...     return {"metrics": {"double": 2 * config["seed"]}}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     records = execute(Grid.product({}, seed=[2, 1]), run, Store(folder))
    >>> [record["metrics"]["double"] for record in records]
    [4, 2]
    """
    grid = Grid(configs)
    failures: dict[str, Failure] = {}

    def notice(event: Event) -> None:
        if event.type == "failed":
            file = store.get(event.config).write_failure(event.error)
            failures[event.hash] = Failure(event.config, event.error, file)
        on_event(event)

    jobs = [Job(run, store.folder, config) for config in grid]
    _perform(jobs, store, InProcess() if executor is None else executor, notice)
    runs = [store.get(config) for config in grid]
    if failures:
        raise ExperimentError([failures[run.hash] for run in runs if run.hash in failures], len(grid))
    return [run.record() for run in runs]


def _perform(jobs: list[Job], store: Store, executor: Executor, on_event: OnEvent) -> None:
    """Skip finished runs in this process, so that the executor starts no workers for them."""
    is_done = [store.get(job.config).is_finished for job in jobs]
    InProcess().perform([job for job, done in zip(jobs, is_done, strict=True) if done], on_event)
    if not all(is_done):
        executor.perform([job for job, done in zip(jobs, is_done, strict=True) if not done], on_event)
