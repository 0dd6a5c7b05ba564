"""Tables that pages of the site make from the package when they are built."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from IPython.display import Markdown

from orthograd.calibration import CONVENTIONS
from orthograd.calibration.evaluation import TOP_K
from orthograd.lab.networks import MODELS
from orthograd.lab.training.methods import METHODS
from orthograd.statistics.table import markdown_table

ARROWS = {"higher": "↑", "lower": "↓", None: ""}


def conventions() -> Markdown:
    """Every metric: its definition, unit and good direction."""
    rows = (
        (f"`{name}`", each.definition.format(bins=10, k=TOP_K), each.unit, ARROWS[each.better])
        for name, each in CONVENTIONS.items()
    )
    return table(("metric", "definition", "unit", "good"), rows)


def methods() -> Markdown:
    """Every method that `orthograd compare` knows."""
    return table(("name", "title", "what it does"), ((f"`{key}`", m.title, m.details) for key, m in METHODS.items()))


def networks() -> Markdown:
    """Every network that `orthograd compare` knows."""
    return table(
        ("name", "network"),
        ((f"`{name}`", (make.__doc__ or "").strip().splitlines()[0]) for name, make in MODELS.items()),
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markdown:
    """A table that the page shows as its own."""
    return Markdown(markdown_table(header, rows))
