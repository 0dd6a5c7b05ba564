"""The summary, the page of each experiment, and the files that they become."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from ...lab.files import write_text
from ..evidence import Evidence, minutes_of
from ..formats import MARK
from ..plan import EXPERIMENTS, PAIR, Experiment, Scale
from ..verdicts.numbers import VERDICTS, Of, Tally, total
from ..verdicts.primary import primary
from ..verdicts.rule import DRAWS, RULE
from ..verdicts.statements import STATEMENTS, checked
from .blocks import Block, ByHand, Heading, Items, Picture, Table, Words, as_markdown, as_page, table
from .experiments import answer_of, effect_text, effects_of, is_begun, names_of, part_of, pictures_of
from .post_hoc import post_hoc_part
from .precision import precision_answer
from .tables import tally_cells

NAME, PAGES, FIGURES, RECORDS = "reproduction.md", "reproduction", "figures/reproduction", "results/reproduction"
"""In a folder of documents."""
PAPER = "[*OrthoGrad Improves Neural Calibration*](https://arxiv.org/abs/2506.04487) (Hedges, 2025)"
SHOWN = EXPERIMENTS["corruption"]
"""The experiment whose figure the summary shows."""
POST_HOC = "post-hoc"
READING = (
    "Differences are ⊥Grad − SGD, or method − SGD for several methods, with 95% intervals, paired by seed, on clean "
    "images. Figure 1 is on corrupted images, temperature scaling after it. ↓: lower is better. ↑: higher is better."
)
NOTE = f"{MARK} The t interval and the bootstrap interval disagree about zero. The verdict follows the t interval."
TABLES = (
    "**Rows**: accuracy, loss, ECE, Brier score and AURC, on clean and corrupted images, before and after temperature "
    "scaling (“scaled”). Temperature scaling does not change accuracy, so scaled images have no row for it.",
    "**Better, worse**: p is below 0.05 after Holm's correction for these rows, as many as the records have. They are "
    "one family for each comparison of two methods. The summary and the recommendations use the same family.",
    "**Equivalent**: accuracy differs by less than one point, by two one-sided tests with the same correction. "
    "**Inconclusive**: none of these.",
    "**Rows without p** have no verdict. Mean confidence belongs to ECE: without bins, ECE is the distance between "
    "confidence and accuracy, so it varies from seed to seed as accuracy does.",
    "**Parts of the loss**: refinement is the loss after the best temperature for the test images. No temperature "
    "lowers it further. Calibration is the rest.",
    f"**{MARK}**: the t interval and the bootstrap interval disagree about zero. The verdict follows the t interval. "
    "With fewer than ten seeds the bootstrap interval is too narrow.",
)
"""How to read the primary table."""


def contents(evidence: Evidence) -> list[Block]:
    """Everything in one document: the summary, then each experiment."""
    blocks = list(_summary(evidence, None))
    for experiment in _begun(evidence):
        blocks += _lowered(part_of(experiment, evidence))
    return [*blocks, *_lowered(post_hoc_part(evidence))]


def pages(evidence: Evidence) -> dict[str, list[Block]]:
    """Every page by its path in the folder of documents."""
    post_hoc = list(post_hoc_part(evidence))
    made: dict[str, list[Block]] = {NAME: list(_summary(evidence, PAGES, has_post_hoc=bool(post_hoc)))}
    for experiment in _begun(evidence):
        made[f"{PAGES}/{experiment.name}.md"] = list(part_of(experiment, evidence, records=f"../{RECORDS}"))
    made |= {f"{PAGES}/{POST_HOC}.md": post_hoc} if post_hoc else {}
    return {name: blocks if name == NAME else _noted(blocks) for name, blocks in made.items()}


def _noted(blocks: Iterable[Block]) -> list[Block]:
    """The blocks, and a note where one has an interval with a mark."""
    whole = list(blocks)
    return [*whole, Words(NOTE)] if MARK in as_markdown(whole, figures="") else whole


def _begun(evidence: Evidence) -> list[Experiment]:
    return [each for each in EXPERIMENTS.values() if is_begun(each, evidence)]


def _lowered(blocks: Iterable[Block]) -> list[Block]:
    """A page as a part of a document: its headings a level lower."""
    return [replace(block, level=block.level + 1) if isinstance(block, Heading) else block for block in blocks]


def _summary(evidence: Evidence, folder: str | None, *, has_post_hoc: bool = False) -> Iterator[Block]:
    """The summary; links lead to pages in ``folder``, where there is one."""
    yield Heading(1, "The paper, run again")
    if evidence.scale.departures:
        departures = ", ".join(evidence.scale.departures)
        yield Words(f"**A smaller try, not the paper's setting: {departures}. Its verdicts mean nothing.**")
    yield Words(f"Does ⊥Grad do what {PAPER} says? We ran its experiments again, and some more.")
    begun = _begun(evidence)
    if not begun:
        yield Words("There are no runs yet.")
        return
    yield Heading(2, "Answer")
    yield from _answer(evidence, folder)
    if (picture := next(pictures_of(SHOWN, evidence), None)) is not None:
        yield picture
    yield Heading(2, "Verdicts")
    yield Items(RULE)
    yield Words(
        "The number in parentheses is the mean count if ⊥Grad did nothing. For it we make data without an effect from "
        "our runs. We set ⊥Grad's mean to SGD's in every metric, which removes the effect and keeps the variation from "
        "seed to seed. If both methods are the same, either run of a pair could have come from either. So we swap them "
        f"at random, which gives new data sets, and apply the same rule to {DRAWS} of them. Differences that the paper "
        "prints without claiming them are counted too; they can be no more than compatible."
    )
    yield _counts(evidence, folder)
    yield Heading(2, "Experiments")
    yield Words(READING)
    for title, is_of_the_paper in (("The paper's", True), ("Beyond the paper", False)):
        listed = [each for each in begun if each.is_of_the_paper == is_of_the_paper]
        if listed:
            yield Heading(3, title)
            yield table(
                ("experiment", "seeds", "ECE ↓", "accuracy ↑, points", "GPU minutes"),
                ([*_row(each, evidence, folder), f"{minutes_of(evidence.runs(each)):.1f}"] for each in listed),
            )
    if has_post_hoc:
        yield Words(f"[Post hoc]({folder}/{POST_HOC}.md): weight norms, training losses, and the last epoch.")
    yield Heading(2, "How to read a page")
    yield Words("Every page has the same table of metrics:")
    yield Items(TABLES)
    yield Heading(2, "How it was run")
    yield Words(_how(evidence))


def _answer(evidence: Evidence, folder: str | None) -> Iterator[Block]:
    """How many of the paper's claimed differences are reproduced, and a reading of it by hand."""
    tally = total(_tallies(evidence, "claimed", is_of_the_paper=True))
    claimed = sum(count for count, _ in tally.values())
    if claimed:
        reproduced, by_chance = tally["reproduced"]
        yield Words(
            f"**{_short_answer(reproduced, claimed)}.** The paper's tables claim {claimed} differences between the "
            f"methods. Our runs reproduce {reproduced} of them; if ⊥Grad did nothing, they would reproduce "
            f"{by_chance:.1f}. {tally['compatible'][0]} of the {claimed} are compatible with our runs, and "
            f"{tally['not reproduced'][0]} are not reproduced. The table of verdicts below has larger counts: it also "
            "has the differences that the paper prints without claiming them."
        )
    if folder is not None:
        yield ByHand("answer", "Not written yet.")


