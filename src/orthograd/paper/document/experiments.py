"""The page of one experiment: the question, the answer, the paper's numbers beside ours, figures, and the runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import mean

from ...lab.comparison.formats import caption
from ...lab.comparison.pair import MethodPair
from ...lab.jobs.bundles import bundle_path
from ...lab.training.methods import METHODS
from ...statistics import Comparison
from ..evidence import Evidence, minutes_of, values_of
from ..formats import difference_text
from ..plan import EXPERIMENTS, NETWORKS, PAIR, SETTINGS, Experiment
from ..verdicts.claims import Oddity, number_of, oddities_of, sections
from ..verdicts.numbers import VERDICTS, Answer
from ..verdicts.primary import primary
from ..verdicts.statements import Finding, Statement, checked
from .blocks import Block, Folded, Heading, Items, Picture, Words, folded, table
from .figures import A_FEW, OVER_SEVERITY, methods_picture, reliability_picture, severity_picture
from .precision import NAMES as PRECISIONS
from .precision import precision_answer, precision_part
from .tables import NONE, differences_table, means_table, primary_blocks, tally_cells

RELIABILITY = ("table1", "extended", "wideresnet", "resnet50")
SEVERITY: dict[str, tuple[str, ...]] = dict.fromkeys(("corruption", "wideresnet", "resnet50"), OVER_SEVERITY)
SEVERITY |= {"extended": ("top1_accuracy", "loss", "ece")}

IMAGES = {"clean": "clean images", "shifted": "corrupted images", "after_temperature": "after temperature scaling"}
ANSWERED_ON = {"corruption": "shifted", "temperature": "after_temperature"}
"""Experiments whose answer is not about clean images."""
NOT_TESTED = "not tested"
WITHOUT_EFFECT = "In parentheses: the mean count if both methods were the same."


def part_of(experiment: Experiment, evidence: Evidence, *, records: str | None = None) -> Iterator[Block]:
    """The page of an experiment; ``records`` is the folder of records, as a link from the page."""
    yield Heading(1, experiment.title)
    yield Words(experiment.question)
    if not is_begun(experiment, evidence):
        yield Words(f"No runs yet: 0 of {evidence.done(experiment)[1]}.")
        return
    yield from _in_short(experiment, evidence)
    if experiment.in_other_precisions:
        names = {method: name_of(experiment, method) for method in experiment.methods}
        yield from precision_part(experiment, evidence, names)
    else:
        yield from _comparisons(experiment, evidence)
        yield from _the_paper(experiment, evidence)
        yield from pictures_of(experiment, evidence)
    yield Heading(2, "Runs")
    yield Words(f"{_state(experiment, evidence)} {_sources(experiment, evidence, records)}")


def is_begun(experiment: Experiment, evidence: Evidence) -> bool:
    """True if it has its own runs: SGD and ⊥Grad in the same setting may belong to another experiment."""
    own = [method for method in experiment.methods if method not in PAIR] or experiment.methods
    return any(evidence.method(experiment, method) for method in own)


def answer_of(experiment: Experiment, evidence: Evidence) -> Answer | None:
    """The table of the paper with our pair of methods; None without such a table or without runs."""
    if experiment.answers is None or not is_begun(experiment, evidence):
        return None
    return Answer(sections()[experiment.answers], evidence.pair(experiment), names_of(experiment))


def name_of(experiment: Experiment, method: str) -> str:
    """The name of a method; the baseline has the name of its optimizer."""
    usual = {"sgd": "SGD", "adamw": "AdamW"}[SETTINGS[experiment.setting].optimizer]
    return usual if method == "baseline" else METHODS[method].title


def names_of(experiment: Experiment) -> tuple[str, str]:
    """The first two methods, which the paper's tables compare."""
    return name_of(experiment, experiment.methods[0]), name_of(experiment, experiment.methods[1])


def effects_of(experiment: Experiment, evidence: Evidence) -> dict[str, tuple[MethodPair, Comparison, Comparison]]:
    """ECE and accuracy of each method against the first, with its pair, by the method's title.

    They are rows of its primary table. Temperature scaling does not change accuracy.
    """
    images, found = ANSWERED_ON.get(experiment.name, "clean"), {}
    for title, pair in _pairs(experiment, evidence).items():
        rows = primary(pair)
        accuracy = f"{'shifted' if images == 'shifted' else 'clean'}.top1_accuracy"
        if {f"{images}.ece", accuracy} <= rows.keys():
            found[title] = pair, rows[f"{images}.ece"], rows[accuracy]
    return found


def effect_text(row: Comparison, *, digits: int, unit: str = "") -> str:
    """A difference, its interval and its verdict."""
    return f"{difference_text(row, digits)}{unit}, {row.verdict}"


