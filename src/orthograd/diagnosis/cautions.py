"""What a user should know before putting ⊥Grad on a network like this."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from torch import nn

from ..options import Options
from .result import Row
from .text import percent

# |cos| from which next to nothing of a gradient is orthogonal.
NEARLY_PARALLEL = 0.99
# Share of the gradient's energy under which ⊥Grad makes no difference that a training would show.
NEXT_TO_NOTHING = 1e-4


def cautions(rows: Sequence[Row], model: nn.Module, options: Options, sparse: Sequence[str] = ()) -> Iterator[str]:
    """One sentence for each thing to know; ``sparse`` are the parameters with a sparse gradient."""
    if sparse and options.granularity != "row":
        yield (
            f"The gradient of {_few(sparse)} is sparse, which orthograd.attach refuses: give its param group "
            '"orthogonal": {"granularity": "row"} or "orthogonal": False.'
        )
    yield from _unmeasurable(rows)
    yield from (frozen_words(row) for row in rows if row.action == "freeze")
    if parallel := [row for row in rows if is_nearly_parallel(row)]:
        yield _parallel_words(parallel, options)
    if rows and any(row.gradient_norm for row in rows) and sum(row.removed for row in rows) < NEXT_TO_NOTHING:
        yield _nothing_words(rows)
    if not model.training:
        yield (
            "The network is in eval mode. Batch norm then uses its averages, and a weight in front of it is not "
            "scale-invariant as it is in training: call model.train() first to see what training sees."
        )


def is_nearly_parallel(row: Row) -> bool:
    """Whether ⊥Grad acts on a gradient that is nearly parallel to its weight."""
    return row.action == "act" and row.cosine is not None and abs(row.cosine) > NEARLY_PARALLEL


def frozen_words(row: Row) -> str:
    """How to keep a parameter alive."""
    remedy = "With scalars=False it is left alone" if math.prod(row.shape) == 1 else "Leave it out by where="
    return f"{row.name} would never change again: {row.reason}. {remedy}."


def _parallel_words(rows: Sequence[Row], options: Options) -> str:
    """One sentence for all of them: late in a training they may be many."""
    worst = max(rows, key=lambda row: abs(row.cosine or 0.0))
    left = percent(math.sqrt(max(0.0, 1 - (worst.cosine or 0.0) ** 2)))
    where = f" in {worst.name}" if len(rows) > 1 else ""
    said = f"The gradient is nearly parallel to its weight in {_few([row.name for row in rows])}"
    cosine = f"a cosine of {worst.cosine:+.4f}{where}"
    if options.renormalize:
        return f"{said}: at {cosine}, the {left} of its length that is orthogonal is blown up to all of it."
    return f"{said}, which would nearly freeze: at {cosine}, {left} of its length is left."


def _unmeasurable(rows: Sequence[Row]) -> Iterator[str]:
    broken = [row.name for row in rows if row.gradient_norm is not None and not math.isfinite(row.gradient_norm)]
    if broken:
        yield f"The gradient is not finite in {_few(broken)}. ⊥Grad passes such a gradient on as it is."
    unreached = [row.name for row in rows if row.reason == "the loss does not reach it"]
    if unreached:
        yield f"The loss does not reach {_few(unreached)}: no gradient, so no step, with or without ⊥Grad."
    if not any(row.gradient_norm for row in rows):
        yield "The whole gradient is zero: there is nothing to diagnose on this batch."


def _nothing_words(rows: Sequence[Row]) -> str:
    share = percent(sum(row.removed for row in rows))
    invariant = [row for row in rows if row.kind in ("invariant", "rows invariant")]
    energy = sum(row.gradient_norm**2 for row in rows if row.gradient_norm)
    held = sum(row.gradient_norm**2 for row in invariant if row.gradient_norm) / energy
    because = f" {percent(held)} of the energy lies in scale-invariant weights." if invariant else ""
    # What is invariant stays so; of the rest a network before its training has little radial, and more later.
    later = " If it is not trained yet, look again when it is: the rest may grow." if held < 1 - NEXT_TO_NOTHING else ""
    return f"⊥Grad will change next to nothing here: {share} of the gradient's energy is radial.{because}{later}"


def _few(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more.

    >>> _few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