def _short_answer(reproduced: int, claimed: int) -> str:
    return "Yes" if reproduced == claimed else "Partly" if reproduced else "No"


def _tallies(evidence: Evidence, of: Of, *, is_of_the_paper: bool) -> Iterator[Tally]:
    for experiment in EXPERIMENTS.values():
        answer = answer_of(experiment, evidence)
        if answer is not None and experiment.is_of_the_paper == is_of_the_paper:
            yield answer.tally(of)


def _counts(evidence: Evidence, folder: str | None) -> Table:
    """How many numbers and statements have which verdict, and how many would without an effect."""
    rows = []
    of: Of
    for experiment in EXPERIMENTS.values():
        answer = answer_of(experiment, evidence)
        if answer is not None:
            against = "" if experiment.is_of_the_paper else " against the table of WideResNet-28-10"
            for of in ("differences", "means"):
                title = f"{_link(experiment, folder)}{against}, {of}"
                rows.append([title, *tally_cells(answer.tally(of))])
    untested = sum(each.untested is not None for each in STATEMENTS)
    rows.append([f"statements in words; {untested} not tested", *tally_cells(_of_statements(evidence))])
    return table(("claims of", *VERDICTS), rows)


def _of_statements(evidence: Evidence) -> Tally:
    findings = [found for name in EXPERIMENTS for _, found in checked(evidence, name) if found is not None]
    counts = Counter(found.verdict for found in findings)
    return {
        verdict: (counts[verdict], sum(found.without_effect.get(verdict, 0.0) for found in findings))
        for verdict in VERDICTS
    }


def _link(experiment: Experiment, folder: str | None) -> str:
    return experiment.title if folder is None else f"[{experiment.title}]({folder}/{experiment.name}.md)"


def _row(experiment: Experiment, evidence: Evidence, folder: str | None) -> list[str]:
    """An experiment in a row: the difference of its one method, or which methods are better, worse or neither."""
    link = _link(experiment, folder)
    if experiment.in_other_precisions and not evidence.scale.has_one_precision:
        seeds = [len(evidence.method(experiment, PAIR[0], setting=each)) for each in experiment.settings()]
        return [link, f"{min(seeds)} to {max(seeds)}", precision_answer(experiment, evidence), "–"]
    effects = effects_of(experiment, evidence)
    if not effects:
        return [link, "1", "–", "–"]
    seeds = sorted({len(pair.seeds) for pair, _, _ in effects.values()})
    count = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    if len(effects) == 1:
        ((title, (pair, ece, accuracy)),) = effects.items()
        first = names_of(experiment)[0]
        label = link if pair.methods == PAIR and first == "SGD" else f"{link}: {title} − {first}"
        return [label, count, effect_text(ece, digits=3), effect_text(accuracy, digits=2)]
    return [
        link,
        count,
        _by_verdict({title: ece.verdict for title, (_, ece, _) in effects.items()}),
        _by_verdict({title: accuracy.verdict for title, (_, _, accuracy) in effects.items()}),
    ]


