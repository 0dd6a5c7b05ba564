"""The plan: the settings, the runs of each experiment, and the table of the paper that it answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ..lab.training.config import CHOICES, RECIPES, Config

PAPER = dataclasses.replace(RECIPES["cifar10"], device="cuda", precision="tf32", shifts="cifar10c")
"""The paper's recipe: ResNet-18, 500 images a class, 100 epochs."""

LIGHT = dataclasses.replace(PAPER, precision="bf16")
"""The same in bf16, in half the time, for long or many runs. The experiment "precision" compares both."""

SETTINGS = {
    "resnet18": PAPER,
    "resnet18_1000_epochs": dataclasses.replace(LIGHT, epochs=1000),
    "wide_resnet28_10": dataclasses.replace(LIGHT, model="wide_resnet28_10"),
    "resnet50": dataclasses.replace(LIGHT, model="resnet50"),
    # AdamW's usual rate and decay: SGD's mean something else there.
    "resnet18_adamw": dataclasses.replace(LIGHT, optimizer="adamw", learning_rate=0.001, weight_decay=0.01),
    "resnet18_all_labels": dataclasses.replace(LIGHT, labels_per_class=0),
    "resnet18_float32": dataclasses.replace(PAPER, precision="float32", shifts="none"),
    "resnet18_bf16": LIGHT,
    # AdamW's decay a step, learning rate × weight decay, equal to SGD's with momentum: 0.01 · 0.0005 / (1 − 0.9).
    "resnet18_adamw_matched": dataclasses.replace(LIGHT, optimizer="adamw", learning_rate=0.001, weight_decay=0.05),
    **{f"resnet18_{choice}": dataclasses.replace(LIGHT, last_batch=choice) for choice in CHOICES["last_batch"]},
    # 4,800 images fill all batches; 4,810 leave a last batch of 10.
    **{
        f"resnet18_batch{size}_{10 * labels}": dataclasses.replace(LIGHT, batch_size=size, labels_per_class=labels)
        for size in (50, 64, 100)
        for labels in (480, 481)
    },
}
SETTINGS |= {
    f"{name}_drop": dataclasses.replace(SETTINGS[name], last_batch="drop")
    for name in ("wide_resnet28_10", "resnet50", "resnet18_adamw", "resnet18_all_labels", "resnet18_1000_epochs")
}
"""By the names in the file names of records."""

NETWORKS = {"resnet18": "ResNet-18", "resnet50": "ResNet-50", "wide_resnet28_10": "WideResNet-28-10"}


@dataclass(frozen=True)
class Scale:
    """Changes to every setting for a smaller try; None changes nothing."""

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
        """True if all settings have the same precision; a CPU has only float32."""
        return self.precision is not None or self.device == "cpu"

    @property
    def departures(self) -> list[str]:
        """The changes that depart from the paper's setting, in words; a device or its usual precision does not.

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
"""Pairs whose weight norms and training losses are shown: all weight decay, and decay on convolutions only."""


@dataclass(frozen=True)
class Experiment:
    """Methods over seeds in one setting; the others are compared with the first.

    ``answers`` names a section of claims.json. Experiments that share setting and method share their runs.
    ``in_other_precisions`` are further settings with the same methods, each with its number of seeds.
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
        """All settings, the usual one first; only that one if a scale has one precision."""
        return tuple(setting for setting, _ in self._settings(scale or Scale()))

    def configs(self, scale: Scale | None = None) -> Iterator[Config]:
        """All configs, seed by seed, so that pairs are complete early."""
        scale = scale or Scale()
        bases = [(scale.applied(setting), scale.seeds or seeds) for setting, seeds in self._settings(scale)]
        for place in range(max(seeds for _, seeds in bases)):
            for base in (base for base, seeds in bases if place < seeds):
                seed = self.first_seed + place
                yield from (dataclasses.replace(base, method=method, seed=seed) for method in self.methods)

    def _settings(self, scale: Scale) -> tuple[tuple[str, int], ...]:
        """Each setting with its number of seeds."""
        return ((self.setting, self.seeds), *(() if scale.has_one_precision else self.in_other_precisions))


EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "table1",
            "Table 1: ResNet-18",
            "Is ResNet-18 as accurate, and less overconfident, when trained with ⊥Grad?",
            "resnet18",
            20,
            answers="table1_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "temperature",
            "Temperature scaling",
            "Is there a difference left after temperature scaling?",
            "resnet18",
            20,
            answers="temperature_scaling_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "corruption",
            "Figure 1: corrupted images",
            "Does the difference persist on corrupted images? The paper shows a figure and no numbers.",
            "resnet18",
            20,
            is_of_the_paper=True,
        ),
        Experiment(
            "renormalization",
            "Renormalization",
            "Does it matter whether the projected gradient gets its norm back?",
            "resnet18",
            10,
            ("orthograd", "orthograd_plain"),
            answers="renormalization_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "extended",
            "1000 epochs",
            "What happens when training is ten times as long? The paper has one seed.",
            "resnet18_1000_epochs",
            5,
            answers="extended_resnet18",
            is_of_the_paper=True,
        ),
        Experiment(
            "wideresnet",
            "WideResNet-28-10",
            "Does a larger network show the same effects?",
            "wide_resnet28_10",
            5,
            answers="wideresnet_28_10",
            is_of_the_paper=True,
        ),
        Experiment(
            "precision",
            "float32, TF32 and bf16",
            "Do results change with the precision of matrix products? Clean images only; the TF32 runs are table 1's.",
            "resnet18",
            20,
            in_other_precisions=(("resnet18_float32", 5), ("resnet18_bf16", 20)),
        ),
        Experiment(
            "adamw", "AdamW", "Does ⊥Grad have the same effects with AdamW as the base optimizer?", "resnet18_adamw", 10
        ),
        Experiment(
            "resnet50",
            "ResNet-50",
            "Does ⊥Grad have the same effects on the network that the published code builds instead of "
            "WideResNet-28-10?",
            "resnet50",
            10,
            answers="wideresnet_28_10",
        ),
        Experiment(
            "resnet50_steps",
            "ResNet-50, ⊥Grad of the update",
            "Post hoc: does ⊥Grad help ResNet-50 when the update itself is projected, with or without 1-D "
            "parameters? With ⊥Grad of the gradient, the norm of the head ends above SGD's.",
            "resnet50",
            5,
            (*PAIR, "orthograd_update", "orthograd_update_skip_1d"),
        ),
        Experiment(
            "layers",
            "Layers of ResNet-18",
            "How much of the effect remains when ⊥Grad acts on one layer type only?",
            "resnet18_bf16",
            10,
            (*PAIR, "orthograd_head", "orthograd_norm_weight", "orthograd_norm_bias", "orthograd_convolution"),
        ),
        Experiment(
            "layers_wideresnet",
            "Layers of WideResNet-28-10",
            "How much of the effect remains when ⊥Grad acts on one layer type only?",
            "wide_resnet28_10",
            5,
            (*PAIR, "orthograd_head", "orthograd_norm_weight", "orthograd_norm_bias", "orthograd_convolution"),
        ),
        Experiment(
            "full_data",
            "All 50,000 labels",
            "Does ⊥Grad have the same effects when labels are not scarce?",
            "resnet18_all_labels",
            5,
        ),
        Experiment(
            "decay_conv_only",
            "All labels, decay on convolutions only",
            "Post hoc: does weight decay cause ⊥Grad's underconfidence? Here only convolutions decay, and their "
            "norm does not change the output.",
            "resnet18_all_labels",
            3,
            (*PAIR, "decay_conv_only", "decay_conv_only_orthograd"),
        ),
        Experiment(
            "decay_conv_only_table1",
            "Table 1, decay on convolutions only",
            "Post hoc: do ⊥Grad's effects in table 1 need weight decay?",
            "resnet18_bf16",
            10,
            (*PAIR, "decay_conv_only", "decay_conv_only_orthograd"),
        ),
        Experiment(
            "granularity",
            "What is projected",
            "Which is projected: the gradient of each tensor, as in the paper, of each neuron, of the whole "
            "model, or the update?",
            "resnet18_bf16",
            10,
            (*PAIR, "orthograd_update", "orthograd_row", "orthograd_model"),
        ),
        Experiment(
            "rivals",
            "Label smoothing, focal loss, mixup",
            "Does ⊥Grad lower ECE more than label smoothing, focal loss or mixup, and does it add to them?",
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
        *(
            Experiment(
                f"batch{size}_{images}",
                f"Batches of {size}, {images[0]},{images[1:]} images",
                f"Does ⊥Grad's effect depend on the batch size, or on a last batch of 10 images? Here {end}.",
                f"resnet18_batch{size}_{images}",
                10,
                first_seed=100,
            )
            for size in (50, 64, 100)
            for images, end in (("4800", "there is none"), ("4810", "there is one"))
        ),
        *(
            Experiment(
                f"{name}_drop", f"{title}, last batch dropped", "Does dropping the last batch matter here?", setting, n
            )
            for name, title, setting, n in (
                ("adamw", "AdamW", "resnet18_adamw_drop", 10),
                ("resnet50", "ResNet-50", "resnet50_drop", 10),
                ("wideresnet", "WideResNet-28-10", "wide_resnet28_10_drop", 5),
                ("full_data", "All 50,000 labels", "resnet18_all_labels_drop", 5),
                ("extended", "1000 epochs", "resnet18_1000_epochs_drop", 5),
            )
        ),
        Experiment(
            "adamw_matched",
            "AdamW with SGD's decay",
            "Do the logits fall when AdamW decays weights as fast as SGD does? Its usual decay is a fifth of that.",
            "resnet18_adamw_matched",
            10,
        ),
        Experiment(
            "head_weight",
            "The weight of the last layer only",
            "How much of the effect remains when ⊥Grad acts on the last layer's weight, without its bias?",
            "resnet18_bf16",
            10,
            (*PAIR, "orthograd_head_weight"),
        ),
        Experiment(
            "limited_growth",
            "Limited growth",
            "Is it enough to limit the radial gradient, so that it can cancel weight decay and not outgrow it?",
            "resnet18_bf16",
            10,
            (*PAIR, "limited_growth"),
        ),
        Experiment(
            "limited_growth_all_labels",
            "Limited growth, all labels",
            "Does limited growth avoid ⊥Grad's underconfidence on all labels?",
            "resnet18_all_labels",
            5,
            (*PAIR, "limited_growth"),
        ),
        Experiment(
            "resnet50_late",
            "ResNet-50, ⊥Grad after some epochs",
            "Does ⊥Grad harm ResNet-50 in the first epochs only?",
            "resnet50",
            5,
            (*PAIR, "orthograd_after_5", "orthograd_after_10"),
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
"""Names for several experiments; the first two are figures, with the experiments that they need."""


def named(*names: str) -> list[Experiment]:
    """The experiments with these names or in these groups, in order, each once."""
    chosen: dict[str, Experiment] = {}
    for name in names:
        if name not in EXPERIMENTS and name not in GROUPS:
            known = ", ".join((*EXPERIMENTS, *GROUPS))
            raise ValueError(f"expected an experiment among {known}, got {name}")
        chosen |= {each: EXPERIMENTS[each] for each in GROUPS.get(name, (name,))}
    return list(chosen.values())


def runs_in_order(experiments: Iterable[Experiment], scale: Scale) -> dict[str, list[Config]]:
    """The runs of each experiment that no earlier one has, by the name of the experiment."""
    seen: set[Config] = set()
    runs: dict[str, list[Config]] = {}
    for experiment in experiments:
        runs[experiment.name] = [config for config in experiment.configs(scale) if config not in seen]
        seen.update(runs[experiment.name])
    return runs
