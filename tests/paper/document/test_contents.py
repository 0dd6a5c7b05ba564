"""docs/reproduction.md: made from records alone, the same bytes each time, and never out of date unnoticed."""

from __future__ import annotations

import math
import shutil
import xml.dom.minidom
from pathlib import Path

import pytest
from scipy.stats import ttest_1samp

from orthograd.paper.document.__main__ import main
from orthograd.paper.document.blocks import (
    ByHand,
    Heading,
    Items,
    Table,
    Words,
    as_markdown,
    as_page,
    table,
    written_by_hand,
)
from orthograd.paper.document.contents import FIGURES, NAME, RECORDS, contents, differing, write_documents
from orthograd.paper.document.experiments import names_of, part_of
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, named
from tests.paper.made_runs import made_run, made_table1

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def evidence():
    return Evidence({run["hash"]: run for run in made_table1()})


@pytest.fixture(scope="module")
def docs(tmp_path_factory, evidence):
    folder = tmp_path_factory.mktemp("docs")
    evidence.write(folder / RECORDS, named("all"))
    write_documents(folder)
    return folder


def test_the_committed_document_is_what_the_committed_records_give():
    assert differing(ROOT / "docs") == []


def test_without_any_record_everything_is_missing(tmp_path):
    assert main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / NAME).read_text()
    for experiment in EXPERIMENTS.values():
        assert f"### {experiment.title}" in text
    assert text.count("Still missing: none of its") == len(EXPERIMENTS)
    assert " | reproduced |" not in text.split("## The paper")[1]
    assert "No records yet, so nothing can be said." in text
    assert main(["--docs", str(tmp_path), "--check"]) == 0


def test_the_summary_has_the_verdict_of_the_experiments_own_table():
    """Here nine rows correct p to 0.06, where the five of other experiments would to 0.04."""
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENTS["resnet50"].configs()]
    spread = [-1.5, -1.0, -0.7, -0.3, -0.1, 0.1, 0.3, 0.7, 1.0, 1.5]
    for run in runs:
        seed, is_candidate = run["config"]["seed"], run["config"]["method"] == "orthograd"
        run["metrics"]["clean"] |= dict.fromkeys(run["metrics"]["clean"], 0.5 + 0.01 * spread[seed] * is_candidate)
        run["metrics"]["clean"]["ece"] = 0.2 + 0.01 * (1.02 + spread[seed]) * is_candidate
    assert 0.05 / 9 < ttest_1samp([1.02 + each for each in spread], 0).pvalue < 0.05 / 5
    evidence = Evidence({run["hash"]: run for run in runs})
    tables = (block for block in part_of(EXPERIMENTS["resnet50"], evidence) if isinstance(block, Table))
    own = next(block for block in tables if "ours says" in block.header)
    row = next(row for row in own.rows if row[0] == "ECE")
    assert row[own.header.index("ours says")] == "inconclusive"
    *_, summary = (block for block in contents(evidence) if isinstance(block, Items))
    (line,) = summary.texts
    assert "ECE 0.200 → 0.210 (inconclusive)" in line


def test_what_the_whole_paper_took_is_told_once_all_of_it_is_there(docs):
    assert "All experiments of the paper together" not in (docs / NAME).read_text()
    own = [each for each in EXPERIMENTS.values() if each.is_of_the_paper]
    runs = {run["hash"]: run for each in own for run in (made_run(config.as_dict(), {}) for config in each.configs())}
    told = next(block.text for block in contents(Evidence(runs)) if isinstance(block, Words) and "clock" in block.text)
    assert told.endswith(f"together, 70 runs: {70 * 32 / 60:.1f} minutes.")


