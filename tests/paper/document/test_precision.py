"""float32, TF32 and bf16: what shifts is named, what does not is not, and missing runs are said."""

from __future__ import annotations

import random
from statistics import mean, stdev

import pytest

from orthograd.paper.document.blocks import Table, Words, as_markdown, as_page
from orthograd.paper.document.contents import contents
from orthograd.paper.document.experiments import part_of
from orthograd.paper.document.precision import PrecisionComparison, margin_of, quantities
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, Scale, named
from orthograd.statistics import compare
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


def test_one_metric_that_shifts_in_bf16_is_named_and_nothing_else():
    records = evidence(shifted=[("bf16", "ece")])
    said = words(records)
    assert "ResNet-18, 100 epochs: **30 of 90 runs; the rest is still missing**, paired by seed" in said[0]
    tf32, bf16, other = said[2:5]
    assert tf32.startswith("**TF32 − float32**, 5 seeds: no metric shifts (least p, Holm: ")
    assert bf16.startswith("**bf16 − float32**, 5 seeds: shifts: ECE (SGD). ")
    assert other.startswith("**bf16 − TF32**, 5 seeds: shifts: ECE (SGD). ")
    assert said[-1].startswith("**The default** stays TF32, PyTorch's own setting")
    assert said[-1].endswith("bf16 is not for numbers to set beside others', for it shifts ECE (SGD).")
    tables = [block for block in part_of(EXPERIMENT, records) if isinstance(block, Table)]
    assert [len(table.rows) for table in tables] == [26, 26, 26, 6, 15, 3]
    shifts = [row for table in tables for row in table.rows if row[-1].startswith("shifts")]
    assert [(row[0], row[1], row[-1]) for row in shifts] == [("SGD", "ECE", "shifts")] * 2
    assert all(row[3].startswith("+0.01") for row in shifts)


def test_without_a_shift_equality_is_shown_where_there_is_a_margin():
    said = words(evidence())
    for sentence in said[2:5]:
        assert "no metric shifts" in sentence
        assert "of the 18 rows that have a margin: accuracy, % (SGD, ⊥Grad)" in sentence
    assert said[-1].endswith("no metric shifts. bf16 shifts none either, and is recommended where speed counts.")


def test_seeds_that_only_one_precision_has_count_too():
    few = evidence(seeds=2, shifted=[("bf16", "ece")])
    all_seeds = Evidence({**evidence(experiment=EXPERIMENTS["table1"], seeds=20).records, **few.records})
    tf32, bf16, other = words(all_seeds)[2:5]
    assert "**TF32 − float32**, 2 seeds: no metric shifts" in tf32
    assert "over all seeds, 20 in TF32 and 2 in float32, shifts: none (least p, Holm: " in tf32
    assert "over all seeds" not in bf16
    # Two pairs cannot show it; two runs beside twenty can.
    assert "**bf16 − TF32**, 2 seeds: no metric shifts" in other
    assert "over all seeds, 2 in bf16 and 20 in TF32, shifts: ECE (SGD) (least p, Holm: " in other


def test_the_loss_in_training_is_told_for_all_precisions_with_two_seeds():
    both = evidence(only=["tf32", "bf16"])
    learning = [block for block in part_of(EXPERIMENT, both) if isinstance(block, Table)][1]
    assert learning.header == ("epochs", "method", "float32", "TF32", "bf16")
    runs = [run for run in both.records.values() if run["config"]["method"] == "baseline"]
    first = [run["losses"][0] for run in runs if run["config"]["precision"] == "tf32"]
    assert learning.rows[0][:4] == ("1", "SGD", "–", f"{mean(first):.4f} ± {stdev(first):.4f}")
    alone = [block.header for block in part_of(EXPERIMENT, evidence(only=["tf32"])) if isinstance(block, Table)]
    assert learning.header not in alone


def test_what_the_second_method_changes_is_told_for_each_precision():
    tables = [block for block in part_of(EXPERIMENT, evidence(seeds=3)) if isinstance(block, Table)]
    assert {row[0] for row in tables[4].rows} == {"float32, 3 seeds", "TF32, 3 seeds", "bf16, 3 seeds"}
    only = [block for block in part_of(EXPERIMENT, evidence(only=["tf32"])) if isinstance(block, Table)]
    assert {row[0] for row in only[0].rows} == {"TF32, 5 seeds"}


def test_how_small_a_shift_can_be_found():
    row = compare([1.0, 1.2, 0.8, 1.1, 0.9], [1.1, 1.0, 0.9, 1.2, 0.8])
    half = (row.interval.high - row.interval.low) / 2 / row.candidate.sd
    alone = PrecisionComparison("bf16", "tf32", 5, {("baseline", "clean.ece"): row}, (5, 5), {})
    assert alone.least_shift == pytest.approx(half)
    many = PrecisionComparison("bf16", "tf32", 5, {("baseline", f"clean.{i}"): row for i in range(10)}, (5, 5), {})
    assert many.least_shift == pytest.approx(half * 5.598 / 2.776, rel=1e-3)  # t of 4 degrees at 0.9975 and at 0.975


def test_a_shift_of_tf32_changes_the_default():
    said = words(evidence(shifted=[("tf32", "loss")], method="orthograd"))
    assert "**The default** should be float32, for TF32 shifts loss (⊥Grad). bf16 shifts none, and" in said[-1]


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
    assert f"**{runs} of 90 runs; the rest is still missing**" in said[0]
    assert [
        sentence.split("**")[1] for sentence in said if sentence.startswith("**") and "seeds:" in sentence
    ] == compared
    assert said[-1].startswith("**The default** ")
    if "float32" not in only:
        assert said[-1].endswith("until there are runs that tell otherwise.")


def test_without_runs_and_without_precisions_there_is_nothing_to_compare():
    assert words(Evidence())[0].endswith("**Still missing: none of its 90 runs is there.**")
    assert "nothing to compare" in words(Evidence(scale=Scale(device="cpu")))[1]


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
    text = as_markdown(contents(again, records="records"), figures="f")
    assert "[baseline, bf16](records/resnet18_bf16-baseline.json)" in text
    assert "| 12 of 90 |" in text
    assert "bf16 − float32 (95\xa0%)" in as_page(contents(again))
