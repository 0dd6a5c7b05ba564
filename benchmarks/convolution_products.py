"""Claim: in packs, a step's convolutions of ResNet-18 in bf16 take our kernels less than cuDNN. Needs a Hopper GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import torch
from _recorded import conclude, recording_parser

from orthograd.benchmark.claim import Claim
from orthograd.benchmark.convolutions import Alone, Step, by_cudnn, by_us, noise_of, operands, seconds
from orthograd.models import resnet18
from orthograd.models.convolution import is_fused

PACK, REPEATS, BATCH = 6, 20, 64
KINDS = {"forward": (False, False), "back": (True, False), "weights": (False, True)}
"""And whether the slopes of images and of weights are wanted."""


def measured() -> Iterator[Claim]:
    """Of each kind of product all that a step has of them, over what cuDNN takes for these."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for layer, before, after in operands(resnet18((3, 32, 32), 10), torch.zeros(BATCH, 3, 32, 32)):
        size, stride = layer.kernel_size[0], layer.stride[0]
        what = f"{size} × {size}, stride {stride}, {before[1]} to {after[1]} channels"
        layer = layer.bfloat16().cuda()
        for kind, wanted in KINDS.items():
            if kind == "back" and before[1] == 3:
                continue  # images need no slopes
            for name, made in (("ours", by_us), ("cuDNN", by_cudnn)):
                pack = []
                for _ in range(PACK):
                    x, w, slope = (
                        noise_of(shape, torch.bfloat16, "cuda") for shape in (before, layer.weight.shape, after)
                    )
                    assert is_fused(layer, x)
                    forth, back = made(layer, x, w, slope, wanted)
                    step: Step = forth if kind == "forward" else back
                    pack.append(Alone([step] * REPEATS))
                found[f"{what}, {kind}"][name] += 1e6 * min(seconds(pack) for _ in range(3)) / (PACK * REPEATS)
    for what, times in found.items():
        yield Claim(f"{what}: ours over cuDNN's", times["ours"] / times["cuDNN"], others={"ours, µs": times["ours"]})
    together = {name: sum(times[name] for times in found.values()) for name in ("ours", "cuDNN")}
    yield Claim("all of a step: ours over cuDNN's", together["ours"] / together["cuDNN"], 1.0)


def main() -> None:
    """Measure, print, and leave a record if asked for."""
    options = recording_parser().parse_args()
    if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
        raise SystemExit("expected a CUDA device of the Hopper kind, got none")
    torch.backends.cudnn.deterministic = True
    conclude(measured(), torch.device("cuda"), options.record)


if __name__ == "__main__":
    main()
