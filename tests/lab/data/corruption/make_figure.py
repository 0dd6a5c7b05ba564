"""Draw one image under every corruption at every severity.

python -m tests.lab.data.corruption.make_figure docs/figures/corruptions.png
"""

from __future__ import annotations

import sys

from PIL import Image, ImageDraw, ImageFont

from orthograd.lab.data.corruption import CORRUPTIONS, EXTRA, SEVERITIES, corrupt
from tests.lab.data.corruption.reference import arrays

PICTURE = 32  # a fire engine
SIDE, GAP, LABEL, ROWS = 64, 2, 140, 10


def picture(image):
    return Image.fromarray(image.permute(1, 2, 0).numpy()).resize((SIDE, SIDE), Image.Resampling.NEAREST)


def main(path: str) -> None:
    clean = arrays("clean")[PICTURE : PICTURE + 1]
    cell, font = SIDE + GAP, ImageFont.load_default(15)
    half = LABEL + len(SEVERITIES) * cell
    sheet = Image.new("RGB", (2 * half, ROWS * cell), "white")
    draw = ImageDraw.Draw(sheet)
    labels = ["(none)", *CORRUPTIONS, *EXTRA]
    for place, name in enumerate(labels):
        left, top = place // ROWS * half, place % ROWS * cell
        draw.text((left + LABEL - 8, top + SIDE // 2), name.replace("_", " "), fill="black", font=font, anchor="rm")
        for severity in SEVERITIES[:1] if place == 0 else SEVERITIES:
            image = clean if place == 0 else corrupt(clean, name, severity=severity)
            sheet.paste(picture(image[0]), (left + LABEL + (severity - 1) * cell, top))
    sheet.quantize(255, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
