"""The part of the document that one experiment makes: numbers, statistics, words, figures, and where they are from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import mean

from ...lab.comparison.pair import MethodPair
from ...lab.training.methods import METHODS
from ..evidence import Evidence, values_of
from ..plan import EXPERIMENTS, NETWORKS, PAIR, SETTINGS, Experiment
from ..verdicts.claims import number_of, oddities_of, sections
from ..verdicts.numbers import Answer, differences_of
from ..verdicts.statements import checked
from .blocks import Block, Heading, Items, Picture, Words, table
from .figures import A_FEW, OVER_SEVERITY, methods_picture, reliability_picture, severity_picture
from .precision import NAMES as PRECISIONS
from .precision import precision_part
from .readings import other_readings
from .tables import differences_table, effects_table, means_table, runs_table, shown

RELIABILITY = ("table1", "extended", "wideresnet", "resnet50")
SEVERITY: dict[str, tuple[str, ...]] = dict.fromkeys(("corruption", "wideresnet", "resnet50"), OVER_SEVERITY)
SEVERITY |= {"extended": ("top1_accuracy", "loss", "ece")}

IMAGES = ("clean", "shifted")
OWN_TOO: dict[str, tuple[str, ...]] = {
    "corruption": IMAGES,
    "extended": IMAGES,
    "wideresnet": ("shifted",),
    "resnet50": ("shifted",),
}
"""Experiments of which the paper has too few numbers, or none, and on which images."""


def part_of(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """Everything about one experiment."""
    yield Heading(3, experiment.title)
    yield Words(f"{experiment.question} {_state(experiment, evidence)}")
    if experiment.in_other_precisions:
        yield from precision_part(
            experiment, evidence, {method: name_of(experiment, method) for method in experiment.methods}
        )
        return
    answer = answer_of(experiment, evidence)
    if answer is not None:
        yield from _numbers(experiment, answer)
    yield from _words(experiment, evidence)
    images = IMAGES if experiment.answers is None else OWN_TOO.get(experiment.name, ())
    if is_begun(experiment, evidence) and images:
        yield from _own_tables(experiment, evidence, images)
    yield from _underconfident(experiment, evidence)
    if experiment.name == "temperature":
        yield from _fitted_on_test(experiment, evidence)
    yield from pictures_of(experiment, evidence)


def is_begun(experiment: Experiment, evidence: Evidence) -> bool:
    """Whether it has runs of its own: SGD and ⊥Grad in the same setting may be there for another experiment."""
    own = [method for method in experiment.methods if method not in PAIR] or experiment.methods
    return any(evidence.method(experiment, method) for method in own)


def answer_of(experiment: Experiment, evidence: Evidence) -> Answer | None:
    """The table of the paper with our pair of methods.

    None for an experiment that the paper has no table of, or that holds one against it again and has no runs yet.
    """
    if experiment.answers is None or not (experiment.is_of_the_paper or is_begun(experiment, evidence)):
        return None
    return Answer(sections()[experiment.answers], evidence.pair(experiment), names_of(experiment))


def name_of(experiment: Experiment, method: str) -> str:
    """What people call a method; the one without anything has the name of its optimizer."""
    usual = {"sgd": "SGD", "adamw": "AdamW"}[SETTINGS[experiment.setting].optimizer]
    return usual if method == "baseline" else METHODS[method].title


def names_of(experiment: Experiment) -> tuple[str, str]:
    """The first two methods, which the paper's tables are about."""
    return name_of(experiment, experiment.methods[0]), name_of(experiment, experiment.methods[1])


def pictures_of(experiment: Experiment, evidence: Evidence) -> Iterator[Picture]:
    """The figures of an experiment for which there are records."""
    pair = evidence.pair(experiment)
    if pair is None:
        return
    names = names_of(experiment)
    pictures = []
    if experiment.name in SEVERITY:
        pictures.append(severity_picture(f"{experiment.name}-severity", pair, names, SEVERITY[experiment.name]))
    for kind in ("clean", "shifted") if experiment.name in RELIABILITY else ():
        pictures.append(reliability_picture(f"{experiment.name}-reliability-{kind}", pair, names, kind))
    yield from (picture for picture in pictures if picture is not None)


