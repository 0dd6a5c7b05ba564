"""What can be wrong with a store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class StoreError(Exception):
    """A file of a store is not what it must be, or cannot be written; the message begins with its path."""


@contextmanager
def naming(path: Path, action: str) -> Iterator[None]:
    """Turn the errors of the operating system into a StoreError that names the file.

    >>> with naming(Path("runs/record.json"), "be read"):
    ...     raise PermissionError(13, "Permission denied")
    Traceback (most recent call last):
    orthograd.experiment.problems.StoreError: runs/record.json: cannot be read: Permission denied
    """
    try:
        yield
    except OSError as error:
        raise StoreError(f"{path}: cannot {action}: {error.strerror or error}") from error
