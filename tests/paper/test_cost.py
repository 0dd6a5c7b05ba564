"""How long runs take: by the benchmark, and by the clocks of runs for what it lacks."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from orthograd.lab.bench.claim import EPOCH, EVALUATION, Claim, Key, write_record
from orthograd.lab.jobs.bundles import read_bundles
from orthograd.paper.cost import images_of, rates, trained_as
from orthograd.paper.evidence import minutes_of, shares
from orthograd.paper.plan import SETTINGS
from tests.paper.made_runs import made_run

DOCS = Path(__file__).parent.parent.parent / "docs"


def epoch(model, precision, seconds):
    return Claim(Key(EPOCH, model=model, precision=precision, method="baseline", unit="s a run"), seconds)


def evaluation(precision, seconds):
    return Claim(Key(EVALUATION, model="resnet18", precision=precision, unit="s"), seconds)


def test_cost_is_read_from_the_benchmark_or_from_the_runs(tmp_path):
    config = SETTINGS["resnet18"]
    assert images_of(config) == 500_000
    assert images_of(SETTINGS["resnet18_all_labels"]) == 5_000_000
    nothing = rates([], [tmp_path / "none.json"])
    assert nothing.seconds(config) is None
    assert nothing.source == "not measured yet"
    runs = rates([made_run(config.as_dict(), {})], [tmp_path / "none.json"])
    assert runs.seconds(config) == pytest.approx(32.0)
    assert "clocks of finished runs" in runs.source
    path = tmp_path / "training.json"
    write_record(path, [epoch("resnet18", "tf32", 0.2), evaluation("tf32", 4.0)], {"device": "H200"})
    measured = rates([], [path])
    assert measured.seconds(config) == pytest.approx(24.0)
    assert "H200" in measured.source
    assert measured.seconds(SETTINGS["resnet50"]) is None
    assert trained_as(config) == ("resnet18", "tf32", False)


def test_clocks_of_runs_come_before_benchmarks_which_fill_the_gaps(tmp_path):
    """Benchmarks leave out all but training, so runs take longer than they say."""
    path = tmp_path / "training.json"
    claims, bench = [epoch("resnet18", "tf32", 0.2)], f"`orthograd bench` on H200 ({path})"
    write_record(path, claims, {"device": "H200"})
    config, wide = SETTINGS["resnet18"], SETTINGS["wide_resnet28_10"]
    assert rates([], [path]).seconds(config) == pytest.approx(20.0)
    assert rates([], [path]).source == f"measured by {bench}"
    found = rates([made_run(wide.as_dict(), {})], [path])
    assert found.seconds(config) == pytest.approx(20 + 2 * 20 / 30)  # evaluated as much faster as it trains
    assert found.seconds(wide) == pytest.approx(32.0)
    assert found.source == f"by the clocks of finished runs, {TOO_LONG}; resnet18 tf32 measured by {bench}"
    assert found.seconds(dataclasses.replace(config, shifts="none")) == pytest.approx(20.0)
    write_record(path, [*claims, evaluation("tf32", 4.0)], {"device": "H200"})
    own = rates([made_run(config.as_dict(), {})], [path])
    assert own.seconds(config) == pytest.approx(32.0)
    assert own.source == f"by the clocks of finished runs, {TOO_LONG}"


def test_networks_that_were_never_evaluated_take_as_much_longer_as_they_train(tmp_path):
    path = tmp_path / "training.json"
    epochs = epoch("resnet18", "tf32", 0.2), epoch("resnet18", "bf16", 0.1), epoch("wide_resnet28_10", "bf16", 0.5)
    write_record(path, [*epochs, evaluation("tf32", 4.0), evaluation("bf16", 3.0)], {"device": "H200"})
    found = rates([], [path])
    assert found.seconds(SETTINGS["resnet18"]) == pytest.approx(20 + 4)
    assert found.seconds(SETTINGS["resnet18_bf16"]) == pytest.approx(10 + 3)
    assert found.seconds(SETTINGS["wide_resnet28_10"]) == pytest.approx(50 + 3 * 5)


TOO_LONG = "too long where several ran side by side"


def test_runs_side_by_side_share_their_time_and_a_resumed_one_does_not_count():
    config = SETTINGS["resnet18"].as_dict()
    runs = [{**made_run({**config, "seed": seed}, {}), "ended": 100.0} for seed in range(4)]
    assert shares(runs) == [pytest.approx({"training": 7.5, "evaluation": 0.5})] * 4
    runs[0] |= {"seconds": {"training": 1.0, "evaluation": 2.0}}
    found = rates(runs, [])
    assert found.source == "by the clocks of finished runs"
    assert found.seconds(SETTINGS["resnet18"]) == pytest.approx(29 / 3 + 3 / 4)  # by three, then by four


def test_the_clocks_of_resumed_runs_do_not_count_even_where_they_are_half_of_all():
    config = SETTINGS["resnet18_float32"]
    runs = [made_run({**config.as_dict(), "seed": seed}, {}) for seed in range(4)]
    whole = rates(runs, []).seconds(config)
    for run in runs[:2]:
        run["seconds"] = {**run["seconds"], "training": 1.0}
    assert rates(runs, []).seconds(config) == pytest.approx(whole)


def test_a_run_that_tells_its_stretches_counts_whole_and_what_lies_between_them_does_not():
    config = SETTINGS["resnet18"]
    resumed = {
        **made_run({**config.as_dict(), "seed": 0}, {}),
        "seconds": {"training": 40.0, "evaluation": 2.0},
        "stretches": [[0.0, 15.0], [1000.0, 1025.0]],
        "ended": 1027.0,
    }
    beside = {**made_run({**config.as_dict(), "seed": 1}, {}), "ended": 1032.0}  # from 1000 on
    assert minutes_of([resumed, beside]) == pytest.approx((15 + 32) / 60)
    assert shares([resumed, beside])[0] == pytest.approx({"training": 15 + 25 / 2, "evaluation": 2 / 2})
    assert rates([resumed], []).seconds(config) == pytest.approx(42)


@pytest.mark.slow
def test_committed_runs_give_the_speed_that_the_benchmark_measured():
    runs = list(read_bundles(DOCS / "results/reproduction").values())
    assert sum(sum(each.values()) for each in shares(runs)) / 60 == pytest.approx(minutes_of(runs))
    by_clock, measured = rates(runs, []), rates([], [DOCS / "results/training-h200.json"])
    for trained in [("resnet18", "tf32", False), ("resnet18", "tf32", True)]:
        assert by_clock.images_per_second[trained] == pytest.approx(measured.images_per_second[trained], rel=0.5)
