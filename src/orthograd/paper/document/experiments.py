"""The page of one experiment: the question, the answer, the paper's numbers beside ours, figures, and the runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean

from ...lab.comparison.formats import caption
from ...lab.comparison.pair import MethodPair
from ...lab.jobs.bundles import bundle_path
from ...lab.training.methods import METHODS
from ...statistics import Comparison
from ..evidence import Evidence, minutes_of, values_of
from ..plan import EXPERIMENTS, NETWORKS, PAIR, SETTINGS, Experiment
from ..verdicts.claims import Oddity, number_of, oddities_of, sections
from ..verdicts.numbers import VERDICTS, Answer, differences_of
from ..verdicts.statements import checked
from .blocks import Block, Folded, Heading, Items, Picture, Table, Words, folded, table
from .figures import A_FEW, OVER_SEVERITY, methods_picture, reliability_picture, severity_picture
from .precision import NAMES as PRECISIONS
from .precision import precision_answer, precision_part
from .tables import (
    NONE,
    difference_text,
    differences_table,
    effects_table,
    means_table,
    runs_table,
    shown,
    statistics_table,
    tally_cells,
)

RELIABILITY = ("table1", "extended", "wideresnet", "resnet50")
SEVERITY: dict[str, tuple[str, ...]] = dict.fromkeys(("corruption", "wideresnet", "resnet50"), OVER_SEVERITY)
SEVERITY |= {"extended": ("top1_accuracy", "loss", "ece")}

IMAGES = {"clean": "clean images", "shifted": "corrupted images", "after_temperature": "after temperature scaling"}
ANSWERED_ON = {"corruption": "shifted", "temperature": "after_temperature"}
"""Experiments whose answer is not about clean images."""
OWN_TOO: dict[str, tuple[str, ...]] = {
    "corruption": ("clean", "shifted"),
    "extended": ("clean", "shifted"),
    "wideresnet": ("shifted",),
    "resnet50": ("shifted",),
}
"""Experiments for which the paper has too few numbers, or none, and the images that they are shown on."""
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
        yield from _the_paper(experiment, evidence)
        images = ("clean", "shifted") if experiment.answers is None else OWN_TOO.get(experiment.name, ())
        yield from _own_tables(experiment, evidence, images)
        if experiment.name == "temperature":
            yield from _fitted_on_test(experiment, evidence)
        yield from pictures_of(experiment, evidence)
    yield Heading(2, "Runs")
    yield Words(_state(experiment, evidence))
    yield from _sources(experiment, evidence, records)


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

    Holm's correction is over the rows of the experiment's own table, so that both have the same verdict.
    """
    images, answer, found = ANSWERED_ON.get(experiment.name, "clean"), answer_of(experiment, evidence), {}
    ece, accuracy = (f"{images}.{metric}" for metric in ("ece", "top1_accuracy"))
    for method in experiment.methods[1:]:
        pair = evidence.pair(experiment, method)
        rows = {} if pair is None else differences_of(pair, shown(images))
        if answer is not None and pair is answer.pair and ece in answer.comparisons:
            rows |= answer.comparisons
        if pair is not None and ece in rows and accuracy in rows:
            found[name_of(experiment, method)] = pair, rows[ece], rows[accuracy]
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
        yield table(
            ("the paper, in our words", "our differences (95%)", "verdict", "if both were the same, reproduced in"),
            (
                [statement.words, found.reason, found.verdict, f"{found.without_effect.get('reproduced', 0.0):.0%}"]
                if found is not None
                else [statement.words, "–", NONE, "–"]
                for statement, found in statements
            ),
        )
    if answer is not None:
        yield from _numbers(answer)


def _numbers(answer: Answer) -> Iterator[Block]:
    yield Words(
        f"{caption(*answer.names)} “{answer.names[1]} is” is corrected for all rows by Holm's rule. “The paper's "
        "claim” follows from the interval alone, as the paper does not correct its p."
    )
    yield from folded("All differences, ours beside the paper's", differences_table(answer))
    statistics: list[Words | Table] = [statistics_table(answer)]
    if any(row.d for row in answer.section.rows):
        statistics.insert(0, Words("The paper prints d with the other sign, SGD − ⊥Grad."))
    yield Folded("Effect sizes and p", tuple(statistics))
    yield Folded("All means, ours beside the paper's", (means_table(answer),))
    if notes := oddities_of(answer.section.name):
        yield Words("Notes on the paper's numbers:")
        yield Items(tuple(map(_note, notes)))


def _note(note: Oddity) -> str:
    return f"[{number_of(note)}] {'' if note.is_remark else '**Contradicted by its own numbers.** '}{note.reason}"


