"""Claim: with concurrent runs, a step's convolutions are faster than cuDNN's. Needs a Hopper GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from _record import conclude, parser

from orthograd.lab.bench.claim import Claim, Key
from orthograd.lab.bench.convolutions import Alone, Step, by_cudnn, by_us, noise_of, operands, seconds
from orthograd.lab.kernels.eligible import backward_ways, is_convolution_fused
from orthograd.lab.networks import MODELS

NETWORKS = (
    ("resnet18", "bf16", torch.bfloat16, 6),
    ("resnet18", "tf32", torch.float32, 6),
    ("wide_resnet28_10", "bf16", torch.bfloat16, 3),
)
"""Networks, and the number of concurrent products."""
REPEATS, BATCH = 20, 64
PARTS = {"forward": (False, False), "input gradient": (True, False), "weight gradient": (False, True)}
"""Parts of a step, and whether they need the input gradient and the weight gradient."""


def measured() -> Iterator[Claim]:
    """Time of each product in a step over cuDNN's, and of all of these."""
    for name, precision, dtype, concurrent in NETWORKS:
        products = _products(name, dtype, concurrent)
        for (layer, part), times in products.items():
            key = Key("convolution over cuDNN's", model=name, precision=precision, part=part, setting=layer)
            yield Claim(key, times["ours"] / times["cuDNN"], others={"ours, µs": times["ours"]})
        together = {whose: sum(times[whose] for times in products.values()) for whose in ("ours", "cuDNN")}
        key = Key("all convolutions over cuDNN's", model=name, precision=precision)
        yield Claim(key, together["ours"] / together["cuDNN"], 1.0)


def _products(name: str, dtype: torch.dtype, concurrent: int) -> dict[tuple[str, str], dict[str, float]]:
    """Microseconds by layer and part, of orthograd's kernels and of cuDNN, where the former are used."""
    spent: dict[tuple[str, str], dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for layer, before, after in operands(MODELS[name]((3, 32, 32), 10), torch.zeros(BATCH, 3, 32, 32)):
        size, stride = layer.kernel_size[0], layer.stride[0]
        shape = f"{size} × {size}, stride {stride}, {before[1]} to {after[1]} channels"
        layer = layer.to("cuda", dtype)
        if not is_convolution_fused(layer, noise_of(before, dtype, "cuda")):
            continue
        are_ours = dict(zip(PARTS, (True, *backward_ways(layer, dtype)), strict=True))
        for part, wanted in PARTS.items():
            for whose, made in (("ours", by_us), ("cuDNN", by_cudnn)) if are_ours[part] else ():
                shapes = before, layer.weight.shape, after
                noise = ([noise_of(shape, dtype, "cuda") for shape in shapes] for _ in range(concurrent))
                runs = [_run(made(layer, *each, wanted), part) for each in noise]
                spent[shape, part][whose] += 1e6 * min(seconds(runs) for _ in range(3)) / (concurrent * REPEATS)
    return spent


def _run(steps: tuple[Step, Step], part: str) -> Alone:
    return Alone([steps[0] if part == "forward" else steps[1]] * REPEATS)


def main() -> None:
    """Measure, print, and write a record if asked for."""
    options = parser(__doc__).parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("expected a Hopper GPU, got none")
    torch.backends.cudnn.deterministic = True
    conclude(measured(), torch.device("cuda"), options.record)


if __name__ == "__main__":
    main()
