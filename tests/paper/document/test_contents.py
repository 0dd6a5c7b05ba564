"""The pages of the reproduction: made from records alone, the same bytes each time, and checked against them."""

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
    Folded,
    Heading,
    Items,
    Words,
    as_markdown,
    as_page,
    table,
    written_by_hand,
)
from orthograd.paper.document.contents import FIGURES, NAME, PAGES, RECORDS, contents, differing, write_documents
from orthograd.paper.document.experiments import names_of, part_of
from orthograd.paper.document.tables import IMAGES, _named
from orthograd.paper.evidence import Evidence
from orthograd.paper.plan import EXPERIMENTS, named
from orthograd.paper.verdicts.primary import QUANTITIES
from tests.paper.flat import flat, tables
from tests.paper.made_runs import made_run, made_table1

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def evidence():
    return Evidence({run["hash"]: run for run in made_table1()})


@pytest.fixture(scope="module")
def blocks(evidence):
    return contents(evidence)


def few_runs(seeds):
    return [run for run in made_table1() if run["config"]["seed"] < seeds]


@pytest.fixture(scope="module")
def docs(tmp_path_factory, evidence):
    folder = tmp_path_factory.mktemp("docs")
    evidence.write(folder / RECORDS, named("all"))
    write_documents(folder)
    return folder


@pytest.mark.slow
def test_the_committed_document_is_what_the_committed_records_give():
    assert differing(ROOT / "docs") == []


def test_the_summary_is_short_and_answers_first():
    text = (ROOT / "docs" / NAME).read_text()
    assert len(text.splitlines()) <= 150
    assert text.splitlines()[6].startswith("**Partly.** The paper's tables claim ")
    assert text.count("![") == 1
    for path in (ROOT / "docs" / PAGES).glob("*.md"):
        assert f"({PAGES}/{path.name})" in text


def test_without_any_record_there_are_no_results(tmp_path):
    assert main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / NAME).read_text()
    assert "There are no runs yet." in text
    assert "reproduced" not in text
    assert not (tmp_path / PAGES).exists()
    assert main(["--docs", str(tmp_path), "--check"]) == 0


def test_experiments_without_runs_are_named_in_one_line_and_have_no_page(docs):
    text = (docs / NAME).read_text()
    begun = {path.stem for path in (docs / PAGES).iterdir()} - {"post-hoc"}
    assert begun == {"table1", "temperature", "corruption", "precision"}
    (line,) = (line for line in text.splitlines() if "Not run: " in line)
    for name, experiment in EXPERIMENTS.items():
        assert (experiment.title in line.split("Not run: ")[1]) == (name not in begun)


def test_the_summary_has_the_verdict_of_the_primary_table():
    """Ten rows correct p to 0.06, where five would to 0.03."""
    runs = [made_run(config.as_dict(), {}) for config in EXPERIMENTS["resnet50"].configs()]
    spread = [-1.5, -1.0, -0.7, -0.3, -0.1, 0.1, 0.3, 0.7, 1.0, 1.5]
    for run in runs:
        seed, is_candidate = run["config"]["seed"], run["config"]["method"] == "orthograd"
        for metrics in run["metrics"].values():
            metrics |= dict.fromkeys(metrics, 0.5 + 0.01 * spread[seed] * is_candidate)
        run["metrics"]["clean"]["ece"] = 0.2 + 0.01 * (1.02 + spread[seed]) * is_candidate
        run["after_temperature"] = None
    assert 0.05 / 10 < ttest_1samp([1.02 + each for each in spread], 0).pvalue < 0.05 / 5
    evidence = Evidence({run["hash"]: run for run in runs})
    part = flat(part_of(EXPERIMENTS["resnet50"], evidence))
    own = next(block for block in tables(part) if block.header[:2] == ("images", "metric"))
    row = next(row for row in own.rows if row[:2] == ("clean", "ECE ↓"))
    assert row[-1] == "inconclusive"
    assert 0.05 < float(row[-2]) < 0.1
    (line,) = next(block.texts for block in part if isinstance(block, Items))
    assert "ECE ↓ +0.010 (+0.004 to +0.017), inconclusive" in line
    summary = next(block for block in tables(contents(evidence)) if block.header[0] == "experiment")
    assert summary.rows[0][2] == "+0.010 (+0.004 to +0.017), inconclusive"


