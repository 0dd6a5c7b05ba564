"""Time of a step's convolutions alone, by orthograd or cuDNN: the limit if all else took no time."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import torch
from torch import Tensor, nn

from ..kernels.eligible import is_convolution_fused
from ..training.config import Config
from ..training.task import Task, initial_model

ROUNDS, STEPS = 5, 16
Step = Callable[[], object]


def convolutions_alone(config: Config, task: Task, *, size: int, only_cudnn: bool = False) -> float:
    """Seconds per run for all convolutions of an epoch, forward and backward, with ``size`` concurrent runs.

    They use orthograd's kernels where training does, unless ``only_cudnn``. Only full batches are timed; the smaller
    last one counts by its images.
    """
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    model = initial_model(config, task.dataset)
    images = torch.zeros(config.batch_size, *task.images.shape[1:])
    runs = [Alone(products(model, images, dtype, "cuda", only_cudnn=only_cudnn)) for _ in range(size)]
    step = min(seconds(runs) for _ in range(ROUNDS))
    return step / size * len(task.labels) / config.batch_size


def operands(model: nn.Module, images: Tensor) -> list[tuple[nn.Conv2d, torch.Size, torch.Size]]:
    """Convolutions of a network in the order of a forward pass, with their input and output shapes."""
    layers: list[tuple[nn.Conv2d, torch.Size, torch.Size]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        layers.append((layer, inputs[0].shape, output.shape))

    hooks = [layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    with torch.no_grad():
        model.eval()(images)
    for hook in hooks:
        hook.remove()
    return layers


def products(
    model: nn.Module, images: Tensor, dtype: torch.dtype, device: str, *, only_cudnn: bool = False
) -> Iterator[Step]:
    """Each product of a step: forward in order, then backward in reverse; images get no gradient."""
    backward: list[Step] = []
    for layer, before, after in operands(model, images):
        x, w, gradient = (noise_of(shape, dtype, device) for shape in (before, layer.weight.shape, after))
        wanted = bool(backward), True
        is_ours = not only_cudnn and is_convolution_fused(copy.deepcopy(layer).to(dtype), x)
        forth, back = by_us(layer, x, w, gradient, wanted) if is_ours else by_cudnn(layer, x, w, gradient, wanted)
        yield forth
        backward.append(back)
    yield from reversed(backward)


def by_us(layer: nn.Conv2d, x: Tensor, w: Tensor, gradient: Tensor, wanted: tuple[bool, bool]) -> tuple[Step, Step]:
    """Forward and backward product by orthograd's kernels."""
    from ..kernels.fused_convolution import gradients, values

    return partial(values, layer, x, w), partial(gradients, layer, gradient, x, w, wanted=wanted)


def by_cudnn(layer: nn.Conv2d, x: Tensor, w: Tensor, gradient: Tensor, wanted: tuple[bool, bool]) -> tuple[Step, Step]:
    """Forward and backward product by cuDNN."""
    form = [*layer.stride], [*layer.padding], [*layer.dilation], False, [0, 0], layer.groups
    by_torch = torch.ops.aten
    back = partial(by_torch.convolution_backward, gradient, x, w, None, *form, [*wanted, False])
    return partial(by_torch.convolution, x, w, None, *form), back


def noise_of(shape: torch.Size, dtype: torch.dtype, device: str) -> Tensor:
    """Random values, channels last."""
    return torch.randn(shape, device=device).to(dtype, memory_format=torch.channels_last)


class Alone:
    """Steps on a separate stream, replayed from a CUDA graph."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self._steps, self._stream, self._graph = list(steps), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            self._take()
            self._stream.synchronize()
            with torch.cuda.graph(self._graph, stream=self._stream):
                self._take()

    def _take(self) -> None:
        for step in self._steps:
            step()

    def replay(self) -> None:
        """Replay all steps once."""
        with torch.cuda.stream(self._stream):
            self._graph.replay()


def seconds(runs: list[Alone]) -> float:
    """Mean seconds for all runs to take their steps once, concurrently."""
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(STEPS):
        for run in runs:
            run.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / STEPS
