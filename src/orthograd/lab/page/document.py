"""A self-contained HTML page: its head, style and sections, and files that are embedded in it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from urllib.parse import quote

from .markup import Markup, joined, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def whole_page(title: str, about: str, verdict: Markup, sections: Mapping[str, Markup | None]) -> str:
    """A page as HTML: a line about it, its title, the verdict, then the sections that have content."""
    body = tag(
        "body",
        page_patterns(),
        tag(
            "main",
            tag("header", tag("p", about, class_="about"), tag("h1", title), verdict),
            (_section(name, content) for name, content in sections.items() if content),
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', page_head(title), body, lang='en')}\n"


def _section(name: str, content: Markup) -> Markup:
    identity = "".join(sign if sign.isalnum() else "-" for sign in name.lower()).strip("-")
    return tag("section", tag("h2", name, id=identity), content, aria_labelledby=identity)


def page_head(title: str) -> Markup:
    """The head of a page: title, style, and a policy that forbids loading anything."""
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),  # otherwise the browser asks a server for one
        tag("style", Markup(_style())),
    )


def drawing_style() -> str:
    """The part of the page's style that a separate SVG file needs: colors and marks."""
    text = _style()
    colors = text[: text.index("* {")]
    marks = text[text.index("\nsvg text {") : text.index("@media print")]
    return f"{colors}{marks}.ground {{ fill: var(--paper); }}\n"


def _style() -> str:
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def page_patterns() -> Markup:
    """Hatches and dots, defined once for all diagrams of a page."""
    over = tag(
        "pattern",
        tag("path", d="M-1,1 l2,-2 M0,6 l6,-6 M5,7 l2,-2"),
        id="over",
        width="6",
        height="6",
        patternUnits="userSpaceOnUse",
    )
    under = tag(
        "pattern",
        tag("circle", cx="2.5", cy="2.5", r="1"),
        id="under",
        width="5",
        height="5",
        patternUnits="userSpaceOnUse",
    )
    return tag(
        "svg",
        tag("defs", joined(over, under)),
        width="0",
        height="0",
        class_="patterns",
        aria_hidden="true",
        focusable="false",
    )


def downloads(files: Mapping[str, tuple[str, str]]) -> Markup:
    """Links to CSV files that are embedded in the page: by name, a description and the text."""
    return tag("ul", (_link(name, words, text) for name, (words, text) in files.items()), class_="downloads")


def csv_text(lines: Iterable[Sequence[str]]) -> str:
    """Rows of cells as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def _link(name: str, words: str, text: str) -> Markup:
    # Percent-encoding keeps digits, commas and points: shorter than base64, and readable.
    address = f"data:text/csv;charset=utf-8,{quote(text, safe=',.-+_')}"
    size = f"{len(text.encode()) / 1000:,.0f} kB" if len(text) >= 1000 else f"{len(text.encode())} bytes"
    return tag("li", tag("a", name, download=name, href=address), f": {words} ({size})")
