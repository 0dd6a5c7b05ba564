"""User-facing text uses the words of the field, American spelling and short sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.prose import SENTENCE_END, mean_words, sentences, strings, without_code

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src/orthograd"


class Rule(NamedTuple):
    """A pattern that text must not match, what to write instead, and a sentence that breaks the rule."""

    pattern: str
    instead: str
    bad: str


WORDS = (
    Rule(r"(?-i:\b[Aa]rms?\b)", "method", "The second arm was better."),
    Rule(r"\bjudg\w+", "evaluate, evaluation", "Networks are judged on test images."),
    Rule(r"\bto answer for\b", "inference time", "It takes a second to answer for all images."),
    Rule(r"\bby pairs\b", "paired", "The difference by pairs is small."),
    Rule(r"\bto reach\b", "target, or another verb", "The bound to reach is 1.1."),
    Rule(
        r"\b(head|weight|gradient|vector)s?(['’]s)? length|"
        r"\blengths? of (the |its |each |a |one )?(head|weight|gradient|vector|parameter)|"
        r"\b(head|weight)s? (is|are|was|were|gets?|stays?|ends?) (much )?(long|short)er\b",
        "norm",
        "The length of the head grows.",
    ),
    Rule(
        r"(?<!make )(?<!making )\b(un)?surer?\b", "confident, overconfident, underconfident", "The network is too sure."
    ),
    Rule(
        r"\bnorms?['’]s? (scale|shift)s?\b|\b(scale|shift)s?,? (and|or) (scale|shift)s?\b|"
        r"\b(scale|shift)s? of (the |a |its )?(batch ?|layer ?)?norms?\b",
        "BatchNorm weight, BatchNorm bias",
        "It acts on the norms' scales.",
    ),
    Rule(r"\bshifted (images?|pictures?|samples?|data|test)\b", "corrupted images", "ECE on shifted images fell."),
    Rule(r"\bslopes\b", "weight gradients, input gradients, coefficients", "Slopes of the weights are added."),
    Rule(r"\bpack(s|ed|ing)?\b", "concurrent runs", "A pack of ten networks trains."),
    Rule(r"\bprograms\b", "thread blocks", "The first programs measure."),
    Rule(
        r"\bvectors (spared|skipped|are skipped|alone|left out)\b", "1-D parameters", "With vectors skipped it learns."
    ),
    Rule(r"\bkinds?\b", "layer type, parameter group, type", "Each kind of parameter was tried."),
    Rule(r"\bspar(ed|ing)\b", "weight decay on convolutions only, skip 1-D parameters", "Decay is spared."),
    Rule(r"\bwatch(es|ed|ing|er)?\b", "norm statistics computed with the backward pass", "The watch takes a second."),
    Rule(
        r"\A\W*found\W*\Z|\|\s*found\s*\||\b(what|as|than|best|value|values) (was |were |is |are |we )?found\b|"
        r"\bfound (value|number|result)s?\b",
        "result, value, best",
        "What was found is in the table.",
    ),
    Rule(
        r"\bundecided\b|\b(leav\w+|left)( \w+){0,3} open\b|\bcan(not|'t| not)( be)? (tell|told)\b|"
        r"\bcould( not)? (be )?(tell|told)\b",
        "inconclusive, no difference detected",
        "Ten seeds leave that open.",
    ),
    Rule(
        r"\bresults?( \S+){0,4} (had been|have been|were|was|are) seen\b",
        "post hoc",
        "It was added when the results had been seen.",
    ),
    Rule(r"\b(come|comes|came|coming) out\b", "did not reproduce, or name the result", "The claim did not come out."),
    Rule(
        r"(?i:\b\w*(normal|regular|optim|minim|maxim|recogn|initial|synchron|summar|general|parallel|vector|factor|"
        r"orthogonal|penal|emphas|random|organ|visual|util|serial|real|standard|general)is(e|es|ed|er|ers|ing|ation|ations)"
        r"\b)|(?i:\b(colour|behaviour|neighbour|favour|honour)\w*|\bcentr(e|es|ed|ing)\b|\bartefacts?\b|"
        r"\banalys(e|ed|ing)\b|\b(label|model|cancel|travel)l(ed|ing)\b|\bcatalogues?\b|\bgrey\b|\bwhilst\b)",
        "American spelling",
        "Colours are normalised.",
    ),
    Rule(r"\d[ \u00a0\u202f]%", "95%, without a space", "The interval has a level of 95 %."),
)
OPENERS = Rule(
    r"(Of|That|Whether)\b|What\b[^?]*\b(is|are|was|were)\b[^?]*\Z",
    "a subject and a verb first; in a docstring what the thing returns or does",
    "Whether it is fitted.",
)
ALLOWED = {"npm pack": "the name of a command"}
"""Phrases that a rule would match, each with the reason why it may stay."""


def broken_rules(text: str) -> Iterator[tuple[int, str]]:
    """Offset and complaint for each match of a rule in text without code."""
    for phrase in ALLOWED:
        text = text.replace(phrase, "x" * len(phrase))
    for rule in WORDS:
        for match in re.finditer(rule.pattern, text, re.I):
            yield match.start(), f"{' '.join(match[0].split())!r}: write {rule.instead}"


def bad_openings(parts: list[str]) -> Iterator[str]:
    """A complaint for each sentence that opens in a way that hides its subject."""
    for sentence in parts:
        if re.match(OPENERS.pattern, sentence.lstrip("-*1234567890. ")):
            yield f"{sentence[:60]!r}: write {OPENERS.instead}"


def page_complaints(path: Path) -> list[str]:
    """Complaints about a Markdown page, with their lines."""
    text = path.read_text(encoding="utf-8")
    prose = without_code(text)
    words = [
        f"{path.relative_to(ROOT)}:{1 + prose.count(chr(10), 0, at)}: {what}"
        for at, what in sorted(broken_rules(prose))
    ]
    return words + [f"{path.relative_to(ROOT)}: {what}" for what in bad_openings(sentences(text))]


def source_complaints(path: Path) -> list[str]:
    """Complaints about the docstrings and the other texts of a Python file, with their lines."""
    complaints = []
    for line, text, is_docstring in strings(path.read_text(encoding="utf-8")):
        prose = re.sub(r"^\s*(>>>|\.\.\. ).*$", "", without_code(text), flags=re.M)
        what = [each for _, each in broken_rules(prose)]
        if is_docstring:
            what += bad_openings(SENTENCE_END.split(" ".join(prose.split()))[:1])
        complaints += [f"{path.relative_to(ROOT)}:{line}: {each}" for each in what]
    return complaints


PAGES = [*(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"))]
PAGES += [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
FOLDERS = sorted(path for path in SOURCE.iterdir() if path.is_dir() and any(path.glob("*.py")))
GUIDES = [ROOT / name for name in ("README.md", "docs/quickstart.md", "docs/should-i-use-it.md", "docs/howto.md")]
GUIDES += [*sorted((ROOT / "docs/howto").glob("*.md")), *sorted((ROOT / "docs/tutorials").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_use_the_words_of_the_field(page):
    assert page_complaints(page) == []


@pytest.mark.parametrize("folder", [SOURCE, *FOLDERS, ROOT / "examples"], ids=lambda folder: folder.name)
def test_texts_in_code_use_the_words_of_the_field(folder):
    files = folder.glob("*.py") if folder == SOURCE else folder.rglob("*.py")
    assert [complaint for path in sorted(files) for complaint in source_complaints(path)] == []


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: str(page.relative_to(ROOT)))
def test_sentences_are_short(page):
    assert mean_words(page.read_text(encoding="utf-8")) < 18


@pytest.mark.parametrize("rule", WORDS, ids=lambda rule: rule.instead)
def test_each_rule_finds_a_sentence_that_breaks_it(rule):
    assert [what for _, what in broken_rules(rule.bad) if what.endswith(f"write {rule.instead}")]
    assert not list(broken_rules("⊥Grad lowers ECE by 3.2 points (95% interval, 10 seeds)."))


def test_openings_that_hide_the_subject_are_complained_about():
    assert list(bad_openings([OPENERS.bad]))
    assert list(bad_openings(["- Of ten seeds three learned.", "That is why.", "What it returns is a number."]))
    assert not list(bad_openings(["Ten seeds of each.", "What is calibration?", "Office hours.", "What changed"]))


def test_texts_in_code_are_complained_about(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.test_words.ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text('"""Whether it is `sure`."""\n\nprint(f"{1:.1f} % of this")\nname = "kind"\n')
    assert [complaint.split(":")[1] for complaint in source_complaints(path)] == ["1", "3"]
    page = tmp_path / "page.md"
    page.write_text("# Colours\n\n```\nwatch 95 %\n```\n`kind` and [a pack](kind.md)\n")
    assert [complaint.split(":")[1] for complaint in page_complaints(page)] == ["1", "6"]


def test_sentences_are_told_apart():
    text = "One two. Three\nfour!\n\n- [Five](x.md) 6.5\n- seven\n\n| a |\n\n```\ncode. code\n```\n"
    assert sentences(text) == ["One two.", "Three four!", "- Five 6.5", "- seven"]
    assert mean_words(text) == 7 / 4
