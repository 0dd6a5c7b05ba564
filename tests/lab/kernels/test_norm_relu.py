"""Norms with sums and ReLUs: the kernels in Triton's interpreter, against PyTorch in float64."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from orthograd.lab.kernels import layers as module
from orthograd.lab.kernels.eligible import norm_fits
from orthograd.lab.kernels.layers import norm_relu, sum_norm_relu, walked
from orthograd.lab.networks import resnet18, wide_resnet28_10
from orthograd.lab.networks.wide_resnet import WideResNet

fused_norm = pytest.importorskip("orthograd.lab.kernels.fused_norm", exc_type=ImportError)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.is_available(), reason="by the interpreter; test_cuda_norm is for a GPU"),
]

FORMS = ["norm", "norm + x", "relu(norm)", "relu(norm + x)", "relu(norm) of a sum"]
SHAPES = [(3, 16, 5, 5), (4, 64, 8, 8), (2, 160, 6, 6), (2, 40, 3, 3), (2, 64, 3, 1)]
# Every form on one shape, and every shape with the forms that do most.
CASES = [*((SHAPES[0], form) for form in FORMS), *((shape, form) for shape in SHAPES[1:] for form in FORMS[3:])]


@pytest.fixture
def fused(monkeypatch):
    """The kernels on the CPU."""
    monkeypatch.setattr(module, "is_norm_fused", lambda norm, x, plus=None: isinstance(norm, nn.BatchNorm2d))


def values(*shape, seed=0, mean=0.0):
    generator = torch.Generator().manual_seed(seed)
    result = torch.randn(shape, generator=generator).mul(2).add(mean)
    return result.contiguous(memory_format=torch.channels_last).requires_grad_()


def made_norm(channels):
    norm = nn.BatchNorm2d(channels)
    nn.init.normal_(norm.weight, 1.0, 0.3, generator=torch.Generator().manual_seed(1))
    nn.init.normal_(norm.bias, generator=torch.Generator().manual_seed(2))
    return norm


def seasoned(norm):
    """A norm in eval mode with random statistics."""
    nn.init.normal_(norm.running_mean, 5.0, 0.5, generator=torch.Generator().manual_seed(3))
    nn.init.uniform_(norm.running_var, 0.1, 9.0, generator=torch.Generator().manual_seed(4))
    return norm.eval()


def exact(tensor):
    return None if tensor is None else tensor.detach().double().requires_grad_()


def assert_alike(result, wanted, *, tolerance=2e-5):
    for name, value in wanted.items():
        error = (result[name].double() - value).norm() / value.norm()
        assert error < tolerance, (name, float(error))


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(("shape", "form"), CASES)
def test_values_gradients_and_statistics_are_those_of_pytorch(shape, form):
    x, plus = values(*shape, mean=5.0), values(*shape, seed=3) if "x" in form or "sum" in form else None
    norm, theirs = made_norm(shape[1]), made_norm(shape[1]).double()
    exact_x, exact_plus = exact(x), exact(plus)
    if "sum" in form:
        ways = sum_norm_relu(norm, x, plus)
        total = exact_x + exact_plus
        wanted = total, functional.relu(theirs(total))
    else:
        ways = norm_relu(norm, x, plus, relu="relu" in form)
        y = theirs(exact_x) if plus is None else theirs(exact_x) + exact_plus
        wanted = (functional.relu(y) if "relu" in form else y,) * 2
    gradients = values(*shape, seed=4).detach(), values(*shape, seed=5).detach()
    torch.autograd.backward(ways, gradients)
    torch.autograd.backward(
        [a * b.double() for a, b in zip(wanted, gradients, strict=True)], [torch.ones_like(wanted[0])] * 2
    )

    def told(ways, x, plus, norm):
        result = {"first": ways[0], "second": ways[1], "x": x.grad, "weight": norm.weight.grad, "bias": norm.bias.grad}
        result |= {"mean": norm.running_mean, "variance": norm.running_var}
        return result if plus is None else {**result, "plus": plus.grad}

    assert_alike(told(ways, x, plus, norm), told(wanted, exact_x, exact_plus, theirs))
    assert norm.num_batches_tracked == 1


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize(("shape", "form"), CASES)
def test_a_network_that_is_evaluated_goes_by_running_statistics_and_leaves_them(shape, form):
    x, plus = values(*shape, mean=5.0), values(*shape, seed=3) if "x" in form or "sum" in form else None
    norm = seasoned(made_norm(shape[1]))
    before, theirs = copy.deepcopy(norm.state_dict()), copy.deepcopy(norm).double()
    with torch.no_grad():
        if "sum" in form:
            total, y = sum_norm_relu(norm, x, plus)
            assert torch.equal(total, x + plus)
            wanted = functional.relu(theirs(exact(x) + exact(plus)))
        else:
            y = norm_relu(norm, x, plus, relu="relu" in form)[1]
            wanted = theirs(exact(x)) if plus is None else theirs(exact(x)) + exact(plus)
            wanted = functional.relu(wanted) if "relu" in form else wanted
    assert_alike({"y": y}, {"y": wanted})
    assert y.stride() == x.stride()
    assert all(torch.equal(value, before[name]) for name, value in norm.state_dict().items())
    assert norm not in fused_norm.COUNTERS


@pytest.mark.usefixtures("fused")
def test_a_sum_that_is_evaluated_is_rounded_before_it_is_normalized():
    x, plus = (values(2, 64, 4, 4, seed=seed).detach().half() for seed in (0, 1))
    with torch.no_grad():
        total, y = sum_norm_relu(seasoned(made_norm(64)), x, plus)
        alone, same = sum_norm_relu(seasoned(made_norm(64)), total)
    assert torch.equal(total, x + plus)
    assert alone is total
    assert torch.equal(y, same)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("share", [1024, 4096, 2**40])
def test_large_layers_are_added_up_by_more_thread_blocks_to_the_same(share, monkeypatch):
    x, beside, norm = values(4, 64, 8, 8, mean=5.0), values(4, 64, 8, 8, mean=5.0), made_norm(64)
    monkeypatch.setattr(fused_norm, "BLOCKS", 2)
    monkeypatch.setattr(fused_norm, "SHARE", share)
    grid = fused_norm.Launches(x, norm)._by_stretch
    assert grid == {1024: (8, 2), 4096: (2, 2), 2**40: (1, 2)}[share]
    norm_relu(norm, x)[0].square().sum().backward()
    functional.relu(made_norm(64)(beside)).square().sum().backward()
    torch.testing.assert_close(x.grad, beside.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("fused")
@pytest.mark.parametrize("used", [0, 1])
def test_a_way_that_nobody_goes_gives_no_gradient(used):
    x, beside = values(2, 16, 4, 4), values(2, 16, 4, 4)
    norm_relu(made_norm(16), x)[used].square().sum().backward()
    functional.relu(made_norm(16)(beside)).square().sum().backward()
    torch.testing.assert_close(x.grad, beside.grad, rtol=1e-4, atol=1e-5)
    x, plus = values(2, 16, 4, 4), values(2, 16, 4, 4, seed=1)
    sum_norm_relu(made_norm(16), x, plus)[0].sum().backward()
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(plus.grad, x.grad)


@pytest.mark.usefixtures("fused")
def test_a_large_mean_does_not_drown_the_deviation():
    x = values(8, 64, 8, 8, mean=3e4)
    y, _ = norm_relu(nn.BatchNorm2d(64), x, relu=False)
    assert_alike({"y": y}, {"y": nn.BatchNorm2d(64).double()(exact(x))}, tolerance=1e-3)


@pytest.mark.usefixtures("fused")
def test_again_gives_the_same_bits():
    """The last thread block resets the counters for the next launch."""
    norm, x = made_norm(160), values(4, 160, 8, 8)
    first, second = (norm_relu(norm, x)[0] for _ in range(2))
    assert torch.equal(first, second)
    assert not fused_norm.COUNTERS[norm].any()


@pytest.mark.usefixtures("fused")
def test_what_is_not_a_number_is_not_hidden():
    """NaN must reach the loss, or training would continue with broken weights."""
    x = values(2, 16, 4, 4)
    with torch.no_grad():
        x[0, 3, 1, 1] = float("nan")
    for plus in (None, values(2, 16, 4, 4, seed=1)):
        x.grad = None
        y, _ = norm_relu(made_norm(16), x, plus)
        y.sum().backward()
        assert y[:, 3].isnan().all()
        assert x.grad[:, 3].isnan().all()
        assert x.grad[:, 4].isfinite().all()
    with torch.no_grad():
        assert norm_relu(made_norm(16).eval(), x)[0].isnan().sum() == 1


@pytest.mark.parametrize(
    ("shape", "dtype", "is_fit"),
    [
        ((2, 8, 3, 3), torch.float32, True),
        ((2, 8, 3, 3), torch.bfloat16, True),
        ((2, 8, 3, 3), torch.float64, False),
        ((2, 7, 3, 3), torch.float32, False),  # another number of channels
        ((1, 8, 1, 1), torch.float32, False),  # no standard deviation
        ((0, 8, 3, 3), torch.float32, False),
    ],
)
def test_what_the_kernels_can_walk(shape, dtype, is_fit):
    x = torch.zeros(shape, dtype=dtype).to(memory_format=torch.channels_last)
    assert norm_fits(nn.BatchNorm2d(8), x, None) == is_fit
    assert norm_fits(nn.BatchNorm2d(8), x, torch.zeros_like(x)) == is_fit
    assert not norm_fits(nn.BatchNorm2d(8), x, torch.zeros(1))


@pytest.mark.parametrize("network", [resnet18, wide_resnet28_10])
def test_other_norms_may_stand_in_the_place_of_batch_norms(network):
    images = torch.randn(2, 3, 8, 8)
    model = network((3, 8, 8), 10).eval()
    usual = model(images)
    torch.testing.assert_close(nn.SyncBatchNorm.convert_sync_batchnorm(model)(images), usual)


def test_layers_one_by_one_are_the_layers_in_a_row():
    layers = nn.Sequential(
        nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8)
    )
    x, same = torch.randn(2, 3, 6, 6), copy.deepcopy(layers)
    assert torch.equal(walked(layers, x)[0], same(x))
    plus = torch.randn(2, 8, 4, 4)
    assert torch.equal(walked(layers, x, plus, relu=True)[1], functional.relu(same(x) + plus))
    assert torch.equal(walked(layers[:4], x)[0], same[:4](x))
    assert torch.equal(walked(layers[:3], x)[0], same[:3](x))
    assert torch.equal(walked(layers[:4], x, plus, relu=True)[0], functional.relu(same[:4](x) + plus))


def narrow_wide_resnet(shape, classes):
    """Every layer of a wide ResNet, with fewer channels: how many the kernels take, the tests above vary."""
    return WideResNet(4, 2, shape[0], classes)


@pytest.mark.slow
@pytest.mark.parametrize(("network", "n"), [(resnet18, 8), (narrow_wide_resnet, 2)])
def test_a_network_learns_the_same(network, n, monkeypatch):
    result = {}
    for is_fused in (False, True):
        torch.manual_seed(0)
        model = network((3, 8, 8), 10).to(memory_format=torch.channels_last)
        monkeypatch.setattr(
            module,
            "is_norm_fused",
            lambda norm, x, plus=None, is_fused=is_fused: is_fused and isinstance(norm, nn.BatchNorm2d),
        )
        images = torch.randn(n, 3, 8, 8).contiguous(memory_format=torch.channels_last)
        functional.cross_entropy(model(images), torch.arange(n)).backward()
        result[is_fused] = {name: parameter.grad.double() for name, parameter in model.named_parameters()}
    assert_alike(result[True], result[False], tolerance=0.02)  # a ReLU may open for one and not for the other


@pytest.mark.slow
@pytest.mark.parametrize("network", [resnet18, wide_resnet28_10])
def test_a_network_is_evaluated_the_same(network, monkeypatch):
    model = network((3, 8, 8), 10).to(memory_format=torch.channels_last)
    for layer in model.modules():
        if isinstance(layer, nn.BatchNorm2d):
            seasoned(layer).running_mean.sub_(5)
    images = torch.randn(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        wanted = model.eval().double()(images.double())
        monkeypatch.setattr(module, "is_norm_fused", lambda norm, x, plus=None: True)
        assert_alike({"logits": model.float()(images)}, {"logits": wanted})


@pytest.mark.slow
def test_kernels_compile_for_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr[-2000:]


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from orthograd.lab.kernels import norm_triton

VALUES = "first second total values plus out output_gradient other_gradient beside input_gradient plus_gradient".split()
SIZES = {"PARTS": 128, "ROWS": 32, "COLUMNS": 32}
for dtype in ("*bf16", "*fp32"):
    names = "statistics_kernel", "normalize_kernel", "normalize_kernel, plain", "sums_kernel", "input_gradient_kernel"
    for name in names:
        kernel, flag = getattr(norm_triton, name.split(",")[0]), "plain" not in name
        types = {argument: "*fp32" for argument in kernel.arg_names if argument.islower()}
        types |= {argument: dtype for argument in VALUES}
        types |= dict.fromkeys(("pixels", "channels", "stretches", "length"), "i32")
        types |= {"counters": "*i32", "epsilon": "fp32", "momentum": "fp32"}
        signature = {a: types[a] if a in types else "constexpr" for a in kernel.arg_names}
        constants = {(i,): SIZES.get(a, flag) for i, a in enumerate(kernel.arg_names) if signature[a] == "constexpr"}
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
        assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
print("compiled")
"""
