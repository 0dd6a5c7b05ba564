"""Progress over all runs of a comparison: a bar where somebody watches, a line a minute in a log."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console

from ..experiment import Event, config_hash

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
