"""Claim: a Recorder that measures every 100th step adds at most 1% to the training time.

The recorder's hooks are timed alone, in turns with whole training steps: the difference of two steps would be lost in
noise. For docs/method.md, on an idle machine:

    python benchmarks/recorder_cost.py --device cpu --record docs/results/recorder-cost.json
"""

import torch
from _record import conclude, parser
from torch.nn.functional import cross_entropy

from orthograd.diagnosis import Recorder
from orthograd.lab.bench.claim import Claim, Key, interleaved
from orthograd.lab.networks import MODELS

TARGET, EVERY = 0.01, 100
# The networks of `orthograd compare` with their recipes' batches.
CASES = {"cnn": ((1, 8, 8), 32, 50), "cnn_batchnorm": ((1, 8, 8), 32, 50), "resnet18": ((3, 32, 32), 64, 3)}


def recorder_cost(device):
    return (_claim(name, device, *case) for name, case in CASES.items())


def _claim(name, device, shape, batch, rounds):
    model = MODELS[name](shape, 10).to(device).train()
    images, labels = torch.randn(batch, *shape, device=device), torch.randint(10, (batch,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, weight_decay=5e-4)

    def step():
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()
        optimizer.step()

    step()
    recorded = torch.optim.SGD(model.parameters(), lr=1e-3)  # the same parameters, but separate hooks
    recorder = Recorder(recorded, every=EVERY)
    (before,), (after,) = recorded._optimizer_step_pre_hooks.values(), recorded._optimizer_step_post_hooks.values()

    def hooks(number, count):
        recorder._step = number - 1
        for _ in range(count):
            before(recorded, (recorded,), {})
            after(recorded, (recorded,), {})

    contenders = {"step": step, "recorded": lambda: hooks(0, 1), "between": lambda: hooks(1, EVERY - 1)}
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = interleaved(contenders, rounds=rounds, settle=settle)
    shares = {part: seconds[part] / (EVERY * seconds["step"]) for part in ("recorded", "between")}
    key = Key(f"recorder every {EVERY} steps", model=name, setting=f"batch of {batch}")
    return Claim(key, sum(shares.values()), TARGET, shares)


if __name__ == "__main__":
    parsing = parser(__doc__)
    parsing.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parsing.add_argument("--threads", type=int, default=2, help="CPU threads; the target is for 2")
    options = parsing.parse_args()
    torch.set_num_threads(options.threads)
    chosen = torch.device(options.device)
    conclude(recorder_cost(chosen), chosen, options.record)
