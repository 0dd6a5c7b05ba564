"""The state of `orthograd.optim.SGD` and `AdamW`: checkpoints, low precision, master weights and rounding."""

from __future__ import annotations

import pickle
from copy import deepcopy

import pytest
import torch

import orthograd
from orthograd.optim import SGD, AdamW
from tests.optim.steps import (
    ADAMW,
    BOTH,
    DEVICE,
    MOMENTUM,
    assert_alike,
    fill,
    fused,
    parameters,
    take,
    usual,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:⊥Grad acts on no parameter"),
    pytest.mark.usefixtures("several_chunks"),
]


needs_cuda = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_bfloat16_weights_and_states_are_computed_in_float32(kind, settings):
    ours, exact = parameters(dtype=torch.bfloat16), parameters(dtype=torch.bfloat16)
    exact = [torch.nn.Parameter(each.detach().float()) for each in exact]
    optimizers = fused(kind, ours, **settings), usual(kind, exact, **settings)
    for optimizer, tensors in zip(optimizers, (ours, exact), strict=True):
        fill(tensors, 0)
        for tensor in tensors:  # the same gradients in both
            tensor.grad = tensor.grad.bfloat16().to(tensor.dtype)
        optimizer.step()
    assert {each.dtype for each in ours} == {torch.bfloat16}
    assert_alike(ours, exact, tolerance=2**-7)  # Triton's interpreter truncates


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_master_weights_are_exact_and_survive_a_checkpoint(kind, settings):
    ours, exact = parameters(dtype=torch.bfloat16), parameters(dtype=torch.bfloat16)
    exact = [torch.nn.Parameter(each.detach().float()) for each in exact]
    optimizers = [fused(kind, ours, master_weights=True, **settings), usual(kind, exact, **settings)]
    for seed in range(4):
        for optimizer, tensors in zip(optimizers, (ours, exact), strict=True):
            fill(tensors, seed)
            for tensor in tensors:
                tensor.grad = tensor.grad.bfloat16().to(tensor.dtype)
            optimizer.step()
        if seed == 1:
            saved = deepcopy(optimizers[0].state_dict())
            optimizers[0] = fused(kind, ours, master_weights=True, **settings)
            optimizers[0].load_state_dict(saved)
    masters = [optimizers[0].state[each]["master_weight"] for each in ours]
    assert_alike(masters, exact)
    for each, master in zip(ours, masters, strict=True):
        torch.testing.assert_close(each.detach().float(), master, rtol=2**-7, atol=0)


def test_stochastic_rounding_is_right_on_average_and_repeats():
    def trained():
        weight = torch.nn.Parameter(torch.ones(4000, dtype=torch.bfloat16, device=DEVICE))
        optimizer = fused(SGD, [weight], lr=1.0, where=lambda name, p: False, stochastic_rounding=True)
        for _ in range(4):
            weight.grad = torch.full_like(weight, -(2.0**-10))  # an eighth of the distance between neighbours
            optimizer.step()
        return weight.detach().double()

    first, second = trained(), trained()
    assert torch.equal(first, second)
    change = float(first.mean()) - 1
    # Each element goes up by 2⁻⁷ with probability 1/8 in each of four steps.
    assert change == pytest.approx(4 * 2.0**-10, abs=5 * 2.0**-7 * (4 / 8 * 7 / 8 / 4000) ** 0.5)
    plain = torch.nn.Parameter(torch.ones(5, dtype=torch.bfloat16, device=DEVICE))
    optimizer = fused(SGD, [plain], lr=1.0, where=lambda name, p: False)
    plain.grad = torch.full_like(plain, -(2.0**-10))
    optimizer.step()
    assert torch.equal(plain.detach(), torch.ones_like(plain))


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_stochastic_rounding_continues_from_a_checkpoint_bit_for_bit(kind, settings):
    ours, theirs = (parameters(dtype=torch.bfloat16)[:3] for _ in range(2))
    optimizers = [fused(kind, each, stochastic_rounding=True, **settings) for each in (ours, theirs)]
    take(optimizers, (ours, theirs), range(2))
    saved = deepcopy(optimizers[1].state_dict())
    optimizers[1] = fused(kind, theirs, stochastic_rounding=True, **settings)
    optimizers[1].load_state_dict(saved)
    take(optimizers, (ours, theirs), range(2, 4))
    assert all(map(torch.equal, ours, theirs))


