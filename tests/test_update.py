"""project="update": the update itself is orthogonal, whatever the base optimizer does, and decay stays decay."""

from __future__ import annotations

import inspect
import pickle

import pytest
import torch
from torch import optim

import orthograd
from tests.conftest import cosine, loss_of, network, relative_error
from tests.test_contract import OPTIMIZERS, each_optimizer, made, train


def without_decay(name):
    kind, options = OPTIMIZERS[name]
    none = {key: 0.0 for key in ("weight_decay", "lambd") if key in inspect.signature(kind).parameters}
    return kind, {**options, **none}


@each_optimizer
@pytest.mark.parametrize("granularity", ["tensor", "row", "model"])
def test_update_is_orthogonal_to_the_weight(name, granularity):
    torch.set_default_dtype(torch.float64)
    try:
        model = network()
        kind, options = without_decay(name)
        optimizer = kind([p for p in model.parameters() if name != "Muon" or p.ndim == 2], **options)
        orthograd.attach(optimizer, project="update", granularity=granularity)
        for step in range(4):
            before = [p.detach().clone() for p in optimizer.param_groups[0]["params"]]
            train(model, optimizer, [step])
            pairs = [(p.detach() - b, b) for p, b in zip(optimizer.param_groups[0]["params"], before, strict=True)]
            pairs = [(update, weight) for update, weight in pairs if weight.numel() > 1]
            if granularity == "model":
                pairs = [tuple(torch.cat([t.flatten() for t in column]) for column in zip(*pairs, strict=True))]
            if granularity == "row":
                pairs = [
                    rows for update, weight in pairs if weight.ndim > 1 for rows in zip(update, weight, strict=True)
                ]
            for update, weight in pairs:
                # Adding an update to a weight rounds it to the grid of the weight.
                rounding = torch.finfo(weight.dtype).eps * weight.norm() / update.norm().clamp_min(1e-300)
                assert cosine(update, weight) < 1e-9 + 4 * rounding
    finally:
        torch.set_default_dtype(torch.float32)


DECAYING = {
    "AdamW": optim.AdamW,
    "Adafactor": getattr(optim, "Adafactor", None),
    "NAdam": lambda p, **options: optim.NAdam(p, decoupled_weight_decay=True, **options),
    "RAdam": lambda p, **options: optim.RAdam(p, decoupled_weight_decay=True, **options),
    "Muon": getattr(optim, "Muon", None),
}


@pytest.mark.parametrize("name", [name for name, kind in DECAYING.items() if kind is not None])
def test_decoupled_decay_stays_out_of_the_projection(name):
    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    before = weight.detach().clone()
    optimizer = DECAYING[name]([weight], lr=0.1, weight_decay=0.3)
    orthograd.attach(optimizer, project="update")
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    # w' = (1 − ηλ) w + Δ with Δ ⊥ w, so along w there is the decay and nothing else.
    along = (weight.detach() * before).sum() / before.square().sum()
    assert abs(float(along) - (1 - 0.1 * 0.3)) < 1e-9


def test_coupled_decay_is_part_of_the_update():
    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    before = weight.detach().clone()
    optimizer = optim.SGD([weight], lr=0.1, weight_decay=0.3)
    orthograd.attach(optimizer, project="update")
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    assert abs(float((weight.detach() * before).sum() / before.square().sum()) - 1) < 1e-12


@pytest.mark.parametrize("said", [True, False, None])
def test_the_user_can_say_whether_decay_is_decoupled_or_leave_it_to_be_measured(said):
    class Decaying(optim.SGD):
        """An optimizer of someone's own, whose decay torch knows nothing of."""

        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.data.mul_(1 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * p.grad)

    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    before = weight.detach().clone()
    optimizer = Decaying([weight], lr=0.1, weight_decay=0.3)
    orthograd.attach(optimizer, project="update", decoupled_decay=said)
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    along = float((weight.detach() * before).sum() / before.square().sum())
    assert abs(along - (1.0 if said is False else 0.97)) < 1e-12


