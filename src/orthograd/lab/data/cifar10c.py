"""CIFAR-10-C, the corrupted test images of CIFAR-10: the published files, or files made here.

Files made here have the layout of the published ones, and a manifest.json that says how they were made. If both exist,
the published files are used.

Reference: Hendrycks and Dietterich, "Benchmarking Neural Network Robustness to Common Corruptions and Perturbations",
2019.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from ... import __version__
from ..files import write
from . import cifar10, corruption
from .cifar10_formats import CIFAR10, Cifar10
from .shifts import SEVERITIES
from .storage import (
    Bytes,
    Folder,
    Progress,
    Report,
    alone,
    data_folder,
    digest,
    mapped,
    opened,
    silent,
    store,
)

PUBLISHED, MADE = "CIFAR-10-C", "cifar10c-made"
LABELS, MANIFEST = "labels.npy", "manifest.json"


@dataclass(frozen=True)
class Made:
    """Origin of one corruption's file, and the SHA-256 of its images as uint8 (n, 32, 32, 3)."""

    sha256: str
    severities: tuple[int, ...]
    device: str
    orthograd: str
    torch: str


@dataclass(frozen=True)
class Manifest:
    """Seed and number of test images, the same for all corruptions, and the origin of each file."""

    seed: int
    images: int
    files: dict[str, Made] = field(default_factory=dict)

    def with_file(self, name: str, made: Made) -> Manifest:
        """A copy with one corruption added or replaced."""
        return dataclasses.replace(self, files=self.files | {name: made})

    def save(self, folder: Path) -> None:
        """Write the manifest to a folder."""
        text = json.dumps({"made_by": "orthograd"} | dataclasses.asdict(self), indent=1)
        write(folder / MANIFEST, text.encode() + b"\n")


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a folder, or None."""
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        return _manifest_of(json.loads(path.read_bytes()))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: expected the manifest of a CIFAR-10-C made here, got {error!r}") from error


def _manifest_of(content: dict[str, Any]) -> Manifest:
    files = {
        str(name): Made(**made | {"severities": tuple(int(severity) for severity in made["severities"])})
        for name, made in content["files"].items()
    }
    return Manifest(int(content["seed"]), int(content["images"]), files)


@dataclass(frozen=True)
class Place:
    """A folder with one file per corruption, the images per severity, and the manifest if it was made here."""

    folder: Path
    images: int
    manifest: Manifest | None

    def severities(self, name: str) -> tuple[int, ...]:
        """Severities in the file of a corruption, in order."""
        if self.manifest is None:
            return SEVERITIES
        if name not in self.manifest.files:
            made = ", ".join(self.manifest.files) or "none"
            raise FileNotFoundError(
                f"{self.path(name)}: not made yet, only {made}; `orthograd data cifar10c --corruption {name}` makes it"
            )
        return self.manifest.files[name].severities

    def path(self, name: str) -> Path:
        """Path of a corruption's file."""
        if not name.isidentifier():
            raise ValueError(f"expected the name of a corruption, such as gaussian_noise, got {name!r}")
        return self.folder / f"{name}.npy"


def source(folder: Folder = None) -> Literal["official", "made"] | None:
    """Source of the files that `load` reads: "official" for published ones, "made" for ones made here, or None."""
    first = find(folder)
    if first is None:
        return None
    return "official" if first.manifest is None else "made"


def place(folder: Folder = None) -> Path | None:
    """The folder that `load` reads from, or None."""
    first = find(folder)
    return None if first is None else first.folder


def find(folder: Folder = None, *, data: Cifar10 = CIFAR10) -> Place | None:
    """The folder itself if it is a CIFAR-10-C, else the one inside it, or None."""
    root = data_folder(folder)
    for candidate in (root, root / PUBLISHED, root / MADE):
        if (candidate / LABELS).is_file():
            manifest = read_manifest(candidate)
            return Place(candidate, data.test.images if manifest is None else manifest.images, manifest)
    return None


def load(name: str, severity: int, folder: Folder = None, *, data: Cifar10 = CIFAR10) -> tuple[Tensor, Tensor]:
    """Images (n, 3, 32, 32) in uint8 and labels (n,) in int64 under a corruption, severity 1 to 5.

    The folder is the data folder, or a CIFAR-10-C itself.
    """
    place = _existing(folder, data)
    severities = place.severities(name)
    if severity not in severities:
        raise ValueError(f"expected a severity of {name} among {severities}, got {severity!r}")
    start = severities.index(severity) * place.images
    images = torch.from_numpy(_images(place, name)[start : start + place.images])
    return images.permute(0, 3, 1, 2).contiguous(), _labels(place, folder, data)[start : start + place.images]


def verify(folder: Folder = None, *, report: Report = silent, data: Cifar10 = CIFAR10) -> list[str]:
    """Names of all corruptions on disk; raise, naming the file, if one is damaged.

    Files made here are checked by SHA-256, published files by size, shape, dtype and labels.
    """
    place = _existing(folder, data)
    _labels(place, folder, data)
    names = sorted(path.stem for path in place.folder.glob("*.npy") if path.name != LABELS)
    if place.manifest is not None:
        names = list(place.manifest.files)
    for done, name in enumerate(names):
        report(Progress("verifying CIFAR-10-C", done, len(names), "corruptions"))
        images = _images(place, name)
        if place.manifest is not None and (actual := digest(images)) != place.manifest.files[name].sha256:
            expected = place.manifest.files[name].sha256
            raise ValueError(f"{place.path(name)}: expected the SHA-256 {expected} of its manifest, got {actual}")
    return names


