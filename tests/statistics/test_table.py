"""Many metrics at once."""

from __future__ import annotations

import json

import numpy as np
import pytest

from orthograd.statistics import compare, compare_table, comparison, holm, tost

pytestmark = pytest.mark.filterwarnings("error")

BASELINE = np.array([0.168, 0.171, 0.165, 0.169, 0.170])
BETTER = {"clear": "lower", "slight": "lower"}
METRICS = {
    "clear": (BASELINE, BASELINE - [0.007, 0.008, 0.005, 0.007, 0.006]),
    "slight": (BASELINE, BASELINE - [0.001, 0.006, 0.004, 0.002, 0.008]),  # p = 0.03 alone
    "none": (BASELINE, BASELINE - [-0.001, 0.002, -0.002, 0.001, -0.001]),
}


def test_holm_runs_over_the_metrics_in_their_order() -> None:
    table = compare_table(METRICS, better=BETTER)
    assert [row.metric for row in table] == list(METRICS)
    assert [row.corrected_p for row in table] == holm([row.p for row in table])
    assert [row.p for row in table] == [compare(*samples).p for samples in METRICS.values()]


def test_a_difference_that_is_significant_alone_need_not_be_among_many() -> None:
    assert compare(*METRICS["slight"], better="lower").verdict == "better"
    table = compare_table(METRICS, better=BETTER)
    assert [row.verdict for row in table] == ["better", "inconclusive", "inconclusive"]
    assert "after Holm" in table["slight"].sentence


def test_one_metric_needs_no_correction() -> None:
    (row,) = compare_table({"slight": METRICS["slight"]}, better={"slight": "lower"})
    assert row.corrected_p == row.p
    assert row.verdict == "better"


def test_equivalences_are_a_family_of_their_own() -> None:
    margins = {"clear": 0.001, "none": 0.002}
    table = compare_table(METRICS, better=BETTER, margins=margins)
    expected = holm([tost(*METRICS[name], margin=margin).p for name, margin in margins.items()])
    assert [table["clear"].corrected_equivalence_p, table["none"].corrected_equivalence_p] == expected
    assert table["slight"].corrected_equivalence_p is None
    assert table["clear"].verdict == "better"


def test_the_corrected_test_of_equivalence_decides() -> None:
    margins = {"none": 0.0021, "clear": 0.0002, "slight": 0.0001}
    assert compare(*METRICS["none"], margin=0.0021).verdict == "equivalent"
    table = compare_table(METRICS, better=BETTER, margins=margins)
    assert (table["none"].corrected_equivalence_p or 0) == pytest.approx(3 * tost(*METRICS["none"], margin=0.0021).p)
    assert table["none"].verdict == "inconclusive"


def test_options_reach_every_comparison() -> None:
    table = compare_table(METRICS, better={}, paired=False, alpha=0.2, resamples=99, seed=4)
    for row, samples in zip(table, METRICS.values(), strict=True):
        alone = compare(*samples, paired=False, alpha=0.2, resamples=99, seed=4)
        assert (row.p, row.interval, row.bootstrap_interval) == (alone.p, alone.interval, alone.bootstrap_interval)


def test_the_printed_table_is_aligned() -> None:
    table = compare_table(METRICS, better=BETTER)
    lines = str(table).splitlines()
    assert len(lines) == 1 + len(table)
    for title in ("candidate − baseline", "95% interval", "p (Holm)"):
        ends = lines[0].index(title) + len(title)
        assert all(line[ends - 1] != " " and line[ends] == " " for line in lines)
    starts = lines[0].index("verdict")
    assert [line[starts:] for line in lines[1:]] == [row.verdict for row in table]
    assert "0.1686 ± 0.0023" in lines[1]


def test_the_record_is_json_by_metric() -> None:
    table = compare_table(METRICS | {"shift": ([1, 2], [2, 3])}, better=BETTER)
    record = json.loads(json.dumps(table.as_dict(), allow_nan=False))
    assert list(record) == [*METRICS, "shift"]
    assert record["shift"]["paired_effect"]["value"] == "inf"
    assert record["clear"]["corrected_p"] == table["clear"].corrected_p


def test_a_missing_row_is_named() -> None:
    with pytest.raises(KeyError, match="got 'ece'"):
        compare_table(METRICS, better={})["ece"]


def test_bad_names_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected better for metrics in .* got \['claer'\]"):
        compare_table(METRICS, better={"claer": "lower"})
    with pytest.raises(ValueError, match=r"expected margins for metrics in .* got \['other'\]"):
        compare_table(METRICS, better={}, margins={"other": 1.0})
    with pytest.raises(ValueError, match="at least one metric, got none"):
        compare_table({}, better={})


def test_the_bootstrap_is_drawn_only_where_its_interval_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = []
    monkeypatch.setattr(comparison, "bootstrap_interval", lambda *_, **options: drawn.append(options["resamples"]))
    table = compare_table(METRICS, better=BETTER, margins={"none": 0.002}, resamples=99)
    str(table)
    assert not drawn
    table["clear"].as_dict()
    assert drawn == [99]
