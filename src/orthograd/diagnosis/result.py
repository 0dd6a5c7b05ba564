"""The result of `diagnose`: a row for each parameter, warnings, and a printed table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from typing import Any

from torch import nn

from ..options import Options

HEADER = ("parameter", "shape", "removes", "radial", "cosine", "‖w‖", "‖g‖", "⊥Grad", "why")
SHRINKAGE_HEADER = ("group", "parameters", "learning rate", "weight decay", "norm is multiplied by")
# |cos| above which almost nothing of a gradient is orthogonal.
NEARLY_PARALLEL = 0.99
# Share of the gradient's energy below which ⊥Grad changes training by almost nothing.
NEXT_TO_NOTHING = 1e-4
UNUSED = "the loss does not depend on it"


@dataclass(frozen=True)
class Row:
    """The diagnosis of one parameter. Undefined values, such as the cosine with a zero weight, are None.

    ``radial`` is cos², the radial share of the parameter's gradient energy ‖g‖². ``removed`` is the energy that ⊥Grad
    would remove here, as a share of the energy of the whole gradient. ``action`` is "act", "leave" or "freeze", and
    ``reason`` explains it. ``kind`` is the effect of rescaling the parameter, a key of
    `orthograd.diagnosis.scaling.MEANINGS`; None if it was not measured.
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
        """The cells of the printed table."""
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
class Shrinkage:
    """The effect of weight decay alone on the norm of a parameter that ⊥Grad projects.

    ``factor`` is the norm after all steps over the norm before; None if it is not known, and ``reason`` explains it.
    Steps also add to a norm, so it can end larger. ``group`` is the number of the param group, ``rate`` and ``decay``
    its learning rate and weight decay, None if it has none.
    """

    name: str
    group: int
    rate: float | None
    decay: float | None
    factor: float | None
    reason: str = ""

    @property
    def text(self) -> str:
        """The factor and the reason, for the printed table."""
        shown = "not known" if self.factor is None else f"{self.factor:.3g}"
        return f"{shown}: {self.reason}" if self.reason else shown


@dataclass(frozen=True)
class Diagnosis:
    """Result of `orthograd.diagnose`. ``print`` shows it as a table, sorted by what ⊥Grad would remove.

    With an optimizer and a number of ``steps``, ``shrinkage`` has the effect of weight decay by parameter.
    """

    loss: float
    rows: tuple[Row, ...]
    warnings: tuple[str, ...]
    steps: int | None = None
    shrinkage: Mapping[str, Shrinkage] = field(default_factory=dict, hash=False)

    @property
    def removed(self) -> float:
        """The share of the whole gradient's energy that ⊥Grad would remove."""
        return sum(row.removed for row in self.rows)

    def __getitem__(self, name: str) -> Row:
        """The row of a parameter, by name. Raises KeyError for an unknown name."""
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"expected one of the parameters {', '.join(row.name for row in self.rows)}, got {name}")

    def as_dict(self) -> dict[str, Any]:
        """The diagnosis as plain data for JSON; numbers that are not finite are None."""
        rows = [{**_finite(asdict(row)), "shape": list(row.shape)} for row in self.rows]
        whole = _finite({"loss": self.loss, "removed": self.removed})
        data = {**whole, "rows": rows, "warnings": list(self.warnings)}
        if self.steps is None:
            return data
        return {**data, "steps": self.steps, "shrinkage": [asdict(one) for one in self.shrinkage.values()]}

    def __str__(self) -> str:
        table = aligned(HEADER, [row.cells for row in self.rows], left=(0, 1, 7, 8))
        return "\n".join([self._headline, "", table, *self._shrinkage_lines, *_listed(self.warnings)])

    @property
    def _shrinkage_lines(self) -> list[str]:
        """A table with a row for all parameters of a group that weight decay shrinks alike."""
        if self.steps is None:
            return []
        by_effect = sorted(self.shrinkage.values(), key=lambda one: (one.group, one.text))
        rows = []
        for _, alike in groupby(by_effect, key=lambda one: (one.group, one.text)):
            first, *others = alike
            numbers = ("–" if value is None else f"{value:g}" for value in (first.rate, first.decay))
            rows.append((str(first.group), str(1 + len(others)), *numbers, first.text))
        headline = f"Weight decay alone, in {self.steps:,} steps at the present rate, on what ⊥Grad projects:"
        return ["", headline, "", aligned(SHRINKAGE_HEADER, rows, left=(4,))]

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
    """Warnings, one sentence each; ``sparse`` are the parameters with a sparse gradient."""
    if sparse and options.granularity != "row":
        yield (
            f"The gradient of {few(sparse)} is sparse, and orthograd.attach would raise. Give its param group "
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
            "The network is in eval mode. BatchNorm then uses its running statistics, and a weight before it is not "
            "scale-invariant. Call model.train() first to measure as in training."
        )


