"""Data on disk: the data folder, its lock, progress reports, and arrays in .npy files.

Arrays are memory-mapped: nothing is read before it is used. They are never unpickled.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from ..files import NoLocksError, exclusive, leftovers, naming, write

Folder = str | os.PathLike[str] | None
Bytes = NDArray[np.uint8]

_PIECE = 1 << 22


def data_folder(folder: Folder = None) -> Path:
    """The given folder, else ORTHOGRAD_DATA, else orthograd in the user's cache.

    >>> data_folder("pictures").name
    'pictures'
    """
    given = folder if folder is not None else os.environ.get("ORTHOGRAD_DATA")
    if given:
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME", "")
    # By its specification a relative XDG_CACHE_HOME counts as none.
    return (Path(cache) if os.path.isabs(cache) else Path.home() / ".cache") / "orthograd"


@dataclass(frozen=True)
class Progress:
    """A message with its progress in a unit such as bytes; one-time messages have no unit."""

    words: str
    done: int = 0
    total: int | None = None
    unit: str = ""


Report = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


@contextmanager
def alone(folder: Path, report: Report) -> Iterator[None]:
    """Lock the folder for this process until the end of the block; wait if another process has it.

    The folder is made if it does not exist. Half-written files of killed processes are removed.
    """
    with naming(folder, "be used"):
        folder.mkdir(parents=True, exist_ok=True)

    def tell() -> None:
        report(Progress(f"another process is using {folder}: waiting for it"))

    with ExitStack() as stack:
        # Some network disks have no locks. Files are still whole and checked; two processes just do the same work.
        with suppress(NoLocksError):
            stack.enter_context(exclusive(folder / ".lock", before_waiting=tell))
            for leftover in leftovers(folder):
                with suppress(OSError):  # it is harmless
                    leftover.unlink()
        yield


def store(path: Path, array: NDArray[Any]) -> None:
    """Write an array to the path, atomically."""
    header = io.BytesIO()
    values = np.ascontiguousarray(array)
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(values))
    # Not numpy.save, whose errors do not say that the disk is full.
    write(path, header.getvalue(), values.data.cast("B"))


def mapped(path: Path, shape: tuple[int, ...], *, dtype: str = "uint8") -> NDArray[Any]:
    """The memory-mapped array in a file of this shape and dtype; changes to it stay in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store(Path(folder, "labels.npy"), np.array([3, 8], dtype="uint8"))
    ...     mapped(Path(folder, "labels.npy"), (2,)).tolist()
    [3, 8]
    """
    array = opened(path)
    if array.shape != shape or array.dtype != np.dtype(dtype):
        raise ValueError(f"{path}: expected an array {shape} of {dtype}, got {array.shape} of {array.dtype}")
    return array


def opened(path: Path) -> NDArray[Any]:
    """The memory-mapped array in a file of any shape and dtype; ValueError if the file's size does not match."""
    try:
        array = npy.open_memmap(path, mode="c")
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read as .npy, is it whole? {' '.join(str(error).split())}") from error
    expected = array.offset + array.nbytes
    if path.stat().st_size != expected:
        raise ValueError(f"{path}: expected a file of {expected} bytes, got {path.stat().st_size}")
    if not array.flags.c_contiguous:
        raise ValueError(f"{path}: expected an array in C order, got one in Fortran order")
    return array


def digest(array: NDArray[Any]) -> str:
    """SHA-256 of an array's numbers in C order, whatever their order in memory."""
    sha = hashlib.sha256()
    rows = max(1, _PIECE // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        sha.update(np.ascontiguousarray(array[start : start + rows]).data)
    return sha.hexdigest()
