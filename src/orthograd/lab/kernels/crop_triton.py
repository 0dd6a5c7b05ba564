"""An epoch's images in one launch: gathered, cropped, flipped and looked up in a table."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def crop_kernel(
    images, rows, offsets, is_flipped, table, out,
    CHANNELS: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    MARGIN: tl.constexpr, CROPS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Crop the image at one position; ``table`` maps bytes to values per channel, ``out`` has channels last."""
    place = tl.program_id(0)
    own = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inside = own < CHANNELS * HEIGHT * WIDTH
    channel, y, x = own % CHANNELS, own // CHANNELS // WIDTH, own // CHANNELS % WIDTH
    is_seen = inside
    if CROPS:
        x = tl.where(tl.load(is_flipped + place) != 0, WIDTH - 1 - x, x)
        y += (tl.load(offsets + 2 * place) - MARGIN).to(tl.int32)
        x += (tl.load(offsets + 2 * place + 1) - MARGIN).to(tl.int32)
        is_seen = inside & (y >= 0) & (y < HEIGHT) & (x >= 0) & (x < WIDTH)
    image = images + tl.load(rows + place).to(tl.int64) * (CHANNELS * HEIGHT * WIDTH)
    byte = tl.load(image + (channel * HEIGHT + y) * WIDTH + x, mask=is_seen, other=0).to(tl.int32)
    value = tl.load(table + byte * CHANNELS + channel, mask=inside)
    tl.store(out + place.to(tl.int64) * (CHANNELS * HEIGHT * WIDTH) + own, value, mask=inside)