def test_values_that_are_not_finite_stay_so_when_rounded():
    weight = torch.nn.Parameter(torch.ones(4, dtype=torch.bfloat16, device=DEVICE))
    optimizer = fused(SGD, [weight], lr=1.0, where=lambda name, p: False, stochastic_rounding=True)
    weight.grad = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0], dtype=torch.bfloat16, device=DEVICE)
    optimizer.step()
    assert weight.tolist()[:2] == [-float("inf"), float("inf")]
    assert weight.isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_checkpoints_go_to_torch_and_back(kind, settings):
    ours, theirs = parameters(), parameters()
    own, other = fused(kind, ours, **settings), usual(kind, theirs, **settings)
    take((own, other), (ours, theirs), range(2))
    states = deepcopy(own.state_dict()), deepcopy(other.state_dict())
    fresh = fused(kind, ours, **settings), usual(kind, theirs, **settings)
    for each, state in zip(fresh, reversed(states), strict=True):
        each.load_state_dict(state)
    take(fresh, (ours, theirs), range(2, 4))
    assert_alike(ours, theirs)


@pytest.mark.parametrize("copied", [deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))])
def test_copies_take_fused_steps(copied):
    optimizer = fused(AdamW, parameters(), **ADAMW)
    (group,) = optimizer.param_groups
    fill(group["params"], 0)
    optimizer.step()
    del optimizer.plain_step
    twin = copied(optimizer)
    twin.plain_step = lambda: pytest.fail("the step was not fused")
    for each in (optimizer, twin):
        fill(each.param_groups[0]["params"], 1)
        each.step()
    assert_alike(group["params"], twin.param_groups[0]["params"], tolerance=0)


def test_a_changed_parameter_changes_its_master_weight():
    (ours,) = parameters(dtype=torch.bfloat16)[2:3]
    optimizer = fused(SGD, [ours], lr=2.0**-12, master_weights=True)
    fill([ours], 0)
    optimizer.step()
    exact = optimizer.state[ours]["master_weight"].clone()
    with torch.no_grad():
        ours[:20] = 7
    fill([ours], 1)
    optimizer.step()
    master = optimizer.state[ours]["master_weight"]
    torch.testing.assert_close(master[:20], torch.full_like(master[:20], 7), rtol=0, atol=0.01)
    torch.testing.assert_close(master[20:], exact[20:], rtol=2**-7, atol=0.01)


def test_a_master_weight_that_was_not_updated_is_not_used_again():
    (ours,) = parameters(dtype=torch.bfloat16)[2:3]
    first = fused(SGD, [ours], lr=1e-4, master_weights=True)
    fill([ours], 0)
    first.step()
    for kind in (SGD, torch.optim.SGD):
        between = kind([ours], lr=1.0)
        between.load_state_dict(first.state_dict())
        with torch.no_grad():
            ours.fill_(5)
        last = fused(SGD, [ours], lr=1e-4, master_weights=True)
        last.load_state_dict(between.state_dict())
        fill([ours], 1)
        last.step()
        torch.testing.assert_close(ours.detach().float(), torch.full_like(ours, 5).float(), rtol=0, atol=0.1)


def test_master_weights_follow_their_parameter_to_another_memory_order():
    ours = parameters(dtype=torch.bfloat16)[:1]
    optimizer = fused(SGD, ours, master_weights=True, **MOMENTUM)
    fill(ours, 0)
    optimizer.step()
    exact = optimizer.state[ours[0]]["master_weight"].clone()
    ours[0].data = ours[0].data.contiguous()
    ours[0].grad = torch.zeros_like(ours[0])
    optimizer.param_groups[0].update(lr=0.0)
    optimizer.step()
    assert optimizer.state[ours[0]]["master_weight"].is_contiguous()
    assert torch.equal(optimizer.state[ours[0]]["master_weight"], exact)


