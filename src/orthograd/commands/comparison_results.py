"""What a finished comparison prints: a table for each kind of test images, the verdict, and where the page is."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ..calibration import CONVENTIONS
from ..report.comparison import TITLES, ArmPair, verdict
from ..statistics import ComparisonTable
from .comparison_files import write_comparison
from .comparison_page import names_of
from .failed_runs import failed_runs


def print_results(console: Console, pair: ArmPair, folder: Path) -> None:
    """Test the difference, print it, and write it down."""
    names, failed = names_of(pair), failed_runs(folder / "runs", pair, folder / "report.html")
    for title, table in pair.tables.items():
        console.print(_table(title, table, names))
    written = write_comparison(pair, names, folder, failed=failed)
    console.print(verdict(pair.tables["clean"], baseline=names[0], candidate=names[1]))
    if failed:
        console.print(f"Without {len(failed)} runs that failed: the page names them and leads to their logs.")
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
