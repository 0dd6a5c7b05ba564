"""Cost of ⊥Grad in an optimizer's step: time, memory and waits, next to other implementations in the same run.

Only optimizers are measured: parameters have the shapes of real networks, and random gradients.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer

from ... import optim
from ...optimizer import attach, orthogonalize_
from .claim import Claim, Key, interleaved, ratios

# The paper's optimizer, at a rate that turns the weights, so that no step finds its gradient orthogonal already.
RATE = 1e-9
"""Gradients are the same in each step. At usual rates weights become parallel to them after some hundred steps, and
⊥Grad measures such gradients twice."""
RECIPE: dict[str, Any] = {"lr": RATE, "momentum": 0.9, "weight_decay": 5e-4}
PAPER = "SGD, momentum, weight decay"
# CPU: ≤ 2.0 over SGD. CUDA: ≤ 2 over torch's fused SGD, ≤ 2.2 inside a CUDA graph.
TARGET = {"cpu": 2.0, "cuda": 2.0, "graph": 2.2}
# The fused classes: over torch's fused SGD with momentum and AdamW.
FUSED_TARGET = {PAPER: 1.5, "AdamW": 1.35}
MEBIBYTE = 1 << 20

Shape = tuple[int, ...]
Make = Callable[[list[nn.Parameter]], Optimizer]
Peer = Callable[[Optimizer], Callable[[], Any]]
"""Turns an optimizer into a function that takes a ⊥Grad step with it."""


def step_cost(device: torch.device, *, rounds: int = 15, networks: list[str] | None = None) -> list[Claim]:
    """Time of a step with ⊥Grad over the same step without it, called from Python as in training."""
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    claims = []
    for network in networks or list(NETWORKS):
        for base, make in bases(device).items():
            contenders = _contenders(network, device, make, peers=base == PAPER)
            repeated = {name: _repeated(step, 20 if device.type == "cuda" else 1) for name, step in contenders.items()}
            times = ratios(interleaved(repeated, rounds=rounds, settle=settle), "base")
            target = TARGET[device.type] if base == PAPER else None
            claims.append(Claim(Key("step", model=network, optimizer=base), times.pop("⊥Grad"), target, times))
    return claims


def graph_cost(*, rounds: int = 30, networks: list[str] | None = None) -> list[Claim]:
    """`step_cost` with both steps captured in CUDA graphs, so that only GPU time counts."""
    device = torch.device("cuda")
    claims = []
    for network in networks or list(NETWORKS):
        contenders = _contenders(network, device, bases(device)[PAPER], peers=True)
        replays = {name: _repeated(_captured(step), 20) for name, step in contenders.items()}
        times = ratios(interleaved(replays, rounds=rounds, settle=torch.cuda.synchronize), "base")
        claims.append(Claim(Key("step in a CUDA graph", model=network), times.pop("⊥Grad"), TARGET["graph"], times))
    return claims


def fused_cost(*, rounds: int = 15, networks: list[str] | None = None) -> Iterator[Claim]:
    """Time of a step of `orthograd.optim.SGD` or `AdamW` over torch's fused one, from Python and in CUDA graphs."""
    for network in networks or [*NETWORKS, LARGE]:
        for base in FUSED_TARGET:
            contenders = _fused_contenders(network, base)
            for setting, prepared in (("", lambda step: step), ("in a CUDA graph", _captured)):
                replays = {name: _repeated(prepared(step), 10) for name, step in contenders.items()}
                seconds = interleaved(replays, rounds=rounds, settle=torch.cuda.synchronize)
                times = ratios(seconds, "base")
                key = Key("fused step", model=network, optimizer=base, setting=setting)
                ratio, alone = times.pop("fused"), {TORCH_MICROSECONDS: 1e5 * seconds["base"]}
                yield Claim(key, ratio, FUSED_TARGET[base], {**times, **alone})


def _fused_contenders(network: str, base: str) -> dict[str, Callable[[], Any]]:
    device = torch.device("cuda")
    dtype = torch.bfloat16 if network == LARGE else torch.float32
    shapes = llama_1b() if network == LARGE else NETWORKS[network]()
    made = [parameters(shapes, device, dtype) for _ in range(3)]
    attached = bases(device)[base](made[1])
    attach(attached)
    return {
        "base": bases(device)[base](made[0]).step,
        "attach": attached.step,
        "fused": fused_bases()[base](made[2]).step,
    }


def extra_memory(device: torch.device, *, networks: list[str] | None = None) -> list[Claim]:
    """Peak memory allocated during one projection, beyond the gradients themselves, in MiB."""
    claims = []
    for network in networks or list(NETWORKS):
        made = parameters(NETWORKS[network](), device)
        orthogonalize_(made)  # compiles kernels
        ours = peak(device, partial(orthogonalize_, made))
        others = {name: peak(device, peer(SGD(made, lr=0.0))) for name, peer in available_peers().items()}
        claims.append(Claim(Key("extra memory", model=network, unit="MiB"), ours, 1.0, others))
    return claims


def synchronizations() -> list[Claim]:
    """Number of times that one step makes the host wait for the GPU."""
    device = torch.device("cuda")

    def ours(optimizer: Optimizer) -> Callable[[], Any]:
        attach(optimizer)
        return optimizer.step

    counts = {}
    for name, peer in {"⊥Grad": ours, **available_peers()}.items():
        optimizer = SGD(parameters(NETWORKS["ResNet-18"](), device), lr=1e-6, fused=True)
        counts[name] = float(_waits(peer(optimizer)))
    return [Claim(Key("host synchronizations a step"), counts.pop("⊥Grad"), 0.0, counts)]