def test_numbers_of_the_paper_stand_beside_ours_with_a_verdict(docs):
    text = (docs / NAME).read_text()
    line = next(line for line in text.splitlines() if line.startswith("| ECE | SGD | 0.168"))
    assert line.startswith("| ECE | SGD | 0.168 | 0.16")
    assert line.endswith("| reproduced |")
    assert "[baseline](results/reproduction/resnet18-baseline.json)" in text
    assert "40 runs, paired by seed, a GPU, torch 2.9, made corrupted images" in text
    assert "Still missing: none of its 10 runs" in text  # of the longer ones
    assert "**Still missing: of its 20 runs only 10 are there, which other experiments need too.**" in text
    figures = sorted(path.name for path in (docs / FIGURES).iterdir())
    assert figures == [
        "corruption-severity.svg",
        "table1-last-epoch.svg",
        "table1-reliability-clean.svg",
        "table1-reliability-shifted.svg",
    ]
    for path in (docs / FIGURES).iterdir():
        xml.dom.minidom.parse(str(path))
        assert f"({FIGURES}/{path.name})" in text


def test_networks_that_are_less_sure_than_right_are_named():
    configs = [config.as_dict() for config in EXPERIMENTS["extended"].configs()]
    sure = {"baseline": 0.9, "orthograd": 0.7}
    runs = [made_run(config, {"max_softmax": sure[config["method"]], "top1_accuracy": 80.0}) for config in configs]
    told = [block.text for block in contents(Evidence({run["hash"]: run for run in runs})) if isinstance(block, Words)]
    (sentence,) = [text for text in told if "is underconfident" in text]
    assert sentence.startswith(
        "**⊥Grad is underconfident** on clean images: confidence 0.699, share of right answers 0.8"
    )
    assert "in each of the 5 runs" in sentence
    few = {run["hash"]: run for run in runs if run["config"]["seed"] < 2}
    told = [block.text for block in contents(Evidence(few)) if isinstance(block, Words)]
    assert [text for text in told if text.startswith("⊥Grad is underconfident on clean") and "the 2 runs" in text]
    one = {run["hash"]: run for run in runs if run["config"]["seed"] < 1}
    assert not any("is underconfident" in block.text for block in contents(Evidence(one)) if isinstance(block, Words))


def test_runs_without_a_partner_are_named():
    runs = [run for run in made_table1() if (run["config"]["method"], run["config"]["seed"]) != ("orthograd", 7)]
    told = [block.text for block in contents(Evidence({run["hash"]: run for run in runs})) if isinstance(block, Words)]
    assert any("39 of 40 runs" in text and "for want of a partner: SGD, seed 7)" in text for text in told)
    whole = contents(Evidence({run["hash"]: run for run in made_table1()}))
    assert not any("for want of a partner" in block.text for block in whole if isinstance(block, Words))


def test_what_is_shared_is_told_once_and_broken_numbers_break_nothing():
    runs = made_table1()
    for run in runs:
        run["metrics"]["clean"]["max_softmax"] = 0.5
    pages = [contents(Evidence({run["hash"]: run for run in runs}))]
    runs[0]["metrics"]["clean"]["max_softmax"] = None
    runs[1]["after_temperature"], runs[2]["losses"] = None, [math.nan]
    pages.append(contents(Evidence({run["hash"]: run for run in runs})))
    told = [sum("is underconfident" in block.text for block in page if isinstance(block, Words)) for page in pages]
    assert told == [2, 1]  # both methods once; then SGD no more


def test_the_same_records_give_the_same_bytes(docs, tmp_path):
    shutil.copytree(docs / RECORDS, tmp_path / RECORDS)
    write_documents(tmp_path)
    for path in docs.rglob("*.*"):
        assert (tmp_path / path.relative_to(docs)).read_bytes() == path.read_bytes()


