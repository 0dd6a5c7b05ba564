"""The tables of docs/theory.md, from the record of `orthograd theory`."""

from __future__ import annotations

from typing import Any

END = "<!-- end -->\n"


def with_tables(text: str, record: dict[str, Any]) -> str:
    """The text with the table of each demonstration in its place, between its marks.

    >>> record = {"demonstrations": [{"name": "length", "statements": []}]}
    >>> print(with_tables("<!-- length: written by orthograd theory -->\\n<!-- end -->\\n", record), end="")
    <!-- length: written by orthograd theory -->
    | statement | measured | value | bound | holds |
    |---|---|---|---|---|
    <!-- end -->
    """
    for found in record["demonstrations"]:
        begin = f"<!-- {found['name']}: written by orthograd theory -->\n"
        if begin not in text:
            raise ValueError(f"expected the document to have the line {begin.strip()!r}, got none")
        head, rest = text.split(begin, 1)
        if END not in rest:
            raise ValueError(
                f"expected the document to have the line {END.strip()!r} after {begin.strip()!r}, got none"
            )
        text = head + begin + table(found["statements"]) + END + rest.split(END, 1)[1]
    return text


def table(statements: list[dict[str, Any]]) -> str:
    """The statements as a table in Markdown; what is said again in the next row is said once."""
    lines, before = ["| statement | measured | value | bound | holds |", "|---|---|---|---|---|"], ""
    for row in statements:
        says = "″" if row["says"] == before else row["says"]
        bound = f"{row['relation']} {row['bound']:.3g}"
        cells = (says, row["measured"], f"{row['value']:.3g}", bound, "yes" if row["holds"] else "**no**")
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
        before = row["says"]
    return "".join(line + "\n" for line in lines)
