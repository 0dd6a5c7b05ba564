"""What was made here, and how: the file manifest.json beside the images."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..storage.whole_files import write

NAME = "manifest.json"


@dataclass(frozen=True)
class Made:
    """How one corruption was made, and the SHA-256 of its images as uint8 (n, 32, 32, 3)."""

    sha256: str
    severities: tuple[int, ...]
    device: str
    orthograd: str
    torch: str


@dataclass(frozen=True)
class Manifest:
    """The seed and the number of test images, which all corruptions share, and what each was made by."""

    seed: int
    images: int
    files: dict[str, Made] = field(default_factory=dict)

    def with_file(self, name: str, made: Made) -> Manifest:
        """The same with one corruption more, or anew."""
        return dataclasses.replace(self, files=self.files | {name: made})

    def save(self, folder: Path) -> None:
        """Put it into a folder."""
        text = json.dumps({"made_by": "orthograd"} | dataclasses.asdict(self), indent=1)
        write(folder / NAME, text.encode() + b"\n")


def read(folder: Path) -> Manifest | None:
    """The manifest of a folder, None if it has none."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return _manifest(json.loads(path.read_bytes()))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{path}: expected the manifest of a CIFAR-10-C made here, got {error!r}") from error


def _manifest(found: dict[str, Any]) -> Manifest:
    files = {
        str(name): Made(**made | {"severities": tuple(int(severity) for severity in made["severities"])})
        for name, made in found["files"].items()
    }
    return Manifest(int(found["seed"]), int(found["images"]), files)
