"""The plan: what is trained, which runs each experiment consists of, and which numbers of the paper it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..lab.training.config import CHOICES, RECIPES, Config

PAPER = dataclasses.replace(RECIPES["cifar10"], device="cuda", precision="tf32", shifts="cifar10c")
"""ResNet-18 on 500 images a class for 100 epochs, as the paper has it."""

LIGHT = dataclasses.replace(PAPER, precision="bf16")
"""The same in half the time, where runs are long or many; what that changes is an experiment of its own."""

SETTINGS = {
    "resnet18": PAPER,
    "resnet18_1000_epochs": dataclasses.replace(LIGHT, epochs=1000),
    "resnet18_1000_epochs_unaugmented": dataclasses.replace(LIGHT, epochs=1000, augmentation="none"),
    "resnet18_1000_epochs_undecayed": dataclasses.replace(LIGHT, epochs=1000, weight_decay=0.0),
    "wide_resnet28_10": dataclasses.replace(LIGHT, model="wide_resnet28_10"),
    "resnet50": dataclasses.replace(LIGHT, model="resnet50"),
    # The usual rate and decay of AdamW: those of SGD mean something else there.
    "resnet18_adamw": dataclasses.replace(LIGHT, optimizer="adamw", learning_rate=0.001, weight_decay=0.01),
    "resnet18_cosine": dataclasses.replace(LIGHT, schedule="cosine"),
    "resnet18_all_labels": dataclasses.replace(LIGHT, labels_per_class=0),
    "resnet18_float32": dataclasses.replace(PAPER, precision="float32", shifts="none"),
    "resnet18_bf16": LIGHT,
    **{f"resnet18_{choice}": dataclasses.replace(LIGHT, last_batch=choice) for choice in CHOICES["last_batch"]},
}
"""By the names that files of records bear."""

NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "wide_resnet28_10": "WideResNet-28-10"}


@dataclass(frozen=True)
class Scale:
    """What to change in every setting for a smaller try; what is None stays as it is."""

    seeds: int | None = None
    epochs: int | None = None
    model: str | None = None
    dataset: str | None = None
    labels_per_class: int | None = None
    shifts: str | None = None
    device: str | None = None
    precision: str | None = None

    def applied(self, setting: str) -> Config:
        """The config of a setting at this scale."""
        given = {name: value for name, value in dataclasses.asdict(self).items() if value is not None}
        given.pop("seeds", None)
        if given.get("device") == "cpu":
            given.setdefault("precision", "float32")
        return dataclasses.replace(SETTINGS[setting], **given)

    @property
    def has_one_precision(self) -> bool:
        """Whether all settings are trained in the same one; a CPU has no other than float32."""
        return self.precision is not None or self.device == "cpu"

    @property
    def departures(self) -> list[str]:
        """What makes this another setting than the paper's, in words; a device, or its usual precision, does not.

        >>> Scale(epochs=2, model="cnn", device="cpu").departures
        ['epochs 2', 'model cnn']
        """
        return list(self._departures())

    def _departures(self) -> Iterator[str]:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name != "device" and (field.name, value) != ("precision", "tf32"):
                yield f"{field.name.replace('_', ' ')} {value}"


PAIR = ("baseline", "orthograd")
FOLLOWED = (PAIR, ("decay_conv_only", "decay_conv_only_orthograd"))
"""Experiments whose weight norms and training losses are followed: as usual, and with decay on convolutions only."""


@dataclass(frozen=True)
class Experiment:
    """Methods over seeds in one setting; the first method is what the others are compared with.

    ``answers`` names a section of claims.json. Experiments that share setting and method share their runs. The same
    methods in other precisions are further settings, ``in_other_precisions``, each with its number of seeds.
    """

    name: str
    title: str
    question: str
    setting: str
    seeds: int
    methods: tuple[str, ...] = PAIR
    answers: str | None = None
    is_of_the_paper: bool = False
    in_other_precisions: tuple[tuple[str, int], ...] = ()
    first_seed: int = 0

    @property
    def on_top(self) -> dict[str, str]:
        """Methods, and for each the same method with ⊥Grad on top: {"mixup": "mixup_orthograd"}."""
        with_it = {
            method.removesuffix("_orthograd"): method for method in self.methods if method.endswith("_orthograd")
        }
        return {method: with_it[method] for method in self.methods if method in with_it}

    def settings(self, scale: Scale | None = None) -> tuple[str, ...]:
        """All of them, the usual one first; where a scale has one precision, that is all there is."""
        return tuple(setting for setting, _ in self._settings(scale or Scale()))

    def configs(self, scale: Scale | None = None) -> Iterator[Config]:
        """Seed by seed, so that pairs are complete early."""
        scale = scale or Scale()
        bases = [(scale.applied(setting), scale.seeds or seeds) for setting, seeds in self._settings(scale)]
        for place in range(max(seeds for _, seeds in bases)):
            for base in (base for base, seeds in bases if place < seeds):
                seed = self.first_seed + place
                yield from (dataclasses.replace(base, method=method, seed=seed) for method in self.methods)

    def _settings(self, scale: Scale) -> tuple[tuple[str, int], ...]:
        """Each with its seeds."""
        return ((self.setting, self.seeds), *(() if scale.has_one_precision else self.in_other_precisions))


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "table1",
            "Table 1: ResNet-18",
            "Is the same network as accurate and less overconfident when trained with ⊥Grad?",
            "resnet18",
            20,
            answers="table1_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "temperature",
            "Temperature scaling",
            "What is left of the difference once one number, fitted afterwards, divides all logits?",
            "resnet18",
            20,
            answers="temperature_scaling_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "corruption",
            "Figure 1: corrupted images",
            "Does the difference persist as images get worse? The paper shows a figure and no numbers.",
            "resnet18",
            20,
            is_of_the_paper=True,
        ),
        Experiment(
            "renormalisation",
            "Renormalised or not",
            "Does it matter whether the projected gradient gets its length back?",
            "resnet18",
            10,
            ("orthograd", "orthograd_plain"),
            answers="renormalisation_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "extended",
            "1000 epochs",
            "What becomes of it when training goes on ten times as long? The paper has one seed and asks for more.",
            "resnet18_1000_epochs",
            5,
            answers="extended_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "wideresnet",
            "WideResNet-28-10",
            "Is it so for another, larger network?",
            "wide_resnet28_10",
            5,
            answers="wideresnet_28_10",
            is_of_the_paper=True,
        ),
        Experiment(
            "precision",
            "float32, TF32 and bf16",
            "Do numbers shift when the GPU multiplies less exactly? On clean images alone; runs in TF32 are table 1's.",
            "resnet18",
            20,
            in_other_precisions=(("resnet18_float32", 5), ("resnet18_bf16", 20)),
        ),
        Experiment("adamw", "AdamW as base", "Is it so when another optimizer takes the step?", "resnet18_adamw", 10),
        Experiment(
            "cosine",
            "A falling learning rate",
            "Is it so when the rate falls to zero, as is usual, and in the paper is not? Planned after the results had "
            "been seen.",
            "resnet18_cosine",
            10,
        ),
        Experiment(
            "resnet50",
            "ResNet-50",
            "Is it so for the network that the published code puts in the place of WideResNet-28-10? Its runs are held "
            "against that table's numbers too.",
            "resnet50",
            10,
            answers="wideresnet_28_10",
        ),
        Experiment(
            "resnet50_steps",
            "ResNet-50, other forms",
            "Are steps too large for ⊥Grad there? Its head ends longer than SGD's. Where the update itself is "
            "projected, with norms or without, it should not. Planned after the results had been seen.",
            "resnet50",
            5,
            (*PAIR, "orthograd_update", "orthograd_update_skip_1d"),
        ),
        Experiment(
            "layers",
            "Which layers carry the effect, ResNet-18",
            "How much of it is left when ⊥Grad acts on one kind of parameters alone?",
            "resnet18_bf16",
            10,
            (*PAIR, "orthograd_head", "orthograd_norm_weight", "orthograd_norm_bias", "orthograd_convolution"),
        ),
        Experiment(
            "layers_wideresnet",
            "Which layers carry the effect, WideResNet-28-10",
            "The same for the larger network.",
            "wide_resnet28_10",
            5,
            (*PAIR, "orthograd_head", "orthograd_norm_weight", "orthograd_norm_bias", "orthograd_convolution"),
        ),
        Experiment(
            "unaugmented",
            "1000 epochs without augmentation",
            "After 1000 epochs our networks are more accurate than the paper's. Do its numbers come out without flips "
            "and crops? Planned after the results had been seen.",
            "resnet18_1000_epochs_unaugmented",
            3,
            answers="extended_resnet18",
        ),
        Experiment(
            "undecayed",
            "1000 epochs without weight decay",
            "The same question without weight decay, and whether it is what makes ⊥Grad underconfident. Planned after "
            "the results had been seen.",
            "resnet18_1000_epochs_undecayed",
            3,
            answers="extended_resnet18",
        ),
        Experiment("full_data", "All 50,000 labels", "Is it so when labels are not scarce?", "resnet18_all_labels", 5),
        Experiment(
            "decay_conv_only",
            "All 50,000 labels, decay on convolutions only",
            "Is what ⊥Grad does there the doing of weight decay? With decay for convolutions alone, whose length "
            "changes nothing that the network says. Planned after the results had been seen.",
            "resnet18_all_labels",
            3,
            (*PAIR, "decay_conv_only", "decay_conv_only_orthograd"),
        ),
        Experiment(
            "decay_conv_only_table1",
            "Table 1, decay on convolutions only",
            "Does what ⊥Grad does in table 1 need weight decay, as what it does in many steps? Planned after the "
            "results had been seen.",
            "resnet18_bf16",
            10,
            (*PAIR, "decay_conv_only", "decay_conv_only_orthograd"),
        ),
        Experiment(
            "granularity",
            "What is orthogonal to what",
            "Tensor by tensor as in the paper, neuron by neuron, the model as one vector, or the update itself?",
            "resnet18_bf16",
            10,
            (*PAIR, "orthograd_update", "orthograd_row", "orthograd_model"),
        ),
        Experiment(
            "rivals",
            "What people otherwise do",
            "How does it compare with label smoothing, focal loss and mixup, and does it add to them?",
            "resnet18_bf16",
            10,
            (
                *PAIR,
                *(f"{name}{end}" for name in ("label_smoothing", "focal", "mixup") for end in ("", "_orthograd")),
            ),
        ),
        *(
            Experiment(
                f"last_batch_{choice}", f"The last batch {words}", question, f"resnet18_{choice}", seeds, first_seed=100
            )
            for choice, words, question, seeds in (
                (
                    "keep",
                    "kept",
                    "5,000 images in batches of 64 leave a last batch of 8. What does ⊥Grad change with it?",
                    20,
                ),
                ("drop", "dropped", "What does ⊥Grad change without the last batch of 8?", 20),
                ("first", "first", "Does it matter how near the small batch lies to the end of training?", 10),
                ("weighted", "weighted", "Does it matter how large a step the small batch takes?", 10),
                (
                    "running_statistics",
                    "with running statistics",
                    "Does it matter that the small batch has noisy batch statistics?",
                    10,
                ),
            )
        ),
    )
}

GROUPS = {
    "reliability": ("table1", "wideresnet"),
    "overtrained": ("extended",),
    "paper": tuple(name for name, experiment in EXPERIMENTS.items() if experiment.is_of_the_paper),
    "beyond": tuple(name for name, experiment in EXPERIMENTS.items() if not experiment.is_of_the_paper),
    "all": tuple(EXPERIMENTS),
}
"""Names for several experiments; the first two are figures, which need the runs of these."""


def named(*names: str) -> list[Experiment]:
    """The experiments of these names, which may be groups: in their order, none twice."""
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name not in EXPERIMENTS and name not in GROUPS:
            known = ", ".join((*EXPERIMENTS, *GROUPS))
            raise ValueError(f"expected an experiment among {known}, got {name}")
        chosen |= {each: EXPERIMENTS[each] for each in GROUPS.get(name, (name,))}
    return list(chosen.values())


def runs_in_order(experiments: Iterable[Experiment], scale: Scale) -> dict[str, list[Config]]:
    """The runs of each experiment that no earlier one has, by the experiment's name."""
    seen: set[Config] = set()
    runs: dict[str, list[Config]] = {}
    for experiment in experiments:
        runs[experiment.name] = [config for config in experiment.configs(scale) if config not in seen]
        seen.update(runs[experiment.name])
    return runs
