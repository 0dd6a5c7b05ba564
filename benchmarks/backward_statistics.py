"""Claim: with statistics from the backward pass, ⊥Grad adds at most 3% to an epoch, less than with those of the step.

Needs a GPU. Concurrent runs of SGD and of both variants of ⊥Grad take turns. All are set up six times; the value is
the median.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from statistics import median

import torch
from _record import conclude, parser

from orthograd.lab.bench.claim import Claim, Key, ratios
from orthograd.lab.bench.training import RECIPE, SETS, concurrent_slots, noise, overhead_key, seconds_in_turns, turned
from orthograd.lab.gpu import QUEUES, backward_statistics
from orthograd.lab.gpu.gpu import GPU
from orthograd.lab.training.config import Config

NETWORKS = {"resnet18:bf16": 8, "resnet18:tf32": 6, "wide_resnet28_10:bf16": 2}
"""Networks, and the number of concurrent runs that is fastest on an H200."""
NEVER = 2**63
WAYS = {
    "SGD": ("baseline", NEVER),
    "by the step": ("orthograd", NEVER),
    "beside the pass": ("orthograd", backward_statistics.LARGE),
}
"""Methods, and the smallest gradient that is measured in the backward pass."""


def measured(networks: list[str]) -> Iterator[Claim]:
    """⊥Grad's epoch over SGD's for each network, with gradients measured in the backward pass and in the step."""
    for network in networks:
        sets = [_seconds(network, turn) for turn in range(SETS)]
        overheads = [ratios(each, "SGD") for each in sets]
        beside, by_step = (sorted(each[way] for each in overheads) for way in ("beside the pass", "by the step"))
        others = {"by the step": median(by_step), "SGD, s a run": median(each["SGD"] for each in sets)}
        key = overhead_key(_config(network))
        yield Claim(key, median(beside), 1.03, others, ends=(beside[0], beside[-1]))
        way = "beside the pass over by the step"
        compared = Key("⊥Grad's epoch", model=key.model, precision=key.precision, method=way, setting=key.setting)
        yield Claim(compared, median(beside) / median(by_step), 1.0)


def _config(network: str) -> Config:
    model, precision_name = network.split(":")
    return dataclasses.replace(RECIPE, model=model, precision=precision_name)


def _seconds(network: str, turn: int) -> dict[str, float]:
    config, task = _config(network), noise()
    with GPU(config.precision) as gpu, ExitStack() as lent:
        slots = {}
        lent.callback(setattr, backward_statistics, "LARGE", backward_statistics.LARGE)
        for way in turned([*WAYS], turn):
            method, backward_statistics.LARGE = WAYS[way]
            slots[way] = concurrent_slots(gpu, config, method, task, NETWORKS[network], lent)
        seconds = seconds_in_turns(slots, task)
    print(f"{network}, set {turn + 1} of {SETS}, s a run: {seconds}", file=sys.stderr, flush=True)
    return seconds


def main() -> None:
    """Measure, print, and write a record if asked for."""
    parsing = parser(__doc__)
    choices = ", ".join(NETWORKS)
    parsing.add_argument("networks", nargs="*", metavar="NETWORK", help=f"among {choices}; by default all")
    options = parsing.parse_args()
    if unknown := set(options.networks) - set(NETWORKS):
        raise SystemExit(f"expected networks among {choices}, got {', '.join(sorted(unknown))}")
    os.environ.setdefault(*QUEUES)  # before CUDA is initialized
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA device, got none")
    conclude(measured(options.networks or list(NETWORKS)), torch.device("cuda"), options.record)


if __name__ == "__main__":
    main()
