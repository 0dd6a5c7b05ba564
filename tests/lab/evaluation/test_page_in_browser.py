"""The page of `orthograd evaluate` in a real browser, on digits, multiple choice, maps and the seeds of two methods."""

from __future__ import annotations

import csv
import time

import pytest

from orthograd.lab.evaluation.document import evaluation_page
from orthograd.lab.evaluation.pair_document import pair_page
from tests.lab.comparison.browser.test_page import browser, opened, screenshots  # noqa: F401 fixtures
from tests.lab.evaluation.samples import choices, digits, masks, seeds
from tests.patience import PATIENCE

pytestmark = pytest.mark.slow


def page_of(name):
    if name == "seeds":
        return pair_page(seeds(), "orthograd evaluate --pair")
    results = {"digits": digits, "choices": choices, "masks": masks}[name]()
    return evaluation_page(results, "orthograd evaluate")


@pytest.fixture(scope="module", params=["digits", "choices", "masks", "seeds"])
def file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(page_of(request.param), encoding="utf-8")
    return path


@pytest.mark.parametrize(("width", "dark"), [(320, False), (390, True), (768, False), (1280, False), (1280, True)])
def test_all_is_seen_and_readable(browser, file, screenshots, width, dark):  # noqa: F811
    found = opened(browser, file, width=width, dark=dark, unfolded=True)
    assert browser.seen("Log.entryAdded") == []
    assert [each["request"]["url"] for each in browser.seen("Network.requestWillBeSent")] == [file.as_uri()]
    assert found["excess"] <= 0
    assert len(found["figures"]) >= 3
    assert found["bars"] > 10
    for kind in ("tables", "figures", "drawings"):
        assert min(min(box) for box in found[kind]) > 50, kind
    assert found["lowest"][0] >= 4.5, found["lowest"]
    assert found["smallest"][0] >= (10 if width >= 360 else 9), found["smallest"]
    assert found["collisions"] == []
    browser.screenshot(screenshots / f"{file.stem}-{width}-{'dark' if dark else 'light'}.png")


def test_a_click_saves_the_metrics(browser, file, tmp_path):  # noqa: F811
    opened(browser, file)
    browser.send("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    name = "seeds.csv" if file.stem == "seeds" else "metrics.csv"
    browser.value(f"document.querySelector('a[download=\"{name}\"]').click()")
    deadline = time.monotonic() + PATIENCE
    while not (saved := tmp_path / name).exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    rows = list(csv.DictReader(saved.open(encoding="utf-8")))
    names = rows[0] if file.stem == "seeds" else {row["metric"] for row in rows}
    assert {"top1_accuracy", "ece", "aurc"} <= set(names)
