"""What is told of runs while they are done, and of those that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from .plain import Config, config_hash

Kind = Literal["started", "progress", "finished", "skipped", "busy", "failed"]


@dataclass(frozen=True)
class Event:
    """Something that happened to the run with this config.

    Each run ends with one of `finished`, `skipped` (it was finished before) and `failed`. Before that it may be
    `busy` (another process is at it), `started`, and tell of its `progress`.
    """

    kind: Kind
    config: Config
    progress: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def hash(self) -> str:
        """The name of the run's folder."""
        return config_hash(self.config)

    @property
    def is_last(self) -> bool:
        """Whether nothing more will happen to this run."""
        return self.kind in ("finished", "skipped", "failed")


@dataclass(frozen=True)
class Failure:
    """A run that raised, or whose worker died, why, and the file that says so in the run's folder."""

    config: Config
    error: str
    file: Path | None = None

    def __str__(self) -> str:
        kept = f"\n(kept in {self.file})" if self.file else ""
        return f"run {config_hash(self.config)} {self.config}\n{self.error.rstrip()}{kept}"


class ExperimentError(Exception):
    """Some runs failed; the others are finished, and all may be done again."""

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        self.failures = list(failures)
        self.total = total
        super().__init__(self.failures, total)

    def __str__(self) -> str:
        return "\n\n".join([f"{len(self.failures)} of {self.total} runs failed", *map(str, self.failures)])
