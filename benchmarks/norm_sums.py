"""Images per second of concurrent runs on a GPU, by size of the thread blocks that sum the channels of a norm."""

from __future__ import annotations

import dataclasses
from contextlib import ExitStack

import torch

from orthograd.lab.bench.claim import EPOCH_IMAGES
from orthograd.lab.bench.training import RECIPE, concurrent_slots, noise
from orthograd.lab.gpu.concurrency import epoch_of_all
from orthograd.lab.gpu.gpu import GPU
from orthograd.lab.kernels import fused_norm
from orthograd.lab.training.batches import Draws
from orthograd.lab.training.methods import method_named

ROUNDS = 3
CONCURRENT = {"resnet18": 6, "wide_resnet28_10": 3}
SIZES = [
    {},
    {"SHARE": 2**40},  # 256 thread blocks for any layer
    {"SHARE": 16384},
    {"SHARE": 4096, "PARTS": 256},
    {"SHARE": 16384, "SUMMED": (2048, 32, 4)},
]


def images_per_second(model: str, changes: dict[str, object]) -> float:
    """Images per second of all concurrent runs, SGD in bf16; the best of several epochs."""
    usual = {name: getattr(fused_norm, name) for name in changes}
    for name, value in changes.items():
        setattr(fused_norm, name, value)
    config, task = dataclasses.replace(RECIPE, model=model, precision="bf16"), noise()
    draws = Draws.of(config, method_named(config.method), len(task.labels), torch.Generator().manual_seed(0))
    try:
        with GPU(config.precision) as gpu, ExitStack() as lent:
            slots = concurrent_slots(gpu, config, config.method, task, CONCURRENT[model], lent)
            return EPOCH_IMAGES * len(slots) / min(epoch_of_all(slots, draws) for _ in range(ROUNDS))
    finally:
        for name, value in usual.items():
            setattr(fused_norm, name, value)


def main() -> None:
    """Print a line for each network and size; the defaults come first and again last."""
    if not torch.cuda.is_available():
        raise SystemExit("expected a CUDA device, got none")
    for model in CONCURRENT:
        for changes in (*SIZES, {}):
            print(f"{model:18s}{images_per_second(model, changes):8,.0f}  {changes or 'defaults'}", flush=True)


if __name__ == "__main__":
    main()
