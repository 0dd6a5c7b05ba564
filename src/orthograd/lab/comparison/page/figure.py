"""A figure: caption, legend, panels, and the numbers that it shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from .markup import Child, Markup, joined, tag
from .panel import marker

Row = Sequence[str]
ARMS = ("baseline", "candidate")
"""The looks of the two arms, in their order."""


def figure(
    identity: str,
    *,
    title: str,
    words: str,
    legend: Iterable[Markup],
    panels: Iterable[Markup],
    numbers: Iterable[Markup],
    columns: str,
) -> Markup:
    """Panels side by side, as many as fit, and what they show as tables to unfold."""
    return tag(
        "figure",
        tag("figcaption", tag("strong", f"{title}.", id=f"{identity}-name"), f" {words}"),
        tag("ul", legend, class_="legend"),
        tag("div", panels, class_=f"panels {columns}"),
        tag("details", tag("summary", "The numbers of this figure"), numbers),
        aria_labelledby=f"{identity}-name",
    )


def table(
    caption: Child,
    header: Row,
    rows: Iterable[Sequence[Child]],
    *,
    label: str,
    style: str = "",
    prose: Collection[int] = (),
) -> Markup:
    """A table in a box of its own that scrolls where it is too wide; the first cell names the row.

    Columns of ``prose`` begin at the left and break their lines.
    """
    return scrolling(
        label,
        tag(
            "table",
            tag("caption", tag("span", caption)),
            tag(
                "thead",
                tag("tr", (tag("th", name, scope="col", class_=_look(i, prose)) for i, name in enumerate(header))),
            ),
            tag("tbody", (_row(cells, prose) for cells in rows)),
            class_=style or None,
        ),
    )


def scrolling(label: str, content: Markup) -> Markup:
    """A box that scrolls sideways, by keyboard too, so that the page never does."""
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def entry(sample: Markup, words: str) -> Markup:
    """A line of a legend."""
    drawn = tag("svg", sample, viewBox="0 0 28 14", width="28", height="14", aria_hidden="true")
    return tag("li", drawn, " ", words)


def arm_entries(names: Sequence[str], *, has_lines: bool = True) -> list[Markup]:
    """The two arms, as lines with their markers or as markers alone."""
    return [
        entry(
            joined(
                tag("line", class_=f"line {look}", x1=0, x2=28, y1=7, y2=7) if has_lines else None,
                marker(14, 7, look=look),
            ),
            name,
        )
        for look, name in zip(ARMS, names, strict=True)
    ]


def band_entry(words: str) -> Markup:
    """What the bands are."""
    bands = (tag("rect", class_=f"band {look}", x=1 + 13 * i, y=2, width=13, height=10) for i, look in enumerate(ARMS))
    return entry(joined(bands), words)


def listed(values: Iterable[float], form: str) -> str:
    """Numbers in words.

    >>> listed([0.1, 0.25], ".2f")
    '0.10, 0.25'
    """
    return ", ".join(format(value, form) for value in values)


def _row(cells: Sequence[Child], prose: Collection[int]) -> Markup:
    rest = (tag("td", cell, class_=_look(i, prose)) for i, cell in enumerate(cells[1:], start=1))
    return tag("tr", tag("th", cells[0], scope="row"), rest)


def _look(column: int, prose: Collection[int]) -> str | None:
    return "prose" if column in prose else None
