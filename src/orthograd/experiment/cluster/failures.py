"""failure.txt: why the last attempt at a run failed, beside what it has saved."""

from __future__ import annotations

from pathlib import Path

from .. import durable
from ..run_folder import RunFolder

FAILURE = "failure.txt"


def write_failure(folder: RunFolder, error: str) -> Path:
    """Leave the reason in the folder of the run."""
    path = folder.path / FAILURE
    durable.make_folder(folder.path)
    durable.write(path, (error.rstrip() + "\n").encode())
    return path


def remove_failure(folder: RunFolder) -> None:
    """A run that has ended well has no failure."""
    if durable.exists(folder.path / FAILURE):
        durable.remove(folder.path / FAILURE)
