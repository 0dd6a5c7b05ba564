"""All that decides how a run ends: the same config, the same bits on a CPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_type_hints


@dataclass(frozen=True)
class Config:
    """One run. The defaults are the paper's recipe on small images: a tenth of the labels, learned by heart.

    ``dataset`` and ``model`` are names, or import paths such as "mypackage.nets:small" of functions without
    arguments and of (shape, classes). ``labels_per_class`` 0 means all of them.
    """

    seed: int = 0
    arm: str = "baseline"
    dataset: str = "digits"
    model: str = "cnn"
    labels_per_class: int = 10
    epochs: int = 300
    batch_size: int = 32
    optimizer: str = "sgd"
    learning_rate: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 5e-4

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"expected {name} of at least 1, got {getattr(self, name)}")
        for name in ("seed", "labels_per_class", "weight_decay", "momentum"):
            if getattr(self, name) < 0:
                raise ValueError(f"expected {name} not below 0, got {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise ValueError(f"expected a learning_rate above 0, got {self.learning_rate}")

    def as_dict(self) -> dict[str, Any]:
        """As plain data, in the order of the fields."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Config:
        """The config that gave this data; what is unknown or of another kind raises.

        >>> Config.from_dict({"seed": 3, "arm": "orthograd"}).seed
        3
        """
        known, kinds = {field.name for field in fields(cls)}, get_type_hints(cls)
        for name, value in data.items():
            if name not in known:
                raise ValueError(f"expected settings among {', '.join(sorted(known))}, got {name}")
            if type(value) is not kinds[name] and not (kinds[name] is float and type(value) is int):
                raise ValueError(f"expected {name} of {kinds[name].__name__}, got {value!r}")
        return cls(**{name: kinds[name](value) for name, value in data.items()})
