"""Arrays in .npy files: mapped into memory, so that nothing is read before it is used, and never unpickled."""

from __future__ import annotations

import hashlib
import io
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from . import whole_files

Bytes = NDArray[np.uint8]

_PIECE = 1 << 22


def store(path: Path, array: NDArray[Any]) -> None:
    """Put an array at the path, all of it or nothing."""
    header = io.BytesIO()
    values = np.ascontiguousarray(array)
    npy.write_array_header_1_0(header, npy.header_data_from_array_1_0(values))
    # Not numpy.save, whose errors do not say that the disk is full.
    whole_files.write(path, header.getvalue(), values.data.cast("B"))


def mapped(path: Path, shape: tuple[int, ...], *, dtype: str = "uint8") -> NDArray[Any]:
    """The array in a file that must hold just this one; what is written into it stays in memory.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store(Path(folder, "labels.npy"), np.array([3, 8], dtype="uint8"))
    ...     mapped(Path(folder, "labels.npy"), (2,)).tolist()
    [3, 8]
    """
    found = opened(path)
    if found.shape != shape or found.dtype != np.dtype(dtype):
        raise ValueError(f"{path}: expected an array {shape} of {dtype}, got {found.shape} of {found.dtype}")
    return found


def opened(path: Path) -> NDArray[Any]:
    """The array in a file, whatever its shape and type, once the file is just as long as it must be."""
    try:
        found = npy.open_memmap(path, mode="c")
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read as .npy, is it whole? {' '.join(str(error).split())}") from error
    expected = found.offset + found.nbytes
    if path.stat().st_size != expected:
        raise ValueError(f"{path}: expected a file of {expected} bytes, got {path.stat().st_size}")
    if not found.flags.c_contiguous:
        raise ValueError(f"{path}: expected an array in C order, got one in Fortran order")
    return found


def digest(array: NDArray[Any]) -> str:
    """The SHA-256 of an array's numbers, in C order whatever their order in memory."""
    sha = hashlib.sha256()
    rows = max(1, _PIECE // max(1, array[:1].nbytes))
    for start in range(0, len(array), rows):
        sha.update(np.ascontiguousarray(array[start : start + rows]).data)
    return sha.hexdigest()
