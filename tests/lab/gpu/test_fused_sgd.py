"""SGD and ⊥Grad in one step against `attach` on torch's SGD; on the CPU by Triton's interpreter, or on a GPU."""

from __future__ import annotations

from copy import deepcopy

import pytest
import torch
from torch.optim import SGD

from orthograd import attach
from orthograd.lab.gpu.fused_sgd import FusedSGD
from orthograd.options import Options
from orthograd.projection import orthogonal_gradient

StepColumn = pytest.importorskip("orthograd.engine.step_kernels", exc_type=ImportError).StepColumn
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SHAPES = [(5, 3, 3, 3), (17,), (40, 30), (1,), (1300,), (2, 4, 1, 1)]


@pytest.fixture(autouse=True)
def _several_chunks(monkeypatch):
    """Small tensors have several chunks, as large ones do: the interpreter is slow."""
    monkeypatch.setattr("orthograd.engine.step_plan.SMALLEST_CHUNK", 512)


def parameters(seed=0):
    generator = torch.Generator().manual_seed(seed)
    made = [torch.randn(shape, generator=generator).to(DEVICE) for shape in SHAPES]
    made[0] = made[0].contiguous(memory_format=torch.channels_last)
    return [value.requires_grad_() for value in made]


def fill(tensors, seed):
    """Random gradients, in the memory order of their tensors."""
    generator = torch.Generator().manual_seed(seed + 1)  # 0 would give the weights themselves
    for tensor in tensors:
        noise = torch.randn(tensor.shape, generator=generator)
        tensor.grad = torch.empty_like(tensor).copy_(noise)


def set_gradients(tensors, gradients, *, is_measured_early):
    """Set gradients by a backward pass, which measures them, or directly."""
    gradients = [gradient.to(DEVICE) for gradient in gradients]
    if is_measured_early:
        torch.autograd.backward(tensors, gradients)
    else:
        for tensor, gradient in zip(tensors, gradients, strict=True):
            tensor.grad = gradient.clone()


@pytest.fixture(params=[False, True], ids=["measured by the step", "measured in the backward pass"])
def is_measured_early(request, monkeypatch):
    """True if gradients of any size are measured in the backward pass."""
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", 1)
    return request.param


def assert_alike(result, wanted):
    for ours, theirs in zip(result, wanted, strict=True):
        torch.testing.assert_close(ours.detach().float(), theirs.detach().float(), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "decay"),
    [(None, 0.0), (None, 0.1), (Options(), 0.0), (Options(renormalize=False), 0.1), (Options(scalars=True), 0.1)],
)
def test_steps_are_those_of_sgd_with_an_attachment(options, decay):
    ours, theirs = parameters(), parameters()
    fused, usual = FusedSGD(ours, 0.1, 0.9, decay, options=options), SGD(theirs, 0.1, 0.9, weight_decay=decay)
    if options:
        attach(usual, renormalize=options.renormalize, scalars=options.scalars)
    for seed in range(3):
        fill(ours, seed), fill(theirs, seed)
        fused.step(), usual.step()
        assert_alike(ours, theirs)
    momenta = (
        [optimizer.state[p]["momentum_buffer"] for p in of] for optimizer, of in ((fused, ours), (usual, theirs))
    )
    assert_alike(*momenta)


def test_what_is_left_alone_takes_the_plain_step():
    ours, theirs = parameters(), parameters()
    fused = FusedSGD(ours, 0.1, 0.9, 0.0, options=Options(), where=lambda _, parameter: parameter.ndim == 2)
    usual = SGD(theirs, 0.1, 0.9)
    attach(usual, where=lambda _, parameter: parameter.ndim == 2)
    for seed in range(2):
        fill(ours, seed), fill(theirs, seed)
        fused.step(), usual.step()
    assert_alike(ours, theirs)


def test_copies_give_the_gradients_and_follow_the_weights():
    ours, theirs = parameters(), parameters()
    copies = {ours[i]: ours[i].detach().bfloat16().requires_grad_() for i in (0, 2)}
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0, options=Options(), copies=copies), SGD(theirs, 0.1, 0.9)
    attach(usual)
    for seed in range(3):
        fill(ours, seed)
        for parameter, copy in copies.items():
            copy.grad, parameter.grad = parameter.grad.bfloat16(), None
        for parameter, beside in zip(theirs, ours, strict=True):
            parameter.grad = copies.get(beside, beside).grad.float()
        fused.step(), usual.step()
    assert_alike(ours, theirs)
    for parameter, copy in copies.items():
        # Triton's interpreter truncates bfloat16 instead of rounding it.
        torch.testing.assert_close(copy.float(), parameter.detach(), rtol=2**-7, atol=0)
        assert copy.is_contiguous(memory_format=torch.channels_last) or parameter.ndim != 4


