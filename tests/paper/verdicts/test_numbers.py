"""Our differences, what a row of the paper claims, and the verdicts on its numbers."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS
from orthograd.paper.verdicts.claims import Printed, Row, sections
from orthograd.paper.verdicts.numbers import Answer, claim_of, differences, total
from orthograd.statistics import compare
from tests.paper.made_runs import made_table1


def row(baseline, candidate, *, d=None, p=None):
    means = (Printed(Decimal(x)) for x in (baseline, candidate))
    return Row("clean.loss", *means, *(x and Printed(Decimal(x)) for x in (d,)), None, p and Printed(Decimal(p)))


def test_what_a_row_claims():
    assert claim_of(row("2.0", "1.5", p="0.05"), 20).says == "lower"
    assert claim_of(row("1.5", "2.0", p="0.001"), 20).says == "higher"
    assert claim_of(row("2.0", "1.5", p="0.06"), 20).says is None
    assert claim_of(row("2.0", "1.5"), 20).says is None  # without p nothing is claimed
    assert claim_of(row("2.0", "1.5"), 1).says == "lower"  # unless there is but one seed
    assert claim_of(row("2.0", "2.0"), 1).says is None
    claim = claim_of(row("2.0", "1.5", d="-0.4", p="0.01"), 20)
    assert (claim.says, claim.size, claim.rounding) == ("lower", -0.5, pytest.approx(0.1))
    assert not claim.contradicts_itself
    assert claim_of(row("2.0", "1.5", d="0.4", p="0.01"), 20).contradicts_itself


@pytest.fixture(scope="module")
def answer():
    pair = Evidence({run["hash"]: run for run in made_table1()}).pair(EXPERIMENTS["table1"])
    return Answer(sections()["table1_resnet18"], pair, ("SGD", "⊥Grad"))


def test_verdicts_on_the_numbers_of_a_table(answer):
    section = answer.section
    assert answer.verdict(section["clean.entropy"], "difference") == "reproduced"
    assert answer.verdict(section["clean.ece"], "difference") in ("compatible", "not reproduced")  # nothing is claimed
    assert answer.verdict(section["clean.ece"], "baseline") == "compatible"
    assert sum(count for count, _ in answer.tally("differences").values()) == len(section.rows) + 1  # an odd interval
    assert sum(count for count, _ in answer.tally("means").values()) == 2 * len(section.rows)
    assert answer.tally("means")["reproduced"] == (0, 0.0)
    for of in ("claimed", "differences", "means"):
        counts, expected = (sum(each[i] for each in answer.tally(of).values()) for i in (0, 1))
        assert expected == pytest.approx(counts)
    both = total([answer.tally("means"), answer.tally("means")])
    assert both["compatible"][0] == 2 * answer.tally("means")["compatible"][0]


def test_without_runs_there_is_no_verdict():
    answer = Answer(sections()["table1_resnet18"], None, ("SGD", "⊥Grad"))
    assert {answer.verdict(row, "difference") for row in answer.section.rows} == {None}
    assert sum(count for count, _ in answer.tally("means").values()) == 0


WITH_SPREAD = ([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162])
SHIFTED = ([0.3, 0.4, 0.7], [0.2, 0.3, 0.6])
SAME = ([0.3, 0.4], [0.3, 0.4])
MANY = ([0.3] * 7, [0.2] * 7)


@pytest.mark.parametrize("margin", [None, 0.5])
@pytest.mark.parametrize("methods", [WITH_SPREAD, SHIFTED, SAME, MANY])
def test_a_row_alone_is_evaluated_as_by_compare(methods, margin):
    row = differences({"clean.ece": methods}, margins={} if margin is None else {"clean.ece": margin})["clean.ece"]
    expected = compare(*methods, better="lower", margin=margin)
    assert row.p == pytest.approx(expected.p)
    assert row.verdict == expected.verdict


def test_two_seeds_that_agree_prove_nothing():
    assert differences({"clean.ece": ([0.3, 0.4], [0.2, 0.3])}, margins={})["clean.ece"].verdict == "inconclusive"
    assert differences({"clean.ece": SAME}, margins={"clean.ece": 0.1})["clean.ece"].verdict == "inconclusive"
