"""A measured number with its key, its target and the values of others in the same run; and records of these."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ..versions import versions

Row = dict[str, Any]

EPOCH, OVERHEAD = "epoch", "⊥Grad's epoch over SGD's"
CONVOLUTIONS, KERNELS = "convolutions alone in an epoch", "kernels of a step"
CORRUPTION, EVALUATION = "corruption", "evaluation on CIFAR-10-C"
UPDATE_COSINE = "|cos(Δ, w)|"
SEEDS_COST = "20 seeds over one"
"""Subjects of keys that tables and plans look up in records."""
EPOCH_IMAGES = 5000
"""Images in the measured epoch: a tenth of CIFAR-10."""


@dataclass(frozen=True)
class Key:
    """Description of a number. Parts that do not apply are empty; its text has the others, in this order.

    >>> print(Key("step", model="ResNet-18", optimizer="AdamW"))
    step, ResNet-18, AdamW
    >>> print(Key("epoch", model="resnet18", precision="bf16", method="baseline", concurrent=6, unit="s a run"))
    epoch, resnet18, bf16, baseline, 6 at once, s a run
    """

    what: str
    model: str = ""
    precision: str = ""
    optimizer: str = ""
    method: str = ""
    part: str = ""
    concurrent: int = 0
    """Runs that train at the same time."""
    setting: str = ""
    device: str = ""
    unit: str = ""

    def __str__(self) -> str:
        words = {**self.as_row(), **({"concurrent": f"{self.concurrent} at once"} if self.concurrent else {})}
        return ", ".join(words.values())

    def as_row(self) -> Row:
        """The parts that are not empty."""
        return {name: value for name, value in asdict(self).items() if value}


@dataclass(frozen=True)
class Claim:
    """A measured number.

    ``target`` is the upper bound for the value, if any. ``others`` are values of other implementations, or parts of the
    value. ``ends`` are the lowest and highest of several measurements.
    """

    key: Key
    value: float
    target: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    ends: tuple[float, float] | None = None

    @property
    def holds(self) -> bool:
        """True if the value is within the target; NaN is not."""
        return self.target is None or self.value <= self.target

    def as_row(self) -> Row:
        """The claim as plain data, for a record."""
        ends = {} if self.ends is None else {"ends": list(self.ends)}
        measured = {"value": self.value, "target": self.target, "others": dict(self.others), **ends}
        return {"key": self.key.as_row(), **measured, "holds": self.holds}

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Claim:
        """The claim of a row of a record.

        >>> claim = Claim(Key("extra memory", model="ResNet-18", unit="MiB"), 0.4, 1.0, ends=(0.3, 0.5))
        >>> Claim.from_row(claim.as_row()) == claim
        True
        """
        ends = row.get("ends")
        return cls(
            Key(**row["key"]), row["value"], row["target"], row["others"], None if ends is None else (ends[0], ends[1])
        )


def environment(device: torch.device) -> dict[str, str]:
    """Return the device, the threads and the versions that numbers are measured with."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU"
    return {"device": name, "threads": str(torch.get_num_threads()), **versions()}


def write_record(path: Path, claims: Iterable[Claim], facts: Mapping[str, str]) -> None:
    """Write claims and the environment they were measured in as JSON."""
    record = {"environment": dict(facts), "claims": [claim.as_row() for claim in claims]}
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_claims(path: Path) -> list[Claim]:
    """The claims of a record."""
    return [Claim.from_row(row) for row in json.loads(path.read_text(encoding="utf-8"))["claims"]]


def claims_about(path: Path, *whats: str) -> Iterator[Claim]:
    """The claims of a record that are about one of these."""
    return (claim for claim in read_claims(path) if claim.key.what in whats)


def interleaved(contenders: Mapping[str, Callable[[], object]], *, rounds: int, settle: Callable[[], None]) -> Row:
    """Median seconds of each contender; they take turns, so that a noisy machine affects all alike."""
    return {name: median(values) for name, values in turns(contenders, rounds=rounds, settle=settle).items()}


def turns(
    contenders: Mapping[str, Callable[[], object]], *, rounds: int, settle: Callable[[], None]
) -> dict[str, list[float]]:
    """Seconds of each contender in each round, after one round to warm up."""
    for run in contenders.values():
        run()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds):
        for name, run in contenders.items():
            seconds[name].append(elapsed(run, settle=settle))
    return seconds


def elapsed(work: Callable[[], object], *, settle: Callable[[], None]) -> float:
    """Seconds that the work takes; ``settle`` waits for the device."""
    settle()
    started = time.perf_counter()
    work()
    settle()
    return time.perf_counter() - started


def ratios(seconds: Row, baseline: str) -> Row:
    """Each contender's time over the baseline's."""
    return {name: value / seconds[baseline] for name, value in seconds.items() if name != baseline}
