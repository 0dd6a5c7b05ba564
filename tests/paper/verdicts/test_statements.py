"""The paper's words, checked on runs made so that each verdict is reached; and what runs cost."""

from __future__ import annotations

from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS
from orthograd.paper.verdicts.statements import STATEMENTS, checked
from tests.paper.made_runs import made_run

LESS_SURE = {"loss": 0.4, "max_softmax": 0.4, "max_logit": 0.4, "logit_variance": 0.4, "entropy": 0.6}


def evidence(**candidates):
    """Runs of experiments whose second method has these means, all other means being 0.5."""
    runs = []
    for name, means in candidates.items():
        experiment = EXPERIMENTS[name]
        for config in experiment.configs():
            runs.append(made_run(config.as_dict(), means if config.method == experiment.methods[1] else {}))
    return Evidence({run["hash"]: run for run in runs})


def verdicts(records, experiment):
    return [verdict for _, (verdict, _) in checked(records, experiment)]


def test_without_runs_every_statement_is_still_missing():
    for statement in STATEMENTS:
        assert set(verdicts(Evidence(), statement.experiment)) == {"still missing"}


def test_effects_that_persist_under_corruption_and_one_that_does_not():
    assert verdicts(evidence(table1=LESS_SURE), "corruption") == ["reproduced"]
    ((_, finding),) = checked(evidence(table1=LESS_SURE | {"entropy": 0.4}), "corruption")
    assert finding == ("not reproduced", "the other way round: entropy")


def test_accuracy_that_is_equal_differs_or_is_inconclusive():
    assert verdicts(evidence(table1={}), "table1") == ["reproduced"]
    assert verdicts(evidence(table1={"top1_accuracy": 9.0}), "table1") == ["not reproduced"]


def test_no_difference_where_none_is_claimed():
    assert verdicts(evidence(renormalisation={"ece": 0.9}), "renormalisation") == ["not reproduced"]
    ((_, (_, reason)),) = checked(evidence(renormalisation={"ece": 0.9}), "renormalisation")
    assert reason.startswith("significant: ECE (p = ")


def test_the_long_runs():
    worse = evidence(extended={"top1_accuracy": 0.4}, table1={})
    assert verdicts(worse, "extended") == ["not reproduced"] * 3
    better = evidence(extended={"top1_accuracy": 0.9}, table1={})
    assert verdicts(better, "extended") == ["not reproduced", "not reproduced", "reproduced"]  # better on clean ones
    calm = evidence(extended={"loss": 0.4, "ece": 0.4}, table1={})
    assert verdicts(calm, "extended")[1] == "reproduced"
    _, (_, (_, reason)), _ = checked(evidence(extended={"loss": 0.4, "ece": 0.6}, table1={}), "extended")
    assert reason.startswith("the other way round: ECE at severity 2, ECE at severity 3")
