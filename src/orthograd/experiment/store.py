"""Where the results of runs lie: one folder a run, named by the hash of its config."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import durable
from .plain import Config, config_hash
from .problems import StoreError, naming
from .record import RECORD, read_record
from .run_folder import RunFolder

__all__ = ["RunFolder", "Store", "StoreError", "config_hash"]


class Store:
    """A folder of runs. Several processes, on one machine or a shared disk, may use it at once.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(folder.name)
    >>> run = store.get({"arm": "sgd", "seed": 0})
    >>> with run.claim() as is_ours:
    ...     _ = run.finish({"metrics": {"loss": 0.5}})
    >>> [(record["config"]["arm"], record["metrics"]) for record in store.runs()]
    [('sgd', {'loss': 0.5})]
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def get(self, config: Config) -> RunFolder:
        """The folder of the run with this config, on the disk or not yet."""
        return RunFolder(self.folder, config)

    def runs(self) -> Iterator[dict[str, Any]]:
        """The record of every finished run, in the order of their hashes; StoreError at one that is not sound."""
        if not durable.exists(self.folder):
            return
        with naming(self.folder, "be listed"):
            folders = sorted(self.folder.iterdir())
        for folder in folders:
            if durable.exists(folder / RECORD):
                yield read_record(folder)