def _existing(folder: Folder, data: Cifar10) -> Place:
    place = find(folder, data=data)
    if place is None:
        raise FileNotFoundError(
            f"{data_folder(folder)}: expected {LABELS} in it, in {PUBLISHED} or in {MADE}, got none; "
            "`orthograd data cifar10c` makes one"
        )
    return place


def _images(place: Place, name: str) -> Bytes:
    path, count = place.path(name), place.images * len(place.severities(name))
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file")
    return mapped(path, (count, 32, 32, 3))


def _labels(place: Place, folder: Folder, data: Cifar10) -> Tensor:
    """Labels of all severities, checked against the test labels of CIFAR-10 if these are on disk."""
    path = place.folder / LABELS
    array = opened(path)
    if array.shape != (place.images * len(SEVERITIES),) or array.dtype.kind not in "iu":
        raise ValueError(
            f"{path}: expected {place.images * len(SEVERITIES)} whole numbers, got {array.shape} of {array.dtype}"
        )
    labels = torch.from_numpy(array.astype(np.int64))
    expected = _test_labels(place, folder, data)
    if expected is not None and not torch.equal(labels, expected[: place.images].repeat(len(SEVERITIES))):
        raise ValueError(f"{path}: expected the labels of CIFAR-10's test images at each severity, got others")
    return labels


def _test_labels(place: Place, folder: Folder, data: Cifar10) -> Tensor | None:
    root = data_folder(folder)
    try:
        return cifar10.load("test", None if place.folder == root else root, data=data)[1]
    except FileNotFoundError:
        return None


class Corrupt(Protocol):
    """Corrupts images (n, 3, height, width) in uint8."""

    def __call__(self, images: Tensor, name: str, *, severity: int, seed: int) -> Tensor: ...  # noqa: D102 - see above


def make(
    folder: Folder = None,
    *,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    seed: int = 0,
    device: str | torch.device = "cpu",
    count: int | None = None,
    corrupt: Corrupt | None = None,
    report: Report = silent,
    data: Cifar10 = CIFAR10,
) -> Path:
    """Corrupt the test images, or the first ``count``, by these or the standard 15 corruptions; return their folder.

    Each severity is `corruption.corrupt(images, name, severity=severity, seed=seed)`. Each corruption is one file.
    Interrupt it at any time; calling it again skips finished files.
    """
    images, labels = (tensor[:count] for tensor in cifar10.load("test", folder, data=data))
    target, function = data_folder(folder) / MADE, corrupt or corruption.corrupt
    wanted = tuple(dict.fromkeys(corruption.CORRUPTIONS if names is None else names))
    images = images.to(device)
    _check(images, wanted, severities, function)
    with alone(target, report):
        manifest = _manifest(target, seed, labels)
        for done, name in enumerate(wanted):
            if not _is_finished(target, name, severities, manifest):
                report(Progress(f"making {name}", done, len(wanted), "corruptions"))
                blocks = _blocks(manifest, name, severities)
                corrupted = _corrupted(images, name, blocks, seed, function)
                store(target / f"{name}.npy", corrupted)
                made = Made(digest(corrupted), blocks, images.device.type, __version__, torch.__version__)
                manifest = manifest.with_file(name, made)
                manifest.save(target)
    return target


def _check(images: Tensor, names: Sequence[str], severities: Sequence[int], corrupt: Corrupt) -> None:
    """Raise for what cannot be made, before anything is made."""
    if not severities or not set(severities) <= set(SEVERITIES):
        raise ValueError(f"expected severities among {SEVERITIES}, got {tuple(severities)}")
    for name in names:
        corrupt(images[:1], name, severity=severities[0], seed=0)


def _blocks(manifest: Manifest, name: str, severities: Sequence[int]) -> tuple[int, ...]:
    """The given severities and those already in the file."""
    before = manifest.files[name].severities if name in manifest.files else ()
    return tuple(sorted({*severities, *before}))


def _corrupted(images: Tensor, name: str, severities: Sequence[int], seed: int, corrupt: Corrupt) -> Bytes:
    blocks = [corrupt(images, name, severity=severity, seed=seed).cpu() for severity in severities]
    corrupted: Bytes = torch.cat(blocks).permute(0, 2, 3, 1).contiguous().numpy()
    return corrupted


def _manifest(folder: Path, seed: int, labels: Tensor) -> Manifest:
    """The folder's manifest if its seed and images match, else a new one."""
    manifest = read_manifest(folder)
    if manifest is None:
        manifest = Manifest(seed, len(labels))
        manifest.save(folder)
    if (manifest.seed, manifest.images) != (seed, len(labels)):
        raise ValueError(
            f"{folder}: expected {len(labels)} images made with seed {seed}, got {manifest.images} with seed "
            f"{manifest.seed}; use another data folder, or delete this one"
        )
    if not (folder / LABELS).is_file():  # after the manifest: labels without one count as published
        store(folder / LABELS, np.tile(labels.numpy().astype(np.uint8), len(SEVERITIES)))
    return manifest


def _is_finished(folder: Path, name: str, severities: Sequence[int], manifest: Manifest) -> bool:
    """True if a corruption has at least these severities, in a file of the right size."""
    made, path = manifest.files.get(name), folder / f"{name}.npy"
    if made is None or not set(severities) <= set(made.severities) or not path.is_file():
        return False
    try:
        return len(opened(path)) == manifest.images * len(made.severities)
    except ValueError:
        return False
