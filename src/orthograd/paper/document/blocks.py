"""The blocks of a document, and how they become Markdown or a self-contained web page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import quote

from ...lab.comparison.page.tables import SIGNS, number
from ...lab.page.document import page_head
from ...lab.page.markup import Markup, joined, scrolling, tag
from ...lab.page.markup import table as html_table
from ...statistics.table import markdown_table

NUMBER = re.compile(r"[+−<≤]?\d")
LOOKS = {
    **{word: (sign, word) for word, sign in SIGNS.items()},
    "reproduced": ("✓", "better"),
    "compatible": ("≈", ""),
    "not reproduced": ("✗", "worse"),
    "contradicted by its own numbers": ("!", ""),
}
"""Verdicts: the sign before each, and its style."""
INLINE = re.compile(
    r"`(?P<code>[^`]+)`|\*\*(?P<bold>[^*]+)\*\*|\*(?P<em>[^*]+)\*|\[(?P<link>[^\]]+)\]\((?P<to>[^)]+)\)"
)


@dataclass(frozen=True)
class Heading:
    """A title; level 1 is that of the document."""

    level: int
    text: str


@dataclass(frozen=True)
class Words:
    """A paragraph; `code`, **bold** and [links](target) as Markdown has them."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list of short paragraphs."""

    texts: tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Rows of cells under a header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Folded:
    """Blocks that a reader opens with a click on the title."""

    title: str
    blocks: tuple[Words | Items | Table, ...]


@dataclass(frozen=True)
class Picture:
    """A drawing in a separate file, and its content in words."""

    name: str
    svg: str
    words: str


@dataclass(frozen=True)
class ByHand:
    """A place for text written by hand, which stays when the document is made again."""

    name: str
    empty: str


Block = Heading | Words | Items | Table | Folded | Picture | ByHand


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose rows all have as many cells as the header."""
    cells = tuple(tuple(row) for row in rows)
    for row in cells:
        if len(row) != len(header):
            raise ValueError(f"expected rows of {len(header)} cells, got {row}")
    return Table(tuple(header), cells)


def folded(title: str, *blocks: Words | Items | Table, rows: int = 12) -> Iterator[Block]:
    """The blocks, folded if their tables have more than ``rows`` rows."""
    if sum(len(block.rows) for block in blocks if isinstance(block, Table)) > rows:
        yield Folded(title, blocks)
    else:
        yield from blocks


def as_markdown(blocks: Iterable[Block], *, figures: str, before: str = "") -> str:
    """The document as Markdown. Pictures lie in the folder ``figures``; text by hand is taken from ``before``."""
    return "\n".join(_markdown(block, figures, before) for block in blocks)


def written_by_hand(text: str, name: str) -> str | None:
    """The text by hand of that name in a document.

    >>> written_by_hand("<!-- when: by hand -->\\nOften.\\n<!-- end of when -->\\n", "when")
    'Often.'
    """
    begin, end = _marks(name)
    if begin not in text or end not in text:
        return None
    return text.split(begin, 1)[1].split(end, 1)[0].strip("\n")


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: by hand -->", f"<!-- end of {name} -->"


def _markdown(block: Block, figures: str, before: str) -> str:
    if isinstance(block, Table):
        return markdown_table(block.header, block.rows)
    if isinstance(block, Folded):  # the empty lines make GitHub and the site read what is inside as Markdown
        inside = "\n".join(_markdown(each, figures, before) for each in block.blocks)
        return f"<details>\n<summary>{block.title}</summary>\n\n{inside}\n</details>\n"
    return "".join(f"{line}\n" for line in _lines(block, figures, before))


def _lines(block: Heading | Words | Items | Picture | ByHand, figures: str, before: str) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"{'#' * block.level} {block.text}"
    elif isinstance(block, Words):
        yield block.text
    elif isinstance(block, Items):
        yield from (f"- {text}" for text in block.texts)
    elif isinstance(block, Picture):
        yield f"![{block.words}]({PurePosixPath(figures) / block.name})"
    else:
        begin, end = _marks(block.name)
        yield from (begin, written_by_hand(before, block.name) or block.empty, end)


def as_page(blocks: Iterable[Block]) -> str:
    """The document as a web page. The same blocks give the same bytes."""
    parts = _parts(blocks)
    title = next((block.text for block in parts[0] if isinstance(block, Heading)), "orthograd")
    main = tag("main", tag("header", _elements(parts[0])), (tag("section", _elements(part)) for part in parts[1:]))
    return f"<!DOCTYPE html>\n{tag('html', page_head(title), tag('body', main), lang='en')}\n"


def _parts(blocks: Iterable[Block]) -> list[list[Block]]:
    """The blocks before the first heading of level 2, and those from each such heading to the next."""
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
    for match in INLINE.finditer(text):
        yield text[end : match.start()]
        end = match.end()
        if match["link"]:
            yield tag("a", match["link"], href=match["to"])
        else:
            name = "code" if match["code"] else "strong" if match["bold"] else "em"
            yield tag(name, match["code"] or inline(match["bold"] or match["em"]))
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
        return html_table(title, block.header, rows, label=title, style="comparison untitled", prose=_prose(block))
    if isinstance(block, Folded):
        return tag("details", tag("summary", block.title), (_element(each, title) for each in block.blocks))
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
    """The columns with words: at least one cell does not begin with a number."""
    columns = enumerate(zip(*block.rows, strict=True))
    known = {i: [cell for cell in cells if cell not in ("", "–")] for i, cells in columns}
    return {i for i, cells in known.items() if i and not all(map(NUMBER.match, cells))}
