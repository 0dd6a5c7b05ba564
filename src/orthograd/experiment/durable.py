"""Files that are whole at every instant: written beside, flushed to the disk, then moved into place."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from .problems import naming

UNFINISHED = ".unfinished"


def write(path: Path, data: bytes) -> None:
    """Put data at the path; whoever looks, even after a crash, finds what was there before or all of data.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "a.json"), b"{}")
    ...     [path.name for path in Path(folder).iterdir()]
    ['a.json']
    """
    unfinished = path.with_name(f".{path.name}-{os.getpid()}{UNFINISHED}")
    with naming(path, "be written"):
        try:
            _write_through(unfinished, data)
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        flush_folder(path.parent)


def remove(path: Path) -> None:
    """Delete the file for good; no matter if there is none."""
    with naming(path, "be removed"), suppress(FileNotFoundError):
        path.unlink()
        flush_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make the folder and those above it, so that a crash does not take them away again."""
    with naming(path, "be made a folder"):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            flush_folder(folder.parent)


def exists(path: Path) -> bool:
    """Whether there is such a file; a folder that may not be searched is an error, not a no."""
    with naming(path, "be looked for"):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def leftovers(folder: Path) -> list[Path]:
    """What writers that crashed have left."""
    return sorted(folder.glob(f".*{UNFINISHED}"))


def flush_folder(folder: Path) -> None:
    """A move is on the disk only when its folder is."""
    if os.name == "nt":
        return  # where folders cannot be opened
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_through(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
