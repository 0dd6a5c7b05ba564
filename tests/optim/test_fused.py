"""`orthograd.optim.SGD` and `AdamW` against `attach` on torch's; by Triton's interpreter on the CPU, or on a GPU."""

from __future__ import annotations

import inspect
from copy import deepcopy

import pytest
import torch

import orthograd
from orthograd import attach
from orthograd.attachment import attachment_of
from orthograd.optim import SGD, AdamW, OrthoSGD
from tests.optim.steps import (
    ADAMW,
    BOTH,
    DEVICE,
    MOMENTUM,
    SETTINGS,
    SHAPES,
    assert_alike,
    fill,
    fused,
    parameters,
    take,
    usual,
)

StepColumn = pytest.importorskip("orthograd.engine.step_kernels", exc_type=ImportError).StepColumn
pytestmark = [
    pytest.mark.filterwarnings("ignore:⊥Grad acts on no parameter"),
    pytest.mark.usefixtures("several_chunks"),
]


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_steps_and_states_are_those_of_torch_with_attach(kind, settings):
    ours, theirs = parameters(), parameters()
    optimizers = fused(kind, ours, **settings), usual(kind, theirs, **settings)
    take(optimizers, (ours, theirs), range(3))
    assert_alike(ours, theirs)
    for own, other in zip(ours, theirs, strict=True):
        states = [optimizer.state[p] for optimizer, p in zip(optimizers, (own, other), strict=True)]
        assert list(states[0]) == list(states[1])
        assert_alike((v.cpu() for v in states[0].values()), (v.cpu() for v in states[1].values()))


@pytest.mark.parametrize(("kind", "settings"), BOTH)
@pytest.mark.parametrize("options", [{"renormalize": False}, {"scalars": True}])
def test_options_are_those_of_attach(kind, settings, options):
    ours, theirs = parameters(), parameters()
    take(
        (fused(kind, ours, **settings, **options), usual(kind, theirs, options=options, **settings)),
        (ours, theirs),
        [0],
    )
    assert_alike(ours, theirs)


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_groups_differ_in_rate_and_in_orthograd(kind, settings):
    def groups(tensors):
        return [
            {"params": tensors[:2], "lr": 0.003, "weight_decay": 0.0},
            {"params": tensors[2:4], "orthogonal": False},
            {"params": tensors[4:], "orthogonal": {"renormalize": False}},
        ]

    ours, theirs = parameters(), parameters()
    optimizers = fused(kind, groups(ours), **settings), usual(kind, groups(theirs), **settings)
    take(optimizers, (ours, theirs), range(2))
    assert_alike(ours, theirs)


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_where_leaves_parameters_to_the_plain_step(kind, settings):
    def is_matrix(name, parameter):
        return parameter.ndim == 2

    ours, theirs = parameters(), parameters()
    optimizers = (
        fused(kind, ours, where=is_matrix, **settings),
        usual(kind, theirs, options={"where": is_matrix}, **settings),
    )
    take(optimizers, (ours, theirs), range(2))
    assert_alike(ours, theirs)


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_elsewhere_the_steps_are_those_of_the_class_by_name(kind, settings):
    ours, theirs = parameters(), parameters()
    other = getattr(orthograd.optim, f"Ortho{kind.__name__}")
    options = {"granularity": "row"}
    same = {"fused": True} if kind is AdamW and DEVICE == "cuda" else {}  # as ours is there
    take((kind(ours, **settings, **options), other(theirs, **settings, **options, **same)), (ours, theirs), range(3))
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.5}),
        (AdamW, {"amsgrad": True}),
        (AdamW, {"weight_decay": torch.tensor(0.1)}),
    ],
)
@pytest.mark.parametrize("project", ["gradient", "update"])
def test_settings_without_a_kernel_take_the_steps_of_torch(kind, settings, project):
    ours, theirs = parameters(), parameters()
    optimizers = (
        kind(ours, engine="triton", project=project, **settings),
        usual(kind, theirs, options={"engine": "triton", "project": project}, **settings),
    )
    take(optimizers, (ours, theirs), range(2))
    assert_alike(ours, theirs, tolerance=1e-6)