def _by_verdict(verdicts: dict[str, str]) -> str:
    """Which methods are better or worse, and how many are neither.

    >>> _by_verdict({"a": "better", "b": "inconclusive", "c": "better"})
    'better: a; c. inconclusive: 1 method'
    """
    parts = []
    for verdict in ("better", "worse", "equivalent", "inconclusive"):
        names = [name for name, each in verdicts.items() if each == verdict]
        if names:
            is_named = verdict in ("better", "worse")
            count = f"{len(names)} method{'s' * (len(names) > 1)}"
            parts.append(f"{verdict}: {'; '.join(names) if is_named else count}")
    return ". ".join(parts)


def _how(evidence: Evidence) -> str:
    """The recipe, the time, what was not evaluated, and what was not run."""
    own = [each for each in EXPERIMENTS.values() if each.is_of_the_paper]
    scaled = [each.title for each in _begun(evidence) if _has_scaled_corrupted_images(each, evidence)]
    missing = [each.title for each in EXPERIMENTS.values() if not is_begun(each, evidence)]
    text = (
        "The recipe is the paper's, unless a page says otherwise. Runs of a seed share their images, initial weights "
        f"and batches, so differences are paired. All experiments took {_time(EXPERIMENTS.values(), evidence)}, the "
        f"paper's {_time(own, evidence)}. Experiments share runs, so their minutes add up to more. "
        "`orthograd reproduce all --dry-run` estimates the minutes before anything runs. `make reproduce-check` fails "
        "if a page differs from its records."
    )
    text += " Corrupted images after temperature scaling: not evaluated in older runs, so "
    text += f"only these experiments have them: {'; '.join(scaled)}." if scaled else "no experiment has them."
    return f"{text} Not run: {'; '.join(missing)}." if missing else text


def _has_scaled_corrupted_images(experiment: Experiment, evidence: Evidence) -> bool:
    """True if all runs of one of its methods beside the first have them, as in the tables of its page."""
    pairs = (pair for pair, _, _ in effects_of(experiment, evidence).values())
    return any("shifted_after_temperature.ece" in primary(pair) for pair in pairs)


def _time(experiments: Iterable[Experiment], evidence: Evidence) -> str:
    """GPU minutes and number of runs, each run once."""
    runs = {run["hash"]: run for each in experiments for run in evidence.runs(each)}
    return f"{minutes_of(runs.values()):.1f} GPU minutes for {len(runs)} runs"


def expected_files(docs: Path) -> dict[Path, str]:
    """Every file that the records in a folder of documents make, with its text."""
    files = {}
    for name, blocks in pages(Evidence.of(Scale(), folder=docs / RECORDS)).items():
        path = docs / name
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        figures = Path(os.path.relpath(docs / FIGURES, path.parent)).as_posix()
        files[path] = as_markdown(blocks, figures=figures, before=before)
        files |= {docs / FIGURES / block.name: block.svg for block in blocks if isinstance(block, Picture)}
    return files


def differing(docs: Path) -> list[Path]:
    """The files that are missing, differ, or have no records any more."""
    expected = expected_files(docs)
    wrong = [path for path, text in expected.items() if not path.exists() or path.read_bytes() != text.encode()]
    return [*wrong, *sorted(_kept(docs) - expected.keys())]


def write_documents(docs: Path) -> list[Path]:
    """Write the pages and their figures; remove those that no records make any more."""
    expected = expected_files(docs)
    for path, text in expected.items():
        write_text(path, text)
    for path in _kept(docs) - expected.keys():
        path.unlink()
    return list(expected)


def _kept(docs: Path) -> set[Path]:
    """The pages and figures that are there."""
    return {*(docs / FIGURES).glob("*.svg"), *(docs / PAGES).glob("*.md")}


def write_reproduction(
    evidence: Evidence, experiments: Sequence[Experiment], folder: Path, *, records: Path | None = None
) -> list[Path]:
    """Write reproduction.html and .md about everything, tables/NAME.md of these experiments, and figures.

    ``records`` is the folder of exported records, which the tables link to.
    """
    blocks = contents(evidence)
    texts = {
        "reproduction.html": as_page(blocks),
        "reproduction.md": as_markdown(blocks, figures="figures"),
        **{f"figures/{block.name}": block.svg for block in blocks if isinstance(block, Picture)},
    }
    link = None if records is None else Path(os.path.relpath(records, folder / "tables")).as_posix()
    for experiment in experiments:
        part = _noted(part_of(experiment, evidence, records=link))
        texts[f"tables/{experiment.name}.md"] = as_markdown(part, figures="../figures")
    return [write_text(folder / name, text) for name, text in texts.items()]