def is_nearly_parallel(row: Row) -> bool:
    """True if ⊥Grad acts on a gradient that is nearly parallel to its weight."""
    return row.action == "act" and row.cosine is not None and abs(row.cosine) > NEARLY_PARALLEL


def frozen_words(row: Row) -> str:
    """A warning that a parameter would freeze, with the remedy."""
    remedy = "Use scalars=False" if math.prod(row.shape) == 1 else "Exclude it with where="
    return f"{row.name} would never change again: {row.reason}. {remedy}."


def _parallel_words(rows: Sequence[Row], options: Options) -> str:
    """One sentence for all of them: late in training there can be many."""
    worst = max(rows, key=lambda row: abs(row.cosine or 0.0))
    left = percent(math.sqrt(max(0.0, 1 - (worst.cosine or 0.0) ** 2)))
    where = f" in {worst.name}" if len(rows) > 1 else ""
    sentence = f"The gradient is nearly parallel to its weight in {few([row.name for row in rows])}"
    cosine = f"a cosine of {worst.cosine:+.4f}{where}"
    if options.renormalize:
        return f"{sentence}: at {cosine}, the orthogonal {left} of its norm is scaled up to the full norm."
    return f"{sentence}, which would nearly freeze: at {cosine}, {left} of its norm is left."


def _unmeasurable(rows: Sequence[Row]) -> Iterator[str]:
    broken = [row.name for row in rows if row.gradient_norm is not None and not math.isfinite(row.gradient_norm)]
    if broken:
        yield f"The gradient is not finite in {few(broken)}. ⊥Grad passes it on unchanged."
    unused = [row.name for row in rows if row.reason == UNUSED]
    if unused:
        yield f"The loss does not depend on {few(unused)}: no gradient, so no step, with or without ⊥Grad."
    if not any(row.gradient_norm for row in rows):
        yield "The whole gradient is zero: this batch gives nothing to diagnose."


def _nothing_words(rows: Sequence[Row]) -> str:
    share = percent(sum(row.removed for row in rows))
    invariant = [row for row in rows if row.kind in ("invariant", "rows invariant")]
    energy = sum(row.gradient_norm**2 for row in rows if row.gradient_norm)
    held = sum(row.gradient_norm**2 for row in invariant if row.gradient_norm) / energy
    because = f" {percent(held)} of the energy lies in scale-invariant weights." if invariant else ""
    # Invariant weights stay invariant. The other gradients are often hardly radial before training, and more so later.
    later = (
        " If the network is not trained yet, diagnose it again later: the radial part may grow."
        if held < 1 - NEXT_TO_NOTHING
        else ""
    )
    return f"⊥Grad will change almost nothing here: {share} of the gradient's energy is radial.{because}{later}"


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and the number of others.

    >>> few(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def percent(share: float | None) -> str:
    """A share as a percentage with three digits, or one if it is tiny.

    >>> percent(0.1234), percent(2e-7), percent(0.0), percent(None)
    ('12.3%', '2e-05%', '0%', '–')
    """
    if share is None or not math.isfinite(share):
        return "–"
    value = 100 * share
    return f"{value:.3g}%" if value == 0 or value >= 0.001 else f"{value:.0e}%"


def signed(cosine: float | None) -> str:
    """A cosine with its sign; small ones as powers of ten.

    >>> signed(-0.5), signed(3e-6), signed(None)
    ('-0.5000', '+3e-06', '–')
    """
    if cosine is None or not math.isfinite(cosine):
        return "–"
    return f"{cosine:+.4f}" if abs(cosine) >= 1e-3 or not cosine else f"{cosine:+.0e}"


def aligned(header: Sequence[str], rows: Sequence[Sequence[str]], *, left: Collection[int] = (0,)) -> str:
    """A text table; the columns in ``left`` are aligned left, all others right.

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
