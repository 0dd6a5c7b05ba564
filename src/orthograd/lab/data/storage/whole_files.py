"""Files that are whole or absent: written beside, flushed to the disk, then moved into place."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = ".unfinished"


def write(path: Path, *pieces: bytes | memoryview) -> None:
    """Put the pieces at the path, one behind the other; whoever looks finds what was there before or all of them.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write(Path(folder, "a.json"), b"{", b"}")
    ...     [(path.name, path.read_bytes()) for path in Path(folder).iterdir()]
    [('a.json', b'{}')]
    """
    unfinished = path.with_name(f".{path.name}-{os.getpid()}{UNFINISHED}")
    with naming(path, "be written"):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(unfinished, "wb") as file:
                for piece in pieces:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
        except BaseException:
            with suppress(OSError):
                unfinished.unlink()
            raise
        flush_folder(path.parent)


@contextmanager
def naming(path: Path, action: str) -> Iterator[None]:
    """Let errors of the operating system say which file they are about.

    >>> with naming(Path("train_images.npy"), "be written"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: train_images.npy: cannot be written: No space left on device
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise  # it has its words already
        raise OSError(f"{path}: cannot {action}: {error.strerror or error}") from error


def flush_folder(folder: Path) -> None:
    """A move is on the disk only when its folder is."""
    if os.name == "nt":
        return  # where folders cannot be opened
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
