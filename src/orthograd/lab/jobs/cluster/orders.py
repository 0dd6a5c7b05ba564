"""What the driver sends to a worker of the cluster, and what it hears from there."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from ..files import JsonObject
from ..jobs import Event
from .shipment import Shipment


@dataclass(frozen=True)
class Surroundings:
    """Where the driver finds modules and data; a worker on the same paths finds them there too."""

    path: tuple[str, ...]
    folder: str
    variables: dict[str, str]

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        path = tuple(os.path.abspath(entry) for entry in sys.path)
        variables = {name: os.environ[name] for name in ("ORTHOGRAD_DATA",) if name in os.environ}
        return cls(path, os.getcwd(), variables)

    def enter(self) -> None:
        """Make them those of this process, as far as they exist on this machine."""
        sys.path.extend(entry for entry in self.path if entry not in sys.path and os.path.exists(entry))
        for name, value in self.variables.items():
            os.environ.setdefault(name, value)
        if os.path.isdir(self.folder):
            os.chdir(self.folder)


@dataclass(frozen=True)
class Order:
    """A run to be done by a worker."""

    job: bytes
    """Pickled: it can be read only where the run's module is found, which the surroundings help with."""
    config: JsonObject
    marker: Path | None
    """A file beside the runs, which a worker sees if it shares the driver's disk; None: ship the result."""
    surroundings: Surroundings
    threads: int


@dataclass(frozen=True)
class Place:
    """Where a run is being done, the first message from there."""

    node: str
    process: int
    output: str | None

    def __str__(self) -> str:
        prints = f", what it printed: {self.output}" if self.output else ""
        return f"on {self.node}, process {self.process}{prints}"


@dataclass(frozen=True)
class Unshared:
    """The worker does not see the driver's store."""


Message = Event | Place | Shipment | Unshared