def test_what_is_only_fused_says_so_elsewhere():
    (weight,) = (torch.nn.Parameter(torch.ones(3, 2, dtype=torch.float64)),)
    weight.grad = torch.ones_like(weight)
    with pytest.raises(ValueError, match="only where the step of AdamW is fused: expected float32 or bfloat16"):
        AdamW([weight], master_weights=True).step()


def test_rates_gradients_states_and_groups_may_change_between_steps():
    ours, theirs = parameters(), parameters()
    own, other = fused(SGD, ours, **MOMENTUM), usual(SGD, theirs, **MOMENTUM)
    kept = []  # so that gradients have another address each time
    for seed, rate in enumerate((0.1, 0.1, 0.02, 0.02, 0.03, 0.03)):
        fill(ours, seed), fill(theirs, seed)
        kept.append([parameter.grad for parameter in ours])
        if seed == 2:
            ours[2].grad = theirs[2].grad = None
        for optimizer, tensors in ((own, ours), (other, theirs)):
            optimizer.param_groups[0]["lr"] = rate
            if seed == 3:
                optimizer.state[tensors[1]]["momentum_buffer"] = torch.ones_like(tensors[1])
            elif seed == 4:
                optimizer.state.clear()
                optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, 2, device=DEVICE))]})
                optimizer.param_groups[1]["params"][0].grad = torch.full((3, 2), 0.5, device=DEVICE)
                optimizer.param_groups[1]["params"][0].grad[0, 0] = 3
            elif seed == 5:
                optimizer.param_groups[0]["nesterov"] = True
            optimizer.step()
        assert_alike(ours, theirs)
    assert_alike(own.param_groups[1]["params"], other.param_groups[1]["params"])


def test_plans_are_made_once_and_moved_with_the_gradients(monkeypatch):
    made = []
    from orthograd.engine import step_plan

    original = step_plan.StepPlan.__init__
    monkeypatch.setattr(step_plan.StepPlan, "__init__", lambda *a, **k: (made.append(1), original(*a, **k))[1])
    ours = parameters()
    optimizer = fused(AdamW, ours, **ADAMW)
    kept, directories = [], set()
    for seed in range(4):
        fill(ours, seed)
        kept.append([parameter.grad for parameter in ours])
        optimizer.step()
        parts = attachment_of(optimizer)._plans._last.plans[0]._parts
        directories.add(tuple(part.there.data_ptr() for part in parts))
    if all(parameter.grad.data_ptr() % 16 == 0 for parameter in ours):
        assert len(made) == 1
        assert len(directories) == 1, "memory on the device in each step moves the next gradients"


def in_two_groups():
    """Parameters and optimizers with ⊥Grad, fused and usual, with a parameter for each of two groups."""
    ours, theirs = ([all_of_them[2], all_of_them[4]] for all_of_them in (parameters(), parameters()))
    optimizers = [
        make(SGD, [{"params": each[:1]}, {"params": each[1:], "lr": 0.05}], **MOMENTUM)
        for make, each in ((fused, ours), (usual, theirs))
    ]
    return ours, theirs, optimizers


def gradients_like(tensors, offset):
    """Random gradients; that of the last tensor starts so many elements from a round address."""
    memory = [torch.randn(tensor.numel() + 16, device=DEVICE) for tensor in tensors]
    memory[-1] = memory[-1][offset:]
    return [each[: tensor.numel()].view_as(tensor) for each, tensor in zip(memory, tensors, strict=True)]


def step_all(optimizers, ours, theirs, gradients):
    for mine, their, gradient in zip(ours, theirs, gradients, strict=True):
        mine.grad, their.grad = gradient, gradient.clone()
    for optimizer in optimizers:
        optimizer.step()


def test_plans_that_cannot_move_are_made_anew_and_lend_what_depends_on_sizes_alone(monkeypatch):
    from orthograd.engine import step_plan

    schedules, entries = [], step_plan._entries
    monkeypatch.setattr(step_plan, "_entries", lambda *given: schedules.append(1) or entries(*given))
    ours, theirs, optimizers = in_two_groups()
    kept = []
    for step in range(6):  # in two steps the second group is not aligned: the first one's plan has moved by then
        kept.append(gradients_like(ours, offset=int(step in (2, 3))))
        step_all(optimizers, ours, theirs, kept[-1])
        assert_alike(ours, theirs)
    assert len(schedules) == 2