def test_another_rate_a_missing_gradient_and_another_place_are_seen():
    ours, theirs = parameters(), parameters()
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0), SGD(theirs, 0.1, 0.9)
    kept = []  # so that gradients have another address each time
    for rate in (0.1, 0.1, 0.02):
        fill(ours, len(kept)), fill(theirs, len(kept))
        kept.append([parameter.grad for parameter in ours])
        ours[2].grad = theirs[2].grad = None
        for optimizer in (fused, usual):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.step()
            optimizer.step()
    assert_alike(ours, theirs)


@pytest.mark.parametrize("options", [None, Options()])
def test_a_rate_in_memory_may_change_there(options):
    ours, theirs = parameters(), parameters()
    place = torch.tensor(0.1, device=DEVICE)
    read, given = FusedSGD(ours, place, 0.9, 0.1, options=options), FusedSGD(theirs, 0.1, 0.9, 0.1, options=options)
    for step, rate in enumerate((0.1, 0.1, 0.02)):
        fill(ours, step), fill(theirs, step)
        place.fill_(rate)
        given.param_groups[0]["lr"] = rate
        read.step(), given.step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def test_it_goes_on_from_a_state_of_torch():
    ours, theirs = parameters(), parameters()
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0), SGD(theirs, 0.1, 0.9)
    for step in range(3):
        fill(ours, step), fill(theirs, step)
        fused.step(), usual.step()
        fused.load_state_dict(deepcopy(usual.state_dict()))  # allocates new tensors
    assert_alike(ours, theirs)
    nothing = FusedSGD(ours, 0.1, 0.9, 0.0, options=Options(), where=lambda name, parameter: False)
    nothing.load_state_dict(SGD(theirs, 0.1, 0.9).state_dict())
    fill(ours, 5), fill(theirs, 5)
    nothing.step(), SGD(theirs, 0.1, 0.9).step()
    assert_alike(ours, theirs)


def test_statistics_are_those_of_the_weight_as_it_is(monkeypatch):
    monkeypatch.setattr("orthograd.lab.gpu.backward_statistics.LARGE", 1)
    ours, theirs = parameters(), parameters()
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.1, options=Options()), SGD(theirs, 0.1, 0.9, weight_decay=0.1)
    attach(usual)
    gradients = [torch.randn_like(each) for each in theirs]
    set_gradients(ours, gradients, is_measured_early=True)
    for _ in range(2):  # the second one without a backward pass
        set_gradients(theirs, gradients, is_measured_early=False)
        fused.step(), usual.step()
    assert_alike(ours, theirs)


def test_a_gradient_that_goes_from_one_parameter_to_another_steps_the_other():
    first, second = (torch.zeros(4, device=DEVICE, requires_grad=True) for _ in range(2))
    gradient, optimizer = torch.ones(4, device=DEVICE), FusedSGD([first, second], 0.1, 0.9, 0.0)
    for parameter, other in ((first, second), (second, first)):
        parameter.grad, other.grad = gradient, None
        optimizer.step()
    assert torch.equal(first, second)


def test_what_it_does_not_do_is_refused():
    (parameter,) = parameters()[1:2]
    parameter.grad = torch.ones_like(parameter)
    optimizer = FusedSGD([parameter], 0.1, 0.9, 0.0)
    optimizer.load_state_dict(SGD([parameter], 0.1, 0.9, nesterov=True).state_dict())
    with pytest.raises(ValueError, match="plain momentum, got nesterov"):
        optimizer.step()


def test_a_gradient_in_another_order_of_memory_is_put_in_order():
    ours, theirs = parameters(), parameters()
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0), SGD(theirs, 0.1, 0.9)
    fill(ours, 1), fill(theirs, 1)
    ours[0].grad = ours[0].grad.contiguous()
    fused.step(), usual.step()
    assert_alike(ours, theirs)


def test_what_is_nearly_parallel_keeps_its_digits(is_measured_early):
    (weight,) = (value.detach() for value in parameters()[4:5])
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(5)).to(DEVICE)
    ours = weight.clone().requires_grad_()
    optimizer = FusedSGD([ours], 0.1, 0.9, 0.0, options=Options(renormalize=False))
    set_gradients([ours], [3 * weight + 1e-4 * noise], is_measured_early=is_measured_early)
    optimizer.step()
    result, g, w = (value.double() for value in (optimizer.state[ours]["momentum_buffer"], ours.grad, weight))
    wanted = g - (g @ w) / (w @ w) * w
    # Triton's interpreter rounds products before it adds; a GPU's fused multiply-adds do not.
    assert (result - wanted).norm() <= (1e-2 if DEVICE == "cpu" else 1e-6) * wanted.norm()


@pytest.mark.parametrize("tiny", [1e-3, 1e-12, 1e-30])
def test_a_beginning_that_is_no_sample_of_the_rest_does_no_harm(tiny, is_measured_early):
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(1300, generator=generator) for _ in range(2))
    weight[:500] *= tiny
    assert_projected(0.05 * weight, 1e-3 * gradient, is_measured_early=is_measured_early)


