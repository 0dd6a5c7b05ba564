"""HTML and SVG as nested calls, and tables. Text that is not markup yet is escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Collection, Iterable, Sequence

Child = str | Iterable[str | None] | None
VOID = ("meta", "link", "rect", "line", "path", "circle", "use", "polyline")


class Markup(str):
    """Text that is already markup and is not escaped."""


def tag(name: str, /, *children: Child, **attributes: str | float | None) -> Markup:
    """An element. Attributes of None are dropped, `class_` becomes class, underscores become hyphens.

    >>> tag("p", "a < b, ", tag("em", "so"), class_="note", aria_label='"x"')
    '<p class="note" aria-label="&quot;x&quot;">a &lt; b, <em>so</em></p>'
    """
    shown = "".join(f' {_named(key)}="{_value(value)}"' for key, value in attributes.items() if value is not None)
    if name in VOID and not children:
        return Markup(f"<{name}{shown}/>")
    return Markup(f"<{name}{shown}>{joined(*children)}</{name}>")


def joined(*children: Child) -> Markup:
    """Children joined into one markup.

    >>> joined("a & b", [tag("b", "c"), "d"], None)
    'a &amp; b<b>c</b>d'
    """
    return Markup("".join(_child(child) for child in children))


def compact(number: float) -> str:
    """A coordinate with at most two decimals.

    >>> compact(12.0), compact(0.126), compact(-0.001)
    ('12', '0.13', '0')
    """
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def table(
    caption: Child,
    header: Sequence[str],
    rows: Iterable[Sequence[Child]],
    *,
    label: str,
    style: str = "",
    prose: Collection[int] = (),
) -> Markup:
    """A table that scrolls where it is too wide; the first cell of a row is its header.

    Columns in ``prose`` are left-aligned and wrap.
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
    """A box that scrolls sideways, also by keyboard, so that the page does not."""
    return tag("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Markup):
        return child
    if isinstance(child, str):
        text = html.escape(child, quote=False)
        return re.sub(r" (?=[%↓↑])", "\u00a0", text)  # no line break before a unit or an arrow
    return joined(*child)


def _named(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


def _value(value: str | float) -> str:
    return html.escape(value) if isinstance(value, str) else compact(value)


def _row(cells: Sequence[Child], prose: Collection[int]) -> Markup:
    rest = (tag("td", cell, class_=_look(i, prose)) for i, cell in enumerate(cells[1:], start=1))
    return tag("tr", tag("th", cells[0], scope="row"), rest)


def _look(column: int, prose: Collection[int]) -> str | None:
    return "prose" if column in prose else None
