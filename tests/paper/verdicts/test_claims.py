"""The paper's numbers as they are read, and its own statistics computed again from them."""

from __future__ import annotations

import dataclasses
import json
import math
from decimal import Decimal
from importlib.resources import files

import pytest

from orthograd.lab.training.config import CHOICES
from orthograd.paper.evidence import title_of
from orthograd.paper.plan import PAPER, SETTINGS
from orthograd.paper.verdicts.claims import ODDITIES, Printed, claims_data, sections
from orthograd.statistics import from_effect_size, holm

TABLES = ("table1_resnet18", "wideresnet_28_10")


def test_numbers_keep_the_digits_they_were_printed_with():
    row = sections()["table1_resnet18"]["clean.brier"]
    assert (str(row.baseline), str(row.candidate)) == ("0.408", "0.400")
    assert row.candidate.rounding == pytest.approx(0.0005)
    assert str(sections()["table1_resnet18"]["clean.max_logit"].p) == "2.5e-05"
    assert Printed(Decimal("67")).rounding == 0.5


def test_every_number_of_claims_json_is_in_a_row():
    text = files("orthograd.paper.verdicts").joinpath("claims.json").read_text()
    data = json.loads(text)

    def count(part):
        if isinstance(part, dict):
            return sum(count(value) for name, value in part.items() if name not in ("seeds", "epochs"))
        return sum(map(count, part)) if isinstance(part, list) else 1

    expected = sum(count(data[name]) for name in sections())
    rows = [row for section in sections().values() for row in section.rows]
    read = sum(2 + (row.d is not None) + 2 * (row.interval is not None) + (row.p is not None) for row in rows)
    assert read == expected
    assert all(title_of(row.quantity) for row in rows)


def test_the_setting_is_the_recipe_of_the_paper_field_by_field():
    recipe = claims_data()["recipe"]
    expected = {
        "seed": 0,
        "method": "baseline",
        "dataset": "cifar10",
        "model": "resnet18",
        "labels_per_class": 500,
        "epochs": int(recipe["epochs"]),
        "batch_size": int(recipe["batch_size"]),
        "optimizer": "sgd",
        "learning_rate": float(recipe["learning_rate"]),
        "momentum": float(recipe["momentum"]),
        "weight_decay": float(recipe["weight_decay"]),
        "augmentation": "crop_flip",
        "shifts": "cifar10c",
        "device": "cuda",
        "precision": "tf32",
    }
    assert PAPER.as_dict() == expected
    assert "500 images per class" in recipe["dataset"]
    assert {"random crop 32", "horizontal flip"} <= {
        part for part in ("random crop 32", "horizontal flip") if part in recipe["augmentation"]
    }
    assert recipe["schedule"] == "constant"


def test_data_and_last_batch_are_those_of_the_recipe():
    from orthograd.lab.data.cifar10 import DEVIATION, MEAN

    normalization = claims_data()["recipe"]["normalization"]
    assert tuple(map(float, normalization["mean"])) == MEAN
    assert tuple(map(float, normalization["std"])) == DEVIATION


IMAGES = (4800, 4810)


def test_other_settings_change_what_they_say_and_nothing_else():
    changed = {
        name: {key for key, value in config.as_dict().items() if value != getattr(PAPER, key)}
        for name, config in SETTINGS.items()
    }
    assert changed == {
        "resnet18": set(),
        "resnet18_1000_epochs": {"epochs", "precision"},
        "wide_resnet28_10": {"model", "precision"},
        "resnet50": {"model", "precision"},
        "resnet18_adamw": {"optimizer", "learning_rate", "weight_decay", "precision"},
        "resnet18_all_labels": {"labels_per_class", "precision"},
        "resnet18_float32": {"precision", "shifts"},
        "resnet18_bf16": {"precision"},
        "resnet18_keep": {"precision"},
        **{f"resnet18_{choice}": {"last_batch", "precision"} for choice in CHOICES["last_batch"][1:]},
        "resnet18_adamw_matched": {"optimizer", "learning_rate", "weight_decay", "precision"},
        **{
            f"resnet18_batch{size}_{n}": {"batch_size", "labels_per_class", "precision"}
            for size in (50, 100)
            for n in IMAGES
        },
        **{f"resnet18_batch64_{n}": {"labels_per_class", "precision"} for n in IMAGES},
        "wide_resnet28_10_drop": {"model", "last_batch", "precision"},
        "resnet50_drop": {"model", "last_batch", "precision"},
        "resnet18_adamw_drop": {"optimizer", "learning_rate", "weight_decay", "last_batch", "precision"},
        "resnet18_all_labels_drop": {"labels_per_class", "last_batch", "precision"},
        "resnet18_1000_epochs_drop": {"epochs", "last_batch", "precision"},
    }
    for size in (50, 64, 100):
        sizes = [SETTINGS[f"resnet18_batch{size}_{n}"].batches_of(n)[-1] for n in IMAGES]
        assert sizes == [size, 10]
    decays = [
        SETTINGS["resnet18"].learning_rate * SETTINGS["resnet18"].weight_decay / (1 - SETTINGS["resnet18"].momentum),
        SETTINGS["resnet18_adamw_matched"].learning_rate * SETTINGS["resnet18_adamw_matched"].weight_decay,
    ]
    assert decays[0] == pytest.approx(decays[1], rel=1e-9)
    assert SETTINGS["resnet18_1000_epochs"].epochs == int(claims_data()["extended_resnet18"]["epochs"])
    assert all(dataclasses.is_dataclass(config) for config in SETTINGS.values())


