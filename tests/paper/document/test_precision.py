"""float32, TF32 and bf16: what shifts is named, what does not is not, and missing runs are said."""

from __future__ import annotations

import random
from statistics import mean, stdev

import pytest

from orthograd.paper.document.blocks import Words, as_markdown, as_page
from orthograd.paper.document.contents import contents
from orthograd.paper.document.experiments import part_of
from orthograd.paper.document.precision import PrecisionComparison, margin_of, quantities
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, Scale, named
from orthograd.statistics import compare
from tests.paper.flat import tables
from tests.paper.made_runs import made_run

EXPERIMENT = EXPERIMENTS["precision"]
MEANS = {"top1_accuracy": 75.0, "top5_accuracy": 97.8, "max_logit": 13.0, "logit_variance": 44.0, "ece": 0.16}


def evidence(*, experiment=EXPERIMENT, seeds=5, only=("float32", "tf32", "bf16"), shifted=(), method="baseline"):
    """Runs that differ a little from precision to precision, and by a tenth where told to: (precision, metric)."""
    runs = {}
    for config in experiment.configs(Scale(seeds=seeds)):
        if config.precision in only:
            chance = random.Random(f"{config.precision} {config.method} {config.seed}")
            factors = {name: 1 + 0.002 * chance.uniform(-1, 1) for name in (*MEANS, "loss")}
            for precision, metric in shifted:
                factors[metric] *= 1.1 if (precision, method) == (config.precision, config.method) else 1
            run = made_run(config.as_dict(), {name: MEANS.get(name, 0.5) * by for name, by in factors.items()})
            runs[run["hash"]] = run
    return Evidence(runs)


def words(records):
    return [block.text for block in part_of(EXPERIMENT, records) if isinstance(block, Words)]


def verdicts(records):
    return [text for text in words(records) if text.startswith("**") and " seeds: " in text]


def default(records):
    return next(text for text in words(records) if text.startswith("**Default:**"))


def test_one_metric_that_differs_in_bf16_is_named_and_nothing_else():
    records = evidence(shifted=[("bf16", "ece")])
    assert words(records)[1].endswith("bf16 − TF32, 5 seeds: different in ECE (SGD).")
    assert any("ResNet-18, 100 epochs; 30 of 90 planned runs, paired by seed" in text for text in words(records))
    tf32, bf16, other = verdicts(records)
    assert tf32.startswith("**TF32 − float32**, 5 seeds: no metric differs (smallest p, Holm: ")
    assert bf16.startswith("**bf16 − float32**, 5 seeds: different: ECE (SGD). ")
    assert other.startswith("**bf16 − TF32**, 5 seeds: different: ECE (SGD). ")
    assert default(records).startswith("**Default:** TF32. ")
    assert default(records).endswith("Do not compare bf16 runs with other precisions: bf16 changes ECE (SGD).")
    made = tables(part_of(EXPERIMENT, records))
    assert [len(table.rows) for table in made] == [26, 26, 26, 6, 17, 3]
    changed = [row for table in made[:3] for row in table.rows if row[-1] not in ("equivalent", "inconclusive")]
    assert [(row[0], row[1], row[-1]) for row in changed] == [("SGD", "ECE ↓", "worse")] * 2
    assert all(row[3].startswith("+0.01") for row in changed)


def test_without_a_difference_equivalence_is_shown_where_there_is_a_margin():
    for sentence in verdicts(evidence()):
        assert "no metric differs" in sentence
        assert "of the 18 rows that have a margin: accuracy, % (SGD, ⊥Grad)" in sentence
    assert default(evidence()).endswith("No difference detected for bf16 either, which is faster.")


def test_seeds_that_only_one_precision_has_count_too():
    few = evidence(seeds=2, shifted=[("bf16", "ece")])
    all_seeds = Evidence({**evidence(experiment=EXPERIMENTS["table1"], seeds=20).records, **few.records})
    tf32, bf16, other = verdicts(all_seeds)
    assert "**TF32 − float32**, 2 seeds: no metric differs" in tf32
    assert "over all seeds, 20 in TF32 and 2 in float32, different: none (smallest p, Holm: " in tf32
    assert "over all seeds" not in bf16
    # Two pairs cannot show it; two runs beside twenty can.
    assert "**bf16 − TF32**, 2 seeds: no metric differs" in other
    assert "over all seeds, 2 in bf16 and 20 in TF32, different: ECE (SGD) (smallest p, Holm: " in other


