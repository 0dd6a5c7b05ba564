"""Progress over all runs of a comparison: a bar where somebody watches, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console

from ..experiment import Event, config_hash

SECONDS = 60.0
"""Between two lines of a log, at least."""


class Progress:
    """A bar over the epochs of all runs, with the time that is left."""

    def __init__(self, console: Console, configs: Sequence[dict[str, Any]]) -> None:
        self._epochs = {config_hash(config): int(config["epochs"]) for config in configs}
        self._done = dict.fromkeys(self._epochs, 0)
        self._runs = 0
        self._console, self._told = console, time.monotonic()
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
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def notice(self, event: Event) -> None:
        """Take in what happened to a run."""
        name = event.hash
        if event.is_last:
            self._runs += 1
            self._done[name] = self._epochs[name]
        elif event.kind == "progress":
            self._done[name] = int(event.progress["epoch"])
        done = sum(self._done.values())
        self._bar.update(self._task, completed=done, description=self._words())
        if not self._console.is_terminal and time.monotonic() - self._told >= SECONDS:
            self._told = time.monotonic()
            words = f"{self._words()}, {done / sum(self._epochs.values()):.0%} of the epochs"
            self._console.print(f"{time.strftime('%H:%M')}  {words}", highlight=False)

    def _words(self) -> str:
        return f"{self._runs} of {len(self._epochs)} runs"
