"""Claim: twenty seeds side by side take at most 3 times as long as one on a GPU, and 8 times on two CPU cores.

Timed are steps of ⊥AdamW on modular addition, measurements left out, after a few for warm-up. One seed keeps two CPU
cores busy already, so that twenty cannot be much cheaper there. On an idle machine:

    python benchmarks/grokking_seeds.py --device cpu --record docs/results/grokking-seeds-cpu.json
"""

import torch
from _record import conclude, parser

from orthograd.lab.bench.claim import SEEDS_COST, Claim, Key, interleaved
from orthograd.paper.grokking.rows import ROWS
from orthograd.paper.grokking.training import WARM_UP, Training

TARGETS = {"cuda": 3.0, "cpu": 8.0}
SEEDS = 20


def seeds_cost(device, steps, rounds):
    trainings = {seeds: Training(ROWS["ortho_adamw"], range(seeds), device) for seeds in (1, SEEDS)}
    for training in trainings.values():
        training.advance(WARM_UP + 1)
    contenders = {str(seeds): lambda of=training: of.advance(steps) for seeds, training in trainings.items()}
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = interleaved(contenders, rounds=rounds, settle=settle)
    each = {f"ms a step of {seeds}": 1e3 * seconds[str(seeds)] / steps for seeds in trainings}
    key = Key(SEEDS_COST, model="MLP", setting="modular addition, full batch")
    yield Claim(key, seconds[str(SEEDS)] / seconds["1"], TARGETS[device.type], each)


if __name__ == "__main__":
    parsing = parser(__doc__)
    parsing.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parsing.add_argument("--threads", type=int, default=2, help="CPU threads; the target is for 2")
    options = parsing.parse_args()
    torch.set_num_threads(options.threads)
    chosen = torch.device(options.device)
    conclude(seeds_cost(chosen, *((100, 5) if chosen.type == "cuda" else (3, 9))), chosen, options.record)