def test_a_step_that_fails_leaves_no_plan_for_other_gradients(monkeypatch):
    ours, theirs, optimizers = in_two_groups()
    first, second = gradients_like(ours, 0), gradients_like(ours, 1)
    step_all(optimizers, ours, theirs, first)
    plans = attachment_of(optimizers[0])._plans
    made = plans._made
    monkeypatch.setattr(plans, "_made", lambda *given: pytest.fail("as if memory were full"))
    with pytest.raises(pytest.fail.Exception):
        step_all(optimizers[:1], ours, theirs, second)
    monkeypatch.setattr(plans, "_made", made)
    step_all(optimizers, ours, theirs, first)
    assert_alike(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"where": lambda name, parameter: parameter.ndim > 1}])
def test_thread_blocks_are_awaited_in_every_step(options):
    ours = [*parameters(), torch.zeros(0, device=DEVICE, requires_grad=True)]
    optimizer = fused(SGD, ours, **MOMENTUM, **options)
    for seed in range(2):
        fill(ours, seed)
        optimizer.step()
    plan = attachment_of(optimizer)._plans._last.plans[0]
    for part in plan._parts:
        rows = StepColumn(*part.there.split(len(part.gradients)))
        counters = torch.cat([rows.measured, rows.is_ready, rows.stepped])
        assert not counters.any(), "thread blocks would not be awaited the next time"


def test_what_goes_past_float32_is_cut_or_left_alone():
    def momentum(weight, gradient):
        ours = torch.tensor(weight, device=DEVICE, requires_grad=True)
        ours.grad = torch.tensor(gradient, device=DEVICE)
        optimizer = fused(SGD, [ours], lr=0.1, momentum=0.9)
        optimizer.step()
        return optimizer.state[ours]["momentum_buffer"].tolist()

    largest = torch.finfo(torch.float32).max
    assert momentum([1.0, 0.0], [3e38, 3e38]) == pytest.approx([0.0, largest])
    assert momentum([1e-30, 2e-30], [1e20, 3e19]) == pytest.approx([1e20, 3e19])  # c is 3e49


def test_a_gradient_that_goes_from_one_parameter_to_another_steps_the_other():
    first, second = (torch.zeros(4, device=DEVICE, requires_grad=True) for _ in range(2))
    gradient, optimizer = torch.ones(4, device=DEVICE), fused(SGD, [first, second], lr=0.1, momentum=0.9)
    for parameter, other in ((first, second), (second, first)):
        parameter.grad, other.grad = gradient, None
        optimizer.step()
    assert torch.equal(first, second)


def test_a_gradient_in_another_memory_order_is_read_anew_each_time():
    ours, theirs = parameters(), parameters()
    optimizers = fused(SGD, ours, **MOMENTUM), usual(SGD, theirs, **MOMENTUM)
    for seed in range(3):
        for optimizer, tensors in zip(optimizers, (ours, theirs), strict=True):
            fill(tensors, seed)
            tensors[0].grad = tensors[0].grad.contiguous()
            optimizer.step()
    assert_alike(ours, theirs)


@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_a_closure_is_called_once_and_gradients_are_left_as_they_are(kind, settings):
    ours, calls = parameters(), []
    optimizer = fused(kind, ours, **settings)

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = sum(each.square().sum() for each in ours)
        loss.backward()
        return loss

    before = [2 * each.detach() for each in ours]
    assert optimizer.step(closure) > 0
    assert calls == [1]
    assert_alike([each.grad for each in ours], before)


