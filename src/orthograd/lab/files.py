"""Atomic file writes, and a lock between processes: the lab's one writer and one lock."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

UNFINISHED = ".unfinished"


class FileError(OSError):
    """A file cannot be read, written or locked; the message begins with its path."""


class NoLocksError(FileError):
    """The file system has no locks, like some network disks."""


@contextmanager
def naming(path: Path, action: str) -> Iterator[None]:
    """Turn errors of the operating system into a FileError that names the file.

    >>> with naming(Path("runs/record.json"), "be read"):
    ...     raise PermissionError(13, "Permission denied")
    Traceback (most recent call last):
    orthograd.lab.files.FileError: runs/record.json: cannot be read: Permission denied
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # it has a message already
        raise FileError(f"{path}: cannot {action}: {error.strerror or error}") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path to write to in the block; at its end the file replaces the one at ``path``.

    At every instant, even after a crash, ``path`` has all of the old content or all of the new.
    """
    # The suffix is kept: some writers choose the format by it.
    unfinished = path.with_name(f".{path.stem}-{os.getpid()}{UNFINISHED}{path.suffix}")
    with naming(path, "be written"):
        try:
            yield unfinished
            _flush(unfinished)
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        flush_folder(path.parent)


def write(path: Path, *pieces: bytes | memoryview) -> None:
    """Write the pieces to the path, one after the other, atomically.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "a.json"), b"{", b"}")
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('a.json', b'{}')]
    """
    with replacing(path) as unfinished, open(unfinished, "wb") as file:
        for piece in pieces:
            file.write(piece)


def write_text(path: Path, text: str) -> Path:
    """Write a text file atomically, making its folders; return its path."""
    make_folder(path.parent)
    write(path, text.encode())
    return path


def remove(path: Path) -> None:
    """Delete the file, if there is one."""
    with naming(path, "be removed"), suppress(FileNotFoundError):
        path.unlink()
        flush_folder(path.parent)


def make_folder(path: Path) -> None:
    """Make the folder and those above it, flushed to disk so that they survive a crash."""
    with naming(path, "be made a folder"):
        missing = [folder for folder in (path, *path.parents) if not folder.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for folder in missing:
            flush_folder(folder.parent)


def exists(path: Path) -> bool:
    """True if the file exists; a folder without search permission raises FileError."""
    with naming(path, "be looked for"):
        try:
            path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
    return True


def leftovers(folder: Path) -> list[Path]:
    """Temporary files left by writers that crashed."""
    return sorted(folder.glob(f".*{UNFINISHED}*"))


def flush_folder(folder: Path) -> None:
    """Flush a folder to disk: a moved file survives a crash only then."""
    if os.name == "nt":
        return  # folders cannot be opened there
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flush(path: Path) -> None:
    with open(path, "r+b") as file:
        os.fsync(file.fileno())


@contextmanager
def exclusive(path: Path, *, before_waiting: Callable[[], object] | None = None) -> Iterator[bool]:
    """Lock the file until the end of the block; False, at once, if another process has the lock.

    With ``before_waiting``, call that and then wait for the lock. The lock ends with the process, however it dies.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, exclusive(Path(folder, "lock")) as first:
    ...     with exclusive(Path(folder, "lock")) as second:
    ...         print(first, second)
    True False
    """
    with naming(path, "be opened"):
        file = open(path, "ab")  # noqa: SIM115 - closed below, outside `naming`
    # The file stays: were it deleted, two processes could lock two files of one name.
    with file:
        is_ours = _is_locked_by_us(file, path, before_waiting)
        try:
            yield is_ours
        finally:
            # Processes forked in the block share the lock: it ends here, not with the last of them.
            if is_ours and fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_UN)


def _is_locked_by_us(file: IO[bytes], path: Path, before_waiting: Callable[[], object] | None) -> bool:
    if fcntl is None:
        warnings.warn(
            f"{path}: this system has no fcntl, so nothing is locked: use {path.parent} from one process at a time",
            RuntimeWarning,
            stacklevel=2,
        )
        return True
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if before_waiting is None:
                return False
            before_waiting()
            fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        raise NoLocksError(f"{path}: cannot be locked: {error.strerror or error}") from error
    return True
