"""What `orthograd bench` can measure, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .calibration import ece_drift, metrics_cost, temperature_excess, temperature_time, vector_time
from .cifar10c import corruption_time, evaluation_time
from .claim import Claim
from .exactness import residuals, update_cosines
from .loop import loop_cost
from .step import NETWORKS, extra_memory, graph_cost, step_cost, synchronizations
from .training import training_speed


@dataclass(frozen=True)
class Measurement:
    """Claims that are measured together, one by one: a long run shows its numbers as they come."""

    says: str
    measure: Callable[[torch.device, bool], Iterator[Claim]]
    """Takes the device, and whether it is to be quick: the smaller network, fewer rounds."""
    device: Literal["any", "cpu", "cuda"] = "any"
    has_quick_way: bool = True
    needs_frost: bool = False
    """Whether it corrupts images, for which photographs of frost must be there."""


def exactness(device: torch.device, quick: bool) -> Iterator[Claim]:
    """How orthogonal what ⊥Grad hands on is, and how well its norm is kept."""
    yield from residuals(device, sizes=(1_000, 100_000)) if quick else residuals(device)


def update(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """How orthogonal the update is, after momentum or Adam."""
    yield from update_cosines(seeds=1 if quick else 3)


def memory(device: torch.device, quick: bool) -> Iterator[Claim]:
    """What a projection allocates, and on a GPU how often it waits."""
    for network in _networks(quick):
        yield from extra_memory(device, networks=[network])
    if device.type == "cuda":
        yield from synchronizations()


def step(device: torch.device, quick: bool) -> Iterator[Claim]:
    """What ⊥Grad adds to a step, on a GPU also inside a CUDA graph."""
    rounds = 9 if quick else 25
    for network in _networks(quick):
        yield from step_cost(device, rounds=rounds, networks=[network])
    for network in _networks(quick) if device.type == "cuda" else ():
        yield from graph_cost(rounds=rounds, networks=[network])


def _networks(quick: bool) -> list[str]:
    return list(NETWORKS)[:1] if quick else list(NETWORKS)


def metrics(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """What the metrics of calibration cost."""
    yield from metrics_cost(samples=100_000, rounds=3) if quick else metrics_cost()


def temperature(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """How exact fitted temperatures are, and how long they and vector scaling take."""
    yield from temperature_excess(samples=1000) if quick else temperature_excess()
    yield from temperature_time(rounds=3) if quick else temperature_time()
    yield from vector_time(samples=1000, classes=100) if quick else vector_time()


def drift(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """How far an ECE over many samples is off."""
    yield from ece_drift(samples=4_000_000) if quick else ece_drift()


MEASUREMENTS = {
    "exactness": Measurement(
        "what ⊥Grad hands on is orthogonal to 1e-6 and as long as the gradient to 1e-4, however close to parallel",
        exactness,
    ),
    "update": Measurement(
        'under project="update" the update itself is orthogonal, where momentum or Adam undo project="gradient"',
        update,
    ),
    "memory": Measurement("a projection takes less than 1 MiB at any model size, and never waits for the GPU", memory),
    "step": Measurement(
        "a ⊥Grad step takes at most twice as long as the paper's SGD step (2.2 times inside a CUDA graph)", step
    ),
    "loop": Measurement(
        "what ⊥Grad adds to a whole training step in an ordinary loop; no bound",
        lambda device, quick: loop_cost(device, quick=quick),
    ),
    "metrics": Measurement(
        "four metrics of a million predictions take 0.3 of the time of plain torch", metrics, device="cpu"
    ),
    "temperature": Measurement(
        "a fitted temperature is within 1e-12 nats of the best, in half of scikit-learn's time; vector scaling of "
        "1,000 classes takes at most 3 times as long as torch's L-BFGS, which certifies nothing",
        temperature,
        device="cpu",
    ),
    "drift": Measurement("an ECE over forty million samples is right to 1e-9", drift, device="cpu"),
    "training": Measurement(
        "on an H200, ResNet-18 trains at 30,000 images a second (60,000 in bf16), ⊥Grad costing 3% at most; "
        "some ten minutes",
        lambda _device, _quick: training_speed(),
        device="cuda",
        has_quick_way=False,
    ),
    "corruption": Measurement(
        "CIFAR-10-C is made in five minutes by two CPU cores, in half a minute by an H200",
        lambda device, _quick: corruption_time(device),
        has_quick_way=False,
        needs_frost=True,
    ),
    "evaluation": Measurement(
        "on an H200, ResNet-18 predicts CIFAR-10-C within five seconds",
        lambda _device, _quick: evaluation_time(),
        device="cuda",
        has_quick_way=False,
        needs_frost=True,
    ),
}
GROUPS = {
    "optimizer": ("exactness", "update", "memory", "step"),
    "calibration": ("metrics", "temperature", "drift"),
}
"""Names for several at once."""


def chosen(names: Iterable[str]) -> list[str]:
    """Measurements by their names, or by those of groups, each once.

    >>> chosen(["drift", "calibration"])
    ['drift', 'metrics', 'temperature']
    """
    wanted = list(names)
    if unknown := [name for name in wanted if name not in MEASUREMENTS and name not in GROUPS]:
        raise ValueError(f"expected names of {', '.join([*GROUPS, *MEASUREMENTS])}, got {', '.join(unknown)}")
    return list(dict.fromkeys(each for name in wanted for each in GROUPS.get(name, (name,))))


def measured(names: Sequence[str], device: torch.device, *, quick: bool = False) -> Iterator[Claim]:
    """The claims of these measurements, as they come."""
    for name in names:
        yield from MEASUREMENTS[name].measure(device, quick)
