"""What is trained, without arm and seed: the paper's recipe, and what each experiment changes in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from ..lab.training.config import RECIPES, Config

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
