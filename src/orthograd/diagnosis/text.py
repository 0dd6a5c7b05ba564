"""Tables in plain text."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence


def percent(share: float | None) -> str:
    """A share with as many digits as it deserves.

    >>> percent(0.1234), percent(2e-7), percent(0.0), percent(None)
    ('12.3 %', '2e-05 %', '0 %', '–')
    """
    if share is None or not math.isfinite(share):
        return "–"
    value = 100 * share
    return f"{value:.3g} %" if value == 0 or value >= 0.001 else f"{value:.0e} %"


def signed(cosine: float | None) -> str:
    """A cosine; small ones in powers of ten.

    >>> signed(-0.5), signed(3e-6), signed(None)
    ('-0.5000', '+3e-06', '–')
    """
    if cosine is None or not math.isfinite(cosine):
        return "–"
    return f"{cosine:+.4f}" if abs(cosine) >= 1e-3 or not cosine else f"{cosine:+.0e}"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """Columns under their names, numbers to the right and words to the left.

    >>> print(aligned(("name", "n"), [("a", "10"), ("bc", "2")]))
    name   n
    ----  --
    a     10
    bc     2
    """
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]

    def padded(line: Sequence[str]) -> str:
        cells = (f"{cell:{'<' if i in left else '>'}{widths[i]}}" for i, cell in enumerate(line))
        return "  ".join(cells).rstrip()

    return "\n".join(map(padded, lines))