def share_lost(optimizer, weight, **options):
    """By how much three steps with ``project="update"`` shrink a weight, over lr · weight_decay (· Prodigy's d)."""
    orthograd.attach(optimizer, project="update", **options)
    (group,) = optimizer.param_groups
    ratios = []
    for _ in range(3):
        before, expected = weight.detach().clone(), group["lr"] * group["weight_decay"] * group.get("d", 1.0)
        weight.grad = torch.randn_like(weight)
        optimizer.step()
        along = (weight.detach() * before).sum() / before.square().sum()
        ratios.append(float((1 - along) / expected))
    return ratios


OTHERS = {
    "pytorch_optimizer Lion": {"lr": 0.1},
    "pytorch_optimizer SGDW": {"lr": 0.1, "momentum": 0.9},
    "pytorch_optimizer AdamP": {"lr": 0.1},
    "pytorch_optimizer Prodigy": {"lr": 1.0},
    "transformers.optimization Adafactor": {"lr": 0.1, "relative_step": False, "scale_parameter": False},
}


def of_another_package(name, weight, **options):
    home, kind = name.split()
    return getattr(pytest.importorskip(home), kind)([weight], weight_decay=0.3, **options)


@pytest.mark.parametrize("name", OTHERS)
def test_decoupled_decay_of_other_packages_stays(name):
    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    optimizer = of_another_package(name, weight, **OTHERS[name])
    assert share_lost(optimizer, weight) == pytest.approx([1, 1, 1], rel=1e-6)


@pytest.mark.slow
def test_decoupled_decay_of_8_bit_adamw_stays():
    weight = torch.nn.Parameter(torch.randn(64, 128))
    optimizer = of_another_package("torchao.optim AdamW8bit", weight, lr=0.1)
    assert share_lost(optimizer, weight) == pytest.approx([1, 1, 1], rel=1e-3)


def test_coupled_decay_of_other_packages_is_part_of_the_update():
    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    optimizer = of_another_package("pytorch_optimizer Lion", weight, lr=0.1, weight_decouple=False)
    assert share_lost(optimizer, weight) == pytest.approx([0, 0, 0], abs=1e-9)


UNMEASURABLE = {
    "a rate that follows the weight": ("transformers.optimization Adafactor", {"lr": 0.1, "relative_step": False}),
    "no rate at all": ("transformers.optimization Adafactor", {}),
    "decay without the rate": ("pytorch_optimizer Lion", {"lr": 0.1, "fixed_decay": True}),
}


@pytest.mark.parametrize("name", UNMEASURABLE)
def test_decay_that_cannot_be_told_from_the_update_is_refused_before_any_step(name):
    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    kind, options = UNMEASURABLE[name]
    optimizer = of_another_package(kind, weight, **options)
    with pytest.raises(ValueError, match=r"needs to know how \w+ applies weight decay.*decoupled_decay=True"):
        orthograd.attach(optimizer, project="update")
    orthograd.attach(optimizer, project="update", decoupled_decay=False).remove()
    orthograd.attach(optimizer)


def test_decay_at_no_rate_is_refused_though_said_to_be_decoupled():
    weight = torch.nn.Parameter(torch.randn(6, 5))
    optimizer = of_another_package("transformers.optimization Adafactor", weight)
    with pytest.raises(ValueError, match="its learning rate is None"):
        orthograd.attach(optimizer, project="update", decoupled_decay=True)


def test_decay_is_measured_for_subclasses_too():
    lion = pytest.importorskip("pytorch_optimizer").Lion
    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    before = weight.detach().clone()
    optimizer = orthograd.orthogonal(lion, project="update")([weight], lr=0.1, weight_decay=0.3)
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    assert float((weight.detach() * before).sum() / before.square().sum()) == pytest.approx(0.97, abs=1e-9)
    assert type(pickle.loads(pickle.dumps(optimizer))) is type(optimizer)  # though Lion has a metaclass of its own


def test_measuring_leaves_the_optimizer_and_the_dice_alone():
    weight = torch.nn.Parameter(torch.randn(6, 5))
    before, dice = weight.detach().clone(), torch.get_rng_state()
    optimizer = of_another_package("pytorch_optimizer Lion", weight, lr=0.1)
    group = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    orthograd.attach(optimizer, project="update")
    assert torch.equal(weight, before)
    assert torch.equal(torch.get_rng_state(), dice)
    assert not optimizer.state
    assert {key: value for key, value in optimizer.param_groups[0].items() if key != "params"} == group