@pytest.mark.parametrize("options", [{}, {"master_weights": True}, {"stochastic_rounding": True}])
def test_verify_knows_the_rounding_of_low_precision(options):
    weights = parameters(dtype=torch.bfloat16)[:1]
    handle = orthograd.attachment.attachment_of(AdamW(weights, engine="triton", **options))
    assert handle.verify().is_complete


def test_after_removing_orthograd_steps_with_master_weights_are_still_fused():
    ours, theirs = parameters(dtype=torch.bfloat16)[2:3], parameters(dtype=torch.bfloat16)[2:3]
    optimizer = SGD(ours, engine="triton", lr=0.1, master_weights=True)
    orthograd.attachment.attachment_of(optimizer).remove()
    take((optimizer, torch.optim.SGD(theirs, lr=0.1)), (ours, theirs), [0])
    assert_alike(ours, theirs, tolerance=2**-7)


@needs_cuda
def test_the_fused_step_is_chosen_without_asking_and_torch_gets_a_fused_checkpoint():
    ours, theirs = parameters(), parameters()
    optimizer = AdamW(ours, **ADAMW)
    optimizer.plain_step = lambda: pytest.fail("the step was not fused")
    fill(ours, 0)
    optimizer.step()
    plain = torch.optim.AdamW(theirs, **ADAMW)
    plain.load_state_dict(deepcopy(optimizer.state_dict()))
    assert plain.param_groups[0]["fused"]
    assert all(state["step"].is_cuda for state in plain.state.values())


@pytest.mark.parametrize("name", ["exp_avg_sq", "master_weight"])
def test_state_of_another_shape_is_refused(name):
    """The kernels would read and write past its end."""
    ours = parameters(dtype=torch.bfloat16)
    optimizer = fused(AdamW, ours, **ADAMW, master_weights=True)
    take([optimizer], [ours], [0])
    optimizer.state[ours[2]][name] = optimizer.state[ours[2]][name][:-1].clone()
    fill(ours, 1)
    with pytest.raises(ValueError, match=rf"expected {name} of shape \(40, 14\), as its parameter, got \(39, 14\)"):
        optimizer.step()


def test_a_parameter_that_has_grown_is_refused():
    ours = parameters()
    optimizer = fused(SGD, ours, **MOMENTUM)
    take([optimizer], [ours], [0])
    ours[2].grad = None
    ours[2].data = torch.cat([ours[2].detach()] * 2)
    fill(ours, 1)
    with pytest.raises(ValueError, match=r"expected momentum_buffer of shape \(80, 14\)"):
        optimizer.step()


@pytest.mark.parametrize(
    ("kind", "settings", "missing"),
    [(SGD, MOMENTUM, "momentum_buffer"), (AdamW, ADAMW, "exp_avg, exp_avg_sq, step")],
)
def test_state_does_not_begin_inside_a_graph(kind, settings, missing, monkeypatch):
    ours = parameters()
    optimizer = fused(kind, ours, **settings)
    fill(ours, 0)
    monkeypatch.setattr("orthograd.optim.fused_plans.is_capturing", lambda: True)
    with pytest.raises(RuntimeError, match=f"expected {missing} of an earlier step, got none: .*Take a step before"):
        optimizer.step()


def test_a_checkpoint_of_a_step_that_is_not_fused_keeps_ours_fused(monkeypatch):
    monkeypatch.setattr("orthograd.optim.fused._is_on_cuda", lambda parameter: True)
    ours, theirs = parameters(), parameters()
    own, other = AdamW(ours, **ADAMW), usual(AdamW, theirs, foreach=False, fused=None, **ADAMW)
    take([other], [theirs], [0])
    own.load_state_dict(deepcopy(other.state_dict()))
    with torch.no_grad():
        for mine, given in zip(ours, theirs, strict=True):
            mine.copy_(given)
    assert (own.param_groups[0]["fused"], other.param_groups[0]["fused"]) == (True, None)
    take((own, other), (ours, theirs), range(1, 3))
    assert_alike(ours, theirs)