def test_every_committed_page_has_the_rows_of_the_primary_table_in_order():
    names = [f"| {' | '.join(_named(quantity))} |" for quantity in QUANTITIES]
    for path in sorted((ROOT / "docs" / PAGES).glob("*.md")):
        lines = path.read_text().splitlines()
        starts = [i for i, line in enumerate(lines) if line.startswith("| images | metric |")]
        assert starts or path.stem == "post-hoc"
        for start in starts:
            end = next(i for i in range(start, len(lines)) if not lines[i])
            rows = lines[start + 2 : end]
            places = [next(i for i, name in enumerate(names) if row.startswith(name)) for row in rows]
            assert places == sorted(places)
            missing = {IMAGES[name.partition(".")[0]] for i, name in enumerate(QUANTITIES) if i not in places}
            told = lines[start - 2].partition("Not measured: ")[2]
            assert len(missing) == (told.count(",") + 1 if told else 0)


def test_the_time_of_the_papers_runs_counts_shared_runs_once():
    own = [each for each in EXPERIMENTS.values() if each.is_of_the_paper]
    runs = {run["hash"]: run for each in own for run in (made_run(config.as_dict(), {}) for config in each.configs())}
    told = [block.text for block in contents(Evidence(runs)) if isinstance(block, Words)]
    assert any(f"the paper's {70 * 32 / 60:.1f} GPU minutes for 70 runs" in text for text in told)


def test_numbers_of_the_paper_stand_beside_ours_with_a_verdict(docs):
    text = (docs / PAGES / "table1.md").read_text()
    line = next(line for line in text.splitlines() if line.startswith("| ECE ↓ | 0.168"))
    assert line.startswith("| ECE ↓ | 0.168 | 0.16")
    assert line.endswith("| compatible |")
    line = next(line for line in text.splitlines() if line.startswith("| entropy | +0.016 | "))
    assert line.endswith("| reproduced |")
    assert "| loss ↓ | −0.07 | −0.64 (−1.28 to −0.005) | 0.05 [6] | −" in text  # printed as 0.64
    assert "Differences are ⊥Grad − SGD; ↓ lower is better, ↑ higher is better." in text
    assert "The paper prints d with the other sign, SGD − ⊥Grad." in text
    assert "- [1] **Contradicted by its own numbers.** The paper's interval ends at 2.77" in text
    assert "[baseline](../results/reproduction/resnet18-baseline.json)" in text
    assert "40 runs, paired by seed, a GPU, torch 2.9, corrupted images made by this package" in text
    figures = sorted(path.name for path in (docs / FIGURES).iterdir())
    assert figures == [
        "corruption-severity.svg",
        "table1-last-epoch.svg",
        "table1-reliability-clean.svg",
        "table1-reliability-shifted.svg",
    ]
    pages = "".join(path.read_text() for path in (docs / PAGES).iterdir())
    for path in (docs / FIGURES).iterdir():
        xml.dom.minidom.parse(str(path))
        assert f"(../{FIGURES}/{path.name})" in pages


def test_counts_stand_beside_those_without_an_effect(docs):
    text = (docs / NAME).read_text()
    (line,) = (
        line for line in text.splitlines() if line.startswith("| [Table 1: ResNet-18]") and "differences" in line
    )
    counts = [cell.strip() for cell in line.split("|")[2:6]]
    reproduced, by_chance = counts[0].rstrip(")").split(" (")
    assert int(reproduced) == 5
    assert float(by_chance) < 0.5
    assert sum(int(cell.split(" ")[0]) for cell in counts) == 12


