"""Settings of a training run: on a CPU, the same config gives the same bits."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, get_type_hints

CHOICES = {
    "optimizer": ("sgd", "adamw"),
    "schedule": ("constant", "cosine"),
    "augmentation": ("none", "crop_flip"),
    "last_batch": ("keep", "drop", "first", "weighted", "running_statistics"),
    "shifts": ("none", "simple", "cifar10c"),
    "device": ("cpu", "cuda"),
    "precision": ("float32", "tf32", "bf16"),
}
UNNAMED = ("schedule", "last_batch")
"""Settings that plain data name only where they are not the first choice: older records do not know them."""


@dataclass(frozen=True)
class Config:
    """Settings of one run. The defaults are the paper's recipe on small images, with ten labels per class.

    ``dataset`` and ``model`` are names, or import paths such as "mypackage.nets:small". A data set's function takes no
    arguments, a model's takes (shape, classes). ``labels_per_class`` 0 means all labels. ``schedule`` is that of the
    learning rate: constant as in the paper, or cosine, which falls to zero. ``shifts`` are distribution shifts to
    evaluate on besides clean images. ``precision`` is that of the GPU's convolutions and matrix products; "tf32" is
    PyTorch's default there. A CPU computes in float32.

    ``last_batch`` is what happens to the last batch of an epoch where it is smaller than the others. "keep" trains on
    it as on any other, "drop" leaves it out. Three more separate what it does: "first" puts it at the beginning of the
    epoch, "weighted" multiplies its loss by its share of a whole batch, "running_statistics" trains on it with the
    running statistics of BatchNorm.
    """

    seed: int = 0
    method: str = "baseline"
    dataset: str = "digits"
    model: str = "cnn"
    labels_per_class: int = 10
    epochs: int = 300
    batch_size: int = 32
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    schedule: str = "constant"
    momentum: float = 0.9
    weight_decay: float = 5e-4
    augmentation: str = "none"
    shifts: str = "simple"
    device: str = "cpu"
    precision: str = "float32"
    last_batch: str = "keep"

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        for name in ("seed", "labels_per_class", "weight_decay", "momentum"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} not below 0, got {getattr(self, name)}")
        if self.momentum >= 1:
            raise ValueError(f"expected momentum below 1, got {self.momentum}")
        if not self.learning_rate > 0:
            raise ValueError(f"expected a learning_rate above 0, got {self.learning_rate}")
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"expected {name} among {', '.join(known)}, got {getattr(self, name)}")
        if self.device == "cpu" and self.precision != "float32":
            raise ValueError(f"expected precision float32 on the CPU, got {self.precision}")

    @property
    def network(self) -> Config:
        """This config with fixed method, seed and epochs: the same for all runs of a network."""
        return replace(self, method="baseline", seed=0, epochs=1)

    def rate_in(self, epoch: int) -> float:
        """Learning rate in an epoch, counted from 0; it is constant within the epoch.

        >>> [round(Config(epochs=4, learning_rate=1.0, schedule="cosine").rate_in(epoch), 3) for epoch in range(4)]
        [1.0, 0.854, 0.5, 0.146]
        """
        if self.schedule == "constant":
            return self.learning_rate
        return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2

    def as_dict(self) -> dict[str, Any]:
        """As plain data, in the order of the fields, but for what goes `UNNAMED`."""
        plain = asdict(self)
        return {name: value for name, value in plain.items() if name not in UNNAMED or value != CHOICES[name][0]}

    def batches_of(self, images: int) -> list[int]:
        """The sizes of an epoch's batches, in their order.

        >>> [Config(batch_size=4, last_batch=choice).batches_of(9) for choice in ("keep", "drop", "first")]
        [[4, 4, 1], [4, 4], [1, 4, 4]]
        """
        whole, rest = divmod(images, self.batch_size)
        sizes = [self.batch_size] * whole
        if self.last_batch == "drop" and not whole:
            raise ValueError(
                f"expected at least {self.batch_size} training images, one whole batch, where the last batch is "
                f"dropped, got {images}"
            )
        if not rest or self.last_batch == "drop":
            return sizes
        return [rest, *sizes] if self.last_batch == "first" else [*sizes, rest]

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """Config from the data of `as_dict`; unknown settings and wrong types raise ValueError.

        >>> Config.from_dict({"seed": 3, "method": "orthograd"}).seed
        3
        """
        known, types = {field.name for field in fields(cls)}, get_type_hints(cls)
        for name, value in data.items():
            if name not in known:
                raise ValueError(f"expected settings among {', '.join(sorted(known))}, got {name}")
            if type(value) is not types[name] and not (types[name] is float and type(value) is int):
                raise ValueError(f"expected {name} of {types[name].__name__}, got {value!r}")
        return cls(**{name: types[name](value) for name, value in data.items()})


RECIPES = {
    "digits": Config(),
    "cifar10": Config(
        dataset="cifar10",
        model="resnet18",
        labels_per_class=500,
        epochs=100,
        batch_size=64,
        augmentation="crop_flip",
        shifts="none",
    ),
    "modular_addition": Config(
        dataset="modular_addition",
        model="mlp_no_bias",
        labels_per_class=45,
        epochs=300,
        batch_size=5085,
        optimizer="adamw",
        weight_decay=0.0,
        shifts="none",
    ),
}
"""Default config of each data set; for CIFAR-10, the paper's recipe. Modular addition trains on one batch an epoch."""


def recipe(dataset: str) -> Config:
    """Default config of a built-in data set, or of one at an import path."""
    return RECIPES.get(dataset, replace(Config(), dataset=dataset))
