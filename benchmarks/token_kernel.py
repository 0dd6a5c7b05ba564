"""Time of the kernel for metrics of tokens by its tile, warps and stages, next to log_softmax: a table, no record.

python benchmarks/token_kernel.py [tokens]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from orthograd.calibration.fused import Tile, row_values

CLASSES = 50_304
TILES = [
    Tile(1, 512, 2, 1),
    Tile(1, 1024, 4, 1),
    Tile(1, 1024, 4, 2),
    Tile(1, 2048, 4, 1),
    Tile(1, 2048, 8, 1),
    Tile(1, 4096, 16, 1),
]


def milliseconds(run: Callable[[], object], rounds: int = 3) -> float:
    run()
    best = float("inf")
    for _ in range(rounds):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return best


def main(tokens: int) -> None:
    logits = torch.randn(tokens, CLASSES, device="cuda", dtype=torch.bfloat16).mul_(4)
    labels = torch.randint(CLASSES, (tokens,), device="cuda")
    base = milliseconds(lambda: logits.log_softmax(1))
    print(f"log_softmax {base:.2f} ms; maximum alone {milliseconds(lambda: logits.amax(1)):.2f} ms", flush=True)
    times = {tile: measured(logits, labels, tile, base) for tile in TILES}
    measured(logits, labels, min(times, key=lambda tile: times[tile]), base, with_variance=True)


def measured(logits: Tensor, labels: Tensor, tile: Tile, base: float, with_variance: bool = False) -> float:
    time = milliseconds(lambda: row_values(logits[None], labels, with_variance=with_variance, tile=tile))
    more = ", with the variance" if with_variance else ""
    print(f"{tile}{more}: {time:.2f} ms, {time / base:.2f} of log_softmax", flush=True)
    return time


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40_000)