def _state(experiment: Experiment, evidence: Evidence) -> str:
    done, planned = evidence.done(experiment)
    config = evidence.scale.applied(experiment.setting)
    network = NETWORKS.get(config.model, config.model)
    if not done:
        return f"**Still missing: none of its {planned} runs is there.**"
    if not is_begun(experiment, evidence):
        return f"**Still missing: of its {planned} runs only {done} are there, which other experiments need too.**"
    whole = f"{planned} runs" if done == planned else f"**{done} of {planned} runs; the rest is still missing**"
    epochs = f"{config.epochs} epochs" if config.epochs > 1 else "one epoch"
    precision = "" if experiment.in_other_precisions or config.device == "cpu" else f", {PRECISIONS[config.precision]}"
    about = f"{_alone(experiment, evidence)}{_made_on(experiment, evidence)}"
    return f"{network}, {epochs}{precision}: {whole}, paired by seed{about}.{_left_out(experiment, evidence)}"


def _left_out(experiment: Experiment, evidence: Evidence) -> str:
    """Of the runs that others have in the same setting: a part of the seeds may look otherwise than all of them."""
    parts = []
    for method in experiment.methods:
        own, known = len(evidence.method(experiment, method)), len(evidence.of_setting(experiment.setting, method))
        if 0 < own < known:
            parts.append(f"of {name_of(experiment, method)} {own} of {known} seeds")
    return f" Seeds that only other experiments ask for are left out: here are {', '.join(parts)}." if parts else ""


def _alone(experiment: Experiment, evidence: Evidence) -> str:
    """Of the runs that have no partner, which tables of pairs leave out: a mean may look better or worse for it."""
    first, *others = (
        [run["config"]["seed"] for run in evidence.method(experiment, method)] for method in experiment.methods
    )
    seeds = {seed for method in others for seed in method}
    alone = [f"{name_of(experiment, experiment.methods[0])}, seed {seed}" for seed in first if seed not in seeds]
    for method, having in zip(experiment.methods[1:], others, strict=True):
        alone += [f"{name_of(experiment, method)}, seed {seed}" for seed in having if seed not in first]
    if not alone or experiment.in_other_precisions:
        return ""
    return f" (in no table of pairs, for want of a partner: {'; '.join(alone)})"


def _made_on(experiment: Experiment, evidence: Evidence) -> str:
    """Machines, versions, and whether corrupted images are the published ones or made here."""
    runs = evidence.runs(experiment)
    machines = {run["hardware"].get("gpu") or run["hardware"]["machine"] for run in runs}
    versions = {f"torch {run['versions']['torch']}" for run in runs}
    images = {f"{run['shifts']} corrupted images" for run in runs if run.get("shifts", "none") != "none"}
    if experiment.in_other_precisions:
        images.clear()  # compared on clean ones alone
    return "".join(f", {word}" for word in (*sorted(machines), *sorted(versions), *sorted(images)))


def _numbers(experiment: Experiment, answer: Answer) -> Iterator[Block]:
    yield means_table(answer)
    differences = differences_table(answer)
    if differences is not None:
        yield differences
    if notes := oddities_of(answer.section.name):
        yield Items(tuple(f"[{number_of(note)}] {note.reason}" for note in notes))
    if experiment.name == "table1":
        yield from other_readings(answer)


