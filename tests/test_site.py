"""The site: every public name is in the reference, links lead somewhere, and no page loads anything from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import runpy
import zlib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    path
    for path in sorted(DOCS.rglob("*.md"))
    if not {"_build", "results", "inventories"} & set(path.relative_to(DOCS).parts)
]
ENTRY = re.compile(r"^\.\. (?:auto\w+|py:\w+):: (\S+)", re.M)


def entries():
    return {name for page in (DOCS / "reference").glob("*.md") for name in ENTRY.findall(page.read_text())}


@pytest.mark.parametrize(
    "module", ["orthograd", "orthograd.calibration", "orthograd.statistics", "orthograd.diagnosis", "orthograd.losses"]
)
def test_every_public_name_has_an_entry_in_the_reference(module):
    known = entries()
    exported = import_module("orthograd").__all__
    missing = [
        name
        for name in import_module(module).__all__
        if f"{module}.{name}" not in known and not (name in exported and f"orthograd.{name}" in known)
    ]
    assert not missing


@pytest.mark.parametrize("module", ["orthograd.projection", "orthograd.jax"])
def test_every_public_function_of_a_module_has_an_entry_in_the_reference(module):
    pytest.importorskip("jax") if module.endswith("jax") else None
    known, found = entries(), vars(import_module(module)).items()
    ours = [name for name, value in found if getattr(value, "__module__", "") == module and not name.startswith("_")]
    assert ours
    assert not [name for name in ours if f"{module}.{name}" not in known]


def test_entries_of_the_reference_exist():
    for entry in entries():
        if not entry.startswith("orthograd.jax") or importlib.util.find_spec("jax"):
            module, _, name = entry.rpartition(".")
            assert hasattr(import_module(module), name), entry


def test_every_command_has_an_entry_in_the_reference():
    commands = {command.__name__ for command in import_module("orthograd.cli.main").COMMANDS}
    page = (DOCS / "reference" / "cli.md").read_text()
    assert set(re.findall(r"^```\{typer\} orthograd\.cli\.main:app:(\w+)$", page, re.M)) == commands


def test_the_page_on_batches_runs():
    page = (DOCS / "howto" / "evaluate-in-batches.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    assert len(blocks) == 2
    exec("\n".join(blocks), {})


def links(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return re.findall(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)", text)


def anchors(page):
    """Headings as the site and GitHub link to them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(DOCS).as_posix())
def test_links_inside_lead_somewhere(page):
    for target, anchor in links(page):
        path = page.parent / target if target else page
        assert path.exists(), target
        assert not anchor or path.suffix != ".md" or anchor in anchors(path), f"{target}#{anchor}"


def test_every_page_is_in_the_table_of_contents():
    listed = re.findall(r"^[\w/*-]+$", (DOCS / "index.md").read_text(), re.M)
    for page in PAGES:
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or name in listed or f"{Path(name).parent}/*" in listed, name


def test_inventories_are_those_of_their_list():
    make = runpy.run_path(str(DOCS / "inventories" / "make.py"))
    for project in make["NAMES"]:
        kept, made = (DOCS / "inventories" / f"{project}.inv").read_bytes(), make["inventory"](project)
        assert kept.split(b"zlib.\n")[0] == made.split(b"zlib.\n")[0]
        assert zlib.decompress(kept.split(b"zlib.\n")[1]) == zlib.decompress(made.split(b"zlib.\n")[1])


@pytest.fixture(scope="module")
def site():
    built = DOCS / "_build" / "html"
    if not built.exists():
        pytest.skip("make docs builds the site")
    return built


LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc\s*=\s*[\"'](?:https?:)?//[^\"']*"
    r"|<link\b(?![^>]*rel\s*=\s*[\"'](?:canonical|search|index|next|prev|author|license))[^>]*href\s*=\s*[\"'](?:https?:)?//[^\"']*"
    r"|@import\s+[\"'(][^;]*//[^;]*|url\(\s*[\"']?(?:https?:)?//[^)]*"
)


def test_the_check_of_what_is_loaded_sees_what_it_must():
    for text in (
        '<script src="https://cdn.example/x.js">',
        '<link rel="stylesheet" href="//cdn.example/x.css">',
        "@font-face { src: url(https://fonts.example/x.woff2) }",
    ):
        assert LOADED.search(text)
    assert not LOADED.search('<a href="https://arxiv.org">paper</a> <script src="_static/x.js">')


@pytest.mark.slow
def test_no_page_loads_anything_from_elsewhere(site):
    pages = [*site.rglob("*.html"), *site.rglob("*.css"), *site.rglob("*.svg")]
    assert len(pages) > 20
    for path in pages:
        assert not LOADED.findall(path.read_text(encoding="utf-8")), path.relative_to(site)


@pytest.mark.slow
def test_mathematics_is_in_the_pages_themselves(site):
    assert "<math" in (site / "reference" / "projection.html").read_text(encoding="utf-8")