def test_a_new_plan_for_the_same_sizes_copies_no_new_schedule_to_the_gpu():
    """A CUDA graph would copy it in each replay."""

    def schedule(optimizer):
        attachment = orthograd.attachment.attachment_of(optimizer)
        (part,) = attachment._plans._last.plans[0]._parts
        return part.schedule.there

    ours = parameters()
    optimizer = fused(SGD, ours, **MOMENTUM)
    take([optimizer], [ours], [0])
    first = schedule(optimizer)
    optimizer.load_state_dict(optimizer.state_dict())  # the momentum lies elsewhere now
    take([optimizer], [ours], [1])
    assert schedule(optimizer) is first
    fill(ours, 2)
    ours[2].grad = None
    optimizer.step()
    assert schedule(optimizer) is not first


def test_a_schedule_is_not_lent_to_another_device():
    step_plan = pytest.importorskip("orthograd.engine.step_plan")
    here, there = torch.randn(4, 8, device=DEVICE), torch.randn(4, 8, device="meta")
    first, second = (step_plan.Stepped(each, each, is_projected=True) for each in (here, there))
    (part,) = step_plan.StepPlan([first], step_plan.Rule("plain"))._parts
    schedule = step_plan._Schedule.of([second], [step_plan.chunks_of(there)], [part.schedule])
    assert schedule.there.device == there.device


def in_bfloat16(weight):
    half = weight.grad.flatten().view(torch.bfloat16)[: weight.numel()].view_as(weight)
    weight.grad.data = half.copy_(torch.randn(half.shape))


def negated(weight):
    weight.grad = torch._neg_view(weight.grad)


@pytest.mark.parametrize(("changed", "tolerance"), [(in_bfloat16, 1e-2), (negated, 1e-5)])
@pytest.mark.parametrize("options", [None, {"engine": "triton"}])
def test_a_gradient_of_another_dtype_or_sign_at_the_same_address_needs_a_new_plan(options, changed, tolerance):
    weight = torch.nn.Parameter(torch.randn(4, 8, device=DEVICE))
    exact = torch.nn.Parameter(weight.detach().clone())
    # torch's step for many tensors refuses gradients of another dtype
    settings = {"lr": 0.1, "foreach": False}
    reference = usual(SGD, [exact], **settings, options={"engine": "reference"})
    is_fused = options is None
    optimizer = (
        SGD([weight], lr=0.1, engine="triton") if is_fused else usual(SGD, [weight], **settings, options=options)
    )
    weight.grad = torch.randn(4, 8, device=DEVICE)
    for is_changed in (False, True):
        if is_changed:
            changed(weight)
        exact.grad = weight.grad.resolve_neg().float().clone()
        optimizer.step(), reference.step()
    assert_alike([weight], [exact], tolerance=tolerance)


def test_a_weight_transposed_in_place_needs_a_new_plan():
    weight = torch.nn.Parameter(torch.randn(8, 8, device=DEVICE))
    exact = torch.nn.Parameter(weight.detach().clone())
    optimizers = fused(SGD, [weight], **MOMENTUM), usual(SGD, [exact], **MOMENTUM)
    weight.grad = torch.randn(8, 8, device=DEVICE)
    exact.grad = weight.grad.clone()
    for step in range(2):
        if step == 1:
            weight.data, exact.data = weight.data.t(), exact.data.t()
        exact.grad.copy_(weight.grad)
        for each in optimizers:
            each.step()
    assert_alike([weight], [exact], tolerance=1e-5)


def test_a_backward_pass_with_the_weights_of_before_raises_for_swapped_parameters_too():
    model = torch.nn.Linear(8, 4).to(DEVICE)
    optimizer, inputs = fused(SGD, model.parameters(), lr=0.1), torch.randn(3, 8, device=DEVICE, requires_grad=True)
    model(inputs).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    torch.utils.swap_tensors(model.weight, torch.nn.Parameter(model.weight.data))  # another version counter
    output = model(inputs).sum()
    fill(model.parameters(), 1)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.backward()