def _words(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    rows = [
        [statement.words, statement.rule, reason, verdict]
        for statement, (verdict, reason) in checked(evidence, experiment.name)
    ]
    if rows:
        yield table(("the paper, in our words", "checked by", "found", "verdict"), rows)


def _own_tables(experiment: Experiment, evidence: Evidence, images: Sequence[str]) -> Iterator[Block]:
    """Every method beside the first, on clean images, corrupted ones or both; several of them in a picture, too."""
    known = _by_title(experiment, evidence)
    if (picture := methods_picture(f"{experiment.name}-methods", known, names_of(experiment)[0])) is not None:
        yield picture
    yield from _effects(known, ("method", names_of(experiment)[0], "this method"), "test images", images)
    on_top = {
        METHODS[method].title: evidence.pair(experiment, top, beside=method)
        for method, top in experiment.on_top.items()
    }
    names = ("on top of", "without ⊥Grad", "with ⊥Grad")
    words = "test images, methods with ⊥Grad on top beside the same without"
    yield from _effects(_with_enough(on_top), names, words, images)
    yield from _first_looks(experiment, evidence)


def _effects(
    pairs: Mapping[str, MethodPair], names: tuple[str, str, str], words: str, images: Sequence[str]
) -> Iterator[Block]:
    """A table for each kind of images, where there is anything; with seeds, where these differ."""
    if len({len(pair.seeds) for pair in pairs.values()}) > 1:
        pairs = {f"{title}, {len(pair.seeds)} seeds": pair for title, pair in pairs.items()}
    for kind in images:
        cases = {title: differences_of(pair, shown(kind)) for title, pair in pairs.items()}
        if any(cases.values()):
            yield Words(f"{'Clean' if kind == 'clean' else 'Corrupted'} {words}:")
            yield effects_table(cases, names)


def _first_looks(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """Methods with too few seeds for a test, run by run, beside all other methods' runs of the same seeds."""
    enough, runs = (
        _by_title(experiment, evidence),
        {method: evidence.method(experiment, method) for method in experiment.methods},
    )
    few = [method for method in experiment.methods[1:] if METHODS[method].title not in enough and runs[method]]
    seeds = {run["config"]["seed"] for method in few for run in runs[method]}
    if few:
        yield Words(
            "Methods with fewer than three pairs so far, of which a test could say little, and others of their seeds:"
        )
        yield runs_table(
            (f"{name_of(experiment, method)}, seed {run['config']['seed']}", run)
            for method, own in runs.items()
            for run in own
            if run["config"]["seed"] in seeds
        )


def _by_title(experiment: Experiment, evidence: Evidence) -> dict[str, MethodPair]:
    """The methods that can be compared with the first, by their titles."""
    return _with_enough({METHODS[method].title: evidence.pair(experiment, method) for method in experiment.methods[1:]})


def _with_enough(pairs: Mapping[str, MethodPair | None]) -> dict[str, MethodPair]:
    """Those of which a test can say something."""
    return {title: pair for title, pair in pairs.items() if pair is not None and len(pair.seeds) >= A_FEW}


def _underconfident(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """The methods whose networks are underconfident, which ECE does not tell from overconfidence."""
    for method in experiment.methods if is_begun(experiment, evidence) else ():
        runs = evidence.method(experiment, method)
        confidence, accuracy = (values_of(runs, f"clean.{name}") for name in ("max_softmax", "top1_accuracy"))
        is_first = experiment is _first_with(experiment.setting, method)
        if len(runs) < 2 or not (is_first and confidence and accuracy):
            continue
        if all(sure < right / 100 for sure, right in zip(confidence, accuracy, strict=True)):
            claim, stress = f"{name_of(experiment, method)} is underconfident", "**" * (len(runs) >= A_FEW)
            yield Words(
                f"{stress}{claim}{stress} on clean images: confidence {mean(confidence):.3f}, "
                f"share of right answers {mean(accuracy) / 100:.3f}; the former is lower in each of the {len(runs)} "
                "runs. ECE does not tell that from overconfidence."
            )


def _first_with(setting: str, method: str) -> Experiment:
    """Of the experiments that share these runs."""
    return next(each for each in EXPERIMENTS.values() if each.setting == setting and method in each.methods)


def _fitted_on_test(experiment: Experiment, evidence: Evidence) -> Iterator[Block]:
    """Whether it matters which images the temperature was fitted on."""
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
    yield Words(
        "Temperatures are fitted on 5,000 training images that the seed did not learn from. Fitted on the test images "
        "themselves, which nobody should do, they come out so:"
    )
    yield table(("method", "fitted on", "temperature", "ECE after"), rows)