@pytest.mark.parametrize("size", [1e-30, 1e-22, 1e18])
@pytest.mark.parametrize("of_weight", [False, True])
def test_what_float32_cannot_square_is_projected(size, of_weight, is_measured_early):
    generator = torch.Generator().manual_seed(0)
    weight, gradient = (torch.randn(1300, generator=generator) for _ in range(2))
    gradient += weight
    weight, gradient = (size * weight, gradient) if of_weight else (weight, size * gradient)
    assert_projected(weight, gradient, is_measured_early=is_measured_early)


def assert_projected(weight, gradient, *, is_measured_early):
    """Compare the first momentum with the projected gradient in float64."""
    ours = weight.clone().to(DEVICE).requires_grad_()
    optimizer = FusedSGD([ours], 0.1, 0.9, 0.0, options=Options())
    set_gradients([ours], [gradient], is_measured_early=is_measured_early)
    assert (optimizer._statistics.correction_of(ours, ours.grad) is not None) == is_measured_early
    optimizer.step()
    result = optimizer.state[ours]["momentum_buffer"].double().cpu()
    wanted = orthogonal_gradient(gradient.double(), weight.double())
    assert (result - wanted).norm() <= 1e-6 * wanted.norm()


def test_what_goes_past_float32_is_cut_or_left_alone():
    def momentum(weight, gradient):
        ours = torch.tensor(weight, device=DEVICE, requires_grad=True)
        ours.grad = torch.tensor(gradient, device=DEVICE)
        optimizer = FusedSGD([ours], 0.1, 0.9, 0.0, options=Options())
        optimizer.step()
        return optimizer.state[ours]["momentum_buffer"].tolist()

    largest = torch.finfo(torch.float32).max
    assert momentum([1.0, 0.0], [3e38, 3e38]) == pytest.approx([0.0, largest])
    assert momentum([1e-30, 2e-30], [1e20, 3e19]) == pytest.approx([1e20, 3e19])  # c is 3e49


@pytest.mark.parametrize("where", [None, lambda name, parameter: parameter.ndim > 1])
def test_a_plan_that_is_used_again_steps_as_a_new_one(where):
    ours, theirs = ([*parameters(), torch.zeros(0, device=DEVICE, requires_grad=True)] for _ in range(2))
    fused, usual = (
        FusedSGD(ours, 0.1, 0.9, 0.1, options=Options(), where=where),
        SGD(theirs, 0.1, 0.9, weight_decay=0.1),
    )
    attach(usual, where=where)
    fill(ours, 0)
    plans = set()
    for seed in range(4):
        fill(theirs, seed)
        for own, other in zip(ours, theirs, strict=True):
            own.grad.copy_(other.grad)
        fused.step(), usual.step()
        plans.add(id(fused._last[1]))
    assert_alike(ours, theirs)
    assert len(plans) == 1
    for part in fused._last[1]._parts:
        rows = StepColumn(*part.there.split(len(part.gradients)))
        counters = torch.cat([rows.measured, rows.is_ready, rows.stepped])
        assert not counters.any(), "thread blocks would not be awaited the next time"


def test_a_gradient_that_is_not_finite_stays_as_it_is(is_measured_early):
    ours, theirs = parameters(), parameters()
    fused, usual = FusedSGD(ours, 0.1, 0.9, 0.0, options=Options()), SGD(theirs, 0.1, 0.9)
    attach(usual)
    fill(theirs, 1)
    theirs[1].grad[3] = float("inf")
    set_gradients(ours, [parameter.grad for parameter in theirs], is_measured_early=is_measured_early)
    fused.step(), usual.step()
    for result, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(result, wanted, equal_nan=True, rtol=2e-6, atol=1e-6)


def test_other_dtypes_are_refused():
    parameter = torch.zeros(3, dtype=torch.float64, device=DEVICE, requires_grad=True)
    parameter.grad = torch.ones_like(parameter)
    with pytest.raises(ValueError, match="float32"):
        FusedSGD([parameter], 0.1, 0.9, 0.0).step()


@pytest.mark.parametrize("options", [Options(granularity="row"), Options(project="update")])
def test_it_says_what_it_serves(options, monkeypatch):
    monkeypatch.setattr("orthograd.lab.gpu.fused_sgd.has_triton", lambda: True)
    assert FusedSGD.serves(parameters(), None, 0.9)
    assert FusedSGD.serves(parameters(), Options(), 0.9)
    assert not FusedSGD.serves(parameters(), Options(), 0.0)
    assert not FusedSGD.serves(parameters(), options, 0.9)
    assert not FusedSGD.serves([parameter.double() for parameter in parameters()], Options(), 0.9)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")
def test_replays_of_a_graph_step():
    ours, theirs = parameters(), parameters()
    place = torch.tensor(0.1, device=DEVICE)
    optimizers = FusedSGD(ours, place, 0.9, 0.0, options=Options()), FusedSGD(theirs, 0.1, 0.9, 0.0, options=Options())
    fill(ours, 1), fill(theirs, 1)
    optimizers[0].step(), optimizers[1].step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[0].step()
    for rate in (0.1, 0.1, 0.05, 0.01):
        place.fill_(rate)
        optimizers[1].param_groups[0]["lr"] = rate
        graph.replay()
        optimizers[1].step()
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