def _own_tables(experiment: Experiment, evidence: Evidence, images: Sequence[str]) -> Iterator[Block]:
    """Every method beside the first, on clean or corrupted images or both, and a figure of several methods."""
    known, first = _by_title(experiment, evidence), names_of(experiment)[0]
    if images and known:
        yield Heading(2, "Our runs, metric by metric")
        if (picture := methods_picture(f"{experiment.name}-methods", known, first)) is not None:
            yield picture
        column, second = ("", next(iter(known))) if len(known) == 1 else ("method", "method")
        yield Words(
            f"{caption(first, second)} Intervals are paired by seed. p, Holm is corrected for the rows of a method."
        )
        yield from _effects(known, (column, first, second), "", images)
        on_top = {
            METHODS[method].title: evidence.pair(experiment, top, beside=method)
            for method, top in experiment.on_top.items()
        }
        yield from _effects(
            _with_enough(on_top), ("on top of", "without ⊥Grad", "with ⊥Grad"), ", ⊥Grad on top of a method", images
        )
    yield from _first_looks(experiment, evidence)


def _effects(
    pairs: Mapping[str, MethodPair], names: tuple[str, str, str], words: str, images: Sequence[str]
) -> Iterator[Block]:
    """A table for clean and for corrupted images, with the seeds where these differ between methods."""
    if len({len(pair.seeds) for pair in pairs.values()}) > 1:
        pairs = {f"{title}, {len(pair.seeds)} seeds": pair for title, pair in pairs.items()}
    for where in images:
        cases = {title: differences_of(pair, shown(where)) for title, pair in pairs.items()}
        if any(cases.values()):
            title = f"{IMAGES[where].capitalize()}{words}"
            made = effects_table(cases, names)
            yield from folded(title, made) if len(made.rows) > 12 else (Words(f"{title}:"), made)


def _first_looks(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """Methods with too few seeds for a test, run by run, beside all other methods' runs of the same seeds."""
    enough, runs = (
        _by_title(experiment, evidence),
        {method: evidence.method(experiment, method) for method in experiment.methods},
    )
    few = [method for method in experiment.methods[1:] if METHODS[method].title not in enough and runs[method]]
    seeds = {run["config"]["seed"] for method in few for run in runs[method]}
    if few:
        rows = (
            (f"{name_of(experiment, method)}, seed {run['config']['seed']}", run)
            for method, own in runs.items()
            for run in own
            if run["config"]["seed"] in seeds
        )
        yield Folded("Methods with fewer than three pairs, run by run", (runs_table(rows),))


def _by_title(experiment: Experiment, evidence: Evidence) -> dict[str, MethodPair]:
    """The methods with enough seeds for a comparison with the first, by their titles."""
    return _with_enough({METHODS[method].title: evidence.pair(experiment, method) for method in experiment.methods[1:]})


def _with_enough(pairs: Mapping[str, MethodPair | None]) -> dict[str, MethodPair]:
    return {title: pair for title, pair in pairs.items() if pair is not None and len(pair.seeds) >= A_FEW}


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


def _fitted_on_test(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """Temperatures fitted on held-out images beside those fitted on the test images."""
    rows = []
    for method in experiment.methods:
        done = evidence.method(experiment, method)
        runs = [run for run in done if run.get("after_temperature") and run.get("after_temperature_on_test")]
        if not runs:
            return
        for where in ("after_temperature", "after_temperature_on_test"):
            fits = [run[where] for run in runs]
            temperature = sum(fit["temperature"] for fit in fits) / len(fits)
            ece = sum(fit["metrics"]["ece"] for fit in fits) / len(fits)
            images = "held-out" if where == "after_temperature" else "test"
            rows.append([name_of(experiment, method), images, f"{temperature:.4f}", f"{ece:.4f}"])
    yield Heading(2, "Fitted on other images")
    yield Words(
        "Temperatures are fitted on 5,000 training images that the seed did not train on. The rows “test” are fitted "
        "on the test images themselves, as a limit; do not do that in practice."
    )
    yield table(("method", "fitted on", "temperature", "ECE after ↓"), rows)


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


def _sources(experiment: Experiment, evidence: Evidence, records: str | None) -> Iterator[Block]:
    """The command, its minutes, and links to the records."""
    minutes = minutes_of(evidence.runs(experiment))
    yield Words(f"`orthograd reproduce {experiment.name}` runs it again. Its runs took {minutes:.1f} minutes.")
    links = [
        f"[{method}{'' if setting == experiment.setting else f', {SETTINGS[setting].precision}'}]"
        f"({bundle_path(Path(records), setting, method).as_posix()})"
        for setting in experiment.settings(evidence.scale)
        for method in experiment.methods
        if records is not None and evidence.method(experiment, method, setting=setting)
    ]
    if links:
        yield Words(f"Records: {', '.join(links)}.")
