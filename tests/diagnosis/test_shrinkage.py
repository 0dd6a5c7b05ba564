"""Weight decay alone, in a planned number of steps: as simulated training does it, and what `diagnose` says of it."""

from __future__ import annotations

import json
import math
from itertools import product

import pytest
import torch
from torch import nn

import orthograd
from orthograd.diagnosis import diagnose
from orthograd.diagnosis.shrinkage import sgd_factor, shrinkages
from orthograd.lab.networks import MODELS
from orthograd.lab.training.layers import decay_groups
from tests.diagnosis.networks import images

CRITERION = nn.functional.cross_entropy
PAPER = {"lr": 0.01, "momentum": 0.9, "weight_decay": 5e-4}


class Third(torch.optim.Optimizer):
    """An optimizer of someone else."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1, "weight_decay": 0.1})

    def step(self, closure=None):
        return None


def weight(count=50):
    return nn.Parameter(torch.randn(count, 2, dtype=torch.float64))


def trained(optimizer, w, steps, *, after=lambda: None, gradient=torch.zeros_like):
    """‖w‖ after steps over ‖w‖ before."""
    before = float(w.detach().norm())
    for _ in range(steps):
        w.grad = gradient(w)
        optimizer.step()
        after()
    return float(w.detach().norm()) / before


def factor(optimizer, w, steps):
    return shrinkages({"w": w}, optimizer, steps)["w"].factor


@pytest.mark.parametrize(("momentum", "dampening", "nesterov"), [(0, 0, 0), (0.9, 0, 0), (0.5, 0.3, 0), (0.9, 0, 1)])
@pytest.mark.parametrize("steps", [1, 2, 250])
def test_sgd_without_a_gradient_shrinks_a_weight_by_the_factor(momentum, dampening, nesterov, steps):
    w = weight()
    optimizer = torch.optim.SGD([w], 0.1, momentum, dampening, weight_decay=0.002, nesterov=bool(nesterov))
    expected = factor(optimizer, w, steps)
    assert trained(optimizer, w, steps) == pytest.approx(expected, rel=1e-12)
    if steps == 250:
        rate = 0.1 * 0.002 * (1 - dampening) / (1 - momentum)
        assert expected == pytest.approx(math.exp(-rate * steps), rel=0.01)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_small_gradients_leave_the_factor_of_a_projected_weight(momentum):
    w = weight()
    optimizer = torch.optim.SGD([w], 0.01, momentum, weight_decay=0.02)
    orthograd.attach(optimizer, renormalize=False)
    expected = factor(optimizer, w, 1000)
    # Radial gradients are removed however large they are; the orthogonal rest is small.
    measured = trained(optimizer, w, 1000, gradient=lambda w: -0.1 * w.detach() + 1e-3 * torch.randn_like(w))
    assert measured == pytest.approx(expected, rel=0.02)
    assert expected < 0.9


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_random_gradients_add_what_the_page_on_norms_says(momentum):
    w, rate, decay, steps, norm = weight(1000), 0.01, 0.05, 1500, 1.5
    optimizer = torch.optim.SGD([w], rate, momentum, weight_decay=decay)
    orthograd.attach(optimizer)
    before, expected = float(w.detach().square().sum()), factor(optimizer, w, steps)

    def gradient(w):
        drawn = torch.randn_like(w)
        return norm * before**0.5 * drawn / drawn.norm()

    a, growth = rate * decay / (1 - momentum), (rate * norm / (1 - momentum)) ** 2
    added = growth * (1 - math.exp(-2 * a * steps)) / (2 * a)
    measured = trained(optimizer, w, steps, gradient=gradient)
    assert measured > expected
    assert measured**2 == pytest.approx(expected**2 + added, rel=0.05)
    assert added > 0.1 * expected**2


@pytest.mark.parametrize(
    "made",
    [
        lambda w: torch.optim.AdamW([w], 0.01, weight_decay=0.1),
        lambda w: torch.optim.Adam([w], 0.01, weight_decay=0.1, decoupled_weight_decay=True),
        lambda w: torch.optim.RAdam([w], 0.01, weight_decay=0.1, decoupled_weight_decay=True),
        lambda w: orthograd.orthogonal(torch.optim.AdamW)([w], 0.01, weight_decay=0.1),
        lambda w: orthograd.OrthoGrad([w], torch.optim.AdamW, lr=0.01, weight_decay=0.1),
        lambda w: torch.optim.AdamW([w], torch.tensor(0.01, dtype=torch.float64), weight_decay=0.1),
    ],
)
def test_decoupled_decay_shrinks_a_weight_by_the_factor(made):
    w = weight()
    optimizer = made(w)
    expected = factor(optimizer, w, 300)
    assert expected == pytest.approx((1 - 0.001) ** 300, rel=1e-9)
    assert trained(optimizer, w, 300) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda w: torch.optim.Adam([w], weight_decay=0.1), "Adam divides weight decay by the size of the gradients"),
        (lambda w: torch.optim.RMSprop([w], weight_decay=0.1), "RMSprop divides"),
        (lambda w: torch.optim.ASGD([w]), "the weight decay of ASGD is not known"),
        (lambda w: Third([w]), "the step of Third is not one of torch.optim"),
    ],
)
def test_other_decay_is_not_known_instead_of_guessed(made, words):
    w = weight()
    one = shrinkages({"w": w}, made(w), 100)["w"]
    assert one.factor is None
    assert one.reason.startswith(words)
    assert one.text.startswith("not known: ")


@pytest.mark.parametrize("made", [torch.optim.Adam, torch.optim.RMSprop])
def test_without_decay_nothing_shrinks(made):
    w = weight()
    assert factor(made([w]), w, 100) == 1.0


def test_coupled_decay_is_removed_with_the_update_and_decoupled_decay_stays():
    for base, decay in product((torch.optim.SGD, torch.optim.AdamW), (0.0, 0.1)):
        w = weight()
        optimizer = base([w], lr=0.01, weight_decay=decay)
        orthograd.attach(optimizer, project="update", renormalize=False)
        expected = factor(optimizer, w, 200)
        assert expected == pytest.approx((1 - 0.01 * decay) ** 200 if base is torch.optim.AdamW else 1.0)
        assert trained(optimizer, w, 200) == pytest.approx(expected, rel=1e-6)


def test_several_parameters_as_one_vector_give_a_reason_and_no_warning():
    model = MODELS["cnn"]((1, 8, 8), 10)
    optimizer = torch.optim.SGD(model.parameters(), **PAPER)
    found = diagnose(model, CRITERION, images(), granularity="model", optimizer=optimizer, steps=79_000)
    assert {one.reason for one in found.shrinkage.values()} == {
        "the loss can restore it: several parameters are one vector"
    }
    assert not [warning for warning in found.warnings if "Underconfidence" in warning]
    orthograd.attach(optimizer, granularity="model", project="update")
    assert shrinkages(dict(model.named_parameters()), optimizer, 10)["0.weight"].factor is None


def test_each_group_has_its_own_rate_and_decay_and_may_be_excluded():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    groups = [
        {"params": model[0].parameters()},
        {"params": model[1].parameters(), "lr": 0.1, "weight_decay": 0.0},
        {"params": model[2].parameters(), "orthogonal": False},
    ]
    optimizer = torch.optim.SGD(groups, lr=0.01, weight_decay=0.1)
    batch = torch.randn(8, 4), torch.randint(4, (8,))
    found = diagnose(model, CRITERION, batch, optimizer=optimizer, steps=1000)
    assert {name: one.group for name, one in found.shrinkage.items()} == {
        "0.weight": 0,
        "0.bias": 0,
        "1.weight": 1,
        "1.bias": 1,
    }
    assert found.shrinkage["0.weight"].factor == pytest.approx(0.999**1000)
    assert found.shrinkage["1.weight"].factor == 1.0
    table = str(found).partition("Weight decay alone, in 1,000 steps")[2].splitlines()
    assert [line.split() for line in table[4:6]] == [["0", "2", "0.01", "0.1", "0.368"], ["1", "2", "0.1", "0", "1"]]


def test_an_attached_optimizer_decides_which_parameters():
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1, bias=True))
    optimizer = torch.optim.SGD(model.parameters(), **PAPER)
    parameters = dict(model.named_parameters())
    assert list(shrinkages(parameters, optimizer, 5)) == ["0.weight", "0.bias", "1.weight"]  # 1.bias has one element
    only = lambda name, parameter: name.startswith("1.w")  # noqa: E731
    assert list(shrinkages(parameters, optimizer, 5, where=only)) == ["1.weight"]
    handle = orthograd.attach(optimizer, where=lambda name, p: p.ndim > 1, named_parameters=model.named_parameters())
    assert list(shrinkages(parameters, optimizer, 5, where=only)) == ["0.weight", "1.weight"]
    handle.remove()
    assert list(shrinkages(parameters, optimizer, 5)) == ["0.weight", "0.bias", "1.weight"]


def test_parameters_that_take_no_step_are_not_in_it():
    model = nn.ModuleDict({"used": nn.Linear(4, 3), "frozen": nn.Linear(4, 3), "unused": nn.Linear(4, 3)})
    model["frozen"].requires_grad_(False)
    optimizer = torch.optim.SGD(model.parameters(), **PAPER)
    loss = lambda m, x: (m["used"](x) + m["frozen"](x)).square().sum()  # noqa: E731
    found = diagnose(model, loss, torch.randn(5, 4), optimizer=optimizer, steps=5)
    assert list(found.shrinkage) == ["used.weight", "used.bias"]


RECORDED = [
    ("orthograd", 7_900, False),  # few labels
    ("orthograd", 79_000, True),  # 1000 epochs
    ("orthograd", 78_200, True),  # all labels
    ("decay_conv_only_orthograd", 78_200, False),
]


@pytest.mark.parametrize(("method", "steps", "is_expected"), RECORDED)
def test_the_warning_comes_in_the_recorded_settings_that_ended_underconfident(method, steps, is_expected):
    torch.manual_seed(0)
    model = MODELS["cnn_batchnorm"]((1, 8, 8), 10)
    groups = decay_groups(model, "convolution") if "conv_only" in method else model.parameters()
    found = diagnose(model, CRITERION, images(), optimizer=torch.optim.SGD(groups, **PAPER), steps=steps)
    warnings = [warning for warning in found.warnings if warning.startswith("Underconfidence is to be expected")]
    assert bool(warnings) == is_expected
    convolutions = {name for name, p in model.named_parameters() if p.ndim == 4}
    assert not [name for name in convolutions if any(f"{name}," in warning for warning in warnings)]
    if warnings:
        assert f"{100 * found.shrinkage['11.weight'].factor:.3g}% of the norm" in warnings[0]


def test_without_measured_roles_every_parameter_counts():
    torch.manual_seed(0)
    model = MODELS["cnn_batchnorm"]((1, 8, 8), 10)
    optimizer = torch.optim.SGD(decay_groups(model, "convolution"), **PAPER)
    found = diagnose(model, CRITERION, images(), why=False, optimizer=optimizer, steps=79_000)
    assert [warning for warning in found.warnings if warning.startswith("Underconfidence")]


def test_a_norm_that_vanishes_warns_too():
    model = MODELS["cnn"]((1, 8, 8), 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, weight_decay=1.0)
    found = diagnose(model, CRITERION, images(), optimizer=optimizer, steps=10)
    assert found.shrinkage["0.weight"].factor == 0.0
    assert [warning for warning in found.warnings if warning.startswith("Underconfidence")]


def test_with_a_schedule_the_sum_of_rates_counts():
    w, steps = weight(), 2000
    optimizer = torch.optim.SGD([w], **{**PAPER, "weight_decay": 0.01})
    expected = factor(optimizer, w, steps // 2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    model = nn.ParameterList([w])
    found = diagnose(model, lambda m, x: (m[0] ** 4).sum(), None, optimizer=optimizer, steps=steps)
    assert [warning for warning in found.warnings if "The sum of all rates counts" in warning]
    assert trained(optimizer, w, steps, after=schedule.step) == pytest.approx(expected, rel=0.01)


def test_without_an_optimizer_the_diagnosis_is_what_it_was():
    torch.manual_seed(0)
    model, batch = MODELS["cnn"]((1, 8, 8), 10), images()
    plain = diagnose(model, CRITERION, batch)
    with_optimizer = diagnose(
        model, CRITERION, batch, optimizer=torch.optim.SGD(model.parameters(), **PAPER), steps=7_900
    )
    assert set(plain.as_dict()) == {"loss", "removed", "rows", "warnings"}
    assert plain.rows == with_optimizer.rows
    assert str(with_optimizer).startswith(str(plain))
    assert "Weight decay" not in str(plain)
    data = json.loads(json.dumps(with_optimizer.as_dict()))
    assert data["steps"] == 7_900
    assert data["shrinkage"][0] == {
        "name": "0.weight",
        "group": 0,
        "rate": 0.01,
        "decay": 5e-4,
        "factor": sgd_factor(7_900, rate=0.01, decay=5e-4, momentum=0.9),
        "reason": "",
    }
    assert hash(with_optimizer) is not None


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"steps": 5}, ValueError, "expected both optimizer and steps or neither, got steps=5 without an optimizer"),
        ({"optimizer": "sgd"}, ValueError, "got an optimizer without steps"),
        ({"optimizer": "sgd", "steps": 0}, ValueError, "expected steps to be at least 1, got 0"),
        ({"optimizer": "sgd", "steps": 2.5}, TypeError, "expected steps to be a whole number, got 2.5"),
        ({"optimizer": "sgd", "steps": True}, TypeError, "expected steps to be a whole number, got True"),
        ({"optimizer": "SGD", "steps": 5}, TypeError, "expected a torch.optim.Optimizer, got 'SGD'"),
        ({"optimizer": "other", "steps": 5}, ValueError, "expected an optimizer of this network's parameters"),
    ],
)
def test_wrong_input_raises(given, error, words):
    model = MODELS["cnn"]((1, 8, 8), 10)
    made = {"sgd": torch.optim.SGD(model.parameters(), **PAPER), "other": torch.optim.SGD([weight()], **PAPER)}
    given = {name: made.get(value, value) if name == "optimizer" else value for name, value in given.items()}
    with pytest.raises(error, match=words.replace(".", r"\.")):
        diagnose(model, CRITERION, images(), **given)
