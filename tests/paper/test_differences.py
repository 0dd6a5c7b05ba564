"""The page judges differences by pairs as `statistics.compare` does, those without any spread too."""

from __future__ import annotations

import pytest

from orthograd.paper.differences import differences
from orthograd.statistics import compare

WITH_SPREAD = ([0.168, 0.171, 0.165, 0.169], [0.161, 0.163, 0.160, 0.162])
SHIFTED = ([0.3, 0.4, 0.7], [0.2, 0.3, 0.6])
SAME = ([0.3, 0.4], [0.3, 0.4])
MANY = ([0.3] * 7, [0.2] * 7)


@pytest.mark.parametrize("margin", [None, 0.5])
@pytest.mark.parametrize("arms", [WITH_SPREAD, SHIFTED, SAME, MANY])
def test_a_row_alone_is_judged_as_by_compare(arms, margin):
    row = differences({"clean.ece": arms}, margins={} if margin is None else {"clean.ece": margin})["clean.ece"]
    expected = compare(*arms, better="lower", margin=margin)
    assert row.p == pytest.approx(expected.p)
    assert row.verdict == expected.verdict


def test_two_seeds_that_agree_prove_nothing():
    assert differences({"clean.ece": ([0.3, 0.4], [0.2, 0.3])}, margins={})["clean.ece"].verdict == "undecided"
    assert differences({"clean.ece": SAME}, margins={"clean.ece": 0.1})["clean.ece"].verdict == "undecided"
