"""A lock between processes that the operating system releases when its owner dies."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from .problems import naming

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def exclusive(path: Path) -> Iterator[bool]:
    """Whether the lock on this file is ours until the end of the block; never waits.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, exclusive(Path(folder, "lock")) as first:
    ...     with exclusive(Path(folder, "lock")) as second:
    ...         print(first, second)
    True False
    """
    with naming(path, "be opened"):
        file = open(path, "ab")  # noqa: SIM115 - closed below, where errors of the block do not pass for those of opening
    # The file stays: were it deleted, two processes could lock two files of one name.
    with file:
        is_ours = _is_locked_by_us(file, path)
        try:
            yield is_ours
        finally:
            # Processes forked in the block share the lock: it ends here, not with the last of them.
            if is_ours and fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_UN)


def _is_locked_by_us(file: IO[bytes], path: Path) -> bool:
    if fcntl is None:
        warnings.warn(
            f"{path}: this system has no fcntl, so runs are not locked: let one process at a time use the store",
            RuntimeWarning,
            stacklevel=2,
        )
        return True
    with naming(path, "be locked"):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True
