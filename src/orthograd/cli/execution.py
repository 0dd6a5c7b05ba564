"""How `orthograd compare` and `orthograd reproduce` do their runs: where, with a progress bar and a time limit."""

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
"""What is wrong with what was asked, or with the disk: told in a line, not with a traceback."""
LOG_EVERY = 60.0  # seconds
LONGEST_TIMER = 3e8  # seconds


@dataclass(frozen=True)
class Place:
    """Who does the runs: this machine, or a Ray cluster; and how many at once, None for as many as suit."""

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
    """Do the work; its exit code, 0 if it has none. Where it was stopped, or runs failed, what to do next is said."""
    try:
        return work() or 0
    except KeyboardInterrupt:
        print("Stopped. Nothing is lost: the same command goes on from here.", file=sys.stderr)
        return INTERRUPTED
    except ExperimentError as error:
        print(f"{error}\nThe same command tries these again.", file=sys.stderr)
        return FAILED


def executor_for(base: Config, place: Place) -> Executor:
    """A Ray cluster, concurrent runs on one GPU, or processes on the cores; one worker is this process itself."""
    if place.executor == "ray":
        return RayCluster(place.address, max_concurrent=place.workers, gpus_per_run=place.gpus_per_run)
    if base.device == "cuda":
        return ConcurrentRuns(place.workers)
    return InProcess() if place.workers == 1 else ProcessPool(place.workers)


def require_device(config: Config, place: Place) -> None:
    """Refuse to begin what this machine cannot do."""
    if config.device == "cuda" and place.executor == "local" and not torch.cuda.is_available():
        raise ValueError("expected a GPU for these runs, got none; --device cpu is for small tries")


def executed(
    console: Console,
    grid: Grid,
    store: Store,
    executor: Executor,
    look: Callable[[], None] = lambda: None,
    start: Fingerprint | None = None,
) -> list[dict[str, Any]]:
    """Say how much there is to do, do it under a progress bar, looking whether to stop; the records.

    Where all runs have to start from the same data and network, workers that find others refuse.
    """
    with naming(store.folder, "be made"):  # once, and not in every run anew
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
    """A bar over the epochs of all runs, with the time that is left."""

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
        """Take in what happened to a run."""
        name = event.hash
        if event.is_last:
            self._runs += 1
            self._failed += event.type == "failed"
            self._done[name] = self._epochs[name]
        elif event.type == "progress":
            self._done[name] = int(event.progress["epoch"])
        self._bar.update(self._task, completed=sum(self._done.values()), description=self._words())

    def _log(self) -> None:
        """Also while nothing is noticed: evaluating a network may take minutes, and no epochs."""
        while not self._is_over.wait(LOG_EVERY):
            share = sum(self._done.values()) / sum(self._epochs.values())
            words = f"{time.strftime('%H:%M')}  {self._words()}, {share:.0%} of their epochs"
            self._console.print(words, highlight=False)

    def _words(self) -> str:
        failed = f" ({self._failed} failed)" if self._failed else ""
        return f"{self._runs} of {len(self._epochs)} runs{failed}"


class TimeIsUp(KeyboardInterrupt):
    """Ends training as Ctrl-C does: every run goes on from its checkpoint next time."""


@contextmanager
def interrupted_after(minutes: float | None) -> Iterator[Callable[[], None]]:
    """TimeIsUp in the main thread after so long; None for never.

    By a signal of its own: where Ctrl-C is ignored, as in the background of a script, it comes all the same. Inside a
    destructor Python drops it, so the block is given a function that raises it again, to be called now and then.
    """
    if minutes is None:
        yield lambda: None
        return
    if not hasattr(signal, "setitimer"):
        raise ValueError("expected no time limit on a system that has no timers, such as Windows")

    is_up = threading.Event()

    def end(*_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)  # what ends then must not be interrupted itself
        is_up.set()
        raise TimeIsUp

    def look() -> None:
        if is_up.is_set():
            raise TimeIsUp

    before = signal.signal(signal.SIGALRM, end)
    try:
        # Zero would be never, and no timer counts beyond ten years; and once more every second, for the first may come
        # just before a long sleep.
        signal.setitimer(signal.ITIMER_REAL, min(max(60 * minutes, 1e-6), LONGEST_TIMER), 1.0)
        yield look
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
