"""How much longer a step takes with ⊥Grad."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import SGD, AdamW, Optimizer

from ...optimizer import attach
from .claim import Claim, interleaved, ratios
from .peers import available
from .shapes import NETWORKS, parameters

# The paper's optimizer, at a rate that turns the weights: each step finds a gradient that is not orthogonal yet.
RECIPE: dict[str, Any] = {"lr": 1e-3, "momentum": 0.9, "weight_decay": 5e-4}
# CPU: ≤ 2.0 over SGD. CUDA: ≤ 2 over torch's fused SGD, ≤ 2.2 inside a CUDA graph.
REACH = {"cpu": 2.0, "cuda": 2.0, "graph": 2.2}

Make = Callable[[list[torch.nn.Parameter]], Optimizer]


def bases(device: torch.device) -> dict[str, Make]:
    """The base optimizers, each in the form that is fastest on the device."""
    form: dict[str, Any] = {"fused": True} if device.type == "cuda" else {"foreach": True}
    return {
        "SGD, momentum, weight decay": lambda p: SGD(p, **RECIPE, **form),
        "AdamW": lambda p: AdamW(p, lr=1e-3, **form),
        "SGD, neither": lambda p: SGD(p, lr=1e-3, **form),
    }


def step_cost(device: torch.device, *, rounds: int = 15, networks: list[str] | None = None) -> list[Claim]:
    """A step with ⊥Grad over the same step without, called from Python as in training."""
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    claims = []
    for network in networks or list(NETWORKS):
        for base, make in bases(device).items():
            is_recipe = base.startswith("SGD, momentum")
            contenders = _contenders(network, device, make, peers=is_recipe)
            repeated = {name: _repeated(step, 20 if device.type == "cuda" else 1) for name, step in contenders.items()}
            found = ratios(interleaved(repeated, rounds=rounds, settle=settle), "base")
            reach = REACH[device.type] if is_recipe else None
            claims.append(Claim(f"step, {network}, {base}", found.pop("⊥Grad"), reach, found))
    return claims


def graph_cost(*, rounds: int = 30, networks: list[str] | None = None) -> list[Claim]:
    """The same with both steps captured in CUDA graphs, so that only the GPU's time counts."""
    device = torch.device("cuda")
    claims = []
    for network in networks or list(NETWORKS):
        contenders = _contenders(network, device, bases(device)["SGD, momentum, weight decay"], peers=True)
        replays = {name: _repeated(_captured(step), 20) for name, step in contenders.items()}
        found = ratios(interleaved(replays, rounds=rounds, settle=torch.cuda.synchronize), "base")
        claims.append(Claim(f"step in a CUDA graph, {network}", found.pop("⊥Grad"), REACH["graph"], found))
    return claims


def _contenders(network: str, device: torch.device, make: Make, *, peers: bool) -> dict[str, Callable[[], Any]]:
    def fresh() -> Optimizer:
        return make(parameters(NETWORKS[network](), device))

    ours = fresh()
    attach(ours)
    others = {name: peer(fresh()) for name, peer in available().items()} if peers else {}
    return {"base": fresh().step, "⊥Grad": ours.step, **others}


def _captured(step: Callable[[], Any]) -> Callable[[], None]:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _repeated(step: Callable[[], Any], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            step()

    return run
