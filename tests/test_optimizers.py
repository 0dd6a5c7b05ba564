"""Optimizers of other packages, with ⊥Grad: the contract, and the record and the page that tell what was run."""

from __future__ import annotations

import json

import pytest

from orthograd.optimizer import named_class
from tests import optimizer_contract
from tests.optimizer_contract import (
    CONTRACT,
    ENTRIES,
    OTHERS,
    PAGE,
    REASONS,
    RECORD,
    TRAINERS,
    missing,
    refused,
    with_tables,
)

pytestmark = pytest.mark.filterwarnings("ignore")  # the packages advise this and that
# One of each package in every run, the others in the slow one.
FAST = {"schedulefree.AdamWScheduleFree", "prodigyopt.Prodigy", "prodigyplus.ProdigyPlusScheduleFree"}
FAST |= {"lion_pytorch.Lion", "came_pytorch.CAME", "adv_optm.AdamW_adv", "transformers.optimization.Adafactor"}


def parameters():
    for entry in ENTRIES:
        yield pytest.param(entry, id=entry.path, marks=() if entry.path in FAST else pytest.mark.slow)


@pytest.mark.parametrize("check", CONTRACT, ids=lambda check: check.__name__)
@pytest.mark.parametrize("entry", parameters())
def test_the_contract_holds(entry, check):
    if why := missing(entry.path):
        pytest.skip(why)
    check(entry)


@pytest.mark.parametrize("path", OTHERS)
def test_wrappers_act_through_the_inner_optimizer_or_are_refused(path):
    if why := missing(path):
        pytest.skip(why)
    assert OTHERS[path](path)


def test_the_record_has_a_row_for_each_and_the_page_shows_it():
    content = json.loads(RECORD.read_text(encoding="utf-8"))
    assert [row["path"] for row in content["optimizers"]] == [*(entry.path for entry in ENTRIES), *OTHERS]
    assert {row["result"] for row in content["optimizers"]} <= {"works", "refused", "not run"}
    assert {row["path"] for row in content["optimizers"] if row["result"] == "refused"} == set(REASONS)
    assert {row["distribution"] for row in content["trainers"]} == set(TRAINERS.values())
    assert all(row["passed"] > 0 for row in content["trainers"])
    page = PAGE.read_text(encoding="utf-8")
    assert with_tables(page, content) == page


def test_what_is_missing_is_said():
    assert "no_such_package" in missing("no_such_package.Optimizer")
    with pytest.raises(ImportError):
        named_class("no_such_package.Optimizer")


def test_a_refusal_must_be_one(monkeypatch):
    monkeypatch.setitem(REASONS, "torch.optim.lr_scheduler.ConstantLR", "it is none")
    monkeypatch.setattr(optimizer_contract.orthograd, "attach", lambda optimizer: None)
    assert refused("torch.optim.lr_scheduler.ConstantLR") == ""
