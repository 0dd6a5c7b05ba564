"""Store of an experiment's runs: one folder each, named by the hash of its config."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from .. import files
from .checkpoints import Checkpoints
from .files import JsonObject, StoreError, as_bytes, as_file, config_hash, plain_copy, read
from .record import CHECKPOINT, CONFIG, FAILURE, RECORD, check_config, read_record, verify_hashes, write_record


class Store:
    """A folder of runs. Several processes, on one machine or a shared disk, may use it at once.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> store = Store(folder.name)
    >>> run = store.get({"method": "sgd", "seed": 0})
    >>> with run.claim() as is_ours:
    ...     _ = run.finish({"metrics": {"loss": 0.5}})
    >>> [(record["config"]["method"], record["metrics"]) for record in store.runs()]
    [('sgd', {'loss': 0.5})]
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def __repr__(self) -> str:
        return f"Store({str(self.folder)!r})"

    def get(self, config: JsonObject) -> RunFolder:
        """The folder of the run with this config, whether it exists on disk or not."""
        return RunFolder(self.folder, config)

    def runs(self) -> Iterator[dict[str, Any]]:
        """The record of every finished run, in the order of their hashes; StoreError at a damaged one."""
        if not files.exists(self.folder):
            return
        with files.naming(self.folder, "be listed"):
            folders = sorted(self.folder.iterdir())
        for folder in folders:
            if files.exists(folder / RECORD):
                yield read_record(folder)


class RunFolder:
    """One run of a store. Any process may read it; only the one that has claimed it may write."""

    def __init__(self, store: Path, config: JsonObject) -> None:
        self.config = plain_copy(config)
        self.hash = config_hash(self.config)
        self.path = Path(store) / self.hash
        self._checkpoints = Checkpoints(self.path, self.hash)
        self._is_claimed = False

    def __repr__(self) -> str:
        return f"RunFolder({str(self.path)!r})"

    @contextmanager
    def claim(self) -> Iterator[bool]:
        """Claim the run until the end of the block; False if another process has claimed it.

        The claim ends with the process, however it dies. Half-written files of earlier owners are removed.
        """
        files.make_folder(self.path)
        with files.exclusive(self.path / "lock") as is_ours:
            if not is_ours:
                yield False
                return
            self._tidy()
            self._is_claimed = True
            try:
                yield True
            finally:
                self._is_claimed = False

    @property
    def is_finished(self) -> bool:
        """True if there is a record; `record()` checks it."""
        return files.exists(self.path / RECORD)

    @property
    def is_resumable(self) -> bool:
        """True if the run is unfinished and has a checkpoint."""
        return self._checkpoints.exist and not self.is_finished

    @property
    def is_untidy(self) -> bool:
        """True if a process died here and left files that a claim would remove."""
        stale = self._checkpoints.exist or files.exists(self.path / FAILURE)
        return (self.is_finished and stale) or bool(files.leftovers(self.path))

    def record(self) -> dict[str, Any]:
        """The finished run's report with "config", "hash" and "files"; StoreError if anything disagrees."""
        return read_record(self.path)

    def verify(self) -> None:
        """Raise StoreError unless every tensor file has the hash in the record."""
        verify_hashes(self.path, self.record())

    def write_tensors(self, name: str, content: dict[str, Tensor]) -> Path:
        """Write NAME.safetensors atomically; return its path."""
        path = self._tensor_path(name)
        self._require_claim(path)
        files.write(path, as_bytes(content))
        return path

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """The tensors of NAME.safetensors."""
        return read(self._tensor_path(name))[0]

    def save_checkpoint(self, content: dict[str, Tensor], state: Any) -> None:
        """Save these tensors and this JSON data as the checkpoint to resume from."""
        self._require_claim(self.path / CHECKPOINT)
        self._checkpoints.save(content, state)

    def load_checkpoint(self) -> tuple[dict[str, Tensor], Any] | None:
        """The tensors and the state last saved, or None."""
        return self._checkpoints.load()

    def finish(self, reported: dict[str, Any]) -> dict[str, Any]:
        """Write the record, which makes the run finished; then remove its checkpoint and failure.txt."""
        self._require_claim(self.path / RECORD)
        record = write_record(self.path, self.config, reported)
        self._remove_stale()
        return record

    def write_failure(self, error: str) -> Path | None:
        """Write the error of a failed attempt to failure.txt; None if the file cannot be written.

        It needs no claim, since the claimant may be dead. The file stays until the run is finished.
        """
        path = self.path / FAILURE
        try:
            files.make_folder(self.path)
            if not files.exists(self.path / CONFIG):
                files.write(self.path / CONFIG, as_file(self.config))
            files.write(path, f"{error.rstrip()}\n".encode(errors="backslashreplace"))
        except files.FileError:
            return None
        return path

    def _tidy(self) -> None:
        for path in files.leftovers(self.path):
            files.remove(path)
        if files.exists(self.path / CONFIG) or self.is_finished or self.is_resumable:
            check_config(self.path)
        else:
            files.write(self.path / CONFIG, as_file(self.config))
        if self.is_finished:
            self._remove_stale()

    def _remove_stale(self) -> None:
        self._checkpoints.remove()
        files.remove(self.path / FAILURE)

    def _require_claim(self, path: Path) -> None:
        if not self._is_claimed:
            raise StoreError(f"{path}: cannot be written outside `with folder.claim() as is_ours` that gave True")
        if self.is_finished:
            raise StoreError(f"{path}: cannot be written, the run is finished")

    def _tensor_path(self, name: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) or name == Path(CHECKPOINT).stem:
            raise ValueError(f"expected a name of letters, digits, _ . - other than 'checkpoint', got {name!r}")
        return self.path / f"{name}.safetensors"
