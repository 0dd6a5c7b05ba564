from __future__ import annotations

import re

import pytest

from orthograd.lab.comparison.formats import TITLES, as_csv, latex, markdown
from orthograd.lab.comparison.pair import MethodPair, verdict
from orthograd.lab.comparison.records import by_severity


def record(method, seed, **values):
    """A run whose metrics are all one number, but for those given."""
    clean = dict.fromkeys(TITLES, 1.0 + 0.01 * seed) | values
    shifted = {f"noise.{level}": {name: value + level for name, value in clean.items()} for level in range(1, 6)}
    after = {"temperature": 2.0, "certificate": "", "metrics": clean}
    return {
        "config": {"method": method, "seed": seed},
        "metrics": {"clean": clean} | shifted,
        "after_temperature": after,
    }


def runs(baseline=(), candidate=()):
    return [
        *(
            record("baseline", seed, **dict(zip(("ece", "top1_accuracy"), values, strict=True)))
            for seed, values in baseline
        ),
        *(
            record("orthograd", seed, **dict(zip(("ece", "top1_accuracy"), values, strict=True)))
            for seed, values in candidate
        ),
    ]


BETTER = runs(
    [(0, (0.10, 90.0)), (1, (0.12, 91.0)), (2, (0.11, 92.0)), (3, (0.10, 89.0))],
    [(1, (0.06, 91.1)), (0, (0.05, 90.1)), (2, (0.04, 91.9)), (3, (0.05, 89.0))],
)


def test_runs_are_paired_by_seed_whatever_their_order_and_the_unpaired_left_out():
    pair = MethodPair.of(
        [*BETTER, record("baseline", 9), record("mixup", 0)], baseline="baseline", candidate="orthograd"
    )
    assert pair.seeds == [0, 1, 2, 3]
    assert pair.methods == ("baseline", "orthograd")
    assert [run["metrics"]["clean"]["ece"] for run in pair.candidate] == [0.05, 0.06, 0.04, 0.05]
    with pytest.raises(ValueError, match="at least 2 seeds of both baseline and mixup, got 0"):
        MethodPair.of(BETTER, baseline="baseline", candidate="mixup")


def test_the_verdict_says_what_the_table_says():
    table = MethodPair.of(BETTER, baseline="baseline", candidate="orthograd").tables["clean"]
    assert (table["ece"].verdict, table["top1_accuracy"].verdict) == ("better", "equivalent")
    said = verdict(table, baseline="SGD", candidate="⊥Grad")
    assert said.startswith(
        "⊥Grad is better calibrated than SGD: ECE 0.050 against 0.108 (⊥Grad − SGD: −0.058, 95% interval −0.0"
    )
    assert " Accuracy is equivalent within 1 point: 90.53% against 90.50% (⊥Grad − SGD: +0.03, 95% interval " in said
    assert said.endswith("). 4 seeds; p corrected for 12 metrics.")
    turned = MethodPair.of(BETTER, baseline="orthograd", candidate="baseline").tables["clean"]
    assert verdict(turned, baseline="⊥Grad", candidate="SGD").startswith("SGD is worse calibrated than ⊥Grad")


def test_few_seeds_that_disagree_leave_it_inconclusive():
    mixed = runs([(0, (0.1, 90.0)), (1, (0.2, 80.0))], [(0, (0.2, 85.0)), (1, (0.1, 88.0))])
    table = MethodPair.of(mixed, baseline="baseline", candidate="orthograd").tables["clean"]
    said = verdict(table, baseline="SGD", candidate="⊥Grad")
    assert said.startswith(
        "No difference in calibration between ⊥Grad and SGD was detected: ECE 0.150 against 0.150 (⊥Grad"
    )
    assert "No difference in accuracy was detected" in said


def test_shifts_are_averaged_and_severities_are_kept_apart():
    pair = MethodPair.of(BETTER, baseline="baseline", candidate="orthograd")
    assert pair.tables["shifted"]["ece"].baseline.mean == pytest.approx(0.1075 + 3)
    assert by_severity(pair.baseline, "ece")[0] == pytest.approx([0.10, 1.10, 2.10, 3.10, 4.10, 5.10])
    assert pair.tables["temperature-scaled"]["ece"].difference == pytest.approx(-0.0575)
    none = [{**run, "after_temperature": None} for run in BETTER]
    assert "temperature-scaled" not in MethodPair.of(none, baseline="baseline", candidate="orthograd").tables


def test_undefined_and_infinite_metrics_are_left_out_of_the_table():
    broken = [dict(run) for run in BETTER]
    broken[0] = {
        **broken[0],
        "metrics": {**broken[0]["metrics"], "clean": {**broken[0]["metrics"]["clean"], "loss": "inf"}},
    }
    table = MethodPair.of(broken, baseline="baseline", candidate="orthograd").tables["clean"]
    assert "loss" not in [row.metric for row in table]
    assert "ece" in [row.metric for row in table]


def test_the_table_as_text():
    table = MethodPair.of(BETTER, baseline="baseline", candidate="orthograd").tables["clean"]
    lines = markdown(table, baseline="SGD", candidate="⊥Grad").splitlines()
    assert lines[0].startswith("| metric | SGD | ⊥Grad | ⊥Grad − SGD (95% interval) |")
    assert lines[5].startswith("| ECE ↓ | 0.1075 ± 0.0096 | 0.0500 ± 0.0082 | -0.0575 (")
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert (
        as_csv(table, baseline="SGD", candidate="⊥Grad")
        .splitlines()[4]
        .startswith("ece,0.1075 ± 0.0096,0.0500 ± 0.0082")
    )


def test_the_table_for_a_paper_escapes_what_latex_would_take_for_commands():
    table = MethodPair.of(BETTER, baseline="baseline", candidate="orthograd").tables["clean"]
    text = latex(table, baseline="a_b & 5 %", candidate="⊥Grad")
    lines = text.splitlines()
    assert lines[:3] == [r"\noindent\resizebox{\linewidth}{!}{%", r"\begin{tabular}{lrrrrrl}", r"\toprule"]
    names = r"a\_b \& 5 \% & $\perp$Grad & $\perp$Grad $-$ a\_b \& 5 \% (95\% interval)"
    assert lines[3] == rf"metric & {names} & d & p (Holm) & verdict \\"
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}}"]
    rows = lines[5:-2]
    assert len(rows) == len(table)
    assert all(len(re.findall(r"(?<!\\)&", row)) == 6 and row.endswith(r" \\") for row in rows)
    assert all(row.count("$") % 2 == 0 for row in rows)
    assert text.isascii()
    assert rows[3].startswith(r"ECE $\downarrow$ & 0.1075 $\pm$ 0.0096 & 0.0500 $\pm$ 0.0082 & ")