def test_a_backward_pass_that_needs_the_weight_before_the_step_raises():
    weight = torch.nn.Parameter(torch.ones(3, 2, device=DEVICE))
    optimizer = fused(SGD, [weight], **MOMENTUM)
    loss = weight.square().sum()
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooks_run_once_and_removing_leaves_the_step_of_torch():
    ours, theirs, calls = parameters(), parameters(), []
    optimizer = SGD(ours, engine="triton", **MOMENTUM)
    optimizer.register_step_pre_hook(lambda *_: calls.append("before"))
    optimizer.register_step_post_hook(lambda *_: calls.append("after"))
    fill(ours, 0)
    optimizer.step()
    assert calls == ["before", "after"]
    plain = torch.optim.SGD(theirs, **MOMENTUM)
    plain.load_state_dict(deepcopy(optimizer.state_dict()))
    with torch.no_grad():
        torch._foreach_copy_(theirs, ours)
    handle = orthograd.attachment.attachment_of(optimizer)
    handle.remove()
    take((optimizer, plain), (ours, theirs), [1])
    assert all(map(torch.equal, ours, theirs))


def test_verify_agrees_and_everywhere_leaves_it_alone():
    with orthograd.everywhere() as handles:
        optimizer = SGD(parameters(), **MOMENTUM)
        torch.optim.SGD(parameters(), lr=0.1)
    assert len(handles) == 1
    report = orthograd.attachment.attachment_of(optimizer).verify()
    assert report.is_complete
    with pytest.raises(ValueError, match="already attached"):
        attach(optimizer)


def test_the_constructor_is_that_of_torch_and_refuses_what_it_does_not_know():
    named = inspect.signature(AdamW).parameters
    assert set(inspect.signature(torch.optim.AdamW).parameters) <= set(named)
    assert {"renormalize", "stochastic_rounding", "master_weights", "where"} <= set(named)
    with pytest.raises(TypeError, match="unexpected keyword argument 'rate'"):
        SGD(parameters(), rate=0.1)
    with pytest.raises(TypeError, match="should be an iterable"):
        SGD(parameters()[0])
    for given in (iter(parameters()), [{"params": iter(parameters())}], [("weight", parameters()[0])]):
        (group,) = SGD(given, 0.1, 0.9).param_groups
        assert group["params"][0].shape == SHAPES[0]


# What a group, a subclass, or a change from outside can do


def test_a_class_with_a_step_of_its_own_is_not_left_without_projection():
    class Own(SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for parameter in self.param_groups[0]["params"]:
                parameter.sub_(parameter.grad)

    ours = parameters()
    fill(ours, 0)
    with pytest.raises(RuntimeError, match=r"Own was taken that did not call step .* super\(\)\.step\(\)"):
        Own(ours, lr=0.1).step()

    class Counting(SGD):
        def step(self, closure=None):
            return super().step(closure)

    theirs = parameters()
    take((Counting(ours := parameters(), **MOMENTUM), SGD(theirs, **MOMENTUM)), (ours, theirs), range(2))
    assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("settings", [{"lr": 0.1, "weight_decay": 0.3}, MOMENTUM])
def test_coupled_decay_is_a_part_of_the_projected_update(settings):
    ours, theirs = parameters(), parameters()
    optimizers = [kind(each, project="update", **settings) for kind, each in ((SGD, ours), (OrthoSGD, theirs))]
    take(optimizers, (ours, theirs), range(3))
    assert all(map(torch.equal, ours, theirs))


def test_groups_without_momentum_and_with_coupled_decay_step_as_those_of_torch():
    def groups(tensors, **own):
        return [{"params": tensors[:2]}, {"params": tensors[2:], **own}]

    for kind, settings, own in (
        (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}, {"momentum": 0.0}),
        (AdamW, {"lr": 0.1, "weight_decay": 0.5}, {"decoupled_weight_decay": False}),
    ):
        ours, theirs = parameters(), parameters()
        optimizers = (
            kind(groups(ours, **own), engine="triton", **settings),
            usual(kind, groups(theirs, **own), **settings),
        )
        take(optimizers, (ours, theirs), range(2))
        assert_alike(ours, theirs)


@pytest.mark.parametrize("name", ["stochastic_rounding", "master_weights"])
def test_settings_of_the_whole_optimizer_are_refused_in_a_group(name):
    with pytest.raises(TypeError, match=f"expected {name} as an argument of SGD, got it in a group"):
        SGD([{"params": parameters(), name: True}], lr=0.1)
    optimizer = SGD(parameters(), lr=0.1, **{name: True})
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(3, 2))]})
    first, second = optimizer.param_groups
    assert set(first) == set(second)