def test_underconfident_networks_are_named():
    configs = [config.as_dict() for config in EXPERIMENTS["extended"].configs()]
    confidence = {"baseline": 0.9, "orthograd": 0.7}
    runs = [
        made_run(config, {"max_softmax": confidence[config["method"]], "top1_accuracy": 80.0}) for config in configs
    ]
    told = [block.text for block in contents(Evidence({run["hash"]: run for run in runs})) if isinstance(block, Words)]
    (sentence,) = [text for text in told if "is underconfident" in text]
    assert sentence.startswith(
        "**⊥Grad is underconfident** on clean images in each of 5 runs: confidence 0.699, accuracy 0.8"
    )
    one = {run["hash"]: run for run in runs if run["config"]["seed"] < 1}
    assert not any("is underconfident" in block.text for block in contents(Evidence(one)) if isinstance(block, Words))


def test_runs_without_a_partner_are_named(blocks):
    runs = [run for run in made_table1() if (run["config"]["method"], run["config"]["seed"]) != ("orthograd", 7)]
    told = [block.text for block in contents(Evidence({run["hash"]: run for run in runs})) if isinstance(block, Words)]
    assert any("39 of 40 planned runs" in text and "in no table of pairs: SGD, seed 7." in text for text in told)
    assert not any("Without a partner" in block.text for block in blocks if isinstance(block, Words))


def test_what_is_shared_is_told_once_and_broken_numbers_break_nothing():
    runs = few_runs(3)
    for run in runs:
        run["metrics"]["clean"]["max_softmax"] = 0.5
    pages = [contents(Evidence({run["hash"]: run for run in runs}))]
    runs[0]["metrics"]["clean"]["max_softmax"] = None
    runs[1]["after_temperature"], runs[2]["losses"] = None, [math.nan]
    pages.append(contents(Evidence({run["hash"]: run for run in runs})))
    told = [sum("is underconfident" in block.text for block in page if isinstance(block, Words)) for page in pages]
    assert told == [2, 1]  # both methods once; then SGD no more


@pytest.fixture(scope="module")
def small_docs(tmp_path_factory):
    """The documents of two seeds, which are made sooner than those of all."""
    folder = tmp_path_factory.mktemp("small")
    Evidence({run["hash"]: run for run in few_runs(2)}).write(folder / RECORDS, named("all"))
    write_documents(folder)
    return folder


@pytest.fixture
def copied(small_docs, tmp_path):
    return shutil.copytree(small_docs, tmp_path / "docs")


def test_the_same_records_give_the_same_bytes(small_docs, tmp_path):
    shutil.copytree(small_docs / RECORDS, tmp_path / RECORDS)
    write_documents(tmp_path)
    for path in small_docs.rglob("*.*"):
        assert (tmp_path / path.relative_to(small_docs)).read_bytes() == path.read_bytes()


def test_check_fails_on_a_changed_byte_and_names_the_file(copied, capsys):
    check = ["--docs", str(copied), "--check"]
    changed = [copied / name for name in (NAME, f"{PAGES}/table1.md", f"{FIGURES}/corruption-severity.svg")]
    left_over = [copied / FIGURES / "left-over.svg", copied / PAGES / "left-over.md"]
    kept = {path: path.read_bytes() for path in changed}
    for path, text in kept.items():
        path.write_bytes(text.replace(b"0", b"1", 1))
    for path in left_over:
        path.write_text("")
    assert main(check) == 1
    named_files = capsys.readouterr().err
    assert all(str(path) in named_files for path in (*changed, *left_over))
    assert len(named_files.splitlines()) == 5
    assert main(["--docs", str(copied)]) == 0
    assert {path: path.read_bytes() for path in changed} == kept
    assert not any(path.exists() for path in left_over)
    record = next((copied / RECORDS).glob("*.json"))
    record.write_text(record.read_text().replace('"seed"', '"sead"', 1))
    assert main(check) == 2


def test_text_by_hand_stays_when_the_document_is_made_again(copied):
    path = copied / NAME
    path.write_text(path.read_text().replace("Not written yet.", "Use it where\n\nit helps."))
    assert main(["--docs", str(copied), "--check"]) == 0
    main(["--docs", str(copied)])
    assert written_by_hand(path.read_text(), "answer") == "Use it where\n\nit helps."


