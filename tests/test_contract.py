"""One contract over every optimizer of torch.optim that takes dense gradients."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import optim

import orthograd
from tests.conftest import TORCH, cosine, loss_of, network

OPTIMIZERS = {
    "SGD": (optim.SGD, {"lr": 0.05}),
    "SGD with momentum": (optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 5e-4}),
    "Adadelta": (optim.Adadelta, {"lr": 0.5}),
    "Adafactor": (getattr(optim, "Adafactor", None), {"lr": 0.05}),
    "Adagrad": (optim.Adagrad, {"lr": 0.05}),
    "Adam": (optim.Adam, {"lr": 0.01, "amsgrad": True}),
    "AdamW": (optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}),
    "AdamW, fused": (optim.AdamW, {"lr": 0.01, "fused": True}),
    "AdamW, foreach": (optim.AdamW, {"lr": 0.01, "foreach": True}),
    "Adamax": (optim.Adamax, {"lr": 0.01}),
    "ASGD": (optim.ASGD, {"lr": 0.05}),
    "LBFGS": (optim.LBFGS, {"lr": 0.1, "max_iter": 3}),
    "LBFGS with line search": (optim.LBFGS, {"lr": 0.5, "max_iter": 4, "line_search_fn": "strong_wolfe"}),
    "Muon": (getattr(optim, "Muon", None), {"lr": 0.02}),
    "NAdam": (optim.NAdam, {"lr": 0.01}),
    "RAdam": (optim.RAdam, {"lr": 0.01}),
    "RMSprop": (optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    "Rprop": (optim.Rprop, {"lr": 0.01}),
}
MISSING = [name for name, (kind, _) in OPTIMIZERS.items() if kind is None]
each_optimizer = pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.skipif(n in MISSING, reason=f"no {n} in this torch")) for n in OPTIMIZERS],
)


def made(name, model, kind=None, **more):
    base, options = OPTIMIZERS[name]
    # Muon takes matrices only.
    chosen = [p for p in model.parameters() if name != "Muon" or p.ndim == 2]
    return (kind or base)(chosen, **options, **more)


def train(model, optimizer, steps, *, project=lambda: None):
    """Steps in the way of the optimizer: with a closure for LBFGS, without for the rest."""
    for step in steps:

        def closure(step=step):
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            project()
            return loss

        if isinstance(optimizer, optim.LBFGS):
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()


def twins():
    model = network()
    return model, copy.deepcopy(model)


def assert_equal(left, right):
    for (name, a), b in zip(left.named_parameters(), right.parameters(), strict=True):
        assert torch.equal(a, b), f"{name} differs by {(a - b).abs().max()}"


def by_hand(optimizer):
    return lambda: orthograd.orthogonalize_([p for group in optimizer.param_groups for p in group["params"]])


@each_optimizer
def test_attached_step_is_projection_by_hand_then_base_step(name):
    attached, manual = twins()
    first, second = made(name, attached), made(name, manual)
    orthograd.attach(first)
    train(attached, first, range(6))
    train(manual, second, range(6), project=by_hand(second))
    assert_equal(attached, manual)


@each_optimizer
def test_attached_step_agrees_with_the_float64_reference(name):
    fast, reference = twins()
    first, second = made(name, fast), made(name, reference)
    orthograd.attach(first)
    orthograd.attach(second, engine="reference")
    train(fast, first, range(3))
    train(reference, second, range(3))
    for a, b in zip(fast.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@each_optimizer
def test_subclass_and_published_form_are_the_same_thing(name):
    models = [network() for _ in range(3)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    base, _ = OPTIMIZERS[name]
    attached = made(name, models[0])
    orthograd.attach(attached)
    subclass = made(name, models[1], orthograd.orthogonal(base))
    published = made(name, models[2], lambda params, **options: orthograd.OrthoGrad(params, base, **options))
    for model, optimizer in zip(models, (attached, subclass, published), strict=True):
        assert isinstance(optimizer, base)
        train(model, optimizer, range(4))
    assert_equal(models[0], models[1])
    assert_equal(models[0], models[2])


@each_optimizer
@pytest.mark.parametrize("stop", [1, 3])
@pytest.mark.parametrize("project", ["gradient", "update"])
def test_resume_from_state_dict_equals_never_having_stopped(name, stop, project):
    straight, resumed = twins()
    first, second = made(name, straight), made(name, resumed)
    orthograd.attach(first, project=project)
    orthograd.attach(second, project=project)
    train(straight, first, range(5))
    train(resumed, second, range(stop))
    saved = copy.deepcopy((resumed.state_dict(), second.state_dict()))
    fresh = network()
    fresh.load_state_dict(saved[0])
    third = made(name, fresh)
    orthograd.attach(third, project=project)
    third.load_state_dict(saved[1])
    train(fresh, third, range(stop, 5))
    assert_equal(straight, fresh)


@each_optimizer
@pytest.mark.parametrize("through", ["deepcopy", "pickle"])
@pytest.mark.parametrize("form", ["attach", "orthogonal"])
def test_copies_go_on_with_orthograd(name, through, form):
    if name.startswith("LBFGS"):
        pytest.skip("torch's LBFGS loses its list of parameters in a copy, with ⊥Grad or without")
    model = network()
    optimizer = made(name, model, orthograd.orthogonal(OPTIMIZERS[name][0]) if form == "orthogonal" else None)
    if form == "attach":
        orthograd.attach(optimizer)
    train(model, optimizer, range(2))
    both = (model, optimizer)
    # The network is a local class, which pickle cannot find, so its parameters go alone.
    copied = copy.deepcopy(both) if through == "deepcopy" else _through_pickle(both)
    train(model, optimizer, range(2, 5))
    train(*copied, range(2, 5))
    assert type(copied[1]) is type(optimizer)
    assert_equal(model, copied[0])


def _through_pickle(both):
    model, optimizer = both
    parameters, optimizer = pickle.loads(pickle.dumps((list(model.parameters()), optimizer)))
    twin = copy.deepcopy(model)
    for module_name, module in twin.named_modules():
        for name in dict(module.named_parameters(recurse=False)):
            full = f"{module_name}.{name}" if module_name else name
            index = [n for n, _ in model.named_parameters()].index(full)
            setattr(module, name, parameters[index])
    return twin, optimizer


@each_optimizer
def test_detached_optimizer_steps_as_before(name):
    model, plain = twins()
    first, second = made(name, model), made(name, plain)
    handle = orthograd.attach(first)
    assert handle.is_attached
    handle.remove()
    handle.remove()  # twice is fine
    assert not handle.is_attached
    train(model, first, range(3))
    train(plain, second, range(3))
    assert_equal(model, plain)
    orthograd.attach(first)  # and it can be attached again


@each_optimizer
def test_scheduler_steers_the_attached_optimizer(name):
    attached, manual = twins()
    first, second = made(name, attached), made(name, manual)
    orthograd.attach(first)
    schedulers = [optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5) for optimizer in (first, second)]
    for step in range(3):
        train(attached, first, [step])
        train(manual, second, [step], project=by_hand(second))
        for scheduler in schedulers:
            scheduler.step()
    assert first.param_groups[0]["lr"] == OPTIMIZERS[name][1]["lr"] / 8
    assert_equal(attached, manual)


@each_optimizer
def test_added_param_groups_are_projected(name):
    if name.startswith("LBFGS"):
        pytest.skip("LBFGS has one param group by design")
    if name == "Adagrad" and TORCH < (2, 10):
        pytest.skip("this torch's Adagrad cannot step with an added group, with ⊥Grad or without")
    model = network()
    optimizer = made(name, model)
    orthograd.attach(optimizer)
    train(model, optimizer, range(1))
    late = torch.nn.Parameter(torch.randn(6, 5))
    optimizer.add_param_group({"params": [late]})
    late.grad = torch.randn(6, 5)
    before = late.detach().clone()
    optimizer.step()
    assert cosine(late.grad, before) < 1e-6


@each_optimizer
def test_gradient_clipping_before_the_step(name):
    if name.startswith("LBFGS"):
        pytest.skip("a closure clips inside, as the next test does")
    attached, manual = twins()
    first, second = made(name, attached), made(name, manual)
    orthograd.attach(first)
    train(attached, first, range(4), project=lambda: torch.nn.utils.clip_grad_norm_(attached.parameters(), 0.1))

    def clip_and_project():
        torch.nn.utils.clip_grad_norm_(manual.parameters(), 0.1)
        by_hand(second)()

    train(manual, second, range(4), project=clip_and_project)
    assert_equal(attached, manual)


@each_optimizer
@pytest.mark.parametrize("keyword", [True, False])
def test_closure_is_projected_too(name, keyword):
    attached, manual = twins()
    first, second = made(name, attached), made(name, manual)
    orthograd.attach(first)

    def closure_for(model, optimizer, step, project):
        def closure():
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            project()
            return loss

        return closure

    for step in range(3):
        one = closure_for(attached, first, step, lambda: None)
        loss = first.step(closure=one) if keyword else first.step(one)
        assert torch.is_tensor(loss)
        second.step(closure_for(manual, second, step, by_hand(second)))
    assert_equal(attached, manual)


@each_optimizer
def test_gradient_accumulation_projects_the_sum(name):
    if name.startswith("LBFGS"):
        pytest.skip("LBFGS evaluates its closure anew")
    model = network()
    optimizer = made(name, model)
    orthograd.attach(optimizer)
    for micro in range(4):
        (loss_of(model, micro) / 4).backward()
    total = [p.grad.clone() for p in model.parameters()]
    before = [p.detach().clone() for p in model.parameters()]
    optimizer.step()
    for parameter, gradient, weight in zip(model.parameters(), total, before, strict=True):
        if any(parameter is p for p in optimizer.param_groups[0]["params"]) and weight.numel() > 1:
            twin = torch.nn.Parameter(weight)
            twin.grad = gradient
            orthograd.orthogonalize_([twin])
            torch.testing.assert_close(parameter.grad, twin.grad)


def test_state_dict_is_that_of_the_base():
    model = network()
    optimizer = made("AdamW", model)
    keys, text = optimizer.state_dict()["param_groups"][0].keys(), repr(optimizer)
    orthograd.attach(optimizer)
    assert type(optimizer) is optim.AdamW
    assert optimizer.state_dict()["param_groups"][0].keys() == keys
    assert repr(optimizer) == text
