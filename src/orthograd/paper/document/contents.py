"""The whole document: what was run, how it is evaluated, each experiment, what follows; and the files that it makes."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from ...lab.comparison.pair import MethodPair
from ...lab.files import write_text
from ...lab.jobs.bundles import bundle_path
from ..evidence import Evidence, minutes_of
from ..plan import EXPERIMENTS, SETTINGS, Experiment, Scale
from ..verdicts.numbers import VERDICTS, differences_of
from .blocks import Block, ByHand, Heading, Items, Picture, Words, as_markdown, as_page, table
from .experiments import answer_of, is_begun, name_of, names_of, part_of
from .post_hoc import last_epoch_part, losses_part, norms_part
from .tables import shown

NAME, FIGURES, RECORDS = "reproduction.md", "figures/reproduction", "results/reproduction"
"""In a folder of documents."""
RULE = (
    "**A mean is reproduced** if the paper's number lies where a mean of the paper's number of seeds should fall, "
    "given our seeds: x̄ ± t s √(1/n + 1/m), 95 %, widened by the paper's rounding, with x̄ and s of our n seeds and m "
    "seeds of the paper. Where the paper calls the difference significant (p ≤ 0.05), ours must have its sign as well.",
    "**Same direction, different size**: outside that range, but our difference between the methods has the "
    "paper's sign. **No difference in either, different size**: it has not, but neither of us finds a difference by "
    "the paper's own test.",
    "**Not reproduced**: anything else.",
    "**An effect size is reproduced** if both d differ by no more than their 95 % intervals, added in squares, allow, "
    "and the finding about the difference is the same. Where the paper prints p without d, d is the one that p stands "
    "for. Its intervals and p follow from d and the number of seeds, so they have no verdict of their own.",
    "**Cannot mean what it says**: the number contradicts others of the paper; the reason stands below its table.",
    "One in twenty true numbers falls outside a 95 % range. The verdicts are not corrected for being many.",
)
STATISTICS = (
    "Differences are first − second method. *As the paper did*: Cohen's d with the normal interval, and the "
    "independent t-test. *As it should be*: runs of a seed share their images, initial weights and batches, so "
    "differences are paired; p is corrected by Holm's rule for the rows of a table, or of a method in it; and "
    "that accuracy is unchanged is tested as equality within one point, for no significant difference is no equality."
)

SHIFTED = (
    "Corrupted images are CIFAR-10-C's where a run's heading says official. Where it says made, they were made by this "
    "package from the same test images with the public generator's constants, which gives the same images or, where "
    "chance has a part, images of the same distribution: see corruptions.md and data.md in the repository's docs."
)


def contents(evidence: Evidence, *, records: str | None = None, with_advice: bool = False) -> list[Block]:
    """The document; ``records`` is where files of records lie, seen from it. Advice, if there shall be, is by hand."""
    return [*_contents(evidence, records), *([ByHand("when", "Not written yet.")] if with_advice else [])]


def _contents(evidence: Evidence, records: str | None) -> Iterator[Block]:
    yield Heading(1, "The paper, run again")
    yield Words(
        "Every number of *OrthoGrad Improves Neural Calibration* beside ours, made from the records of the runs and "
        "from nothing else; only the advice at the end of docs/reproduction.md is written by hand. In the repository "
        "`python -m orthograd.paper.document --check` fails where that page says something that its records do not."
    )
    if evidence.scale.departures:
        departures = ", ".join(evidence.scale.departures)
        yield Words(f"**This is not the paper's setting, but a smaller try: {departures}. Its verdicts mean nothing.**")
    yield Heading(2, "What was run")
    yield _overview(evidence, records)
    yield Words(
        "Minutes are those in which at least one of the runs was at work, whatever else ran beside it. What a process "
        "does before its first run is in no clock, nor what some runs did before they were stopped and resumed (newer "
        "records tell that): they are a little too few." + _whole(evidence)
    )
    yield Heading(2, "How it is evaluated")
    yield Items(RULE)
    yield Words(STATISTICS)
    yield Words(SHIFTED)
    yield from _summary(evidence)
    for title, is_of_the_paper in (("The paper", True), ("Beyond the paper", False)):
        yield Heading(2, title)
        for experiment in EXPERIMENTS.values():
            if experiment.is_of_the_paper == is_of_the_paper:
                yield from part_of(experiment, evidence)
    yield from norms_part(evidence)
    yield from losses_part(evidence)
    yield from last_epoch_part(evidence)
    yield Heading(2, "When to use ⊥Grad, when not")
    yield from _when(evidence)


def _overview(evidence: Evidence, records: str | None) -> Block:
    rows = []
    for experiment in EXPERIMENTS.values():
        done, planned = evidence.done(experiment)
        runs = evidence.runs(experiment)
        rows.append(
            [
                experiment.title,
                f"`orthograd reproduce {experiment.name}`",
                f"{done} of {planned}",
                f"{minutes_of(runs):.1f}" if runs else "–",
                _links(experiment, evidence, records),
            ]
        )
    return table(("experiment", "command", "runs", "minutes", "records"), rows)


def _whole(evidence: Evidence) -> str:
    """What the paper's own experiments took together, where none of their runs is missing."""
    own = [each for each in EXPERIMENTS.values() if each.is_of_the_paper]
    if any(done < planned for done, planned in map(evidence.done, own)):
        return ""
    runs = {run["hash"]: run for each in own for run in evidence.runs(each)}  # table 1's serve others, too
    return f" All experiments of the paper together, {len(runs)} runs: {minutes_of(runs.values()):.1f} minutes."


