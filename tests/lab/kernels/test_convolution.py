"""Convolution kernels in Triton's interpreter, against PyTorch in float64."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from orthograd.lab.kernels.eligible import WIDE as WIDE_TILES
from orthograd.lab.kernels.eligible import convolution_fits, is_convolution_fused
from orthograd.lab.kernels.layers import convolved

fused_convolution = pytest.importorskip("orthograd.lab.kernels.fused_convolution", exc_type=ImportError)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="by the interpreter; see test_cuda_convolution"),
]


@pytest.fixture(autouse=True)
def _nothing_is_dropped(monkeypatch):
    """The interpreter multiplies float32 as it is."""
    monkeypatch.setattr(fused_convolution, "DROPPED", 0)


HALF, SINGLE = (
    torch.float16,
    torch.float32,
)  # the interpreter has no bfloat16 products, and does not round float32
# images, inputs, outputs, side, size of the kernel, stride
SHAPES = [
    (3, 64, 64, 8, 3, 1),
    (9, 256, 128, 4, 3, 1),
    (2, 64, 128, 8, 3, 2),
    (9, 128, 64, 8, 3, 2),
    (3, 128, 128, 4, 1, 1),
    (5, 128, 64, 8, 1, 2),
    (2, 3, 16, 8, 3, 1),
    (3, 3, 64, 4, 3, 1),
]
WIDE = [
    (3, 160, 160, 8, 3, 1),
    (3, 320, 320, 4, 3, 1),
    (5, 160, 320, 8, 3, 2),
    (5, 160, 320, 8, 1, 2),
    (2, 320, 128, 8, 3, 2),
]


def made(images, inputs, outputs, side, size, stride, dtype=HALF):
    """A layer, its images (with a gradient unless it is the stem), and the output gradient."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.normal_(layer.weight, std=0.05, generator=generator)
    layer.to(dtype, memory_format=torch.channels_last)
    x = torch.randn(images, inputs, side, side, generator=generator).to(dtype, memory_format=torch.channels_last)
    gradient = torch.randn(images, outputs, side // stride, side // stride, generator=generator).to(dtype)
    return layer, x.requires_grad_(inputs > 3), gradient


@pytest.mark.parametrize(
    ("shape", "dtype"), [*((shape, HALF) for shape in SHAPES + WIDE), *((shape, SINGLE) for shape in SHAPES)]
)
def test_values_and_gradients_are_those_of_pytorch(shape, dtype):
    layer, x, gradient = made(*shape, dtype)
    assert convolution_fits(layer, x)
    y = fused_convolution.fused_convolution(layer, x)[0]
    y.backward(gradient)
    exact_x, weight = x.detach().double().requires_grad_(x.requires_grad), layer.weight.detach().double()
    weight.requires_grad_()
    exact = nn.functional.conv2d(exact_x, weight, stride=layer.stride, padding=layer.padding)
    exact.backward(gradient.double())
    pairs = [(y, exact), (layer.weight.grad, weight.grad)] + [(x.grad, exact_x.grad)] * x.requires_grad
    for result, wanted in pairs:
        assert (result.double() - wanted).norm() < (5e-4 if dtype == HALF else 1e-6) * wanted.norm()


def test_two_tiles_have_room_for_all_channels():
    assert all(tile.second + tile.more >= channels for channels, tile in WIDE_TILES.items())


def test_many_stretches_of_pixels_are_added_up(monkeypatch):
    monkeypatch.setattr(fused_convolution, "SHORTEST", 64)
    layer, x, gradient = made(8, 128, 128, 8, 1, 1)
    fused_convolution.fused_convolution(layer, x)[0].backward(gradient)
    wanted = torch.einsum("nohw,nihw->oi", gradient.double(), x.detach().double())
    assert (layer.weight.grad.double()[:, :, 0, 0] - wanted).norm() < 5e-4 * wanted.norm()


@pytest.mark.parametrize("shape", [(3, 64, 64, 8, 3, 1), (5, 64, 128, 8, 3, 2), (9, 128, 128, 4, 1, 1), WIDE[0]])
def test_the_norm_behind_it_is_measured_on_the_way(shape, monkeypatch):
    monkeypatch.setattr(fused_convolution, "is_norm_fused", lambda norm, x, plus=None: isinstance(norm, nn.BatchNorm2d))
    layer, x, _ = made(*shape)
    with torch.no_grad():
        layer.weight[0] = 0.2
        x.add_(10)  # a mean that is large relative to the deviation
    ours, theirs = nn.BatchNorm2d(layer.out_channels), nn.BatchNorm2d(layer.out_channels).double()
    y, (mean, scale) = fused_convolution.fused_convolution(layer, x, ours)
    theirs(y.detach().double())
    variance, exact = torch.var_mean(y.detach().double(), (0, 2, 3), correction=0)
    torch.testing.assert_close(mean.double(), exact, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(scale.double(), (variance + ours.eps).rsqrt(), rtol=1e-5, atol=0)
    torch.testing.assert_close(ours.running_mean.double(), theirs.running_mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(ours.running_var.double(), theirs.running_var, rtol=1e-5, atol=0)
    assert not mean.requires_grad
    assert fused_convolution.fused_convolution(layer, x, nn.GroupNorm(8, layer.out_channels))[1] is None


@pytest.mark.parametrize(
    ("shape", "has_plus", "relu"),
    [
        ((3, 64, 64, 8, 3, 1), False, True),
        ((3, 64, 64, 8, 3, 1), True, False),
        *((shape, True, True) for shape in ((3, 64, 64, 8, 3, 1), (5, 64, 128, 8, 3, 2), (9, 128, 128, 4, 1, 1))),
        *((WIDE[0], has_plus, True) for has_plus in (False, True)),
    ],
)
@torch.no_grad()
def test_what_follows_is_folded_in_where_a_network_is_evaluated(shape, has_plus, relu, monkeypatch):
    monkeypatch.setattr(fused_convolution, "is_norm_fused", lambda norm, x, plus=None: True)
    layer, x, plus = made(*shape)
    norm = nn.BatchNorm2d(layer.out_channels).eval()
    for value in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(value, generator=torch.Generator().manual_seed(1))
    nn.init.uniform_(norm.running_var, 0.5, 2, generator=torch.Generator().manual_seed(2))
    y = fused_convolution.evaluated(layer, norm, x, plus if has_plus else None, relu=relu)
    wanted = norm.double()(layer.double()(x.double())) + (plus.double() if has_plus else 0)
    wanted = wanted.relu() if relu else wanted
    assert (y.double() - wanted).norm() < 5e-4 * wanted.norm()


def test_images_have_a_gradient_where_it_is_asked_for():
    layer, x, gradient = made(2, 3, 16, 4, 3, 1)
    x = x.detach().requires_grad_()
    fused_convolution.fused_convolution(layer, x)[0].backward(gradient)
    wanted = torch.nn.grad.conv2d_input(x.shape, layer.weight.double(), gradient.double(), 1, 1)
    assert (x.grad.double() - wanted).norm() < 5e-4 * wanted.norm()


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(64, 64, 3, padding=1),
        nn.Conv2d(64, 64, 3, bias=False),
        nn.Conv2d(64, 64, 3, padding=1, bias=False, groups=2),
        nn.Conv2d(64, 64, 3, padding=2, bias=False, dilation=2),
        nn.Conv2d(64, 64, 5, padding=2, bias=False),
        nn.Conv2d(64, 64, 3, (1, 2), padding=1, bias=False),
        nn.Conv2d(64, 64, 3, padding=1, bias=False, padding_mode="circular"),
        nn.Conv2d(64, 64, 3, padding="same", bias=False),
        nn.Conv2d(64, 96, 3, padding=1, bias=False),
        nn.Conv2d(64, 128, 1, bias=False),
        nn.Conv2d(128, 64, 3, padding=1, bias=False),
    ],
    ids=str,
)
def test_what_the_kernels_do_not_do_is_left_to_pytorch(layer):
    x = torch.zeros(2, 64, 8, 8, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    assert not convolution_fits(layer, x)


def test_images_that_the_kernels_cannot_walk_are_left_to_pytorch():
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    x = torch.zeros(2, 64, 8, 8, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    assert convolution_fits(layer, x)
    for other in (x.double(), x.contiguous(), x[:, :, :, :4], x[:0], x[:, :, :6, :6].contiguous(), x[0]):
        assert not convolution_fits(layer, other)
    assert not is_convolution_fused(layer, x)  # on a CPU
    torch.testing.assert_close(convolved(layer.bfloat16(), x)[0], layer(x))


@pytest.mark.slow
def test_kernels_compile_for_a_gpu_and_multiply_what_boxes_have_brought():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr[-2000:]


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from orthograd.lab.kernels import convolution_triton

NUMBERS = ("images", "pixels", "channels", "stretches", "length")
LAYER = {"H": 16, "W": 16, "C": 64, "O": 128, "SIZE": 3, "STRIDE": 1, "BACK": False, "TRANSPOSED": False}
LAYER |= {"MEASURES": False, "RELU": False, "GAIN": 1.0}
TILE = {"PIXELS": 128, "CHANNELS": 64, "DEPTH": 64, "OUTPUTS": 128, "INPUTS": 64}


def compiled(name, types, **constants):
    kernel = getattr(convolution_triton, name)
    constants = {**LAYER, **TILE, **dict.fromkeys(("parts", "weight", "bias", "mean", "variance", "plus")), **constants}
    types = {**dict.fromkeys(NUMBERS, "i32"), "epsilon": "fp32", "momentum": "fp32", "y": "*bf16", **types}
    signature = {a: types.get(a, "constexpr" if a in constants else "*fp32") for a in kernel.arg_names}
    places = {(i,): constants[a] for i, a in enumerate(kernel.arg_names) if signature[a] == "constexpr"}
    source = ASTSource(fn=kernel, signature=signature, constexprs=places)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 3}).asm


def by_boxes(name, types, **constants):
    result = compiled(name, types, **constants)
    assert "wgmma.mma_async" in result["ptx"] and "cp.async.bulk" in result["ptx"]
    assert "ttg.local_load" not in result["ttgir"]  # from shared memory, not by way of registers


box, apart, matrix = ("tensordesc<bf16[%s]>" % size for size in ("1, 8, 16, 64", "1, 8, 1, 16, 64", "64, 64"))
by_boxes("convolution_kernel", {"x": box, "w": matrix})
by_boxes("convolution_kernel", {"x": box, "w": matrix}, BACK=True)
by_boxes("convolution_kernel", {"x": apart, "w": matrix, "parts": "*fp32"}, STRIDE=2, MEASURES=True)
line = dict.fromkeys(("weight", "bias", "mean", "variance"), "*fp32")
by_boxes("convolution_kernel", {"x": box, "w": matrix, "plus": "*bf16", **line}, RELU=True)
by_boxes("spreading_kernel", {"output_gradient": box, "w": matrix, "input_gradient": "*bf16"})
by_boxes("spreading_kernel", {"output_gradient": box, "w": matrix, "input_gradient": "*bf16"}, SIZE=1)
half = "tensordesc<bf16[1, 8, 16, 32]>", "tensordesc<bf16[%s]>"
forth, back = ({"x": half[0], "w": half[1] % main, "other_w": half[1] % other} for main, other in
               (("128, 32", "64, 32"), ("32, 128", "32, 64")))
all_of_160 = {"C": 160, "O": 160, "CHANNELS": 128, "OTHERS": 64, "DEPTH": 32}
by_boxes("wide_kernel", {**forth, "parts": "*fp32"}, **all_of_160, MEASURES=True)
by_boxes("wide_kernel", back, **all_of_160, BACK=True)
box, matrix = (form.replace("bf16", "fp32") for form in (half[0], half[1] % "64, 32"))
by_boxes("convolution_kernel", {"x": box, "w": matrix, "y": "*fp32"}, DEPTH=32)
by_boxes("convolution_kernel", {"x": box, "w": matrix, "y": "*fp32"}, DEPTH=32, BACK=True, TRANSPOSED=True)
back = {"output_gradient": box, "w": matrix, "input_gradient": "*fp32"}
by_boxes("spreading_kernel", back, DEPTH=32, TRANSPOSED=True)
compiled("transposing_kernel", {"w": "*fp32", "out": "*fp32", "taps": "i32"}, SIDE=64)
small, matrix = "tensordesc<bf16[1, 4, 16, 64]>", "tensordesc<bf16[64, 128]>"
by_boxes("weight_gradient_kernel", {"x": small, "output_gradient": matrix, "parts": "*fp32"})
compiled("merging_kernel", {"parts": "*fp32", "mean": "*fp32"}, COLUMNS=16, AT_ONCE=256)
compiled("adding_kernel", {"parts": "*fp32", "out": "*bf16"}, BLOCK=256, AT_ONCE=16)
stem = {"H": 32, "W": 32, "C": 3, "O": 64, "PATCH": 32}
compiled("stem_kernel", {"x": "*bf16", "w": "*bf16"}, **stem)
compiled("stem_kernel", {"x": "*fp32", "w": "*fp32", "y": "*fp32"}, **stem)
compiled("stem_weight_gradient_kernel", {"x": "*bf16", "output_gradient": "*bf16", "parts": "*fp32"}, **stem)
print("compiled")
"""
