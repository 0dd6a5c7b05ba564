"""Convolutions by our kernels, by Triton's interpreter, against PyTorch in float64."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from orthograd.models import convolution as module
from orthograd.models.convolution import convolved, fits

fused_convolution = pytest.importorskip("orthograd.models.fused_convolution", exc_type=ImportError)
# images, inputs, outputs, side, size of the kernel, stride; float16, for the interpreter multiplies no bfloat16
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


def made(images, inputs, outputs, side, size, stride):
    """A layer, images that want slopes but where they are the first, and slopes of what comes out."""
    generator = torch.Generator().manual_seed(0)
    layer = nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)
    nn.init.normal_(layer.weight, std=0.05, generator=generator)
    layer.half().to(memory_format=torch.channels_last)
    x = torch.randn(images, inputs, side, side, generator=generator).half().to(memory_format=torch.channels_last)
    slope = torch.randn(images, outputs, side // stride, side // stride, generator=generator).half()
    return layer, x.requires_grad_(inputs > 3), slope


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_slopes_are_those_of_pytorch(shape):
    layer, x, slope = made(*shape)
    assert fits(layer, x)
    y = fused_convolution.fused_convolution(layer, x)[0]
    y.backward(slope)
    exact_x, weight = x.detach().double().requires_grad_(x.requires_grad), layer.weight.detach().double()
    weight.requires_grad_()
    exact = nn.functional.conv2d(exact_x, weight, stride=layer.stride, padding=layer.padding)
    exact.backward(slope.double())
    pairs = [(y, exact), (layer.weight.grad, weight.grad)] + [(x.grad, exact_x.grad)] * x.requires_grad
    for found, wanted in pairs:
        assert (found.double() - wanted).norm() < 5e-4 * wanted.norm()


def test_many_stretches_of_pixels_are_added_up(monkeypatch):
    monkeypatch.setattr(fused_convolution, "SHORTEST", 64)
    layer, x, slope = made(8, 128, 128, 8, 1, 1)
    fused_convolution.fused_convolution(layer, x)[0].backward(slope)
    wanted = torch.einsum("nohw,nihw->oi", slope.double(), x.detach().double())
    assert (layer.weight.grad.double()[:, :, 0, 0] - wanted).norm() < 5e-4 * wanted.norm()


@pytest.mark.parametrize("shape", [(3, 64, 64, 8, 3, 1), (5, 64, 128, 8, 3, 2), (9, 128, 128, 4, 1, 1)])
def test_the_norm_behind_it_is_measured_on_the_way(shape, monkeypatch):
    monkeypatch.setattr(fused_convolution, "is_norm_fused", lambda norm, x, plus=None: isinstance(norm, nn.BatchNorm2d))
    layer, x, _ = made(*shape)
    with torch.no_grad():
        layer.weight[0] = 0.2
        x.add_(10)  # a mean that is large beside the deviation
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


@pytest.mark.parametrize("shape", [(3, 64, 64, 8, 3, 1), (5, 64, 128, 8, 3, 2), (9, 128, 128, 4, 1, 1)])
@pytest.mark.parametrize(("has_plus", "relu"), [(False, True), (True, True), (True, False)])
@torch.no_grad()
def test_what_follows_is_folded_in_where_a_network_is_judged(shape, has_plus, relu, monkeypatch):
    monkeypatch.setattr(fused_convolution, "is_norm_fused", lambda norm, x, plus=None: True)
    layer, x, plus = made(*shape)
    norm = nn.BatchNorm2d(layer.out_channels).eval()
    for value in (norm.weight, norm.bias, norm.running_mean):
        nn.init.normal_(value, generator=torch.Generator().manual_seed(1))
    nn.init.uniform_(norm.running_var, 0.5, 2, generator=torch.Generator().manual_seed(2))
    y = fused_convolution.judged(layer, norm, x, plus if has_plus else None, relu=relu)
    wanted = norm.double()(layer.double()(x.double())) + (plus.double() if has_plus else 0)
    wanted = wanted.relu() if relu else wanted
    assert (y.double() - wanted).norm() < 5e-4 * wanted.norm()


def test_images_have_slopes_where_they_are_asked_for():
    layer, x, slope = made(2, 3, 16, 4, 3, 1)
    x = x.detach().requires_grad_()
    fused_convolution.fused_convolution(layer, x)[0].backward(slope)
    wanted = torch.nn.grad.conv2d_input(x.shape, layer.weight.double(), slope.double(), 1, 1)
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
        nn.Conv2d(64, 160, 3, padding=1, bias=False),
        nn.Conv2d(64, 128, 1, bias=False),
        nn.Conv2d(128, 64, 3, padding=1, bias=False),
    ],
    ids=str,
)
def test_what_the_kernels_do_not_do_is_left_to_pytorch(layer):
    x = torch.zeros(2, 64, 8, 8, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    assert not fits(layer, x)


def test_images_that_the_kernels_cannot_walk_are_left_to_pytorch():
    layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)
    x = torch.zeros(2, 64, 8, 8, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    assert fits(layer, x)
    for other in (x.float(), x.contiguous(), x[:, :, :, :4], x[:0], x[:, :, :6, :6].contiguous(), x[0]):
        assert not fits(layer, other)
    assert not module.is_fused(layer, x)  # on a CPU
    torch.testing.assert_close(convolved(layer.bfloat16(), x)[0], layer(x))
