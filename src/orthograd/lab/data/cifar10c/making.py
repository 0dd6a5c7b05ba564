"""A CIFAR-10-C made here, in the layout of the published one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .... import __version__
from .. import cifar10, corruption
from ..cifar10 import CIFAR10, Cifar10
from ..cifar10.files import Folder
from ..folder import data_folder
from ..storage.arrays import Bytes, digest, opened, store
from ..storage.locking import alone
from ..storage.progress import Progress, Report, silent
from . import manifest as manifests
from .finding import LABELS, MADE, SEVERITIES
from .manifest import Made, Manifest


class Corrupt(Protocol):
    """Images (n, 3, height, width) in uint8 in, as many corrupted ones out."""

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
    """Corrupt the test images (or a first few) by these corruptions, else the standard 15; return their folder.

    Each severity is `corruption.corrupt(images, name, severity=severity, seed=seed)`. Each corruption is a file of its
    own: stop at any time and repeat, what is finished is not made again.
    """
    images, labels = (found[:count] for found in cifar10.load("test", folder, data=data))
    place, function = data_folder(folder) / MADE, corrupt or corruption.corrupt
    wanted = tuple(dict.fromkeys(corruption.CORRUPTIONS if names is None else names))
    images = images.to(device)
    _check(images, wanted, severities, function)
    with alone(place, report):
        manifest = _manifest(place, seed, labels)
        for done, name in enumerate(wanted):
            if not _is_finished(place, name, severities, manifest):
                report(Progress(f"making {name}", done, len(wanted), "corruptions"))
                blocks = _blocks(manifest, name, severities)
                found = _corrupted(images, name, blocks, seed, function)
                store(place / f"{name}.npy", found)
                made = Made(digest(found), blocks, images.device.type, __version__, torch.__version__)
                manifest = manifest.with_file(name, made)
                manifest.save(place)
    return place


def _check(images: Tensor, names: Sequence[str], severities: Sequence[int], corrupt: Corrupt) -> None:
    """Name what cannot be made before anything is made."""
    if not severities or not set(severities) <= set(SEVERITIES):
        raise ValueError(f"expected severities among {SEVERITIES}, got {tuple(severities)}")
    for name in names:
        corrupt(images[:1], name, severity=severities[0], seed=0)


def _blocks(manifest: Manifest, name: str, severities: Sequence[int]) -> tuple[int, ...]:
    """The severities wanted, and those that were there before."""
    before = manifest.files[name].severities if name in manifest.files else ()
    return tuple(sorted({*severities, *before}))


def _corrupted(images: Tensor, name: str, severities: Sequence[int], seed: int, corrupt: Corrupt) -> Bytes:
    blocks = [corrupt(images, name, severity=severity, seed=seed).cpu() for severity in severities]
    found: Bytes = torch.cat(blocks).permute(0, 2, 3, 1).contiguous().numpy()
    return found


def _manifest(place: Path, seed: int, labels: Tensor) -> Manifest:
    """The one that is there, if it suits, else a new one."""
    found = manifests.read(place)
    if found is None:
        found = Manifest(seed, len(labels))
        found.save(place)
    if (found.seed, found.images) != (seed, len(labels)):
        raise ValueError(
            f"{place}: expected {len(labels)} images made with seed {seed}, got {found.images} with seed {found.seed}; "
            "take another data folder, or delete this one"
        )
    if not (place / LABELS).is_file():  # after the manifest, for labels without one are taken for the published ones
        store(place / LABELS, np.tile(labels.numpy().astype(np.uint8), len(SEVERITIES)))
    return found


def _is_finished(place: Path, name: str, severities: Sequence[int], manifest: Manifest) -> bool:
    """Whether a corruption is here with these severities at least, in a file of the right length."""
    made, path = manifest.files.get(name), place / f"{name}.npy"
    if made is None or not set(severities) <= set(made.severities) or not path.is_file():
        return False
    try:
        return len(opened(path)) == manifest.images * len(made.severities)
    except ValueError:
        return False