def test_the_page_has_every_table_and_figure_and_nothing_from_outside(evidence, blocks):
    page = as_page(blocks)
    assert page.count("<table") == len(tables(blocks))
    assert page.count("<details>") == sum(isinstance(block, Folded) for block in blocks) > 0
    assert page.count("data:image/svg+xml") == 5  # one is in the summary, too
    assert 'src="http' not in page
    assert "<h1>The paper, run again</h1>" in page
    assert page == as_page(contents(Evidence(evidence.records)))


def test_on_the_page_words_begin_at_the_left_and_verdicts_have_a_sign():
    made = table(
        ("metric", "method", "ours (95%)", "p", "reason", "verdict"),
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


def rows_of(evidence):
    """The rows of table 1's primary table, by images and metric."""
    part = flat(part_of(EXPERIMENTS["table1"], evidence))
    made = next(block for block in tables(part) if block.header[:2] == ("images", "metric"))
    return {row[:2]: row[2:] for row in made.rows}, part


def test_loss_has_its_two_parts_where_records_have_the_best_temperature(evidence):
    rows, _ = rows_of(evidence)
    assert ("clean", "loss, refinement part ↓") not in rows
    fit = {"temperature": 2.5, "metrics": {"loss": 0.75}}
    rows, _ = rows_of(
        Evidence({name: run | {"after_temperature_on_test": fit} for name, run in evidence.records.items()})
    )
    assert rows["clean", "loss, refinement part ↓"][0] == "0.7500 ± 0.0000"
    loss, calibration = (float(rows["clean", name][0].split()[0]) for name in ("loss ↓", "loss, calibration part ↓"))
    assert calibration == pytest.approx(loss - 0.75, abs=1e-4)
    assert rows["clean", "loss, calibration part ↓"][-2:] == ("–", "–")  # beside the family


def test_corrupted_images_after_temperature_scaling_are_shown_where_measured(evidence):
    rows, part = rows_of(evidence)
    words = "Not measured: corrupted images after temperature scaling."
    assert any(words in block.text for block in part if isinstance(block, Words))
    assert not any(images == "corrupted, scaled" for images, _ in rows)
    runs = {}
    for name, run in evidence.records.items():
        shifted = {images: run["metrics"][images] | {"ece": 0.25} for images in ("fog.1", "snow.5")}
        runs[name] = run | {"after_temperature": run["after_temperature"] | {"shifted": shifted}}
    told = [[block.text for block in contents(each) if isinstance(block, Words)] for each in (evidence, Evidence(runs))]
    assert any("after temperature scaling: not evaluated in older runs, so no experiment" in text for text in told[0])
    assert any("only these experiments have them: Table 1: ResNet-18; " in text for text in told[1])
    rows, part = rows_of(Evidence(runs))
    assert not any("Not measured" in block.text for block in part if isinstance(block, Words))
    assert rows["corrupted, scaled", "ECE ↓"][0] == "0.2500 ± 0.0000"
    assert [metric for images, metric in rows if images == "corrupted, scaled"] == [
        "mean confidence, %",
        "loss ↓",
        "ECE ↓",
        "Brier score ↓",
        "AURC ↓",
    ]
    one = next(iter(runs))
    runs[one] = evidence.records[one]  # an older record among them
    assert not any(images == "corrupted, scaled" for images, _ in rows_of(Evidence(runs))[0])


def test_the_baseline_is_called_by_its_optimizer():
    assert names_of(EXPERIMENTS["adamw"]) == ("AdamW", "⊥Grad")
    assert names_of(EXPERIMENTS["renormalization"]) == ("⊥Grad", "⊥Grad, plain")


def test_blocks():
    text = as_markdown([Heading(2, "A"), ByHand("b", "nothing"), table(("x", "y"), [("a|b", "2")])], figures="f")
    assert (
        text == "## A\n\n<!-- b: by hand -->\nnothing\n<!-- end of b -->\n\n| x | y |\n| --- | --- |\n| a\\|b | 2 |\n"
    )
    text = as_markdown([Folded("More", (table(("x",), [("1",)]),))], figures="f")
    assert text == "<details>\n<summary>More</summary>\n\n| x |\n| --- |\n| 1 |\n\n</details>\n"
    with pytest.raises(ValueError, match="rows of 2 cells"):
        table(("x", "y"), [("1",)])
