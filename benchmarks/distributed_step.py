"""Claim: ⊥Grad adds two small all-reduces, less than 1 MiB and at most half again to an FSDP2 step of 2 processes.

The step is all of it but the network's arithmetic: FSDP's all-gather, its reduce-scatter of gradients, the optimizer.
With 1, 2 and 4 processes, for the cost model of docs/scale.md.
"""

import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from _recorded import check
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.debug import CommDebugMode

import orthograd
from orthograd.benchmark.claim import Claim, interleaved
from orthograd.benchmark.memory import peak
from orthograd.benchmark.shapes import resnet18

ROUNDS, RECIPE = 15, {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
CPU = torch.device("cpu")


class Weights(nn.Module):
    """The parameters of ResNet-18, without its arithmetic."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(shape) * 0.02) for shape in resnet18())
        self.gradients = [torch.randn(shape) * 0.02 for shape in resnet18()]

    def forward(self) -> Tensor:  # noqa: D102 - that of any module
        return torch.stack([(w * g).sum() for w, g in zip(self.weights, self.gradients, strict=True)]).sum()


def claims() -> Iterator[Claim]:
    for ranks in (2, 1, 4):
        found = measured(ranks)
        where, bound = f"{ranks} processes, ResNet-18", ranks == 2
        yield Claim(
            f"FSDP2 step, {where}",
            found["step"],
            1.5 if bound else None,
            {"optimizer's step alone": found["optimizer"], "ms without": found["ms"], "ms added": found["added"]},
        )
        yield Claim(f"collectives added, {where}", found["collectives"], 2.0)
        yield Claim(f"extra memory per rank, {where}, MiB", found["memory"], 1.0)
        yield Claim(f"the same, gradients nearly parallel to weights, {where}, MiB", found["parallel_memory"], 1.0)
        yield Claim(f"one all-reduce of 62 × 2 numbers, {where}, ms", found["all_reduce"])


def measured(ranks: int) -> dict[str, float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_work, (ranks, port, folder), nprocs=ranks)
        return json.loads(Path(folder, "found").read_text())  # type: ignore[no-any-return]


def _work(rank: int, ranks: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    found = _measured()
    if rank == 0:
        Path(folder, "found").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def _measured() -> dict[str, float]:
    whole = {"base": _step(False), "⊥Grad": _step(True)}
    steps = interleaved({name: step for name, (step, _) in whole.items()}, rounds=ROUNDS, settle=dist.barrier)
    alone = interleaved({name: o.step for name, (_, o) in whole.items()}, rounds=ROUNDS, settle=dist.barrier)
    talk = {name: _collectives(step) for name, (step, _) in whole.items()}
    fresh, optimizer = _step(False)
    fresh()
    sharded = optimizer.param_groups[0]["params"]
    memory = peak(CPU, lambda: orthograd.orthogonalize_(sharded))
    for parameter in sharded:
        parameter.grad = parameter.detach() * 3 + parameter.grad * 1e-4
    sums = torch.zeros(len(resnet18()), 2, dtype=torch.float64)
    small = interleaved({"sum": lambda: dist.all_reduce(sums)}, rounds=50, settle=dist.barrier)
    return {
        "step": steps["⊥Grad"] / steps["base"],
        "optimizer": alone["⊥Grad"] / alone["base"],
        "ms": 1e3 * steps["base"],
        "added": 1e3 * (alone["⊥Grad"] - alone["base"]),
        "collectives": float(talk["⊥Grad"] - talk["base"]),
        "memory": memory,
        "parallel_memory": peak(CPU, lambda: orthograd.orthogonalize_(sharded)),
        "all_reduce": 1e3 * small["sum"],
    }


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
    check(claims())
