"""Experiments as data: their runs, which of them they share, and what a smaller try changes."""

from __future__ import annotations

from collections import Counter

import pytest

from orthograd.lab.jobs.files import config_hash
from orthograd.lab.training.methods import METHODS
from orthograd.paper.plan import EXPERIMENTS, GROUPS, SETTINGS, Scale, named, runs_in_order
from orthograd.paper.verdicts.claims import sections


def hashes(name):
    return {config_hash(config.as_dict()) for config in EXPERIMENTS[name].configs()}


def test_experiments_about_the_same_runs_share_them():
    assert hashes("table1") == hashes("temperature") == hashes("corruption")
    assert len(hashes("table1")) == 40
    assert len(hashes("renormalization") & hashes("table1")) == 10
    for name in ("layers", "granularity", "rivals"):
        assert len(hashes(name) & hashes("precision")) == 20
    assert len(hashes("layers_wideresnet") & hashes("wideresnet")) == 10
    assert len(hashes("decay_conv_only") & hashes("full_data")) == 6
    for name in ("extended", "wideresnet", "adamw", "resnet50", "full_data"):
        assert not hashes(name) & hashes("table1")


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=EXPERIMENTS)
def test_every_experiment_names_what_exists_and_pairs_its_seeds(experiment):
    assert set(experiment.methods) <= set(METHODS)
    assert set(experiment.settings()) <= set(SETTINGS)
    assert experiment.answers is None or experiment.answers in sections()
    configs = list(experiment.configs())
    of_a_seed = len(experiment.methods) * len(experiment.settings())
    seeds = experiment.seeds + sum(seeds for _, seeds in experiment.in_other_precisions)
    assert len(configs) == len(set(configs)) == seeds * len(experiment.methods)
    assert [config.seed for config in configs[:of_a_seed]] == [experiment.first_seed] * of_a_seed


def test_precisions_are_compared_on_the_runs_of_table_1_and_two_settings_more():
    configs = list(EXPERIMENTS["precision"].configs())
    assert Counter(config.precision for config in configs) == {"tf32": 40, "float32": 10, "bf16": 40}
    assert hashes("precision") > hashes("table1")
    new = [config for config in configs if config.precision != "tf32"]
    assert len(new) == len(runs_in_order(named("all"), Scale())["precision"]) == 50
    for scale in (Scale(device="cpu"), Scale(precision="bf16")):
        assert set(EXPERIMENTS["precision"].configs(scale)) == set(EXPERIMENTS["table1"].configs(scale))


def test_seeds_of_the_paper_are_those_it_had_or_more():
    for experiment in map(EXPERIMENTS.get, GROUPS["paper"]):
        if experiment.answers:
            assert experiment.seeds >= sections()[experiment.answers].seeds


def test_all_runs_once_and_in_the_order_of_the_experiments():
    runs = runs_in_order(named("all"), Scale())
    assert list(runs) == list(EXPERIMENTS)
    configs = [config for group in runs.values() for config in group]
    assert len(configs) == len(set(configs)) == len({name for each in EXPERIMENTS for name in hashes(each)})
    assert len(runs["table1"]) == 40
    assert (len(runs["temperature"]), len(runs["renormalization"])) == (0, 10)
    # Where a smaller try makes settings equal, their runs are one.
    tiny = runs_in_order(named("paper"), Scale(seeds=2, epochs=1, model="cnn", precision="tf32"))
    assert sum(map(len, tiny.values())) == 6


def test_names_and_groups():
    assert [each.name for each in named("table1")] == ["table1"]
    assert [each.name for each in named("wideresnet", "reliability")] == ["wideresnet", "table1"]
    assert set(GROUPS["paper"]) | set(GROUPS["beyond"]) == set(EXPERIMENTS)
    with pytest.raises(ValueError, match=r"expected an experiment among table1, .*, all, got table2"):
        named("table2")


def test_a_smaller_try_says_what_it_changes():
    scale = Scale(seeds=2, epochs=3, labels_per_class=4, device="cpu")
    config = scale.applied("resnet18")
    assert (config.epochs, config.labels_per_class, config.device, config.precision) == (3, 4, "cpu", "float32")
    assert scale.departures == ["seeds 2", "epochs 3", "labels per class 4"]
    assert Scale(device="cpu").departures == []
    assert len(list(EXPERIMENTS["table1"].configs(scale))) == 4
