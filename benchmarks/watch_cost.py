"""Claim: measured beside the backward pass, ⊥Grad adds at most 3 % to an epoch, and less than measured by the step.

Needs a GPU. Packs of SGD and of ⊥Grad in both ways take turns; all are set up anew six times, and the median counts.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import torch
from _recorded import conclude, recording_parser

from orthograd.lab.bench.claim import Claim, ratios
from orthograd.lab.bench.training import RECIPE, SETS, concurrent_slots, noise, seconds_in_turns, turned
from orthograd.lab.gpu import QUEUES, step_plan
from orthograd.lab.gpu.gpu import GPU

NETWORKS = {"resnet18:bf16": 8, "resnet18:tf32": 6, "wide_resnet28_10:bf16": 2}
"""And how many train at once: as many as was fastest on an H200."""
NEVER = 2**63
WAYS = {
    "SGD": ("baseline", NEVER),
    "by the step": ("orthograd", NEVER),
    "beside the pass": ("orthograd", step_plan.LARGE),
}
"""Arms, and the size from which on gradients are measured in the backward pass."""


def measured(networks: list[str]) -> Iterator[Claim]:
    """Of each network ⊥Grad's epoch over SGD's, measured beside the pass, and by the step."""
    for network in networks:
        sets = [_seconds(network, turn) for turn in range(SETS)]
        found = [ratios(each, "SGD") for each in sets]
        beside, by_step = (sorted(each[way] for each in found) for way in ("beside the pass", "by the step"))
        what, middle = f"⊥Grad's epoch over SGD's, {network.replace(':', ', ')}", median(by_step)
        ends = {f"lowest of {SETS}": beside[0], f"highest of {SETS}": beside[-1]}
        sgd = median(each["SGD"] for each in sets)
        yield Claim(what, median(beside), 1.03, {**ends, "by the step": middle, "SGD, s a run": sgd})
        yield Claim(f"{what}: beside the pass over by the step", median(beside) / middle, 1.0)


def _seconds(network: str, turn: int) -> dict[str, float]:
    model, name = network.split(":")
    config, task = dataclasses.replace(RECIPE, model=model, precision=name), noise()
    with GPU(name) as gpu, ExitStack() as lent:
        gpu.drop_slots()  # what the last set has left
        slots = {}
        lent.callback(setattr, step_plan, "LARGE", step_plan.LARGE)
        for way in turned([*WAYS], turn):
            arm, step_plan.LARGE = WAYS[way]
            slots[way] = concurrent_slots(gpu, config, arm, task, NETWORKS[network], lent)
        seconds = seconds_in_turns(slots, task)
    print(f"{network}, set {turn + 1} of {SETS}, s a run: {seconds}", file=sys.stderr, flush=True)
    return seconds


def main() -> None:
    """Measure, print, and leave a record if asked for."""
    parser = recording_parser()
    choices = ", ".join(NETWORKS)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {choices}; all if none is given")
    options = parser.parse_args()
    if unknown := set(options.networks) - set(NETWORKS):
        raise SystemExit(f"expected networks of {choices}, got {', '.join(sorted(unknown))}")
    os.environ.setdefault(*QUEUES)  # before anything asks for a GPU
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA device, got none")
    conclude(measured(options.networks or list(NETWORKS)), torch.device("cuda"), options.record)


if __name__ == "__main__":
    main()