def test_parameters_with_gaps_and_lazy_ones_are_left_to_the_step_of_torch():
    ours, theirs = ([torch.nn.Parameter(parameters()[2].detach()[:, ::2])] for _ in range(2))
    optimizers = SGD(ours, engine="triton", **MOMENTUM), usual(SGD, theirs, **MOMENTUM)
    take(optimizers, (ours, theirs), range(2))
    assert_alike(ours, theirs)
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.LazyLinear(3)).to(DEVICE)
    optimizer = SGD(model.parameters(), engine="triton", lr=0.1)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = model[0].weight.detach().clone()
    optimizer.step()
    assert not torch.equal(before, model[0].weight)


needs_cuda = pytest.mark.skipif(DEVICE == "cpu", reason="needs a CUDA device")


@needs_cuda
@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
def test_replays_of_a_graph_are_steps(kind, settings):
    settings = {**settings, "lr": torch.tensor(settings["lr"], device=DEVICE)}
    ours, theirs = parameters(), parameters()
    own, other = fused(kind, ours, **settings), fused(kind, theirs, **{**settings, "lr": float(settings["lr"])})
    fill(ours, 0), fill(theirs, 0)
    own.step(), other.step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        own.step()
    for rate in (0.01, 0.01, 0.005):
        settings["lr"].fill_(rate)
        other.param_groups[0]["lr"] = rate
        graph.replay()
        other.step()
    assert all(map(torch.equal, ours, theirs))


@needs_cuda
@pytest.mark.parametrize(("kind", "settings"), BOTH)
def test_a_step_never_waits_for_the_gpu(kind, settings):
    ours = parameters()
    optimizer = fused(kind, ours, **settings)
    for seed in range(3):
        fill(ours, seed)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error" if seed else "default")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")


@needs_cuda
@pytest.mark.parametrize(("kind", "settings"), BOTH)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_tensors_are_those_of_torch_with_attach(kind, settings, dtype):
    def large():
        generator = torch.Generator(DEVICE).manual_seed(0)
        shapes = [(3000, 4000), (7,), (1000, 1001), (30_000_001,)]
        return [
            torch.nn.Parameter(torch.randn(shape, generator=generator, device=DEVICE).to(dtype)) for shape in shapes
        ]

    ours, theirs = large(), large()
    optimizers = fused(kind, ours, **settings), usual(kind, theirs, **settings)
    for seed in range(3):
        generator = torch.Generator(DEVICE).manual_seed(seed)
        for own, other in zip(ours, theirs, strict=True):
            own.grad = torch.randn(own.shape, generator=generator, device=DEVICE).to(dtype)
            other.grad = own.grad.clone()
        for optimizer in optimizers:
            optimizer.step()
    assert_alike(ours, theirs, tolerance=2e-6 if dtype == torch.float32 else 2**-6)


@needs_cuda
def test_a_gradient_scaler_unscales_and_skips():
    ours, theirs = parameters(), parameters()
    optimizers = fused(SGD, ours, **MOMENTUM), usual(SGD, theirs, **MOMENTUM)
    scalers = [torch.amp.GradScaler(DEVICE, init_scale=8.0) for _ in optimizers]
    for seed in range(3):
        for optimizer, tensors, scaler in zip(optimizers, (ours, theirs), scalers, strict=True):
            scaler.scale(torch.ones((), device=DEVICE))
            fill(tensors, seed)
            for tensor in tensors:
                tensor.grad *= 8.0 if seed != 1 else float("inf")
            scaler.step(optimizer)
            scaler.update(8.0)
    assert_alike(ours, theirs)


@needs_cuda
def test_a_rate_in_other_memory_is_not_read_as_the_one_before():
    ours, theirs = parameters(), parameters()
    rates = [torch.tensor(0.1, device=DEVICE), torch.tensor(0.1, device=DEVICE, dtype=torch.float64)]
    own, other = SGD(ours, **{**MOMENTUM, "lr": rates[0]}), usual(SGD, theirs, **{**MOMENTUM, "lr": rates[0]})
    for seed, rate in enumerate(rates):
        own.param_groups[0]["lr"] = other.param_groups[0]["lr"] = rate
        take((own, other), (ours, theirs), [seed])
    assert_alike(ours, theirs)
