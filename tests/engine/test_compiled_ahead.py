"""Kernels that some work needs, compiled before it."""

from __future__ import annotations

import threading

import pytest
import torch

from orthograd.engine.compilation import compiled_ahead, launch

pytest.importorskip("triton")
on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Kernel:
    """Has a kernel's two ways to be called, and keeps count."""

    def __init__(self):
        self.calls = []

    def __getitem__(self, grid):
        return lambda *arguments, **options: self.calls.append(("launched", grid, arguments, options))

    def warmup(self, *arguments, grid, **options):
        self.calls.append(("compiled", grid, arguments, options))


class Loaded:
    """A compiled kernel that says which threads load it."""

    def __init__(self, threads):
        self.threads = threads

    @property
    def run(self):
        self.threads.append(threading.get_ident())


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kernel):
        launch(kernel, (1,), "forward")
        ctx.kernel = kernel
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        launch(ctx.kernel, (1,), "backward")
        return gradient, None


def test_inside_nothing_is_launched():
    kernel = Kernel()
    with compiled_ahead():
        launch(kernel, (3,), 1, num_warps=4)
    launch(kernel, (3,), 1, num_warps=4)
    assert kernel.calls == [(how, (3,), (1,), {"num_warps": 4}) for how in ("compiled", "launched")]


def test_other_threads_launch():
    kernel = Kernel()
    with compiled_ahead():
        thread = threading.Thread(target=launch, args=(kernel, (1,)))
        thread.start()
        thread.join()
    assert [how for how, *_ in kernel.calls] == ["launched"]


def test_it_ends_with_an_error():
    kernel = Kernel()
    with pytest.raises(RuntimeError, match="stop"), compiled_ahead():
        raise RuntimeError("stop")
    launch(kernel, (1,))
    assert [how for how, *_ in kernel.calls] == ["launched"]


def test_each_kernel_is_loaded_once_in_one_thread():
    """Threads that load launchers at once got each other's: "function takes exactly 19 arguments (35 given)"."""
    threads = []
    kernels = [Loaded(threads) for _ in range(20)]
    with compiled_ahead():
        for kernel in [*kernels, *kernels]:
            compiling = Kernel()
            compiling.warmup = lambda *arguments, loaded=kernel, **options: loaded
            launch(compiling, (1,))
        assert not threads
    assert threads == [threading.get_ident()] * len(kernels)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_a_backward_pass_belongs_to_the_thread_that_asked_for_it(device):
    kernel, x = Kernel(), torch.ones(2, device=device, requires_grad=True)
    with compiled_ahead():
        Square.apply(x, kernel).sum().backward()
    assert [(how, name) for how, _, (name,), _ in kernel.calls] == [("compiled", "forward"), ("compiled", "backward")]


@on_gpu
def test_what_was_compiled_ahead_is_not_compiled_again(tmp_path, monkeypatch):
    import triton

    from orthograd.lab.networks import MODELS

    def learn():
        model(images).sum().backward()
        return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    model = MODELS["resnet18"]((3, 32, 32), 10).cuda().bfloat16().to(memory_format=torch.channels_last)
    images = torch.randn(16, 3, 32, 32, device="cuda", dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    with compiled_ahead():
        learn()
    model.zero_grad()
    compiled = []
    monkeypatch.setattr(triton.knobs.runtime, "jit_cache_hook", lambda **kernel: compiled.append(kernel["repr"]))
    assert learn().isfinite().all()
    assert not compiled
