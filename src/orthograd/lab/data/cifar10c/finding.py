"""Which CIFAR-10-C there is: the published one goes before the one made here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..cifar10 import CIFAR10, Cifar10
from ..cifar10.files import Folder
from ..folder import data_folder
from . import manifest as manifests
from .manifest import Manifest

SEVERITIES = (1, 2, 3, 4, 5)
PUBLISHED, MADE = "CIFAR-10-C", "cifar10c-made"
LABELS = "labels.npy"


@dataclass(frozen=True)
class Place:
    """A folder with one file a corruption, the number of images that each severity has there, and who made it."""

    folder: Path
    images: int
    manifest: Manifest | None

    def severities(self, name: str) -> tuple[int, ...]:
        """Those in the file of a corruption, in order."""
        if self.manifest is None:
            return SEVERITIES
        if name not in self.manifest.files:
            made = ", ".join(self.manifest.files) or "none"
            raise FileNotFoundError(
                f"{self.path(name)}: not made yet, only {made}; `orthograd data cifar10c --corruption {name}` makes it"
            )
        return self.manifest.files[name].severities

    def path(self, name: str) -> Path:
        """The file of a corruption."""
        if not name.isidentifier():
            raise ValueError(f"expected the name of a corruption, such as gaussian_noise, got {name!r}")
        return self.folder / f"{name}.npy"


def source(folder: Folder = None) -> Literal["official", "made"] | None:
    """Whether `load` would read the published files or those made here, None if there are neither."""
    found = find(folder)
    if found is None:
        return None
    return "official" if found.manifest is None else "made"


def place(folder: Folder = None) -> Path | None:
    """The folder that `load` would read from, None if there is none."""
    found = find(folder)
    return None if found is None else found.folder


def find(folder: Folder = None, *, data: Cifar10 = CIFAR10) -> Place | None:
    """The folder itself if it is a CIFAR-10-C, else the one within it."""
    root = data_folder(folder)
    for candidate in (root, root / PUBLISHED, root / MADE):
        if (candidate / LABELS).is_file():
            manifest = manifests.read(candidate)
            return Place(candidate, data.test.images if manifest is None else manifest.images, manifest)
    return None
