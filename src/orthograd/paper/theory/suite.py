"""All demonstrations, their record, and the tables, figures and files made from it."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

from ...figures.style import save_figure
from ...lab.versions import versions
from ...statistics.table import markdown_table
from .boundary import boundary
from .convergence import convergence
from .figures import FIGURES
from .path_length import path_length
from .renormalization import renormalization
from .statement import Demonstration
from .wandering import wandering

END = "<!-- end -->\n"
DEMONSTRATIONS: dict[str, Callable[[], Demonstration]] = {
    "convergence": convergence,
    "wandering": wandering,
    "path_length": path_length,
    "renormalization": renormalization,
    "boundary": boundary,
}


def demonstrated(only: str | None = None) -> Iterable[Demonstration]:
    """Run one demonstration, or all, one after the other, in float64 on the CPU."""
    if only is not None and only not in DEMONSTRATIONS:
        raise ValueError(f"expected one of {', '.join(DEMONSTRATIONS)}, got {only!r}")
    for name, demonstration in DEMONSTRATIONS.items():
        if only in (None, name):
            yield demonstration()


def as_record(demonstrations: Iterable[Demonstration]) -> dict[str, Any]:
    """All results as plain data, with the versions and the machine that gave them."""
    facts: dict[str, Any] = {**versions(), "device": f"{platform.machine()} CPU"}
    facts |= {"threads": torch.get_num_threads(), "dtype": "float64"}
    return {"environment": facts, "demonstrations": [demonstration.as_record() for demonstration in demonstrations]}


def with_tables(text: str, record: dict[str, Any]) -> str:
    """The text with the table of each demonstration in its place, between its marks.

    >>> record = {"demonstrations": [{"name": "path_length", "statements": []}]}
    >>> print(with_tables("<!-- path_length: written by orthograd theory -->\\n<!-- end -->\\n", record), end="")
    <!-- path_length: written by orthograd theory -->
    | statement | measured | value | bound | holds |
    | --- | --- | --- | --- | --- |
    <!-- end -->
    """
    for demonstration in record["demonstrations"]:
        begin = f"<!-- {demonstration['name']}: written by orthograd theory -->\n"
        if begin not in text:
            raise ValueError(f"expected the document to have the line {begin.strip()!r}, got none")
        head, rest = text.split(begin, 1)
        if END not in rest:
            raise ValueError(
                f"expected the document to have the line {END.strip()!r} after {begin.strip()!r}, got none"
            )
        text = head + begin + _table(demonstration["statements"]) + END + rest.split(END, 1)[1]
    return text


def _table(statements: list[dict[str, Any]]) -> str:
    """The statements as a Markdown table; a statement that repeats the one above is shown as ″."""
    rows, before = [], ""
    for row in statements:
        says = "″" if row["says"] == before else row["says"]
        bound = f"{row['relation']} {row['bound']:.3g}"
        rows.append([says, row["measured"], f"{row['value']:.3g}", bound, "yes" if row["holds"] else "**no**"])
        before = row["says"]
    return markdown_table(("statement", "measured", "value", "bound", "holds"), rows)


def write_record(record: dict[str, Any], folder: Path) -> list[Path]:
    """Write theory.json and the figure of each demonstration into a folder; their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    text = text.replace('{"name"', '\n{"name"').replace('{"says"', '\n{"says"')  # one line each
    paths = [folder / "theory.json"]
    paths[0].write_text(text + "\n", encoding="utf-8")
    for demonstration in record["demonstrations"]:
        paths.append(folder / f"{demonstration['name']}.png")
        save_figure(FIGURES[demonstration["name"]](demonstration["curves"]), paths[-1])
    return paths
