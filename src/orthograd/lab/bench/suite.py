"""All claims, in order, one by one: a long run shows its figures as they come."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from functools import partial

import torch

from .claim import Claim
from .corruption import corruption_time
from .cost import graph_cost, step_cost
from .evaluation import ece_drift, evaluation_cost
from .memory import extra_memory, synchronisations
from .precision import precision
from .radial import update_cosines
from .temperature import temperature_excess, temperature_time, vector_time
from .training import judging_speed, training_speed


def measure(device: torch.device, *, quick: bool = False) -> Iterator[Claim]:
    """Every claim that can be measured on a device."""
    networks = ["ResNet-18"] if quick else ["ResNet-18", "GPT-2 small"]
    rounds = 9 if quick else 25
    yield from precision(device, sizes=(1_000, 100_000)) if quick else precision(device)
    yield from update_cosines(seeds=1 if quick else 3)
    for network in networks:
        yield from extra_memory(device, networks=[network])
    if device.type == "cuda":
        yield from synchronisations()
    costs = [partial(step_cost, device, rounds=rounds)]
    if device.type == "cuda":
        costs.append(partial(graph_cost, rounds=rounds))
    for cost in costs:
        for network in networks:
            yield from cost(networks=[network])


def measure_calibration(*, quick: bool = False) -> Iterator[Claim]:
    """Every claim about measuring and repairing calibration; they are about CPUs."""
    yield from evaluation_cost(samples=100_000, rounds=3) if quick else evaluation_cost()
    yield from temperature_excess(samples=1000) if quick else temperature_excess()
    yield from temperature_time(rounds=3) if quick else temperature_time()
    yield from vector_time(samples=1000, classes=100) if quick else vector_time()
    yield from ece_drift(samples=4_000_000) if quick else ece_drift()


def measure_training() -> Iterator[Claim]:
    """How fast runs are trained on a GPU."""
    yield from training_speed()


def measure_judging(device: torch.device) -> Iterator[Claim]:
    """How long making CIFAR-10-C takes, and on a GPU how long it takes a network to answer for it."""
    yield from judging_speed() if device.type == "cuda" else corruption_time()


def environment(device: torch.device) -> dict[str, str]:
    """What the figures were measured on."""
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU"
    return {
        "device": name,
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
