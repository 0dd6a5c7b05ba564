"""Runs for `orthograd compare` and `orthograd reproduce`: executor, progress bar and time limit."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

import torch
from rich import progress
from rich.console import Console

from ..lab.files import naming
from ..lab.jobs.cluster.executor import RayCluster
from ..lab.jobs.executors import Executor, InProcess, execute
from ..lab.jobs.files import config_hash
from ..lab.jobs.jobs import Event, ExperimentError, Grid
from ..lab.jobs.processes import ProcessPool
from ..lab.jobs.record import Fingerprint
from ..lab.jobs.store import Store
from ..lab.runs.concurrent import ConcurrentRuns
from ..lab.runs.run import run
from ..lab.training.config import Config
from .options import refuse_ignored

FAILED, INTERRUPTED = 1, 130
Failures = (ValueError, TypeError, OSError, ImportError)
"""Errors in the request or on the disk, which are printed in one line without a traceback."""
LOG_EVERY = 60.0  # seconds
LONGEST_TIMER = 3e8  # seconds


@dataclass(frozen=True)
class Place:
    """The place of the runs: this machine or a Ray cluster, and how many at once (None: automatic)."""

    executor: str = "local"
    workers: int | None = None
    address: str | None = None
    gpus_per_run: float | None = None

    def __post_init__(self) -> None:
        if self.executor not in ("local", "ray"):
            raise ValueError(f"expected the executor local or ray, got {self.executor}")
        if self.executor != "ray":
            of_ray = {"--address": self.address is not None, "--gpus-per-run": self.gpus_per_run is not None}
            refuse_ignored(of_ray, "without --executor ray")


def exit_code(work: Callable[[], int | None]) -> int:
    """Do the work; its exit code. If it is interrupted or runs fail, print what to do next."""
    try:
        return work() or 0
    except KeyboardInterrupt:
        print("Interrupted. Run the same command again to resume.", file=sys.stderr)
        return INTERRUPTED
    except ExperimentError as error:
        print(f"{error}\nRun the same command again to retry these.", file=sys.stderr)
        return FAILED


def executor_for(base: Config, place: Place) -> Executor:
    """A Ray cluster, concurrent runs on one GPU, or processes on the cores; with one worker, this process."""
    if place.executor == "ray":
        return RayCluster(place.address, max_concurrent=place.workers, gpus_per_run=place.gpus_per_run)
    if base.device == "cuda":
        return ConcurrentRuns(place.workers)
    return InProcess() if place.workers == 1 else ProcessPool(place.workers)


def require_device(config: Config, place: Place) -> None:
    """Raise ValueError if the runs need a GPU and this machine has none."""
    if config.device == "cuda" and place.executor == "local" and not torch.cuda.is_available():
        raise ValueError("expected a GPU for these runs, got none; use --device cpu for small tests")


def executed(
    console: Console,
    grid: Grid,
    store: Store,
    executor: Executor,
    look: Callable[[], None] = lambda: None,
    start: Fingerprint | None = None,
) -> list[dict[str, Any]]:
    """Do the runs under a progress bar; their records. ``look`` is called at every event and may raise to stop.

    If ``start`` is given, workers refuse runs whose data or network differ from it.
    """
    with naming(store.folder, "be made"):  # once, not in every run
        store.folder.mkdir(parents=True, exist_ok=True)
    plan = grid.plan(store)
    done = f", {len(plan.finished)} of them done" if plan.finished else ""
    console.print(f"{len(grid)} runs{done}, in {store.folder}", soft_wrap=True)
    with Progress(console, grid) as bar:

        def notice(event: Event) -> None:
            bar.notice(event)
            look()

        return execute(grid, partial(run, expected=start), store, executor=executor, on_event=notice)


class Progress:
    """A progress bar over the epochs of all runs, with the remaining time."""

    def __init__(self, console: Console, configs: Sequence[dict[str, Any]]) -> None:
        self._epochs = {config_hash(config): int(config["epochs"]) for config in configs}
        self._done = dict.fromkeys(self._epochs, 0)
        self._runs = self._failed = 0
        self._console, self._is_over = console, threading.Event()
        self._lines = threading.Thread(target=self._log, daemon=True)
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(self._words(), total=sum(self._epochs.values()))

    def __enter__(self) -> Progress:
        self._bar.start()
        if not self._console.is_terminal:
            self._lines.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        if self._lines.is_alive():
            self._lines.join()
        self._bar.stop()

    def notice(self, event: Event) -> None:
        """Update the bar with an event of a run."""
        name = event.hash
        if event.is_last:
            self._runs += 1
            self._failed += event.type == "failed"
            self._done[name] = self._epochs[name]
        elif event.type == "progress":
            self._done[name] = int(event.progress["epoch"])
        self._bar.update(self._task, completed=sum(self._done.values()), description=self._words())

    def _log(self) -> None:
        """Print a line every minute, also without events: evaluation may take minutes."""
        while not self._is_over.wait(LOG_EVERY):
            share = sum(self._done.values()) / sum(self._epochs.values())
            words = f"{time.strftime('%H:%M')}  {self._words()}, {share:.0%} of their epochs"
            self._console.print(words, highlight=False)

    def _words(self) -> str:
        failed = f" ({self._failed} failed)" if self._failed else ""
        return f"{self._runs} of {len(self._epochs)} runs{failed}"


class TimeIsUp(KeyboardInterrupt):
    """Ends training as Ctrl-C does: every run resumes from its checkpoint next time."""


@contextmanager
def interrupted_after(minutes: float | None) -> Iterator[Callable[[], None]]:
    """Raise TimeIsUp in the main thread after some minutes; None for never.

    It uses its own signal, which works where Ctrl-C is ignored, as in the background of a script. Python drops
    exceptions inside destructors, so the block gets a function that raises it again, to be called now and then.
    """
    if minutes is None:
        yield lambda: None
        return
    if not hasattr(signal, "setitimer"):
        raise ValueError("expected no time limit on a system without interval timers, such as Windows")

    is_up = threading.Event()

    def end(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # cleaning up must not be interrupted
        is_up.set()
        raise TimeIsUp

    def look() -> None:
        if is_up.is_set():
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    try:
        # Zero would mean never, and timers end at ten years. Repeated every second: the first signal may come just
        # before a long sleep.
        signal.setitimer(signal.ITIMER_REAL, min(max(60 * minutes, 1e-6), LONGEST_TIMER), 1.0)
        yield look
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
