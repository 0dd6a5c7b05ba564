"""A file beside the runs by which a worker knows that it sees the same disk as the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .. import files


@contextmanager
def marked(store: Path) -> Iterator[Path]:
    """Its path, while it exists; the name has never been used before, so a copy of the store has no such file."""
    files.make_folder(store)
    path = store / f".driver-{uuid.uuid4().hex}"
    files.write(path, b"")
    try:
        yield path
    finally:
        files.remove(path)
