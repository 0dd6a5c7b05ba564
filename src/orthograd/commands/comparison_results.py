"""What a finished comparison prints: a table for each kind of test images, the verdict, and where the page is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from ..calibration import CONVENTIONS
from ..report.comparison import TITLES, ArmPair, verdict
from ..statistics import ComparisonTable
from .comparison_files import write_comparison
from .comparison_page import names_of


def print_results(console: Console, records: Iterable[dict[str, Any]], arms: tuple[str, str], folder: Path) -> None:
    """Test the difference, print it, and write it down."""
    pair = ArmPair.of(records, baseline=arms[0], candidate=arms[1])
    names = names_of(pair)
    for title, table in pair.tables.items():
        console.print(_table(title, table, names))
    written = write_comparison(pair, names, folder)
    console.print(verdict(pair.tables["clean"], baseline=names[0], candidate=names[1]))
    console.print(f"The page: {written[0]}", f"Also written: {', '.join(path.name for path in written[1:])}", sep="\n")


def _table(title: str, table: ComparisonTable, names: tuple[str, str]) -> Table:
    """What fits a terminal: means, effect, corrected p and verdict; the files have the rest."""
    shown = Table("metric", *names, "d", "p, Holm", "verdict", title=f"{title} test images", title_justify="left")
    inks = {"better": "green", "worse": "red", "equivalent": "cyan", "undecided": "dim"}
    for row in table:
        metric = str(row.metric)
        digits = CONVENTIONS[metric].digits
        means = [f"{arm.mean:.{digits}f}" for arm in (row.baseline, row.candidate)]
        effect = f"{row.cohens_d.value:+.2f}"
        shown.add_row(
            TITLES[metric], *means, effect, f"{row.corrected_p:.2g}", row.verdict, style=inks.get(row.verdict, "")
        )
    return shown
