"""The same document as one self-contained web page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from ..lab.comparison.page.document import page_head
from ..lab.comparison.page.markup import Markup, joined, scrolling, table, tag
from ..lab.comparison.page.tables import SIGNS, number
from .blocks import Block, ByHand, Heading, Items, Picture, Table, Words

NUMBER = re.compile(r"[+−<≤]?\d")
LOOKS = {
    **{word: (sign, word) for word, sign in SIGNS.items()},
    "reproduced": ("✓", "better"),
    "same direction, different size": ("≈", ""),
    "no difference in either, different size": ("≈", ""),
    "not reproduced": ("✗", "worse"),
    "cannot mean what it says": ("!", ""),
    "equal": ("=", ""),
    "shifts": ("↕", "worse"),
}
"""Words that sum up a row: the sign before them, and their look."""
INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\*(?P<em>[^*]+)\*|\[(?P<link>[^\]]+)\]\((?P<to>[^)]+)\)"
)


def as_page(blocks: Iterable[Block]) -> str:
    """The page; the same blocks give the same bytes."""
    parts = _parts(blocks)
    title = next((block.text for block in parts[0] if isinstance(block, Heading)), "orthograd")
    main = tag("main", tag("header", _elements(parts[0])), (tag("section", _elements(part)) for part in parts[1:]))
    return f"<!DOCTYPE html>\n{tag('html', page_head(title), tag('body', main), lang='en')}\n"


def _parts(blocks: Iterable[Block]) -> list[list[Block]]:
    """What stands before the first heading of level 2, and from each of them to the next."""
    parts: list[list[Block]] = [[]]
    for block in blocks:
        if isinstance(block, Heading) and block.level == 2:
            parts.append([])
        parts[-1].append(block)
    return parts


def _elements(blocks: Iterable[Block]) -> Iterator[Markup]:
    title = ""
    for block in blocks:
        title = block.text if isinstance(block, Heading) else title
        yield _element(block, title)


def inline(text: str) -> Markup:
    """A line of Markdown as HTML.

    >>> inline("**a < b** in `c`")
    '<strong>a &lt; b</strong> in <code>c</code>'
    """
    return joined(_pieces(text))


def _pieces(text: str) -> Iterator[str]:
    end = 0
    for found in INLINE.finditer(text):
        yield text[end : found.start()]
        end = found.end()
        if found["link"]:
            yield tag("a", found["link"], href=found["to"])
        else:
            name = "code" if found["code"] else "strong" if found["bold"] else "em"
            yield tag(name, found["code"] or inline(found["bold"] or found["em"]))
    yield text[end:]


def _element(block: Block, title: str) -> Markup:
    if isinstance(block, Heading):
        return tag(f"h{block.level}", inline(block.text))
    if isinstance(block, Words):
        return tag("p", inline(block.text))
    if isinstance(block, Items):
        return tag("ul", (tag("li", inline(text)) for text in block.texts))
    if isinstance(block, Table):
        rows = [[inline(row[0]), *map(_cell, row[1:])] for row in block.rows]
        return table(title, block.header, rows, label=title, style="comparison untitled", prose=_prose(block))
    if isinstance(block, Picture):
        address = f"data:image/svg+xml;charset=utf-8,{quote(block.svg)}"
        picture = scrolling(f"{title}, picture", tag("img", src=address, alt=block.words))
        return tag("figure", picture, tag("figcaption", block.words))
    assert isinstance(block, ByHand)
    return tag("p", block.empty)


def _cell(text: str) -> Markup:
    if text in LOOKS:
        sign, look = LOOKS[text]
        return tag("span", tag("span", sign, aria_hidden="true"), " ", text, class_=f"verdict {look}".strip())
    return number(text) if NUMBER.match(text) and "(" in text else inline(text)


def _prose(block: Table) -> set[int]:
    """The columns that have words: a cell that does not begin with a number."""
    columns = enumerate(zip(*block.rows, strict=True))
    known = {i: [cell for cell in cells if cell not in ("", "–")] for i, cells in columns}
    return {i for i, cells in known.items() if i and not all(map(NUMBER.match, cells))}
