"""The convolutions of a step with nothing around them, as cuDNN does them: what is left if all else took no time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

from ..training.config import Config
from ..training.task import Task, initial_model

ROUNDS, STEPS = 5, 16
Step = Callable[[], None]


def convolutions_alone(config: Config, task: Task, *, size: int) -> float:
    """Seconds for all products of convolutions in an epoch of a run, forward and backward, in a pack of that size.

    Full batches alone: the last, smaller one counts for its images.
    """
    dtype = torch.bfloat16 if config.precision == "bf16" else torch.float32
    model = initial_model(config, task.dataset)
    images = torch.zeros(config.batch_size, *task.images.shape[1:])
    pack = [_Alone(_steps(model, images, dtype)) for _ in range(size)]
    seconds = min(_seconds(pack) for _ in range(ROUNDS))
    return seconds / (STEPS * size) * len(task.labels) / config.batch_size


def operands(model: nn.Module, images: Tensor) -> list[tuple[nn.Conv2d, torch.Size, torch.Size]]:
    """The convolutions of a network in the order of a forward pass, with the shapes of what goes in and comes out."""
    found: list[tuple[nn.Conv2d, torch.Size, torch.Size]] = []

    def note(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        assert isinstance(layer, nn.Conv2d)
        found.append((layer, inputs[0].shape, output.shape))

    hooks = [layer.register_forward_hook(note) for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    with torch.no_grad():
        model.eval()(images)
    for hook in hooks:
        hook.remove()
    return found


def _steps(model: nn.Module, images: Tensor, dtype: torch.dtype) -> Iterator[Step]:
    """Each product of a step: forward in order, then backward in reverse, where the images need no slopes."""
    backward: list[Step] = []
    for layer, before, after in operands(model, images):
        x, w, slope = (_noise(shape, dtype) for shape in (before, layer.weight.shape, after))
        form = (list(layer.stride), list(layer.padding), list(layer.dilation), False, [0, 0], layer.groups)
        wanted = [bool(backward), True, False]
        yield lambda x=x, w=w, form=form: torch.ops.aten.convolution(x, w, None, *form)  # type: ignore[misc]
        backward.append(
            lambda slope=slope, x=x, w=w, form=form, wanted=wanted: torch.ops.aten.convolution_backward(  # type: ignore[misc]
                slope, x, w, None, *form, wanted
            )
        )
    yield from reversed(backward)


def _noise(shape: torch.Size, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, device="cuda").to(dtype, memory_format=torch.channels_last)


class _Alone:
    """The steps on a stream of their own, replayed from a graph, with the tensors that it reads."""

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
        with torch.cuda.stream(self._stream):
            self._graph.replay()


def _seconds(pack: list[_Alone]) -> float:
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(STEPS):
        for run in pack:
            run.replay()
    torch.cuda.synchronize()
    return time.perf_counter() - started