def test_updates_are_projected_though_the_step_drops_its_gradients():
    class Dropping(optim.SGD):
        def step(self, closure=None):
            with torch.no_grad():
                for p in self.param_groups[0]["params"]:
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None

    weight = torch.nn.Parameter(torch.randn(6, 5, dtype=torch.float64))
    before = weight.detach().clone()
    optimizer = Dropping([weight])
    orthograd.attach(optimizer, project="update")
    weight.grad = torch.randn_like(weight)
    optimizer.step()
    assert cosine(weight.detach() - before, before) < 1e-12


def test_copies_of_replaced_parameters_are_given_back():
    first, second = (torch.nn.Parameter(torch.randn(3, 3)) for _ in range(2))
    optimizer = optim.SGD([first], lr=0.1)
    handle = orthograd.attach(optimizer, project="update")
    for parameter in (first, second):
        optimizer.param_groups[0]["params"] = [parameter]
        parameter.grad = torch.randn(3, 3)
        optimizer.step()
    (updates,) = handle._updates.values()
    assert list(updates._before) == [id(second)]


def test_renormalized_update_is_as_long_as_the_base_made_it():
    first, second = network(), network()
    second.load_state_dict(first.state_dict())
    optimizers = [made("Adam", model) for model in (first, second)]
    orthograd.attach(optimizers[0], project="update")
    before = [p.detach().clone() for p in first.parameters()]
    for model, optimizer in zip((first, second), optimizers, strict=True):
        train(model, optimizer, [0])
    for a, b, start in zip(first.parameters(), second.parameters(), before, strict=True):
        assert relative_error((a.detach() - start).norm(), (b.detach() - start).norm()) < 1e-3


def test_parameters_without_gradient_do_not_move():
    weights = [torch.nn.Parameter(torch.randn(3, 3)) for _ in range(2)]
    before = weights[1].detach().clone()
    optimizer = optim.AdamW(weights, lr=0.1, weight_decay=0.5)
    orthograd.attach(optimizer, project="update")
    weights[0].grad = torch.randn(3, 3)
    optimizer.step()
    assert torch.equal(weights[1], before)


def test_projected_gradients_still_make_radial_updates_with_momentum():
    """Why `project="update"` exists: with momentum the paper's form leaves an update that is not orthogonal."""
    found = {}
    for project in ("gradient", "update"):
        torch.manual_seed(1)
        model = network()
        optimizer = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
        orthograd.attach(optimizer, project=project)
        for step in range(12):
            before = model.head.weight.detach().clone()
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
        found[project] = cosine(model.head.weight.detach() - before, before)
    assert found["gradient"] > 0.01
    assert found["update"] < 1e-4


def test_decay_of_schedule_free_optimizers_can_be_measured():
    schedulefree = pytest.importorskip("schedulefree")
    optimizer = schedulefree.AdamWScheduleFree(network().parameters(), lr=0.1, weight_decay=0.1)
    with pytest.raises(ValueError, match="neither coupled nor"):  # it shrinks another weight than the one in training
        orthograd.attach(optimizer, project="update")


@pytest.mark.parametrize(("project", "added"), [("gradient", 1 / (1 - 0.9) ** 2), ("update", 1 / (1 - 0.9**2))])
def test_gradients_that_point_anywhere_lengthen_a_weight_as_the_document_says(project, added):
    """By η²‖g‖² times this to the square of its length, a step of SGD with momentum 0.9."""
    generator, rate = torch.Generator().manual_seed(0), 1e-3
    weight = torch.nn.functional.normalize(torch.randn(2000, generator=generator, dtype=torch.float64), dim=0)
    optimizer = optim.SGD([weight.requires_grad_()], rate, momentum=0.9)
    orthograd.attach(optimizer, project=project)
    squares = []
    for _ in range(3000):
        weight.grad = torch.nn.functional.normalize(torch.randn(2000, generator=generator, dtype=torch.float64), dim=0)
        optimizer.step()
        squares.append(float(weight.detach().square().sum()))
    assert (squares[-1] - squares[199]) / 2800 == pytest.approx(added * rate**2, rel=0.02)
