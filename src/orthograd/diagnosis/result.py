"""What a diagnosis returns: a row for each parameter, warnings in words, and a table that prints."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from ..options import Options

HEADER = ("parameter", "shape", "removes", "radial", "cosine", "‖w‖", "‖g‖", "⊥Grad", "why")
# |cos| from which next to nothing of a gradient is orthogonal.
NEARLY_PARALLEL = 0.99
# Share of the gradient's energy under which ⊥Grad makes no difference that a training would show.
NEXT_TO_NOTHING = 1e-4


@dataclass(frozen=True)
class Row:
    """One parameter. What has no value (the cosine with a zero weight) is None.

    ``radial`` is cos², the radial share of the parameter's own gradient energy ‖g‖². ``removed`` is what ⊥Grad would
    take out here as a share of the energy of the whole gradient. ``action`` is act, leave or freeze, and ``reason``
    says why. ``kind`` is a key of `orthograd.diagnosis.scaling.MEANINGS`, None where it was not measured.
    """

    name: str
    shape: tuple[int, ...]
    weight_norm: float
    gradient_norm: float | None
    cosine: float | None
    radial: float | None
    removed: float
    action: str
    reason: str
    kind: str | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        """The row as the table prints it."""
        return (
            self.name,
            "×".join(map(str, self.shape)) or "–",
            percent(self.removed),
            percent(self.radial),
            signed(self.cosine),
            f"{self.weight_norm:.3g}",
            "–" if self.gradient_norm is None else f"{self.gradient_norm:.2e}",
            {"act": "acts", "leave": "leaves it", "freeze": "FREEZES"}[self.action],
            self.reason,
        )


@dataclass(frozen=True)
class Diagnosis:
    """What `orthograd.diagnose` returns. ``print`` shows it as a table, what ⊥Grad would remove most of first."""

    loss: float
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]

    @property
    def removed(self) -> float:
        """The share of the whole gradient's energy that ⊥Grad would remove."""
        return sum(row.removed for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of a parameter by its name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"expected a parameter among {', '.join(row.name for row in self.rows)}, got {name}")

    def as_dict(self) -> dict[str, Any]:
        """As plain data, ready for JSON: what is not finite is None."""
        rows = [{**_finite(asdict(row)), "shape": list(row.shape)} for row in self.rows]
        whole = _finite({"loss": self.loss, "removed": self.removed})
        return {**whole, "rows": rows, "warnings": list(self.warnings)}

    def __str__(self) -> str:
        table = aligned(HEADER, [row.cells for row in self.rows], left=(0, 1, 7, 8))
        return "\n".join([self._headline, "", table, *_listed(self.warnings)])

    @property
    def _headline(self) -> str:
        count = {action: sum(row.action == action for row in self.rows) for action in ("act", "freeze")}
        frozen = f" and freezes {count['freeze']}" if count["freeze"] else ""
        sentence = (
            f"⊥Grad would remove {percent(self.removed)} of the gradient's energy (loss {self.loss:.4g}); "
            f"it acts on {count['act']}{frozen} of {len(self.rows)} parameters"
        )
        if not self.removed:
            return f"{sentence}."
        most = max(self.rows, key=lambda row: row.removed)
        return f"{sentence}, and {percent(most.removed / self.removed)} of what it removes lies in {most.name}."


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in values.items()}


def _listed(warnings: Sequence[str]) -> list[str]:
    return ["", *(f"! {warning}" for warning in warnings)] if warnings else []


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
    sentence = f"The gradient is nearly parallel to its weight in {_few([row.name for row in rows])}"
    cosine = f"a cosine of {worst.cosine:+.4f}{where}"
    if options.renormalize:
        return f"{sentence}: at {cosine}, the {left} of its norm that is orthogonal is blown up to all of it."
    return f"{sentence}, which would nearly freeze: at {cosine}, {left} of its norm is left."


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
