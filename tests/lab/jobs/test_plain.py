from __future__ import annotations

import hashlib
import math

import pytest

from orthograd.lab.jobs.files import config_hash
from orthograd.lab.jobs.jobs import Grid
from orthograd.lab.jobs.store import Store


def test_the_hash_is_of_the_canonical_json():
    text = b'{"a":[1,{"c":0.1}],"b":null}'
    assert config_hash({"b": None, "a": [1, {"c": 0.1}]}) == hashlib.sha256(text).hexdigest()[:16]


def test_the_order_of_keys_does_not_matter_at_any_depth():
    assert config_hash({"a": {"x": 1, "y": 2}, "b": 0}) == config_hash({"b": 0, "a": {"y": 2, "x": 1}})
    assert config_hash({"a": [1, 2]}) != config_hash({"a": [2, 1]})


def test_values_that_python_holds_equal_are_different_configs():
    values = [1, 1.0, True, "1", [1], {"a": 1}, None, 0, 0.0, -0.0, False, "", [], {}]
    assert len({config_hash({"x": value}) for value in values}) == len(values)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused_by_place(value):
    with pytest.raises(ValueError, match=r"config\['a'\]\[1\] as a finite number"):
        config_hash({"a": [0, value]})


@pytest.mark.parametrize(
    ("value", "words"), [((1,), "of tuple"), ({1: 2}, "keys"), (b"x", "of bytes"), ({2}, "of set")]
)
def test_data_that_json_would_change_is_refused(value, words):
    with pytest.raises(TypeError, match=words):
        config_hash({"a": value})


def test_a_run_keeps_its_own_copy_of_the_config(tmp_path):
    config = {"a": [1]}
    run = Store(tmp_path).get(config)
    config["a"].append(2)
    assert run.config == {"a": [1]}
    with pytest.raises(TypeError, match="expected a config as a dict"):
        Store(tmp_path).get([("a", 1)])


def test_a_product_runs_through_its_last_axis_first():
    grid = Grid.product({"epochs": 2}, method=["sgd", "orthograd"], seed=range(2))
    assert [(config["method"], config["seed"]) for config in grid] == [
        ("sgd", 0), ("sgd", 1), ("orthograd", 0), ("orthograd", 1),
    ]  # fmt: skip


def test_a_config_twice_is_refused():
    with pytest.raises(ValueError, match="the same at 0 and 2"):
        Grid([{"a": 1, "b": 2}, {"a": 1}, {"b": 2, "a": 1}])
    assert len(Grid([{"a": 1}, {"a": 1.0}, {"a": True}])) == 3
    with pytest.raises(ValueError, match="seed in both"):
        Grid.product({"seed": 1}, seed=[1])


def test_a_plan_says_what_is_left(tmp_path):
    store, grid = Store(tmp_path / "runs"), Grid.product({}, seed=range(3))
    assert (grid.plan(store).missing, (tmp_path / "runs").exists()) == (list(grid), False)
    for config, act in zip(
        grid,
        (lambda run: run.finish({}), lambda run: run.save_checkpoint({}, {"epoch": 1}), lambda run: None),
        strict=True,
    ):
        run = store.get(config)
        with run.claim():
            act(run)
    plan = grid.plan(store)
    assert (plan.finished, plan.resumable, plan.missing) == ([grid[0]], [grid[1]], [grid[2]])
