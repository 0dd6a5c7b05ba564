"""Snow, frost and fog."""

from __future__ import annotations

import torch
from torch import Tensor

from .filters import filtered, levels, streaked, zoom_matrix
from .frost import frost_canvas
from .noise import Draws

GRAY = (0.299, 0.587, 0.114)  # luminance weights of red, green and blue


def snow(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """Streaks of snow and their mirror image, over a whitened image."""
    mean, sigma, zoom, threshold, radius, streak, kept = (
        (0.1, 0.2, 1.0, 0.6, 8, 3.0, 0.95),
        (0.1, 0.2, 1.0, 0.5, 10, 4.0, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4.0, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6.0, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12.0, 0.8),
    )[severity - 1]
    field = mean + sigma * draws.normal(1, *images.shape[2:]).double()
    rows, columns = (zoom_matrix(side, zoom).to(field) for side in images.shape[2:])
    flakes = filtered(field, rows, columns)
    flakes = torch.where(flakes < threshold, 0, flakes.clamp(0, 1) * 255).to(torch.uint8)
    flakes = streaked(flakes, radius, streak, draws.uniform(-135, -45))
    return _whitened(images, kept) + flakes + flakes.flip(2, 3)


def _whitened(images: Tensor, kept: float) -> Tensor:
    """k x + (1 − k) max(x, 1.5 gray + 0.5), with x from 0 to 1."""
    weights = torch.tensor(GRAY, device=images.device).view(1, 3, 1, 1)
    gray = (images * weights).sum(1, keepdim=True)
    return kept * images + (1 - kept) * torch.maximum(images.float(), 1.5 * gray + 127.5)


def frost(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """a x + b frost, where the frost is a crop of one of five photographs; see the module `frost`."""
    kept, added = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))[severity - 1]
    canvas, sides = (tensor.to(images.device) for tensor in frost_canvas(*images.shape[2:]))
    windows = canvas.unfold(2, images.shape[2], 1).unfold(3, images.shape[3], 1)
    texture = draws.below(len(canvas))
    # The last place that fits is left out, as in the published generator.
    free = sides[texture] - torch.tensor(images.shape[2:], device=images.device)
    row, column = draws.below(free, 2).unbind(1)
    return kept * images.double() + added * windows[texture, :, row, column].double()


def fog(images: Tensor, severity: int, draws: Draws) -> Tensor:
    """(x + a clouds) m / (m + a), with x from 0 to 1 and the maximum m of an image."""
    amount, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[severity - 1]
    height, width = images.shape[2:]
    side = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma(side, decay, draws)[:, None, :height, :width]
    shares = levels(images)
    brightest = shares.amax((1, 2, 3), keepdim=True)
    return (shares + amount * clouds) * brightest / (brightest + amount) * 255


def plasma(side: int, decay: float, draws: Draws) -> Tensor:
    """Plasma fractal: one map (side, side) per image, from 0 to 1, periodic; the side is a power of two.

    The middle of four known points is their mean plus w U(−w, w), first for squares and then for diamonds. w starts at
    100 and is divided by the decay each time the grid becomes twice as dense.
    """
    clouds = torch.zeros(draws.used, side, side, dtype=torch.float64, device=draws.device)
    step, wobble = side, 100.0
    while step >= 2:
        _halve(clouds, step, wobble, draws)
        step, wobble = step // 2, wobble / decay
    clouds -= clouds.amin((1, 2), keepdim=True)
    return clouds / clouds.amax((1, 2), keepdim=True)


def _halve(clouds: Tensor, step: int, wobble: float, draws: Draws) -> None:
    """Fill in the points between those one step apart."""
    half = slice(step // 2, None, step)
    whole = slice(0, None, step)

    def middle(total: Tensor) -> Tensor:
        return total / 4 + wobble * draws.uniform(-wobble, wobble, *total.shape[1:])

    corners = clouds[:, whole, whole]
    pairs = corners + corners.roll(-1, 1)
    clouds[:, half, half] = middle(pairs + pairs.roll(-1, 2))
    centers = clouds[:, half, half]
    across = centers + centers.roll(1, 1) + corners + corners.roll(-1, 2)
    clouds[:, whole, half] = middle(across)
    down = centers + centers.roll(1, 2) + corners + corners.roll(-1, 1)
    clouds[:, half, whole] = middle(down)
