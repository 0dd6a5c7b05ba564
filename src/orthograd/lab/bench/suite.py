"""Measurements of `orthograd bench`, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from .calibration import ece_drift, metrics_cost, metrics_error, temperature_excess, temperature_time, vector_time
from .cifar10c import corruption_time, evaluation_time
from .claim import Claim
from .exactness import residuals, update_cosines
from .large_logits import maps_cost, tokens_cost
from .loop import loop_cost
from .step import LARGE, NETWORKS, extra_memory, fused_cost, graph_cost, step_cost, synchronizations
from .training import training_speed


@dataclass(frozen=True)
class Measurement:
    """A function that yields claims one by one, so that a long run can show them as they come."""

    says: str
    measure: Callable[[torch.device, bool], Iterator[Claim]]
    """Takes the device and ``quick``: only the smaller network, fewer rounds."""
    device: Literal["any", "cpu", "cuda"] = "any"
    has_quick_way: bool = True
    needs_frost: bool = False
    """True if it makes corrupted images, which needs the photographs of frost."""


def exactness(device: torch.device, quick: bool) -> Iterator[Claim]:
    """Orthogonality and norm of the projected gradient."""
    yield from residuals(device, sizes=(1_000, 100_000)) if quick else residuals(device)


def update(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """Orthogonality of the update, after momentum or Adam."""
    yield from update_cosines(seeds=1 if quick else 3)


def memory(device: torch.device, quick: bool) -> Iterator[Claim]:
    """Memory that a projection allocates, and on a GPU its synchronizations."""
    for network in _networks(quick):
        yield from extra_memory(device, networks=[network])
    if device.type == "cuda":
        yield from synchronizations()


def step(device: torch.device, quick: bool) -> Iterator[Claim]:
    """Cost of ⊥Grad in a step, on a GPU also inside a CUDA graph."""
    rounds = 9 if quick else 25
    for network in _networks(quick):
        yield from step_cost(device, rounds=rounds, networks=[network])
    for network in _networks(quick) if device.type == "cuda" else ():
        yield from graph_cost(rounds=rounds, networks=[network])


def fused(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """Cost of a fused step, from Python and in a CUDA graph."""
    for network in _networks(True) if quick else [*NETWORKS, LARGE]:
        yield from fused_cost(rounds=9 if quick else 15, networks=[network])


def _networks(quick: bool) -> list[str]:
    return list(NETWORKS)[:1] if quick else list(NETWORKS)


def metrics(device: torch.device, quick: bool) -> Iterator[Claim]:
    """Cost of calibration metrics: of maps everywhere, of tokens on a GPU, of other logits on a CPU."""
    if device.type == "cuda":
        yield from tokens_cost(device, tokens=20_000, batch=5_000, rounds=3) if quick else tokens_cost(device)
    else:
        yield from _metrics_on_cpu(quick)
    images = 2 if quick else 32 if device.type == "cuda" else 4
    yield from maps_cost(device, images=images, rounds=1 if quick else 5)


def _metrics_on_cpu(quick: bool) -> Iterator[Claim]:
    yield from metrics_cost(samples=100_000, rounds=3) if quick else metrics_cost()
    yield from (
        metrics_cost(samples=2_000, classes=1_000, rounds=3)
        if quick
        else metrics_cost(samples=50_000, classes=1_000, rounds=5)
    )
    yield from metrics_error(samples=2_000 if quick else 20_000)


def temperature(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """Accuracy of fitted temperatures, and time of temperature and vector scaling."""
    yield from temperature_excess(samples=1000) if quick else temperature_excess()
    yield from temperature_time(rounds=3) if quick else temperature_time()
    yield from vector_time(samples=1000, classes=100) if quick else vector_time()


def drift(_device: torch.device, quick: bool) -> Iterator[Claim]:
    """Error of an ECE over many samples."""
    yield from ece_drift(samples=4_000_000) if quick else ece_drift()


MEASUREMENTS = {
    "exactness": Measurement(
        "the projected gradient is orthogonal to 1e-6 and keeps its norm to 1e-4, even for nearly parallel gradients",
        exactness,
    ),
    "update": Measurement(
        'with project="update" the update is orthogonal, also with momentum or Adam, which undo project="gradient"',
        update,
    ),
    "memory": Measurement(
        "a projection takes less than 1 MiB for any model size and never synchronizes with the GPU", memory
    ),
    "step": Measurement(
        "a ⊥Grad step takes at most twice as long as the paper's SGD step (2.2 times inside a CUDA graph)", step
    ),
    "fused": Measurement(
        "a step of orthograd.optim.SGD takes at most 1.5 times as long as torch's fused one, of AdamW 1.35 times",
        fused,
        device="cuda",
    ),
    "loop": Measurement(
        "a whole training step of ResNet-50, ViT-S or GPT-2 small takes at most 1.02 times as long with ⊥Grad",
        lambda device, quick: loop_cost(device, quick=quick),
    ),
    "metrics": Measurement(
        "four metrics of a million predictions, or of ImageNet's, take 0.3 of the time of plain torch; of many classes "
        "they are right to 1e-9; on a GPU, those of a million tokens take 1.5 times as long as log_softmax",
        metrics,
    ),
    "temperature": Measurement(
        "a fitted temperature is within 1e-12 nats of the best, in half of scikit-learn's time; vector scaling of "
        "1,000 classes takes at most 3 times as long as torch's L-BFGS, which certifies nothing",
        temperature,
        device="cpu",
    ),
    "drift": Measurement("an ECE over forty million samples is right to 1e-9", drift, device="cpu"),
    "training": Measurement(
        "on an H200, ResNet-18 trains at 30,000 images per second (60,000 in bf16), and ⊥Grad costs at most 3%; "
        "takes about ten minutes",
        lambda _device, _quick: training_speed(),
        device="cuda",
        has_quick_way=False,
    ),
    "corruption": Measurement(
        "two CPU cores make CIFAR-10-C in five minutes, an H200 in half a minute",
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
"""Names of several measurements."""


def chosen(names: Iterable[str]) -> list[str]:
    """Names of measurements, with groups expanded and duplicates removed.

    >>> chosen(["drift", "calibration"])
    ['drift', 'metrics', 'temperature']
    """
    wanted = list(names)
    if unknown := [name for name in wanted if name not in MEASUREMENTS and name not in GROUPS]:
        raise ValueError(f"expected names of {', '.join([*GROUPS, *MEASUREMENTS])}, got {', '.join(unknown)}")
    return list(dict.fromkeys(each for name in wanted for each in GROUPS.get(name, (name,))))


def measured(names: Sequence[str], device: torch.device, *, quick: bool = False) -> Iterator[Claim]:
    """Claims of these measurements, one by one."""
    for name in names:
        yield from MEASUREMENTS[name].measure(device, quick)