@pytest.mark.parametrize("name", TABLES)
def test_printed_intervals_and_p_follow_from_d_but_for_those_with_a_note(name):
    """Not by Student's test: a note. By no t-test at all: contradicted."""
    section = sections()[name]
    notes = {
        (oddity.quantity, oddity.part): oddity.is_remark
        for oddity in ODDITIES
        if oddity.section == name and oddity.part in ("interval", "p") and "called significant" not in oddity.reason
    }
    unexplained = {}
    for row in (row for row in section.rows if row.d is not None):
        ends = [from_effect_size(row.d.value + sign * row.d.rounding, section.seeds) for sign in (-1, 1)]
        for i, printed in enumerate(row.interval):
            low, high = sorted(each.normal[i] for each in ends)
            if not low - printed.rounding <= printed.value <= high + printed.rounding:
                unexplained[row.quantity, "interval"] = False
        low, high = sorted(each.p for each in ends)
        if not low - row.p.rounding <= row.p.value <= high + row.p.rounding:
            unexplained[row.quantity, "p"] = low <= row.p.value <= max(each.largest_welch_p for each in ends)
    assert unexplained == notes


def test_the_papers_signs_are_turned_where_they_are_read():
    printed = claims_data()["table1_resnet18"]["rows"]["loss"]
    row = sections()["table1_resnet18"]["clean.loss"]
    assert (printed["d"], str(row.d)) == (Decimal("0.64"), "-0.64")
    assert [str(end) for end in row.interval] == ["-1.28", "-0.005"]
    for section in sections().values():
        for row in (row for row in section.rows if row.d is not None):
            assert row.d.value * (row.candidate.value - row.baseline.value) > 0
            assert row.interval[0].value < row.d.value < row.interval[1].value


def test_the_numbers_in_the_reasons_are_right():
    assert from_effect_size(2.005, 20).normal.high == pytest.approx(2.7647, abs=5e-5)
    for d, words in ((2.40, "0.005"), (11.20, "1e-07"), (15.45, "8e-09")):
        assert f"{from_effect_size(d, 5).p:.1g}" == words
    assert min(from_effect_size(d, 5).p for d in (0.495, 0.505)) == pytest.approx(0.448, abs=5e-4)
    table = sections()["table1_resnet18"]
    rows = [row for row in table.rows if row.d is not None]
    corrected = dict(zip((row.quantity for row in rows), holm([row.p.value for row in rows]), strict=True))
    assert corrected["clean.loss"] == pytest.approx(0.25)
    below = {name for name, p in corrected.items() if p < 0.05}
    assert below == {f"clean.{name}" for name in ("entropy", "max_softmax", "max_logit", "logit_variance")}
    row, again = table["clean.max_logit"], sections()["renormalization_resnet18"]["clean.max_logit"]
    sd = (row.candidate.value - row.baseline.value) / row.d.value
    apart = (row.candidate.value - again.baseline.value) / (sd * math.sqrt(1 / 20 + 1 / 10))
    assert apart == pytest.approx(2.9, abs=0.05)


def test_the_corrupted_means_of_the_long_run_are_those_of_its_severities():
    section = sections()["extended_resnet18"]
    for method in ("baseline", "candidate"):
        levels = [getattr(section[f"severity_{i}.top1_accuracy"], method).value for i in range(1, 6)]
        assert sum(levels) / 5 == pytest.approx(getattr(section["shifted.top1_accuracy"], method).value, abs=0.05)
    losses = [section[f"severity_{i}.loss"].baseline.value for i in range(1, 6)]
    assert losses[2] > losses[3]
    assert sorted([*losses[:2], 2.26, *losses[3:]]) == [*losses[:2], 2.26, *losses[3:]]
