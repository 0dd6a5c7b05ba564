"""Names of any length in a given width, still told apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath


def shortened(name: str, size: float, *, inches: float) -> str:
    """The name with its middle left out until it fits.

    >>> shortened("runs/cifar10/resnet18/orthograd/seed-3/test-predictions.npz", 8, inches=1.95)
    'runs/cifar10/resn…-predictions.npz'
    """
    shorter = (f"{name[: (kept + 1) // 2]}…{name[len(name) - kept // 2 :]}" for kept in range(len(name) - 1, 0, -1))
    return _first_that_fits((name, *shorter), size, inches)


def told_apart(names: Sequence[str], size: float, *, inches: float) -> list[str]:
    """The names shortened; where that leaves them the same, what differs and what stands around it.

    >>> told_apart([f"runs/cifar10/resnet18/seed-{seed}/test-predictions.npz" for seed in (3, 4)], 8, inches=1.5)
    ['…et18/seed-3/test-pred…', '…et18/seed-4/test-pred…']
    """
    shown = [shortened(name, size, inches=inches) for name in names]
    if len(set(shown)) == len(set(names)):
        return shown
    start = _common(names)
    end = _common([name[start:][::-1] for name in names])
    return [_around(name, start, len(name) - end, size, inches) for name in names]


def _around(name: str, start: int, stop: int, size: float, inches: float) -> str:
    wider = (f"…{name[max(0, start - more) : stop + more]}…" for more in range(start, -1, -1))
    fitting = _first_that_fits(wider, size, inches)
    return shortened(fitting, size, inches=inches)


def _common(names: Sequence[str]) -> int:
    """How many letters all names begin with."""
    return sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*names, strict=False)))


def _first_that_fits(texts: Iterable[str], size: float, inches: float) -> str:
    """The first text that is narrow enough, else the last."""
    font, measure, text = FontProperties(family="DejaVu Sans", size=size), TextToPath(), ""
    for text in texts:
        if len(text) * size / 4 > 72 * inches:
            continue  # an i is wider than that: measuring what cannot fit takes long
        if measure.get_text_width_height_descent(text, font, ismath=False)[0] <= 72 * inches:
            break
    return text
