"""Records as small files: what comes back is what went in, in few bytes, the same each time, and checked."""

from __future__ import annotations

import json
import random

import pytest

from orthograd.calibration import CONVENTIONS
from orthograd.lab.jobs.bundles import as_text, columns_of, read_bundle, read_bundles, rows_of, write_bundle
from orthograd.lab.jobs.files import StoreError, canonical_json, sha256
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, SETTINGS, Scale, named
from tests.paper.made_runs import made_run, made_table1


@pytest.fixture
def runs():
    return [made_run(config.as_dict(), {}) for config in EXPERIMENTS["table1"].configs(Scale(seeds=3))]


def test_records_come_back_as_they_were_and_in_the_same_bytes(tmp_path, runs):
    first = write_bundle(tmp_path / "a.json", runs)
    assert read_bundle(first) == sorted(runs, key=lambda run: (run["config"]["seed"], run["hash"]))
    second = write_bundle(tmp_path / "b.json", read_bundle(first))
    assert first.read_bytes() == second.read_bytes()
    json.loads(first.read_text())


def _with_stretches(run):
    """As later versions write it."""
    record = {**{name: value for name, value in run.items() if name != "sha256"}, "stretches": [[0.0, 1.0]]}
    return {**record, "sha256": sha256(canonical_json(record).encode())}


def test_records_of_several_shapes_have_columns_of_their_own(tmp_path, runs):
    plain = write_bundle(tmp_path / "a.json", runs)
    mixed = [_with_stretches(run) for run in runs[::2]] + runs[1::2]  # a seed has a run of each method
    path = write_bundle(tmp_path / "b.json", mixed)
    assert read_bundle(path) == sorted(mixed, key=lambda run: (run["config"]["seed"], run["hash"]))
    assert path.stat().st_size < 1.3 * plain.stat().st_size
    assert write_bundle(tmp_path / "c.json", read_bundle(path)).read_bytes() == path.read_bytes()
    assert read_bundle(write_bundle(tmp_path / "d.json", [])) == []


@pytest.mark.parametrize(
    "values",
    [
        [{"a": 1, "b": {"c": [1, 2]}}, {"a": 2, "b": {"c": [3]}}],
        [{"a": None}, {"a": {"b": 1}}],
        [{"a": {}}, {"a": {}}],
        [{"a": {"x": 1}}, {"a": {"y": 1}}],
        [{"a": "text", "b": [{"c": 1}]}],
        [],
    ],
)
def test_columns_give_back_what_they_were_made_of(values):
    columns = json.loads(as_text(columns_of(values)))
    assert rows_of(columns, len(values)) == values


def test_a_changed_number_is_named(tmp_path, runs):
    path = write_bundle(tmp_path / "a.json", runs)
    text = path.read_text()
    number = str(runs[0]["metrics"]["clean"]["ece"])
    path.write_text(text.replace(number, number[:-1] + ("1" if number[-1] != "1" else "2"), 1))
    with pytest.raises(StoreError, match=r"a\.json: the record of run .* was changed"):
        read_bundle(path)
    path.write_text("{}")
    with pytest.raises(StoreError, match="expected the format"):
        read_bundle(path)
    path.write_text(text.replace('"count": 6', '"count": 7'))
    with pytest.raises(StoreError, match="a column of 7 values"):
        read_bundle(path)


def test_forty_runs_of_75_image_sets_take_less_than_two_megabytes(tmp_path):
    chance = random.Random(0)
    names = list(CONVENTIONS)[:12]
    total = 0
    for method in ("baseline", "orthograd"):
        runs = [made_run({"method": method, "seed": seed}, {}) for seed in range(20)]
        for run in runs:
            run["metrics"] |= {f"corruption_{i}.1": {name: chance.random() for name in names} for i in range(65)}
            run["losses"] = [chance.random() for _ in range(100)]
            run.update(rehashed(run))
        total += write_bundle(tmp_path / f"{method}.json", runs).stat().st_size
    assert total < 2e6


def rehashed(run):
    from orthograd.lab.jobs.files import canonical_json, sha256

    content = {name: part for name, part in run.items() if name != "sha256"}
    return {"sha256": sha256(canonical_json(content).encode())}


def test_experiments_write_one_file_for_each_setting_and_method_and_find_their_runs_there(tmp_path):
    runs = {run["hash"]: run for run in made_table1()}
    whole = Evidence(runs)
    written = whole.write(tmp_path, named("all"))
    assert sorted(path.name for path in written) == ["resnet18-baseline.json", "resnet18-orthograd.json"]
    assert read_bundles(tmp_path) == runs
    again = Evidence.of(Scale(), folder=tmp_path)
    assert again.done(EXPERIMENTS["table1"]) == (40, 40)
    assert again.done(EXPERIMENTS["renormalization"]) == (10, 20)
    assert again.pair(EXPERIMENTS["renormalization"]) is None
    assert again.done(EXPERIMENTS["precision"]) == (40, 90)
    assert again.pair(EXPERIMENTS["table1"]) is again.pair(EXPERIMENTS["table1"])


def test_runs_that_the_plan_no_longer_asks_for_stay_in_their_file(tmp_path):
    beyond = {**SETTINGS["resnet18"].as_dict(), "method": "baseline", "seed": 99}
    write_bundle(tmp_path / "resnet18-baseline.json", [made_run(beyond, {})])
    Evidence({run["hash"]: run for run in made_table1()}).write(tmp_path, [EXPERIMENTS["table1"]])
    seeds = [run["config"]["seed"] for run in read_bundle(tmp_path / "resnet18-baseline.json")]
    assert seeds == [*range(20), 99]
