from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean

import pytest

from orthograd.paper.studies.advice import (
    Setting,
    advice,
    advice_short,
    advised,
    comparisons,
    of_comparison,
    of_runs,
    recommendation,
)
from orthograd.paper.studies.effect import RECORDED, Effect, recorded_effects
from orthograd.paper.studies.method_tables import reproduced
from orthograd.paper.studies.pooled_runs import table1_sets
from orthograd.paper.verdicts.primary import FAMILY, primary
from orthograd.statistics import Interval, holm

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs/results"
DOWN, ACROSS, UP = Interval(-0.3, -0.1), Interval(-0.1, 0.2), Interval(0.1, 0.3)
SLIGHT = Interval(-0.009, -0.001)


def effect(interval: Interval, corrected_p: float = 0.01) -> Effect:
    return Effect((interval.low + interval.high) / 2, interval, 0.001, corrected_p)


@pytest.mark.parametrize(
    ("ece", "accuracy", "seeds", "corrected_p", "words"),
    [
        (DOWN, ACROSS, 10, 0.01, "try it"),
        (DOWN, UP, 3, 0.01, "try it"),
        (SLIGHT, ACROSS, 50, 0.01, "little to gain: ECE lower by less than 0.01"),
        (SLIGHT, DOWN, 50, 0.01, "weigh it: lower ECE, lower accuracy"),
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
    assert recommendation(Setting("a setting", seeds, effect(ece, corrected_p), effect(accuracy))) == words


@pytest.mark.slow
def test_every_recommendation_of_the_table_is_explained_on_its_page():
    rules = (ROOT / "docs/should-i-use-it.md").read_text().split("| rule |")[1].split("\n\n")[0]
    for _, _, words in advised(RESULTS):
        assert f"| {words.split(' at n')[0].split(':')[0]} |" in rules


def test_differences_are_candidate_minus_baseline():
    pair = reproduced(RESULTS, "resnet18", "baseline", "orthograd")
    baseline, candidate = ([run["metrics"]["clean"]["ece"] for run in runs] for runs in (pair.baseline, pair.candidate))
    setting = of_runs("ResNet-18", "resnet18").read(RESULTS)
    assert setting.seeds == 20
    assert setting.ece.difference == pytest.approx(fmean(candidate) - fmean(baseline))
    assert setting.ece.difference in setting.ece.interval


def test_a_record_of_compare_is_corrected_over_the_rows_of_the_primary_comparison():
    for name in ("cnn", "cnn_batchnorm"):
        tables = json.loads((RESULTS / f"compare/digits-{name}.json").read_text())["tables"]
        effects = recorded_effects(tables)
        assert list(effects) == list(FAMILY)
        p = [effect.p for effect in effects.values()]
        assert [effect.corrected_p for effect in effects.values()] == pytest.approx(holm(p))
        for images in RECORDED.values():
            words = recommendation(of_comparison("digits", name, images).read(RESULTS))
            assert words.startswith(("try", "weigh")) == (effects[f"{images}.ece"].verdict == "better")


def test_recommendations_follow_from_the_family_of_the_pages():
    pair = reproduced(RESULTS, "resnet18_1000_epochs", "baseline", "orthograd")
    row = primary(pair)["clean.ece"]
    setting = of_runs("1000 epochs", "resnet18_1000_epochs").read(RESULTS)
    assert setting.ece == Effect.of(row)
    assert (row.interval.high < 0, row.verdict) == (True, "inconclusive")
    assert recommendation(setting) == "looks better, inconclusive at n = 5"


def test_no_recommendation_rests_on_the_rows_not_being_corrected_for():
    """The page says so."""
    rows = list(advised(RESULTS))
    assert not [
        setting.title
        for (_, setting, words), p in zip(rows, holm([setting.ece.p for _, setting, _ in rows]), strict=True)
        if words.startswith(("try", "weigh", "little")) and p >= 0.05
    ]


def test_the_readme_quotes_eight_rows_of_the_page():
    rows = advice_short(RESULTS).splitlines()[2:]
    assert len(rows) == 8
    assert set(rows) <= {row.rsplit(" |", 2)[0] + " |" for row in advice(RESULTS).splitlines()}


def test_every_row_links_to_the_records_that_it_reads():
    links = [re.findall(r"\]\(([^)]+)\)", source.record) for source, _, _ in advised(RESULTS)]
    assert all(links)
    files = {target for targets in links for target in targets if not target.startswith("#")}
    assert all((RESULTS.parent / file).exists() for file in files)
    assert {
        "results/compare/digits-cnn.json",
        "results/when.json",
        "results/reproduction/resnet50-orthograd.json",
    } <= files
    sets = re.findall(r"\]\(([^)]+)\)", table1_sets(RESULTS))
    assert {(RESULTS.parent / file).parent.name for file in sets} == {
        "reproduction",
        "table1-bf16",
        "table1-tf32-corrupted",
        "more-seeds-bf16",
    }


@pytest.mark.parametrize(("name", "title"), [("cnn", "plain CNN"), ("cnn_batchnorm", "BatchNorm CNN")])
def test_new_seeds_stand_beside_the_first_ones_and_share_none_with_them(name, title):
    first, again = (
        json.loads((RESULTS / f"compare/digits-{name}{which}.json").read_text()) for which in ("", "-again")
    )
    assert first["config"] == again["config"]
    assert (len(first["seeds"]), len(again["seeds"])) == (10, 20)
    assert not {*first["seeds"]} & {*again["seeds"]}
    rows = [row.strip("| ").split(" | ") for row in comparisons(RESULTS).splitlines()]
    scaled = "corrupted, after temperature scaling"
    for images, table in (("corrupted", "shifted"), (scaled, "shifted-temperature-scaled")):
        (row,) = (row for row in rows if row[:2] == [title, images] and row[2].startswith("ECE"))
        for record, cell in ((first, row[4]), (again, row[6])):
            assert cell.startswith(f"{change_of(record, table):+.4f} (".replace("-", "−"))
    (advised_row,) = (row for row in advice(RESULTS).splitlines() if f"small {title}, {scaled[:9]} images after" in row)
    assert f"| 20 | {change_of(again, 'shifted-temperature-scaled'):+.3f} (".replace("-", "−") in advised_row


def change_of(record, table):
    measured = record["tables"][table]["ece"]
    return measured["candidate"]["mean"] - measured["baseline"]["mean"]


def test_an_end_near_zero_shows_its_side_and_a_difference_of_zero_has_no_sign():
    assert Effect(-0.0001, Interval(-0.002, 0.0004), 0.9, 1.0).text(3) == "0.000 (−0.002 to +0.0004)"
    marked = Effect(-0.1, Interval(-0.2, 0.1), 0.1, 1.0, "inconclusive", Interval(-0.2, -0.1))
    assert marked.text(1) == "−0.1 (−0.2 to +0.1)†"
