"""Progress over all runs of a comparison: a bar where somebody watches, a line a minute in a log; and a time limit."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console

from ..lab.jobs.files import config_hash
from ..lab.jobs.jobs import Event

SECONDS = 60.0
"""Between two lines of a log."""


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
            self._failed += event.kind == "failed"
            self._done[name] = self._epochs[name]
        elif event.kind == "progress":
            self._done[name] = int(event.progress["epoch"])
        self._bar.update(self._task, completed=sum(self._done.values()), description=self._words())

    def _log(self) -> None:
        """Also while nothing is noticed: judging a network may take minutes, and no epochs."""
        while not self._is_over.wait(SECONDS):
            share = sum(self._done.values()) / sum(self._epochs.values())
            words = f"{time.strftime('%H:%M')}  {self._words()}, {share:.0%} of their epochs"
            self._console.print(words, highlight=False)

    def _words(self) -> str:
        failed = f" ({self._failed} failed)" if self._failed else ""
        return f"{self._runs} of {len(self._epochs)} runs{failed}"


LONGEST = 3e8  # seconds


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
        signal.setitimer(signal.ITIMER_REAL, min(max(60 * minutes, 1e-6), LONGEST), 1.0)
        yield look
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