def _links(experiment: Experiment, evidence: Evidence, records: str | None) -> str:
    known = [
        (setting, method)
        for setting in experiment.settings(evidence.scale)
        for method in experiment.methods
        if evidence.method(experiment, method, setting=setting)
    ]
    if records is None or not known:
        return "–"
    return ", ".join(
        f"[{method}{'' if setting == experiment.setting else f', {SETTINGS[setting].precision}'}]"
        f"({bundle_path(Path(records), setting, method).as_posix()})"
        for setting, method in known
    )


def _summary(evidence: Evidence) -> Iterator[Block]:
    rows = []
    for experiment in EXPERIMENTS.values():
        answer = answer_of(experiment, evidence)
        if answer is not None:
            counts = Counter(answer.verdicts())
            rows.append([experiment.title, *(str(counts[verdict] or "") for verdict in VERDICTS)])
    yield Words("How many numbers got which verdict:")
    yield table(("table", *VERDICTS), rows)


def _when(evidence: Evidence) -> Iterator[Block]:
    """What the records show of ⊥Grad, setting by setting, without a word more."""
    lines: dict[tuple[str, str, str], str] = {}
    for experiment in (each for each in EXPERIMENTS.values() if is_begun(each, evidence)):
        for method in experiment.methods[1:]:
            pair = evidence.pair(experiment, method)
            if pair is not None:  # the first experiment of a setting that has the pair has the most seeds
                rows = _rows_of(experiment, pair, evidence)
                lines.setdefault((experiment.setting, *pair.methods), _in_short(experiment, method, pair, rows))
    yield Items(tuple(lines.values()) or ("No records yet, so nothing can be said.",))


def _rows_of(experiment: Experiment, pair: MethodPair, evidence: Evidence) -> list[str]:
    """What the experiment's own table corrects over, so that the summary says what that table says."""
    answer, usual = answer_of(experiment, evidence), shown("clean")
    if answer is None or answer.pair is None or answer.pair.methods != pair.methods:
        return usual
    rows = [row.quantity for row in answer.section.rows]
    return rows if {"clean.ece", "clean.top1_accuracy"} <= set(rows) else usual


def _in_short(experiment: Experiment, method: str, pair: MethodPair, rows: list[str]) -> str:
    """One method against the first, in a line."""
    clean = differences_of(pair, rows)
    ece, accuracy = clean["clean.ece"], clean["clean.top1_accuracy"]
    return (
        f"{experiment.title}, {name_of(experiment, method)} against {names_of(experiment)[0]}, {len(pair.seeds)} "
        f"seeds: ECE {ece.baseline.mean:.3f} → {ece.candidate.mean:.3f} ({ece.verdict}), "
        f"accuracy {accuracy.baseline.mean:.2f} → {accuracy.candidate.mean:.2f} % ({accuracy.verdict})."
    )


def expected_files(docs: Path) -> dict[Path, str]:
    """Every file that the records in a folder of documents make, with its text."""
    blocks = contents(Evidence.of(Scale(), folder=docs / RECORDS), records=RECORDS, with_advice=True)
    path = docs / NAME
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    pictures = {docs / FIGURES / block.name: block.svg for block in blocks if isinstance(block, Picture)}
    return {path: as_markdown(blocks, figures=FIGURES, before=before), **pictures}


def differing(docs: Path) -> list[Path]:
    """The files that are missing, differ, or are left over from records that are gone."""
    expected = expected_files(docs)
    wrong = [path for path, text in expected.items() if not path.exists() or path.read_bytes() != text.encode()]
    return [*wrong, *(path for path in sorted((docs / FIGURES).glob("*.svg")) if path not in expected)]


def write_documents(docs: Path) -> list[Path]:
    """Write the document and its figures; remove figures that nothing makes any more."""
    expected = expected_files(docs)
    for path, text in expected.items():
        write_text(path, text)
    for path in differing(docs):
        path.unlink()
    return list(expected)


def write_reproduction(
    evidence: Evidence, experiments: Sequence[Experiment], folder: Path, *, records: Path | None = None
) -> list[Path]:
    """Write reproduction.html and .md about everything, tables/NAME.md of these experiments, and figures.

    Files of records, if any, lie in the folder ``records``.
    """
    blocks = contents(evidence, records=None if records is None else Path(os.path.relpath(records, folder)).as_posix())
    texts = {
        "reproduction.html": as_page(blocks),
        "reproduction.md": as_markdown(blocks, figures="figures"),
        **{f"figures/{block.name}": block.svg for block in blocks if isinstance(block, Picture)},
    }
    for experiment in experiments:
        texts[f"tables/{experiment.name}.md"] = as_markdown(part_of(experiment, evidence), figures="../figures")
    return [write_text(folder / name, text) for name, text in texts.items()]
