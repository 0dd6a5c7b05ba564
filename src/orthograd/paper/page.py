"""The same document as one self-contained web page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from ..report.page.document import page_head
from ..report.page.figure import table
from ..report.page.markup import Markup, joined, tag
from .blocks import Block, ByHand, Heading, Items, Picture, Table, Words

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
        rows = [[inline(cell) for cell in row] for row in block.rows]
        return table(title, block.header, rows, label=title, style="comparison")
    if isinstance(block, Picture):
        address = f"data:image/svg+xml;charset=utf-8,{quote(block.svg)}"
        return tag("figure", tag("img", src=address, alt=block.words), tag("figcaption", block.words))
    assert isinstance(block, ByHand)
    return tag("p", block.empty)
