"""The paper's words, checked on runs made so that each verdict is reached."""

from __future__ import annotations

import pytest

from orthograd.lab.data.corruption.generation import CORRUPTIONS
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS
from orthograd.paper.verdicts.statements import STATEMENTS, checked, together
from tests.paper.made_runs import made_run

LESS_CONFIDENT = {"loss": 0.4, "max_softmax": 0.4, "max_logit": 0.4, "logit_variance": 0.4, "entropy": 0.6}


def evidence(**candidates):
    """Runs of experiments whose second method has these means, all other means being 0.5."""
    runs = []
    for name, means in candidates.items():
        experiment = EXPERIMENTS[name]
        for config in experiment.configs():
            runs.append(made_run(config.as_dict(), means if config.method == experiment.methods[1] else {}))
    return Evidence({run["hash"]: run for run in runs})


def findings(records, experiment):
    """Of statements about images that made runs have, unlike each type of corruption."""
    tested = ((statement, found) for statement, found in checked(records, experiment) if statement.untested is None)
    return [found for statement, found in tested if not statement.claims[0][0].startswith("type_")]


def verdicts(records, experiment):
    return [found.verdict for found in findings(records, experiment)]


def test_without_runs_no_statement_has_a_verdict():
    for statement in STATEMENTS:
        assert set(findings(Evidence(), statement.experiment)) == {None}


def test_effects_that_persist_under_corruption_and_one_that_does_not():
    found, *_ = findings(evidence(table1=LESS_CONFIDENT), "corruption")
    assert (found.verdict, found.reason) == ("reproduced", "all 5 reproduced")
    found, *_ = findings(evidence(table1=LESS_CONFIDENT | {"entropy": 0.4}), "corruption")
    assert found.verdict == "not reproduced"
    assert found.reason.endswith("; not reproduced: entropy")
    found, *_ = findings(evidence(table1={}), "corruption")  # no effect at all
    assert found.verdict != "reproduced"


def test_accuracy_that_is_equal_or_differs():
    assert verdicts(evidence(table1={}), "table1")[0] == "reproduced"
    assert verdicts(evidence(table1={"top1_accuracy": 9.0}), "table1")[0] == "not reproduced"


def test_no_difference_where_none_is_claimed():
    for found in findings(evidence(renormalization={"ece": 0.9}), "renormalization"):
        assert found.verdict == "not reproduced"
        assert found.reason.endswith("not reproduced: ECE")


def test_the_long_runs():
    worse = evidence(extended={"top1_accuracy": 0.4}, table1={})
    assert verdicts(worse, "extended") == ["not reproduced", verdicts(worse, "extended")[1], "not reproduced"]
    better = evidence(extended={"top1_accuracy": 0.9}, table1={})
    assert verdicts(better, "extended")[0] == "not reproduced"  # better on clean images, too
    assert verdicts(better, "extended")[2] == "reproduced"
    calm = evidence(extended={"loss": 0.4, "ece": 0.4}, table1={})
    assert verdicts(calm, "extended")[1] == "reproduced"
    _, found, _ = findings(evidence(extended={"loss": 0.4, "ece": 0.6}, table1={}), "extended")
    assert found.reason.startswith("reproduced: loss at severity 2, loss at severity 3")
    assert found.reason.endswith("not reproduced: " + ", ".join(f"ECE at severity {level}" for level in (2, 3, 4, 5)))


def test_if_the_method_did_nothing_few_statements_would_be_reproduced():
    persists, *_ = findings(evidence(table1=LESS_CONFIDENT), "corruption")
    assert persists.without_effect.get("reproduced", 0.0) < 0.03
    unchanged, *_ = findings(evidence(table1={}), "table1")
    assert unchanged.without_effect["reproduced"] > 0.9  # a claim of no difference is then true
    assert sum(unchanged.without_effect.values()) == pytest.approx(1.0)


def test_a_statement_about_several_networks_needs_all_of_them():
    name = "wideresnet"
    *_, found = findings(evidence(table1=LESS_CONFIDENT, wideresnet=LESS_CONFIDENT, resnet50=LESS_CONFIDENT), name)
    assert (found.verdict, found.reason) == ("reproduced", "all 15 reproduced")
    rising = LESS_CONFIDENT | {"max_logit": 0.6}
    *_, found = findings(evidence(table1=LESS_CONFIDENT, wideresnet=LESS_CONFIDENT, resnet50=rising), name)
    assert found.verdict == "not reproduced"
    assert found.reason.endswith("; not reproduced: max |logit| (ResNet-50)")
    assert findings(evidence(table1=LESS_CONFIDENT, wideresnet=LESS_CONFIDENT), name)[-1] is None


def test_corruptions_have_their_verdicts_one_by_one():
    runs = []
    for config in EXPERIMENTS["table1"].configs():
        run = made_run(config.as_dict(), {})
        is_fog = dict.fromkeys(CORRUPTIONS, 0.5) | {"fog": 0.5 - 0.1 * (config.method == "orthograd")}
        run["metrics"] |= {
            f"{name}.1": run["metrics"]["fog.1"] | {"ece": is_fog[name] + config.seed} for name in CORRUPTIONS
        }
        runs.append({**run, "metrics": {name: each for name, each in run["metrics"].items() if name[-1] in "n1"}})
    *_, (_, found) = checked(Evidence({run["hash"]: run for run in runs}), "corruption")
    assert found.verdict == "compatible"
    assert "reproduced: fog" in found.reason


def test_a_gain_that_the_papers_own_table_does_not_show_is_contradicted_by_it():
    """Both means after temperature scaling are printed as equal, so the statement must not be called compatible."""
    for means in ({}, {"ece": 0.4, "brier_mean": 0.4}):
        unchanged, kept = verdicts(evidence(temperature=means), "temperature")
        assert kept == "contradicted by its own numbers"
        assert unchanged != kept


def test_a_statement_without_a_number_is_not_tested():
    (statement,) = (each for each in STATEMENTS if each.untested is not None)
    assert "no number" in statement.untested
    assert all(each.claims or each.untested for each in STATEMENTS)


def test_a_statement_is_reproduced_only_if_all_of_it_is():
    assert together(("reproduced", "reproduced")) == "reproduced"
    assert together(("reproduced", "compatible")) == "compatible"
    assert together(("compatible", "not reproduced", "reproduced")) == "not reproduced"
    assert together(("not reproduced", "contradicted by its own numbers")) == "contradicted by its own numbers"
