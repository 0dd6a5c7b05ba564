"""A small data set in every format of CIFAR-10."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from dataclasses import replace

import numpy as np
from PIL import Image

from orthograd.lab.data.cifar10_formats import CIFAR10, Cifar10, Part
from orthograd.lab.data.download import Source

EACH = 4
TRAIN = ("data_batch_1", "data_batch_2")


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()


def _part(batches):
    generator = np.random.default_rng(len(batches))
    images = generator.integers(0, 256, (EACH * len(batches), 32, 32, 3), dtype=np.uint8)
    labels = generator.integers(0, 10, EACH * len(batches), dtype=np.uint8)
    return images, labels, Part(batches, EACH, sha256(images), sha256(labels))


TRAIN_IMAGES, TRAIN_LABELS, _TRAIN = _part(TRAIN)
TEST_IMAGES, TEST_LABELS, _TEST = _part(("test_batch",))
PARTS = {"train": (TRAIN_IMAGES, TRAIN_LABELS, _TRAIN), "test": (TEST_IMAGES, TEST_LABELS, _TEST)}


def batches():
    """Files of cifar-10-batches-bin."""
    contents = {}
    for images, labels, part in PARTS.values():
        planes = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
        records = np.concatenate([labels[:, None], planes], axis=1)
        for number, batch in enumerate(part.batches):
            contents[f"{batch}.bin"] = records[number * EACH : (number + 1) * EACH].tobytes()
    return contents


def sheets():
    """Files of the npm package."""
    contents = {}
    for name, (images, labels, part) in PARTS.items():
        contents[f"{name}_lables.json"] = json.dumps(labels.tolist()).encode()
        for number, batch in enumerate(part.batches):
            file = io.BytesIO()
            pixels = images[number * EACH : (number + 1) * EACH].reshape(EACH, 1024, 3)
            Image.fromarray(pixels).save(file, "PNG")
            contents[f"{batch}.png"] = file.getvalue()
    return contents


def written(files, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def tar(files, folder="cifar-10-batches-bin", others=()):
    """A .tar.gz with files in a folder, and with other members."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        members = [(tarfile.TarInfo(f"{folder}/{name}"), content) for name, content in files.items()]
        for member, content in [*others, *members]:
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return gzip.compress(plain.getvalue(), mtime=0)


ARCHIVE = tar(batches() | {"readme.html": b"<html>"})
UNREACHABLE = Source("http://127.0.0.1:9/cifar-10-binary.tar.gz", hashlib.md5(ARCHIVE).hexdigest(), pause=0.001)
SMALL: Cifar10 = replace(CIFAR10, train=_TRAIN, test=_TEST, archive=UNREACHABLE)


def served(url, **changes):
    """The same data with this download address."""
    return replace(SMALL, archive=replace(UNREACHABLE, url=url, **changes))
