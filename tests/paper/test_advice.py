from __future__ import annotations

from pathlib import Path
from statistics import fmean

import pytest

from orthograd.paper.studies.advice import SOURCES, Effect, Setting, advice, advice_short, advised, recommendation
from orthograd.paper.studies.method_tables import reproduced
from orthograd.statistics import Interval

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
DOWN, ACROSS, UP = Interval(-0.3, -0.1), Interval(-0.1, 0.2), Interval(0.1, 0.3)


def effect(interval: Interval) -> Effect:
    return Effect((interval.low + interval.high) / 2, interval, 0.01)


@pytest.mark.parametrize(
    ("ece", "accuracy", "seeds", "corrected_p", "words"),
    [
        (DOWN, ACROSS, 10, 0.01, "try it"),
        (DOWN, UP, 3, 0.01, "try it"),
        (DOWN, DOWN, 10, 0.01, "weigh it: lower ECE, lower accuracy"),
        (DOWN, ACROSS, 20, 0.06, "looks better, inconclusive at n = 20"),
        (DOWN, DOWN, 20, 0.06, "do not use"),
        (ACROSS, ACROSS, 10, 1.0, "no difference detected"),
        (ACROSS, ACROSS, 9, 1.0, "inconclusive at n = 9"),
        (ACROSS, UP, 9, 1.0, "inconclusive at n = 9"),
        (ACROSS, DOWN, 20, 1.0, "do not use"),
        (UP, UP, 3, 0.9, "do not use"),
    ],
)
def test_the_recommendation_follows_from_the_intervals(ece, accuracy, seeds, corrected_p, words):
    setting = Setting("a setting", seeds, effect(ece), effect(accuracy))
    assert recommendation(setting, corrected_p=corrected_p) == words


def test_every_recommendation_of_the_table_is_explained_on_its_page():
    rules = (ROOT / "docs/should-i-use-it.md").read_text().split("| rule |")[1].split("\n\n")[0]
    for _, _, words in advised(RESULTS):
        assert f"| {words.split(' at n')[0].split(':')[0]} |" in rules


def test_differences_are_candidate_minus_baseline():
    pair = reproduced(RESULTS, "resnet18", "baseline", "orthograd")
    baseline, candidate = ([run["metrics"]["clean"]["ece"] for run in runs] for runs in (pair.baseline, pair.candidate))
    setting = SOURCES[0].read(RESULTS)
    assert setting.seeds == 20
    assert setting.ece.difference == pytest.approx(fmean(candidate) - fmean(baseline))
    assert setting.ece.difference in setting.ece.interval


def test_the_readme_quotes_eight_rows_of_the_page():
    rows = advice_short(RESULTS).splitlines()[2:]
    assert len(rows) == 8
    assert set(rows) <= set(advice(RESULTS).splitlines())


def test_what_rounds_to_zero_has_no_sign():
    assert Effect(-0.0001, Interval(-0.002, 0.0004), 0.9).text(3) == "0.000 (−0.002 to 0.000)"