def _in_short(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """The answer: each method against the first, in a line."""
    if experiment.in_other_precisions and not evidence.scale.has_one_precision:
        yield Words(precision_answer(experiment, evidence))
        return
    first, images = names_of(experiment)[0], ANSWERED_ON.get(experiment.name, "clean")
    lines = [
        f"**{title} − {first}**, {len(pair.seeds)} seeds: ECE ↓ {effect_text(ece, digits=3)}; accuracy ↑ "
        f"{effect_text(accuracy, digits=2, unit=' points')}."
        for title, (pair, ece, accuracy) in effects_of(experiment, evidence).items()
    ]
    if lines:
        yield Words(f"On {IMAGES[images]}:" if images != "after_temperature" else "After temperature scaling:")
        yield Items(tuple(lines))
    yield from _underconfident(experiment, evidence)


def pictures_of(experiment: Experiment, evidence: Evidence) -> Iterator[Picture]:
    """The figures of an experiment for which there are records."""
    pair = evidence.pair(experiment)
    if pair is None:
        return
    names = names_of(experiment)
    pictures = []
    if experiment.name in SEVERITY:
        pictures.append(severity_picture(f"{experiment.name}-severity", pair, names, SEVERITY[experiment.name]))
    for images in ("clean", "shifted") if experiment.name in RELIABILITY else ():
        pictures.append(reliability_picture(f"{experiment.name}-reliability-{images}", pair, names, images))
    yield from (picture for picture in pictures if picture is not None)


def _the_paper(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """The paper's statements and numbers with the verdicts on them."""
    statements, answer = list(checked(evidence, experiment.name)), answer_of(experiment, evidence)
    if not statements and answer is None:
        return
    yield Heading(2, "The paper's claims")
    if answer is not None:
        counts = [["differences", *tally_cells(answer.tally("differences"))]]
        counts.append(["means", *tally_cells(answer.tally("means"))])
        yield Words(WITHOUT_EFFECT)
        yield table(("numbers", *VERDICTS), counts)
    if statements:
        header = ("the paper, in our words", "section", "our differences (95%)", "verdict")
        yield table((*header, "reproduced if both were the same"), (_statement(*each) for each in statements))
    if answer is not None:
        yield from _numbers(answer)


def _statement(statement: Statement, found: Finding | None) -> list[str]:
    words = [statement.words, statement.section]
    if found is None:
        return [*words, *((statement.untested, NOT_TESTED) if statement.untested else ("–", NONE)), "–"]
    return [*words, found.reason, found.verdict, f"{found.without_effect.get('reproduced', 0.0):.0%}"]


def _numbers(answer: Answer) -> Iterator[Block]:
    words = f"{caption(*answer.names)} “The paper's claim” follows from the interval alone, as the paper does not "
    words += "correct its p."
    if any(row.d for row in answer.section.rows):
        words += " The paper prints d with the other sign, SGD − ⊥Grad."
    yield Words(words)
    yield from folded("All differences, ours beside the paper's", differences_table(answer))
    yield Folded("All means, ours beside the paper's", (means_table(answer),))
    if notes := oddities_of(answer.section.name):
        yield Words("Notes on the paper's numbers:")
        yield Items(tuple(map(_note, notes)))


def _note(note: Oddity) -> str:
    return f"[{number_of(note)}] {'' if note.is_remark else '**Contradicted by its own numbers.** '}{note.reason}"


def _comparisons(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """The primary table of every method beside the first, and of ⊥Grad on top of other methods."""
    pairs, first = _pairs(experiment, evidence), names_of(experiment)[0]
    if not pairs:
        return
    yield Heading(2, "All metrics")
    drawn = {title: pair for title, pair in pairs.items() if len(pair.seeds) >= A_FEW}
    if (picture := methods_picture(f"{experiment.name}-methods", drawn, first)) is not None:
        yield picture
    yield from primary_blocks(pairs, (first, next(iter(pairs)) if len(pairs) == 1 else "method"), is_shared=True)
    on_top = {
        METHODS[method].title: pair
        for method, top in experiment.on_top.items()
        if (pair := evidence.pair(experiment, top, beside=method)) is not None
    }
    if on_top:
        yield Heading(3, f"⊥Grad on top of {next(iter(on_top)) if len(on_top) == 1 else 'a method'}")
        yield from primary_blocks(on_top, ("without ⊥Grad", "with ⊥Grad"))


def _pairs(experiment: Experiment, evidence: Evidence) -> dict[str, MethodPair]:
    """The methods with two seeds or more that the first has, too, by their titles."""
    pairs = {name_of(experiment, method): evidence.pair(experiment, method) for method in experiment.methods[1:]}
    return {title: pair for title, pair in pairs.items() if pair is not None}


def _underconfident(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """The methods whose networks are underconfident in every run, which ECE does not tell from overconfidence."""
    for method in experiment.methods:
        runs = evidence.method(experiment, method)
        confidence, accuracy = (values_of(runs, f"clean.{name}") for name in ("max_softmax", "top1_accuracy"))
        is_first = experiment is _first_with(experiment.setting, method)
        if len(runs) < 2 or not (is_first and confidence and accuracy):
            continue
        if all(stated < right / 100 for stated, right in zip(confidence, accuracy, strict=True)):
            yield Words(
                f"**{name_of(experiment, method)} is underconfident** on clean images in each of {len(runs)} runs: "
                f"confidence {mean(confidence):.3f}, accuracy {mean(accuracy) / 100:.3f}. ECE does not show the "
                "direction."
            )


def _first_with(setting: str, method: str) -> Experiment:
    """The first of the experiments that share these runs."""
    return next(each for each in EXPERIMENTS.values() if each.setting == setting and method in each.methods)


def _state(experiment: Experiment, evidence: Evidence) -> str:
    """Network, number of runs, machine, and the runs that no table has."""
    done, planned = evidence.done(experiment)
    config = evidence.scale.applied(experiment.setting)
    network = NETWORKS.get(config.model, config.model)
    epochs = f"{config.epochs} epochs" if config.epochs > 1 else "one epoch"
    precision = "" if experiment.in_other_precisions or config.device == "cpu" else f", {PRECISIONS[config.precision]}"
    count = f"{planned} runs" if done == planned else f"{done} of {planned} planned runs"
    return (
        f"{network}, {epochs}{precision}; {count}, paired by seed{_made_on(experiment, evidence)}."
        f"{_left_out(experiment, evidence)}{_alone(experiment, evidence)}"
    )


def _left_out(experiment: Experiment, evidence: Evidence) -> str:
    """Names the seeds of the same setting that only other experiments use."""
    parts = []
    for method in experiment.methods:
        own, known = len(evidence.method(experiment, method)), len(evidence.of_setting(experiment.setting, method))
        if 0 < own < known:
            parts.append(f"{name_of(experiment, method)} {own} of {known}")
    return f" Seeds used here: {', '.join(parts)}; other experiments use the rest." if parts else ""


def _alone(experiment: Experiment, evidence: Evidence) -> str:
    """Names the runs without a partner, which tables of pairs leave out."""
    if experiment.in_other_precisions:
        return ""
    first, *others = (
        [run["config"]["seed"] for run in evidence.method(experiment, method)] for method in experiment.methods
    )
    seeds = {seed for method in others for seed in method}
    alone = [f"{name_of(experiment, experiment.methods[0])}, seed {seed}" for seed in first if seed not in seeds]
    for method, having in zip(experiment.methods[1:], others, strict=True):
        alone += [f"{name_of(experiment, method)}, seed {seed}" for seed in having if seed not in first]
    return f" Without a partner, and in no table of pairs: {'; '.join(alone)}." if alone else ""


def _made_on(experiment: Experiment, evidence: Evidence) -> str:
    """Machines, versions, and the source of the corrupted images."""
    runs = evidence.runs(experiment)
    machines = {run["hardware"].get("gpu") or run["hardware"]["machine"] for run in runs}
    versions = {f"torch {run['versions']['torch']}" for run in runs}
    sources = {"made": "corrupted images made by this package", "official": "published CIFAR-10-C"}
    images = {str(sources.get(run["shifts"], run["shifts"])) for run in runs if run.get("shifts", "none") != "none"}
    if experiment.in_other_precisions:
        images.clear()  # compared on clean images alone
    return "".join(f", {word}" for word in (*sorted(machines), *sorted(versions), *sorted(images)))


def _sources(experiment: Experiment, evidence: Evidence, records: str | None) -> str:
    """The command, its minutes, and links to the records."""
    minutes = minutes_of(evidence.runs(experiment))
    words = f"`orthograd reproduce {experiment.name}` runs it again. Its runs took {minutes:.1f} minutes of GPU time."
    links = [
        f"[{method}{'' if setting == experiment.setting else f', {SETTINGS[setting].precision}'}]"
        f"({bundle_path(Path(records), setting, method).as_posix()})"
        for setting in experiment.settings(evidence.scale)
        for method in experiment.methods
        if records is not None and evidence.method(experiment, method, setting=setting)
    ]
    return f"{words} Records: {', '.join(links)}." if links else words
