"""Tables of what one arm changes against another, beyond the paper's own tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from ..calibration import CONVENTIONS
from ..lab.comparison.formats import TITLES
from ..lab.comparison.page.tables import typeset
from ..lab.comparison.records import Record
from .blocks import Table, table
from .differences import Difference
from .quantities import title_of, value_of

SHOWN = ("top1_accuracy", "loss", "ece", "entropy", "max_logit")


def shown(images: str) -> list[str]:
    """The quantities by which arms are compared."""
    return [f"{images}.{metric}" for metric in SHOWN]


def effects_table(found: Mapping[str, Mapping[str, Difference]], names: tuple[str, str, str]) -> Table:
    """A row for each case and metric: means of two arms, difference by pairs, p, verdict.

    The names are those of what a case is, and of the two arms.
    """
    case, first, second = names
    header = (case, "metric", first, second, "difference (95 %)", "d", "p, paired", "p, Holm", f"{second} is")
    return table(header, (cells for name, rows in found.items() for cells in _rows(name, rows)))


def runs_table(runs: Iterable[tuple[str, Record]]) -> Table:
    """A row for each run, by its name: what it came to, on clean images and on corrupted ones."""
    quantities = [*shown("clean"), *shown("shifted")]
    return table(("run", *map(title_of, quantities)), ([name, *_values(run, quantities)] for name, run in runs))


def _values(run: Record, quantities: Iterable[str]) -> Iterator[str]:
    for quantity in quantities:
        found = value_of(run, quantity)
        yield "–" if found is None else f"{found:.{CONVENTIONS[quantity.rpartition('.')[2]].digits}f}"


def _rows(name: str, rows: Mapping[str, Difference]) -> Iterator[list[str]]:
    for quantity, found in rows.items():
        metric = quantity.rpartition(".")[2]
        digits = CONVENTIONS[metric].digits
        low, high = found.interval
        means = zip(found.means, found.deviations, strict=True)
        yield [
            name,
            TITLES[metric],
            *(f"{mean:.{digits}f} ± {sd:.{digits}f}" for mean, sd in means),
            typeset(f"{found.value:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})"),
            typeset(f"{found.d:+.2f}"),
            typeset(f"{found.p:.2g}"),
            typeset(f"{found.corrected_p:.2g}"),
            found.verdict,
        ]