def test_check_fails_on_a_changed_byte_and_names_the_file(docs, tmp_path, capsys):
    copied = tmp_path / "docs"
    shutil.copytree(docs, copied)
    check = ["--docs", str(copied), "--check"]
    assert main(check) == 0
    for name in (NAME, f"{FIGURES}/corruption-severity.svg"):
        path = copied / name
        before = path.read_bytes()
        path.write_bytes(before.replace(b"0", b"1", 1))
        assert main(check) == 1
        assert str(path) in capsys.readouterr().err
        path.write_bytes(before)
    (copied / FIGURES / "left-over.svg").write_text("<svg/>")
    assert main(check) == 1
    assert main(["--docs", str(copied)]) == 0
    assert not (copied / FIGURES / "left-over.svg").exists()
    record = next((copied / RECORDS).glob("*.json"))
    record.write_text(record.read_text().replace('"seed"', '"sead"', 1))
    assert main(check) == 2


def test_what_people_wrote_stays_when_the_document_is_made_anew(docs, tmp_path):
    copied = tmp_path / "docs"
    shutil.copytree(docs, copied)
    path = copied / NAME
    path.write_text(path.read_text().replace("Not written yet.", "Use it where\n\nit helps."))
    assert main(["--docs", str(copied), "--check"]) == 0
    main(["--docs", str(copied)])
    assert written_by_hand(path.read_text(), "when") == "Use it where\n\nit helps."


def test_the_page_has_every_table_and_figure_and_nothing_from_outside(evidence):
    blocks = contents(evidence)
    page = as_page(blocks)
    assert page.count("<table") == sum(isinstance(block, Table) for block in blocks)
    assert page.count("data:image/svg+xml") == 4
    assert 'src="http' not in page
    assert "<h1>The paper, run again</h1>" in page
    assert page == as_page(contents(Evidence(evidence.records)))


def test_on_the_page_words_begin_at_the_left_and_verdicts_have_a_sign():
    made = table(
        ("what", "method", "ours (95 %)", "p", "found", "verdict"),
        [
            ["ECE", "SGD", "0.168 (0.160 to 0.176)", "–", "14 % on average", "reproduced"],
            ["loss", "⊥Grad", "−1.26", "2 × 10⁻⁵", "the other way round", "worse"],
        ],
    )
    page = as_page([made])
    assert '<th scope="col" class="prose">method</th>' in page
    assert '<th scope="col">p</th>' in page
    assert '<td class="prose">14\xa0% on average</td>' in page
    assert '<td class="prose">⊥Grad</td>' in page
    assert "<td>0.168 <small>(0.160 to 0.176)</small></td>" in page
    assert '<span class="verdict better"><span aria-hidden="true">✓</span> reproduced</span>' in page
    assert '<span class="verdict worse"><span aria-hidden="true">✗</span> worse</span>' in page


def test_temperatures_fitted_on_test_images_are_shown_where_records_have_them(evidence):
    part = as_markdown(part_of(EXPERIMENTS["temperature"], evidence), figures="f")
    assert "fitted on |" not in part
    fit = {"temperature": 2.5, "metrics": {"ece": 0.0125}}
    runs = {name: run | {"after_temperature_on_test": fit} for name, run in evidence.records.items()}
    part = as_markdown(part_of(EXPERIMENTS["temperature"], Evidence(runs)), figures="f")
    assert "| SGD | test | 2.5000 | 0.0125 |" in part
    assert part.count("| held-out |") == 2


def test_an_method_without_anything_is_called_by_its_optimizer():
    assert names_of(EXPERIMENTS["adamw"]) == ("AdamW", "⊥Grad")
    assert names_of(EXPERIMENTS["renormalization"]) == ("⊥Grad", "⊥Grad, plain")


def test_blocks():
    text = as_markdown([Heading(2, "A"), ByHand("b", "nothing"), table(("x", "y"), [("a|b", "2")])], figures="f")
    assert (
        text == "## A\n\n<!-- b: by hand -->\nnothing\n<!-- end of b -->\n\n| x | y |\n| --- | --- |\n| a\\|b | 2 |\n"
    )
    with pytest.raises(ValueError, match="rows of 2 cells"):
        table(("x", "y"), [("1",)])
