"""Progress over all runs of a comparison; silent where nobody watches."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Any

from rich import progress
from rich.console import Console

from ..experiment import Event, config_hash


class Progress:
    """A bar over the epochs of all runs, with the time that is left."""

    def __init__(self, console: Console, configs: Sequence[dict[str, Any]]) -> None:
        self._epochs = {config_hash(config): int(config["epochs"]) for config in configs}
        self._done = dict.fromkeys(self._epochs, 0)
        self._runs = 0
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
        self._bar.update(self._task, completed=sum(self._done.values()), description=self._words())

    def _words(self) -> str:
        return f"{self._runs} of {len(self._epochs)} runs"
