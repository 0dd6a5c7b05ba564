"""The report in a real browser: contrast, accessibility, printing and downloads, on desktop and phone, light and dark.

Screenshots go to the folder that ORTHOGRAD_SCREENSHOTS names, if it does.
"""

from __future__ import annotations

import base64
import csv
import io
import os
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

from orthograd.lab.comparison.page.document import page
from orthograd.lab.comparison.pair import MethodPair
from orthograd.paper.document.blocks import as_page
from orthograd.paper.document.contents import contents
from orthograd.paper.evidence import Evidence
from tests.lab.comparison.browser.chromium import Browser, chromium
from tests.lab.comparison.records import runs
from tests.paper.made_runs import made_table1
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow

RECORDS = runs(seeds=range(5), shifts=("noise", "blur", "contrast", "dropout", "translation"), epochs=6)
MEASURES = (Path(__file__).parent / "measures.js").read_text()
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    pair = MethodPair.of(RECORDS, baseline="baseline", candidate="orthograd")
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(pair, names=("SGD", "⊥Grad"), command="orthograd compare"), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def browser():
    program = chromium()
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("expected chromium, which CI has to install, got none")
        pytest.skip("no chromium here: apt install chromium")
    opened = Browser(program)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def screenshots(tmp_path_factory):
    named = os.environ.get("ORTHOGRAD_SCREENSHOTS")
    folder = Path(named) if named else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def opened(browser, file, *, width=1280, dark=False, unfolded=False):
    browser.look(width=width, dark=dark)
    browser.open(file.as_uri())
    if unfolded:
        browser.value(OPEN_ALL)
    return browser.value(MEASURES)


def test_nothing_is_complained_about_and_nothing_is_fetched(browser, file):
    opened(browser, file)
    assert [request["request"]["url"] for request in browser.seen("Network.requestWillBeSent")] == [file.as_uri()]
    assert browser.seen("Log.entryAdded") == []
    assert browser.seen("Runtime.consoleAPICalled") == []
    assert browser.seen("Runtime.exceptionThrown") == []


def test_a_server_is_asked_for_the_page_alone(browser, file):
    asked = []

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(file.parent))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser.open(f"http://127.0.0.1:{server.server_port}/report.html")
        time.sleep(0.5)  # a browser asks for an icon when it is done with the rest
        server.shutdown()
    assert asked == ["/report.html"]


@pytest.mark.parametrize(
    ("width", "dark"), [(320, False), (360, False), (390, True), (768, False), (1280, False), (1280, True)]
)
def test_all_is_seen_and_readable(browser, file, screenshots, width, dark):
    found = opened(browser, file, width=width, dark=dark, unfolded=True)
    assert found["excess"] <= 0
    assert len(found["tables"]) > 10
    assert len(found["figures"]) == 8
    assert len(found["drawings"]) == 12 + 6 + 16 + 1
    assert found["bars"] > 50
    for kind in ("tables", "figures", "drawings"):
        assert min(min(box) for box in found[kind]) > 50, kind
    assert found["lowest"][0] >= 4.5, found["lowest"]
    assert found["smallest"][0] >= (10 if width >= 360 else 9), found["smallest"]
    assert found["collisions"] == []
    browser.value(OPEN_ALL.replace("true", "false"))
    browser.screenshot(screenshots / f"{width}-{'dark' if dark else 'light'}.png")


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory):
    evidence = Evidence({run["hash"]: run for run in made_table1()})
    path = tmp_path_factory.mktemp("page") / "reproduction.html"
    path.write_text(as_page(contents(evidence)), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "smallest"), [(390, 1.0), (768, 1.0), (920, 0.92), (1280, 1.0)])
def test_pictures_of_the_reproduction_fit_or_scroll_and_the_page_does_not(
    browser, reproduction, screenshots, width, smallest
):
    """On a phone each is as large as it was drawn, on a desk no wider than the text."""
    found = opened(browser, reproduction, width=width)
    assert found["excess"] <= 0
    assert len(found["pictures"]) >= 4
    scales = [across / wide for across, _, wide, _ in found["pictures"]]
    assert min(scales) == pytest.approx(smallest, abs=0.01)
    assert max(scales) <= 1
    assert all(abs(across / down - wide / high) < 0.02 for across, down, wide, high in found["pictures"])
    browser.screenshot(screenshots / f"reproduction-{width}.png")


def test_colours_of_paper_ink_and_figures_follow_the_scheme(browser, file):
    light, dark = (opened(browser, file, dark=dark) for dark in (False, True))
    assert light["background"] != dark["background"]
    assert light["ink"] != dark["ink"]
    assert set(light["fills"]).isdisjoint(dark["fills"])


def test_it_is_the_same_without_scripts(browser, file):
    usual = opened(browser, file)
    browser.send("Emulation.setScriptExecutionDisabled", value=True)
    try:
        assert opened(browser, file) == usual
    finally:
        browser.send("Emulation.setScriptExecutionDisabled", value=False)


def test_a_screen_reader_finds_headings_tables_and_figures_by_name(browser, file):
    opened(browser, file)
    nodes = browser.send("Accessibility.getFullAXTree")["nodes"]
    heard = [
        (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")
    ]
    headings = [name for role, name in heard if role == "heading"]
    assert headings[0].startswith("⊥Grad vs. SGD: ")
    assert headings[2:5] == ["All metrics", "Seed by seed", "Reliability diagrams"]
    assert headings[-1] == "Data"
    for role, least in (("table", 4), ("figure", 8), ("image", 35), ("region", 10), ("link", 5)):
        names = [name for each, name in heard if each == role]
        assert len(names) >= least, role
        assert all(names), role
    assert any(
        name.startswith("Clean test samples. Differences are ⊥Grad − SGD;") for role, name in heard if role == "table"
    )
    assert ("columnheader", "p (Holm)") in heard
    assert ("rowheader", "ECE\u00a0↓") in heard
    described = [
        name for role, name in heard if role == "image" and name.startswith("ECE\u00a0↓, seed by seed Mean 0.")
    ]
    assert len(described) == 2


def test_links_hold_the_records_and_are_saved_by_a_click(browser, file, tmp_path):
    opened(browser, file)
    address = browser.value("document.querySelector('a[download=\"runs.csv\"]').href")
    lines = list(csv.DictReader(io.StringIO(unquote(address.partition(",")[2]))))
    first = RECORDS[0]
    assert float(lines[0]["ece"]) == first["metrics"]["clean"]["ece"]
    assert {line["images"] for line in lines} == {*first["metrics"], "clean.after_temperature"}
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.value("document.querySelector('a[download=\"training.csv\"]').click()")
    deadline = time.monotonic() + PATIENCE
    while not (saved := tmp_path / "training.csv").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = list(csv.DictReader(saved.open()))
    assert [float(row["loss"]) for row in rows[:6]] == first["losses"]


def test_it_prints(browser, file, screenshots):
    opened(browser, file)
    printed = base64.b64decode(browser.send("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000
    (screenshots / "printed.pdf").write_bytes(printed)
