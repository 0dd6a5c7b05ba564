"""The whole page: sections in order, under one style, with nothing from outside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files

from ..pair import ArmPair
from . import diagnosis, downloads, failures, pairs, reliability, setup, severity, tables, training, verdict
from .failures import FailedRun
from .markup import Markup, joined, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(pair: ArmPair, *, names: tuple[str, str], command: str, failed: Sequence[FailedRun] = ()) -> str:
    """The page of a comparison; the same records, names, command and failures give the same bytes.

    ``names`` are how people call the baseline and the candidate, ``command`` is what makes the runs again, ``failed``
    the runs that have no record.
    """
    sections = {"Runs that failed": failures.section(pair, names, failed), **_sections(pair, names, command)}
    title, about = verdict.headline(pair.tables["clean"], names), _about(pair, failed)
    body = tag(
        "body",
        page_patterns(),
        tag(
            "main",
            tag("header", tag("p", about, class_="about"), tag("h1", title), verdict.section(pair, names)),
            (_section(name, content) for name, content in sections.items() if content),
        ),
    )
    return f"<!DOCTYPE html>\n{tag('html', page_head(title), body, lang='en')}\n"


def _sections(pair: ArmPair, names: tuple[str, str], command: str) -> Mapping[str, Markup | None]:
    return {
        "The comparison": tables.section(pair, names),
        "Every seed as a pair": pairs.section(pair, names),
        "Does confidence mean what it says?": reliability.section(pair, names),
        "As images get worse": severity.section(pair, names),
        "Training": training.section(pair, names),
        "Where ⊥Grad acts": diagnosis.section(pair, names),
        "How this was made": setup.section(pair, names, command),
        "The data": downloads.section(pair, names),
    }


def _section(name: str, content: Markup) -> Markup:
    identity = "".join(sign if sign.isalnum() else "-" for sign in name.lower()).strip("-")
    return tag("section", tag("h2", name, id=identity), content, aria_labelledby=identity)


def _about(pair: ArmPair, failed: Sequence[FailedRun]) -> str:
    settings = setup.settings_of(pair)
    what = [str(settings[name]) for name in ("model", "dataset") if name in settings]
    missing = [failures.count(failed)] if failed else []
    return " · ".join(["orthograd compare", *what, f"{len(pair.seeds)} seeds", *missing])


def page_head(title: str) -> Markup:
    """The head of any page of ours: its title and style, and that nothing comes from outside."""
    return tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("title", title),
        tag("link", rel="icon", href="data:,"),  # otherwise a server would be asked for one
        tag("style", Markup(_style())),
    )


def drawing_style() -> str:
    """Of the page's style what a drawing needs that stands by itself: the colours and the marks."""
    text = _style()
    colours = text[: text.index("* {")]
    marks = text[text.index("\nsvg text {") : text.index("@media print")]
    return f"{colours}{marks}.ground {{ fill: var(--paper); }}\n"


def _style() -> str:
    return files(__package__).joinpath("style.css").read_text(encoding="utf-8")


def page_patterns() -> Markup:
    """Hatches and dots, once for all diagrams of a page."""
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
