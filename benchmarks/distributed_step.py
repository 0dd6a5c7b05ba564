"""Claim: ⊥Grad adds two small all-reduces, less than 1 MiB and at most half again to an FSDP2 step of 2 processes.

The step is all of it but the network's arithmetic: FSDP's all-gather, its reduce-scatter of gradients, the optimizer.
With 1, 2 and 4 processes. Beside what was added to the optimizer's step stands what the cost model of docs/scale.md
predicts from three numbers that are measured without that step: the rate of passes over memory, the host's time for
a tensor, and an all-reduce.
"""

import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _record import conclude, parser
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

import orthograd
from orthograd.lab.bench.claim import Claim, Key, interleaved
from orthograd.lab.bench.step import peak, resnet18

ROUNDS, RECIPE = 15, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
CPU, SHAPES = torch.device("cpu"), list(resnet18())
PIECE = 1 << 20  # elements that stay in the last cache
LITTLE = 512  # elements of a tensor whose passes over memory do not count; most of ResNet-18's are no longer


class Weights(nn.Module):
    """Parameters of these shapes, those of ResNet-18 if not said, without any arithmetic."""

    def __init__(self, shapes: Sequence[tuple[int, ...]] = SHAPES) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes)
        self.gradients = [torch.randn(shape) * 0.02 for shape in shapes]

    def forward(self) -> Tensor:  # noqa: D102 - that of any module
        return torch.stack([(w * g).sum() for w, g in zip(self.weights, self.gradients, strict=True)]).sum()


def claims() -> Iterator[Claim]:
    for ranks in (2, 1, 4):
        values, target = measured(ranks), 1.5 if ranks == 2 else None
        key = partial(Key, model="ResNet-18", setting=f"{ranks} processes")
        names = {"optimizer's step alone": "optimizer", "ms without": "ms", "ms added": "added"}
        others = {title: values[name] for title, name in names.items()}
        yield Claim(key("FSDP2 step"), values["step"], target, others)
        parts = {name: values[name] for name in ("memory, ms", "host, ms", "all-reduces, ms")}
        ratio = sum(parts.values()) / values["added"]
        yield Claim(key("FSDP2 step, predicted over measured"), ratio, others=parts)
        yield Claim(key("collectives added"), values["collectives"], 2.0)
        memory = "extra memory per rank"
        yield Claim(key(memory, unit="MiB"), values["memory"], 1.0)
        parallel = key(f"{memory}, gradients nearly parallel to weights", unit="MiB")
        yield Claim(parallel, values["parallel_memory"], 1.0)
        yield Claim(key("one all-reduce of 62 × 2 numbers", unit="ms"), values["all-reduces, ms"] / 2)


def measured(ranks: int) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (ranks, port, folder), nprocs=ranks)
        return json.loads(Path(folder, "measured").read_text())  # type: ignore[no-any-return]


def _work(rank: int, ranks: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    values = _measured()
    if rank == 0:
        Path(folder, "measured").write_text(json.dumps(values))
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo may abort a Python that winds itself up (pytorch issue 190489)


def _measured() -> dict[str, float]:
    whole = {"base": _step(False), "⊥Grad": _step(True)}
    steps = interleaved({name: step for name, (step, _) in whole.items()}, rounds=ROUNDS, settle=dist.barrier)
    alone = {name: optimizer.step for name, (_, optimizer) in whole.items()}
    times = interleaved({**alone, **_parts()}, rounds=3 * ROUNDS, settle=dist.barrier)
    talk = {name: _collectives(step) for name, (step, _) in whole.items()}
    return {
        "step": steps["⊥Grad"] / steps["base"],
        "optimizer": times["⊥Grad"] / times["base"],
        "ms": 1e3 * steps["base"],
        "added": 1e3 * (times["⊥Grad"] - times["base"]),
        "collectives": float(talk["⊥Grad"] - talk["base"]),
        **_memory(),
        **_predicted(times),
    }


def _memory() -> dict[str, float]:
    """MiB for gradients in general position, and for such as are nearly parallel to their weights."""
    step, optimizer = _step(False)
    step()
    sharded = optimizer.param_groups[0]["params"]
    general = peak(CPU, lambda: orthograd.orthogonalize_(sharded))
    for parameter in sharded:
        parameter.grad = parameter.detach() * 3 + parameter.grad * 1e-4
    return {"memory": general, "parallel_memory": peak(CPU, lambda: orthograd.orthogonalize_(sharded))}


def _parts() -> dict[str, Callable[[], object]]:
    """What the cost model is made of, each for itself: memory without tensors, tensors without memory, all-reduces."""
    size = sum(torch.Size(shape).numel() for shape in SHAPES) // dist.get_world_size()
    gradient, weight = torch.randn(2, size)
    little = fully_shard(Weights([(min(LITTLE, torch.Size(shape).numel()),) for shape in SHAPES]))
    little().backward()
    parameters, sums = list(little.parameters()), torch.zeros(len(SHAPES), 2, dtype=torch.float64)

    def passes() -> None:
        for g, w in zip(gradient.split(PIECE), weight.split(PIECE), strict=True):
            for x, y in ((w, w), (g, g), (g, w)):  # the third from the cache
                torch.dot(x, y)
        gradient.add_(weight, alpha=1e-9)

    return {
        "nothing": lambda: None,
        "memory": passes,
        "host and all-reduces": lambda: orthograd.orthogonalize_(parameters),
        "all-reduce": lambda: dist.all_reduce(sums),
    }


def _predicted(times: dict[str, float]) -> dict[str, float]:
    """The terms of 5 b P / (N B) + T h + 2 α in ms; nothing of them is fitted to their sum."""
    ms = {name: 1e3 * (seconds - times["nothing"]) for name, seconds in times.items()}
    talk = 2 * ms["all-reduce"]
    return {"memory, ms": ms["memory"], "host, ms": ms["host and all-reduces"] - talk, "all-reduces, ms": talk}


def _step(orthogonal: bool) -> tuple[Callable[[], None], torch.optim.Optimizer]:
    model = fully_shard(Weights())
    optimizer = torch.optim.SGD(model.parameters(), **RECIPE)  # type: ignore[arg-type]
    if orthogonal:
        orthograd.attach(optimizer)

    def step() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    return step, optimizer


def _collectives(step: Callable[[], Any]) -> int:
    with CommDebugMode() as talk:
        step()
    return int(talk.get_total_counts())


if __name__ == "__main__":
    conclude(claims(), CPU, parser(__doc__).parse_args().record)
