"""Claim: ⊥Grad adds two small all-reduces, less than 1 MiB and at most 50% to an FSDP2 step of 2 processes.

The step is FSDP's all-gather, its reduce-scatter of gradients and the optimizer, without the network's arithmetic. It
is measured with 1, 2 and 4 processes. The cost added to the optimizer's step is compared with the cost model of
docs/scale.md, whose three numbers are measured without that step: memory bandwidth, host time per tensor, and the time
of an all-reduce.
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
PIECE = 1 << 20  # elements that fit the last-level cache
LITTLE = 512  # elements of a tensor that needs no memory bandwidth; most of ResNet-18's are no larger


class Weights(nn.Module):
    """Parameters of these shapes, by default those of ResNet-18, without a network's arithmetic."""

    def __init__(self, shapes: Sequence[tuple[int, ...]] = SHAPES) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape) * 0.02) for shape in shapes)
        self.gradients = [torch.randn(shape) * 0.02 for shape in shapes]

    def forward(self) -> Tensor:  # noqa: D102 - as in any module
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
    os._exit(0)  # threads of gloo may abort Python at exit (pytorch issue 190489)


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
    """MiB for random gradients, and for gradients nearly parallel to their weights."""
    step, optimizer = _step(False)
    step()
    sharded = optimizer.param_groups[0]["params"]
    general = peak(CPU, lambda: orthograd.orthogonalize_(sharded))
    for parameter in sharded:
        parameter.grad = parameter.detach() * 3 + parameter.grad * 1e-4
    return {"memory": general, "parallel_memory": peak(CPU, lambda: orthograd.orthogonalize_(sharded))}


def _parts() -> dict[str, Callable[[], object]]:
    """Parts of the cost model, each alone: memory without tensors, tensors without memory, all-reduces."""
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
    """Terms of 5 b P / (N B) + T h + 2 α in ms; none is fitted to their sum."""
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