def test_the_loss_in_training_is_told_for_all_precisions_with_two_seeds():
    both = evidence(only=["tf32", "bf16"])
    learning = tables(part_of(EXPERIMENT, both))[1]
    assert learning.header == ("epochs", "method", "float32", "TF32", "bf16")
    runs = [run for run in both.records.values() if run["config"]["method"] == "baseline"]
    first = [run["losses"][0] for run in runs if run["config"]["precision"] == "tf32"]
    assert learning.rows[0][:4] == ("1", "SGD", "–", f"{mean(first):.4f} ± {stdev(first):.4f}")
    alone = [block.header for block in tables(part_of(EXPERIMENT, evidence(only=["tf32"])))]
    assert learning.header not in alone


def test_what_the_second_method_changes_is_told_for_each_precision():
    made = tables(part_of(EXPERIMENT, evidence(seeds=3)))
    assert made[4].header == ("images", "metric", "float32, 3 seeds", "TF32, 3 seeds", "bf16, 3 seeds")
    only = part_of(EXPERIMENT, evidence(only=["tf32"]))
    assert any(getattr(block, "text", "") == "All metrics: ⊥Grad in TF32" for block in only)


def test_how_small_a_difference_can_be_detected():
    row = compare([1.0, 1.2, 0.8, 1.1, 0.9], [1.1, 1.0, 0.9, 1.2, 0.8])
    half = (row.interval.high - row.interval.low) / 2 / row.baseline.sd
    alone = PrecisionComparison("bf16", "tf32", 5, {("baseline", "clean.ece"): row}, (5, 5), {})
    assert alone.least_difference == pytest.approx(half)
    many = PrecisionComparison("bf16", "tf32", 5, {("baseline", f"clean.{i}"): row for i in range(10)}, (5, 5), {})
    assert many.least_difference == pytest.approx(
        half * 5.598 / 2.776, rel=1e-3
    )  # t of 4 degrees at 0.9975 and at 0.975


def test_a_difference_of_tf32_changes_the_default():
    said = default(evidence(shifted=[("tf32", "loss")], method="orthograd"))
    assert said.startswith("**Default:** should be float32, because TF32 changes loss (⊥Grad). No difference")


@pytest.mark.parametrize(
    ("only", "runs", "compared"),
    [
        (["tf32"], 10, []),
        (["tf32", "float32"], 20, ["TF32 − float32"]),
        (["bf16", "tf32"], 20, ["bf16 − TF32"]),
    ],
)
def test_with_missing_runs_what_can_be_said_is_said(only, runs, compared):
    said = words(evidence(only=only))
    assert any(f"; {runs} of 90 planned runs" in text for text in said)
    assert [sentence.split("**")[1] for sentence in verdicts(evidence(only=only))] == compared
    if "float32" not in only:
        assert default(evidence(only=only)).endswith("There are no runs to compare it with float32.")


def test_without_runs_and_without_precisions_there_is_nothing_to_compare():
    assert words(Evidence())[1] == "No runs yet: 0 of 90."
    scale = Scale(device="cpu", seeds=2)
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENT.configs(scale)]
    assert any("nothing to compare" in text for text in words(Evidence({run["hash"]: run for run in runs}, scale)))


def test_quantities_have_the_margins_that_are_explained():
    assert quantities()[-2:] == ["temperature", "training_loss"]
    margins = {name: margin for name in quantities() if (margin := margin_of(name)) is not None}
    assert margins == pytest.approx(
        {
            "clean.top1_accuracy": 1.0,
            "clean.top5_accuracy": 1.0,
            "clean.loss": 0.035,
            "clean.ece": 0.01,
            "clean.entropy": 0.008,
            "clean.max_softmax": 0.003,
            "clean.max_logit": 0.275,
            "clean.logit_variance": 1.715,
            "temperature": 0.07,
        }
    )


def test_records_go_to_a_file_for_each_precision_and_come_back(tmp_path):
    two = evidence(seeds=2)
    written = two.write(tmp_path, named("precision"))
    assert sorted(path.name for path in written) == [
        f"resnet18{precision}-{method}.json"
        for precision in ("", "_bf16", "_float32")
        for method in ("baseline", "orthograd")
    ]
    again = Evidence.of(Scale(), folder=tmp_path)
    assert again.records == two.records
    text = as_markdown(part_of(EXPERIMENT, again, records="records"), figures="f")
    assert "[baseline, bf16](records/resnet18_bf16-baseline.json)" in text
    assert "12 of 90 planned runs" in text
    assert "bf16 − float32 (95%)" in as_page(contents(again))
