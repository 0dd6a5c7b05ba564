"""The page on conformance: ours give the expected values, and its tables are those of the record."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORD = json.loads((ROOT / "docs/results/conformance.json").read_text(encoding="utf-8"))


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("calibration_conformance")


def test_ours_give_the_value_derived_by_hand_in_every_case(script):
    functions = script.LIBRARIES["orthograd"].functions()
    outcomes = {f"{case.name}, {case.metric}": script.outcome(case, functions) for case in script.CASES}
    assert [name for name, outcome in outcomes.items() if outcome["verdict"] != "equal"] == []


def test_the_record_holds_the_cases_of_the_script(script):
    kept = [(case["name"], case["metric"], case["derivation"]) for case in RECORD["cases"]]
    assert kept == [(case.name, case.metric, case.derivation) for case in script.CASES]
    assert list(RECORD["libraries"]) == list(script.LIBRARIES)
    assert all("version" in library or "not_run" in library for library in RECORD["libraries"].values())


def test_the_tables_of_the_page_are_those_of_the_record(script):
    text = (ROOT / "docs/conformance.md").read_text(encoding="utf-8")
    assert script.page(text, RECORD) == text
    assert f"runs {len(RECORD['cases'])} hard cases" in " ".join(text.split())


@pytest.mark.parametrize(
    ("value", "verdict"),
    [
        (0.475 / 3, "equal"),
        (0.525 / 3, "convention"),
        (0.5, "differs"),
        (float("nan"), "differs"),
        (float("inf"), "differs"),
    ],
)
def test_values_are_told_apart(script, value, verdict):
    assert script.compared(value, script.CASES[0])["verdict"] == verdict


def test_an_infinite_value_is_equal_only_to_itself_and_nan_only_to_a_refusal(script):
    infinite = next(case for case in script.CASES if case.expected == float("inf"))
    refused = next(case for case in script.CASES if case.expected == script.REFUSED)
    assert [script.compared(value, infinite)["verdict"] for value in (float("inf"), 5.0)] == ["equal", "differs"]
    assert [script.compared(value, refused)["verdict"] for value in (float("nan"), 5.0)] == ["equal", "differs"]
    assert script.outcome(infinite, ({}, {})) == {"verdict": "not offered"}
