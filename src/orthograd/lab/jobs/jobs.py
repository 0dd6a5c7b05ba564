"""The runs of an experiment as jobs, one attempt at a job, and its events."""

from __future__ import annotations

import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from .files import JsonObject, config_hash, plain_copy
from .store import RunFolder, Store


@dataclass(frozen=True)
class Plan:
    """Configs of a grid by their state in a store, each list in the order of the grid."""

    finished: list[JsonObject]
    resumable: list[JsonObject]
    missing: list[JsonObject]


class Grid(Sequence[JsonObject]):
    """An ordered list of configs, no two of them equal.

    >>> grid = Grid.product({"epochs": 3}, method=["sgd", "orthograd"], seed=[0, 1])
    >>> len(grid), grid[1]
    (4, {'epochs': 3, 'method': 'sgd', 'seed': 1})
    """

    def __init__(self, configs: Iterable[JsonObject]) -> None:
        self._configs = [plain_copy(config) for config in configs]
        places: dict[str, int] = {}
        for i, config in enumerate(self._configs):
            first = places.setdefault(config_hash(config), i)
            if first != i:
                raise ValueError(f"expected different configs, got the same at {first} and {i}: {config}")

    @classmethod
    def product(cls, base: JsonObject, **axes: Iterable[Any]) -> Grid:
        """Every combination of the axes' values on top of base; the last axis changes fastest."""
        if taken := sorted(set(base) & set(axes)):
            raise ValueError(f"expected axes that are not in base, got {', '.join(taken)} in both")
        return cls(base | dict(zip(axes, values, strict=True)) for values in product(*axes.values()))

    def plan(self, store: Store) -> Plan:
        """Configs that are finished, have a checkpoint, or are missing; StoreError if a record is damaged."""
        plan = Plan([], [], [])
        for config in self._configs:
            run = store.get(config)
            if run.is_finished:
                run.record()
                plan.finished.append(config)
            else:
                (plan.resumable if run.is_resumable else plan.missing).append(config)
        return plan

    def __iter__(self) -> Iterator[JsonObject]:
        return iter(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def __getitem__(self, index: Any) -> Any:
        return self._configs[index]


EventType = Literal["started", "progress", "finished", "skipped", "busy", "failed"]


@dataclass(frozen=True)
class Event:
    """An event of the run with this config.

    The last event of a run is `finished`, `skipped` (it was finished before) or `failed`. Earlier ones are `busy`
    (another process is doing the run), `started` and `progress`.
    """

    type: EventType
    config: JsonObject
    progress: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def hash(self) -> str:
        """Hash of the config, which names the run's folder."""
        return config_hash(self.config)

    @property
    def is_last(self) -> bool:
        """True if this is the last event of its run."""
        return self.type in ("finished", "skipped", "failed")


@dataclass(frozen=True)
class Failure:
    """A run that raised or whose worker died, the error, and the file in its folder that has the error."""

    config: JsonObject
    error: str
    file: Path | None = None

    def __str__(self) -> str:
        kept = f"\n(kept in {self.file})" if self.file else ""
        return f"run {config_hash(self.config)} {self.config}\n{self.error.rstrip()}{kept}"


class ExperimentError(Exception):
    """Some runs failed, the others are finished. Executing again repeats only the failed ones."""

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        self.failures = list(failures)
        self.total = total
        super().__init__(self.failures, total)

    def __str__(self) -> str:
        return "\n\n".join([f"{len(self.failures)} of {self.total} runs failed", *map(str, self.failures)])


Report = Callable[[dict[str, Any]], None]
Run = Callable[[JsonObject, RunFolder, Report], dict[str, Any]]
OnEvent = Callable[[Event], None]


@dataclass(frozen=True)
class Job:
    """A config, the function that runs it, and the store for the result."""

    run: Run
    store: Path
    config: JsonObject


def attempt(job: Job, on_event: OnEvent) -> Event:
    """Do the run unless it is finished or another process is doing it; return the last event.

    The last event is not passed to on_event.
    """
    try:
        folder = RunFolder(job.store, job.config)
        if folder.is_finished and not folder.is_untidy:
            return _skipped(folder)
        with folder.claim() as is_ours:
            if not is_ours:
                return Event("busy", job.config)
            return _skipped(folder) if folder.is_finished else _finished(job, folder, on_event)
    except (Exception, SystemExit):  # a run that calls sys.exit() must not end the others
        return Event("failed", job.config, error=traceback.format_exc())


def _skipped(folder: RunFolder) -> Event:
    folder.record()  # raises if damaged: such a run is neither skipped nor silently repeated
    return Event("skipped", folder.config)


def _finished(job: Job, folder: RunFolder, on_event: OnEvent) -> Event:
    on_event(Event("started", job.config))
    reported = job.run(folder.config, folder, lambda progress: on_event(Event("progress", job.config, progress)))
    folder.finish(reported)
    return Event("finished", job.config)


class Agenda:
    """Jobs still to be attempted, in order; those that are busy are attempted again later."""

    PAUSE = 0.25  # seconds

    def __init__(self, jobs: Iterable[Job]) -> None:
        self._jobs = deque(jobs)
        self._busy: deque[tuple[float, Job]] = deque()
        self._told: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self._jobs or self._busy)

    def take(self) -> Job | None:
        """A job to attempt now, or None."""
        if self._jobs:
            return self._jobs.popleft()
        if self._busy and self._busy[0][0] <= time.monotonic():
            return self._busy.popleft()[1]
        return None

    def postpone(self, job: Job, event: Event) -> bool:
        """Keep a busy job for later; return True the first time, the only one worth reporting."""
        self._busy.append((time.monotonic() + self.PAUSE, job))
        is_news = event.hash not in self._told
        self._told.add(event.hash)
        return is_news

    def seconds_to_wait(self) -> float | None:
        """Seconds until `take` returns a job again; None if no busy job is waiting."""
        return max(0.0, self._busy[0][0] - time.monotonic()) if self._busy else None