def bases(device: torch.device) -> dict[str, Make]:
    """Base optimizers, each in its fastest implementation for the device."""
    is_cuda = device.type == "cuda"
    form: dict[str, Any] = {"fused": True} if is_cuda else {"foreach": True}
    return {
        PAPER: lambda p: SGD(p, **RECIPE, **form),
        "AdamW": lambda p: AdamW(p, lr=RATE, **form, capturable=is_cuda),  # for a CUDA graph
        "SGD, neither": lambda p: SGD(p, lr=RATE, **form),
    }


def fused_bases() -> dict[str, Make]:
    """The classes whose step is fused with ⊥Grad, by the name of what they replace."""
    return {PAPER: lambda p: optim.SGD(p, **RECIPE), "AdamW": lambda p: optim.AdamW(p, lr=RATE)}


def per_tensor_loop(optimizer: Optimizer) -> Callable[[], Any]:
    """⊥Grad as usually published: a loop over tensors, with several operations and temporaries each."""

    @torch.no_grad()
    def step() -> None:
        for parameter in (p for group in optimizer.param_groups for p in group["params"] if p.grad is not None):
            w, g = parameter.reshape(-1), parameter.grad.reshape(-1)
            orthogonal = g - torch.dot(w, g) / (torch.dot(w, w) + 1e-30) * w
            scale = g.norm() / (orthogonal.norm() + 1e-30)
            parameter.grad.copy_((orthogonal * scale).view_as(parameter.grad))
        optimizer.step()

    return step


def pytorch_optimizer(optimizer: Optimizer) -> Callable[[], Any]:
    """OrthoGrad of the package `pytorch_optimizer`."""
    from pytorch_optimizer import OrthoGrad

    step: Callable[[], Any] = OrthoGrad(optimizer).step
    return step


def available_peers() -> dict[str, Peer]:
    """Other implementations that are installed."""
    peers: dict[str, Peer] = {"per-tensor loop": per_tensor_loop}
    if find_spec("pytorch_optimizer") is not None:
        peers[f"pytorch_optimizer {version('pytorch_optimizer')}"] = pytorch_optimizer
    return peers


def resnet18() -> list[Shape]:
    """Shapes of ResNet-18 for 32×32 images: 62 tensors, 11,173,962 parameters."""
    shapes: list[Shape] = [(64, 3, 3, 3), (64,), (64,)]
    inputs = 64
    for outputs in (64, 128, 256, 512):
        for block in range(2):
            channels = inputs if block == 0 else outputs
            for size in (channels, outputs):
                shapes += [(outputs, size, 3, 3), (outputs,), (outputs,)]
            if channels != outputs:
                shapes += [(outputs, channels, 1, 1), (outputs,), (outputs,)]
        inputs = outputs
    return [*shapes, (10, 512), (10,)]


def gpt2_small() -> list[Shape]:
    """Shapes of GPT-2 small: 148 tensors, 124,439,808 parameters."""
    width = 768
    norm: list[Shape] = [(width,), (width,)]
    attention: list[Shape] = [(width, 3 * width), (3 * width,), (width, width), (width,)]
    mlp: list[Shape] = [(width, 4 * width), (4 * width,), (4 * width, width), (width,)]
    return [(50257, width), (1024, width), *12 * [*norm, *attention, *norm, *mlp], *norm]


def llama_1b() -> list[Shape]:
    """Shapes of a language model like Llama 3.2: 146 tensors, 1,235,814,400 parameters."""
    width, inner = 2048, 8192
    attention: list[Shape] = [(width, width), (width // 4, width), (width // 4, width), (width, width)]
    mlp: list[Shape] = [(inner, width), (inner, width), (width, inner)]
    return [(128256, width), *16 * [*attention, *mlp, (width,), (width,)], (width,)]


NETWORKS = {"ResNet-18": resnet18, "GPT-2 small": gpt2_small}
LARGE = "1.2 billion parameters, bf16"
TORCH_MICROSECONDS = "torch's step, µs"


def parameters(shapes: list[Shape], device: torch.device, dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    """Random parameters with random gradients."""
    made = [nn.Parameter(_random(shape, device, dtype)) for shape in shapes]
    for parameter in made:
        parameter.grad = _random(tuple(parameter.shape), device, dtype)
    return made


def _random(shape: Shape, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, device=device, dtype=dtype) * 0.02


def peak(device: torch.device, run: Callable[[], Any]) -> float:
    """Peak memory in MiB during a run, above what was allocated before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return (torch.cuda.max_memory_allocated(device) - before) / MEBIBYTE
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    changes = [event.nbytes() for event in profile.profiler.kineto_results.events() if event.name() == "[memory]"]
    running, highest = 0, 0
    for change in changes:
        running += change
        highest = max(highest, running)
    return highest / MEBIBYTE


def _contenders(network: str, device: torch.device, make: Make, *, peers: bool) -> dict[str, Callable[[], Any]]:
    def fresh() -> Optimizer:
        return make(parameters(NETWORKS[network](), device))

    ours = fresh()
    attach(ours)
    others = {name: peer(fresh()) for name, peer in available_peers().items()} if peers else {}
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


def _waits(step: Callable[[], Any]) -> int:
    step()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return sum("synchroniz" in str(warning.message) for warning in caught)
