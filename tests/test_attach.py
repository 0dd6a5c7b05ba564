"""What `attach` and its companions promise beyond single steps: options, groups, names, hooks, bad input."""

from __future__ import annotations

import copy
import fnmatch
import math
import pickle
import re
import warnings

import pytest
import torch
from torch import nn, optim

import orthograd
from orthograd.projection import orthogonal_gradient
from tests.conftest import TORCH, cosine, loss_of, network, parameters, relative_error


def stepped(made, **options):
    """Weights before and gradients after one ⊥Grad step, beside the gradients before it."""
    before = [(p.grad.clone(), p.detach().clone()) for p in made]
    optimizer = optim.SGD(made, lr=0.1)
    orthograd.attach(optimizer, **options)
    optimizer.step()
    return before, [p.grad for p in made]


@pytest.mark.parametrize("renormalize", [True, False])
def test_tensor_granularity_projects_each_parameter(renormalize):
    before, after = stepped(parameters((5, 4), (7,)), renormalize=renormalize)
    for (gradient, weight), found in zip(before, after, strict=True):
        assert relative_error(found, orthogonal_gradient(gradient, weight, renormalize=renormalize)) < 1e-6


def test_row_granularity_projects_each_neuron_and_leaves_biases_alone():
    before, after = stepped(parameters((5, 4), (5,), (6, 2, 3, 3), (4, 1)), granularity="row")
    for index in (0, 2):
        assert relative_error(after[index], orthogonal_gradient(*before[index], rows=True)) < 1e-6
    for index in (1, 3):  # one number per row has no orthogonal direction
        assert torch.equal(after[index], before[index][0])


def test_model_granularity_projects_all_parameters_as_one_vector():
    before, after = stepped(parameters((5, 4), (7,)), granularity="model")
    gradient, weight = (torch.cat([t.flatten() for t in column]) for column in zip(*before, strict=True))
    assert relative_error(torch.cat([g.flatten() for g in after]), orthogonal_gradient(gradient, weight)) < 1e-6
    assert cosine(after[0], before[0][1]) > 1e-3  # a part of the vector is not orthogonal for itself


def test_group_granularity_projects_each_group_as_one_vector():
    made = parameters((5, 4), (7,), (3, 3))
    before = [(p.grad.clone(), p.detach().clone()) for p in made]
    optimizer = optim.SGD([{"params": made[:2]}, {"params": made[2:]}], lr=0.1)
    orthograd.attach(optimizer, granularity="group")
    optimizer.step()
    joined = [torch.cat([t.flatten() for t in column]) for column in zip(*before[:2], strict=True)]
    found = torch.cat([p.grad.flatten() for p in made[:2]])
    assert relative_error(found, orthogonal_gradient(*joined)) < 1e-6
    assert relative_error(made[2].grad, orthogonal_gradient(*before[2])) < 1e-6


def test_one_element_tensors_train_unless_asked_otherwise():
    (scalar,) = parameters((1,))
    before, after = stepped([scalar])
    assert torch.equal(after[0], before[0][0])
    (scalar,) = parameters((1,))
    _, after = stepped([scalar], scalars=True)
    assert after[0].item() == 0


def test_groups_choose_for_themselves():
    made = parameters((5, 4), (6, 4), (7, 3))
    before = [(p.grad.clone(), p.detach().clone()) for p in made]
    groups = [
        {"params": [made[0]]},
        {"params": [made[1]], "orthogonal": False},
        {"params": [made[2]], "orthogonal": {"granularity": "row", "renormalize": False}},
    ]
    optimizer = optim.SGD(groups, lr=0.1)
    orthograd.attach(optimizer)
    optimizer.step()
    assert relative_error(made[0].grad, orthogonal_gradient(*before[0])) < 1e-6
    assert torch.equal(made[1].grad, before[1][0])
    assert relative_error(made[2].grad, orthogonal_gradient(*before[2], renormalize=False, rows=True)) < 1e-6
    optimizer.param_groups[1]["orthogonal"] = True  # and may change their mind
    before = made[1].detach().clone()
    optimizer.step()
    assert cosine(made[1].grad, before) < 1e-6


def test_group_choices_survive_a_checkpoint_from_before_orthograd():
    made = parameters((5, 4), (6, 4))
    old = optim.SGD([{"params": [made[0]]}, {"params": [made[1]]}], lr=0.5).state_dict()
    new = optim.SGD([{"params": [made[0]]}, {"params": [made[1]], "orthogonal": False}], lr=0.1)
    orthograd.attach(new)
    new.load_state_dict(old)
    assert new.param_groups[1]["orthogonal"] is False
    assert new.param_groups[1]["lr"] == 0.5
    with pytest.raises(ValueError, match="different number of parameter groups"):
        new.load_state_dict(optim.SGD(made, lr=0.1).state_dict())


@pytest.mark.parametrize("source", ["argument", "optimizer"])
def test_predicate_sees_names_and_parameters(source):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    if source == "optimizer":
        if TORCH < (2, 6):
            pytest.skip("this torch keeps no names")
        optimizer, names = optim.SGD(model.named_parameters(), lr=0.1), None
    else:
        optimizer, names = optim.SGD(model.parameters(), lr=0.1), model.named_parameters()
    orthograd.attach(optimizer, named_parameters=names, where=lambda name, p: name.startswith("1.") and p.ndim > 1)
    model(torch.randn(3, 4)).square().sum().backward()
    before = {name: (p.grad.clone(), p.detach().clone()) for name, p in model.named_parameters()}
    model_copy, optimizer_copy = copy.deepcopy((model, optimizer))
    for each, stepper in ((model, optimizer), (model_copy, optimizer_copy)):  # a copy remembers the names
        for p, (gradient, _) in zip(each.parameters(), before.values(), strict=True):
            p.grad = gradient.clone()
        stepper.step()
        for name, p in each.named_parameters():
            if name == "1.weight":
                assert cosine(p.grad, before[name][1]) < 1e-6
            else:
                assert torch.equal(p.grad, before[name][0])


def test_frozen_and_unused_parameters_are_left_out():
    made = parameters((3, 3), (4, 4))
    made[1].requires_grad_(False)
    made[1].grad = None
    before, weight = made[0].detach().clone(), made[1].detach().clone()
    optimizer = optim.SGD(made, lr=0.1)
    orthograd.attach(optimizer)
    optimizer.step()
    assert cosine(made[0].grad, before) < 1e-6
    assert torch.equal(made[1], weight)


def test_hooks_of_the_user_run_once_and_in_order():
    (parameter,) = parameters((3, 3))
    for optimizer in (optim.SGD([parameter], lr=0.1), orthograd.orthogonal(optim.SGD)([parameter], lr=0.1)):
        calls = []
        optimizer.register_step_pre_hook(lambda *_, calls=calls: calls.append("before"))
        if type(optimizer) is optim.SGD:
            orthograd.attach(optimizer)
        optimizer.register_step_post_hook(lambda *_, calls=calls: calls.append("after"))
        optimizer.step()
        assert calls == ["before", "after"]


def test_handle_is_a_context_manager():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with orthograd.attach(optimizer) as handle:
        assert "attached to SGD" in repr(handle)
        loss_of(model, 0).backward()
        handle.project_gradients_()
        assert cosine(model.head.weight.grad, model.head.weight) < 1e-6
    assert "removed from SGD" in repr(handle)


def test_loading_a_state_dict_attaches_nothing_twice():
    optimizer = orthograd.orthogonal(optim.SGD)(parameters((3, 3)), lr=0.1)
    optimizer.load_state_dict(optimizer.state_dict())
    assert len(optimizer._optimizer_step_pre_hooks) == 1


def test_the_same_call_gives_the_same_class():
    assert orthograd.orthogonal(optim.SGD) is orthograd.orthogonal(optim.SGD)
    assert orthograd.orthogonal(optim.SGD) is not orthograd.orthogonal(optim.SGD, renormalize=False)
    assert orthograd.orthogonal(optim.AdamW).__name__ == "OrthoAdamW"


@pytest.mark.parametrize("form", ["expanded", "conjugated", "negated"])
def test_gradients_that_cannot_be_changed_in_place_are_replaced(form):
    weight = torch.randn(6, dtype=torch.complex64 if form == "conjugated" else torch.float32)
    parameter = nn.Parameter(weight.clone())
    gradient = {
        "expanded": lambda: torch.randn(1).expand(6),
        "conjugated": lambda: torch.randn(6, dtype=torch.complex64).conj(),
        "negated": lambda: torch.randn(6, dtype=torch.complex64).conj().imag,
    }[form]()
    expected = orthogonal_gradient(gradient, weight)
    parameter.grad = gradient
    orthograd.orthogonalize_([parameter])
    torch.testing.assert_close(parameter.grad, expected.to(weight.dtype), rtol=1e-5, atol=1e-6)


def test_sparse_gradients_are_projected_row_by_row():
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = optim.SGD(table.parameters(), lr=0.1)
    orthograd.attach(optimizer, granularity="row")
    table(torch.tensor([1, 7, 7])).pow(3).sum().backward()
    expected = orthogonal_gradient(table.weight.grad.to_dense(), table.weight, rows=True)
    optimizer.step()
    assert table.weight.grad.is_sparse
    assert relative_error(table.weight.grad.to_dense(), expected) < 1e-6


def test_sparse_gradients_are_refused_otherwise_with_a_way_out():
    table = nn.Embedding(10, 4, sparse=True)
    optimizer = optim.SGD(table.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    table(torch.tensor([1, 7])).sum().backward()
    with pytest.raises(ValueError, match=r"expected a dense gradient.*granularity='row'.*\"orthogonal\": False"):
        optimizer.step()


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_broken_gradients_reach_the_base_optimizer(broken):
    made = parameters((3, 3), (4, 4))
    made[0].grad[1, 1] = broken
    before, after = stepped(made)
    assert torch.equal(after[0].nan_to_num(7), before[0][0].nan_to_num(7))
    assert cosine(after[1], before[1][1]) < 1e-6


BAD = [
    (TypeError, "torch.optim.Optimizer, got Linear", lambda: orthograd.attach(nn.Linear(2, 2))),
    (TypeError, "torch.optim.Optimizer, got None", lambda: orthograd.attach(None)),
    (ValueError, "granularity to be one of tensor, row, group, model, got 'layer'", {"granularity": "layer"}),
    (ValueError, "project to be one of gradient, update, got 'weights'", {"project": "weights"}),
    (ValueError, "engine to be one of .*, got 'cuda'", {"engine": "cuda"}),
    (TypeError, "renormalize to be True or False, got 'yes'", {"renormalize": "yes"}),
    (TypeError, "decoupled_decay to be True, False or None, got 'yes'", {"decoupled_decay": "yes"}),
    (TypeError, r"where to be a function of \(name, parameter\), got 'weight'", {"where": "weight"}),
    (TypeError, r"where to be a function of \(name, parameter\), got <function", {"where": lambda parameter: True}),
    (TypeError, "unexpected keyword argument 'renormalise'", {"renormalise": True}),
    (TypeError, "class of torch.optim.Optimizer, got <class 'int'>", lambda: orthograd.orthogonal(int)),
    (TypeError, "unexpected keyword argument", lambda: orthograd.orthogonal(optim.SGD, granularty="row")),
    (TypeError, "unexpected keyword argument", lambda: orthograd.OrthoGrad(parameters((2, 2)), optim.SGD, lrr=1)),
    (TypeError, "expected parameters, got none", lambda: orthograd.orthogonalize_([])),
    (TypeError, "expected parameters, got 'conv'", lambda: orthograd.orthogonalize_(["conv"])),
]


@pytest.mark.parametrize(("kind", "words", "call"), BAD)
def test_wrong_input_is_named(kind, words, call):
    with pytest.raises(kind, match=words):
        call() if callable(call) else orthograd.attach(optim.SGD(parameters((2, 2)), lr=0.1), **call)


def test_attaching_twice_is_refused():
    optimizer = optim.SGD(parameters((2, 2)), lr=0.1)
    handle = orthograd.attach(optimizer)
    with pytest.raises(ValueError, match="already attached to this SGD"):
        orthograd.attach(optimizer)
    handle.remove()
    orthograd.attach(optimizer)


@pytest.mark.parametrize("choice", ["no", {"granularty": "row"}])
def test_wrong_options_of_a_group_show_when_attaching(choice):
    optimizer = optim.SGD([{"params": parameters((2, 2)), "orthogonal": choice}], lr=0.1)
    with pytest.raises(ValueError, match='"orthogonal" to be True, False or options among'):
        orthograd.attach(optimizer)


def test_a_weight_of_another_shape_than_its_gradient_is_named():
    (parameter,) = parameters((2, 3))
    parameter.data = torch.randn(4, 3)
    optimizer = optim.SGD([parameter], lr=0.1)
    orthograd.attach(optimizer)
    with pytest.raises(ValueError, match=r"shape of its weight, torch.Size\(\[4, 3\]\), got torch.Size\(\[2, 3\]\)"):
        optimizer.step()


def two_layers():
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))


BY_NAME = [
    lambda name, p: "2." in name,
    lambda name, p: name.startswith("2."),
    lambda name, p: name == "2.weight",
    lambda name, p: name in {"2.weight"},
    lambda name, p: name in ["2.weight"],
    lambda name, p: name[0] == "2",
    lambda name, p: bool(name),
    lambda name, p: bool(re.search(r"^2\.", name)),
    lambda name, p: fnmatch.fnmatch(name, "2.*"),
    lambda name, p: f"{name}".endswith("weight"),
]
UNNAMED = {
    "attach": lambda model, where: orthograd.attach(optim.SGD(model.parameters(), lr=0.1), where=where),
    "orthogonal": lambda model, where: orthograd.orthogonal(optim.SGD, where=where)(model.parameters(), lr=0.1),
    "orthogonalize_": lambda model, where: orthograd.orthogonalize_(model.parameters(), where=where),
}


@pytest.mark.parametrize("form", UNNAMED)
@pytest.mark.parametrize("where", BY_NAME)
def test_a_predicate_by_name_is_refused_where_nobody_named_the_parameters(form, where):
    with pytest.raises(ValueError, match=r"where uses the name of the parameter of shape \(5, 4\).*named_parameters"):
        UNNAMED[form](two_layers(), where)


def test_a_predicate_may_ask_for_names_of_named_parameters_alone():
    model, extra = two_layers(), nn.Parameter(torch.randn(2, 2))
    named = {"named_parameters": list(model.named_parameters()), "where": lambda name, p: "2." in name}
    orthograd.attach(optim.SGD(model.parameters(), lr=0.1), **named)
    with pytest.raises(ValueError, match=r"shape \(2, 2\), which is not known"):
        orthograd.attach(optim.SGD([*model.parameters(), extra], lr=0.1), **named)


def test_errors_of_a_predicate_are_its_own():
    model = two_layers()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match="unsupported operand"):
        orthograd.attach(optimizer, named_parameters=model.named_parameters(), where=lambda name, p: p.ndim + "1")
    with pytest.raises(AttributeError, match="dims"):
        orthograd.attach(optimizer, where=lambda name, p: p.dims > 1)


def test_names_of_another_copy_of_the_model_are_refused():
    model = two_layers()
    with pytest.raises(ValueError, match=r"none of the 4 named_parameters is a parameter of this SGD.*another"):
        orthograd.attach(
            optim.SGD(model.parameters(), lr=0.1), named_parameters=copy.deepcopy(model).named_parameters()
        )
    with pytest.raises(ValueError, match="none of the 0 named_parameters"):  # a generator that was read before
        orthograd.attach(optim.SGD(model.parameters(), lr=0.1), named_parameters=iter(()))
    with pytest.raises(TypeError, match=r"named_parameters to be pairs \(name, parameter\), got a Parameter"):
        orthograd.attach(optim.SGD(model.parameters(), lr=0.1), named_parameters=model.parameters())


def test_the_bare_operation_takes_named_parameters():
    model = two_layers()
    model(torch.randn(3, 4)).square().sum().backward()
    before = {name: p.grad.clone() for name, p in model.named_parameters()}
    orthograd.orthogonalize_(model.named_parameters(), where=lambda name, p: name.startswith("2."))
    assert torch.equal(model[0].weight.grad, before["0.weight"])
    assert cosine(model[2].weight.grad, model[2].weight) < 1e-6 < cosine(before["2.weight"], model[2].weight)


def test_the_handle_says_how_many_parameters_it_acts_on():
    model = two_layers()
    optimizer = optim.SGD([*model.parameters(), nn.Parameter(torch.ones(1))], lr=0.1)
    assert "attached to SGD: 4 of 5 parameters" in repr(orthograd.attach(optimizer))
    some = orthograd.attach(optim.SGD(model.parameters(), lr=0.1), where=lambda name, p: p.ndim > 1)
    assert "2 of 4 parameters" in repr(some)


def test_a_predicate_is_asked_again_when_a_parameter_is_unfrozen():
    model = two_layers()
    model[0].weight.requires_grad_(False)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    handle = orthograd.attach(optimizer, where=lambda name, p: p.requires_grad)
    assert "3 of 4 parameters" in repr(handle)
    model[0].weight.requires_grad_(True)
    before = model[0].weight.detach().clone()
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    assert cosine(model[0].weight.grad, before) < 1e-6
    assert "4 of 4 parameters" in repr(handle)


def test_an_id_that_is_used_again_brings_no_name_with_it():
    model = two_layers()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    extra = nn.Parameter(torch.randn(2, 2))
    handle = orthograd.attach(
        optimizer,
        named_parameters=[*model.named_parameters(), ("head", extra)],
        where=lambda name, p: name == "head" or p.ndim > 1,
    )
    del extra
    later = [nn.Parameter(torch.randn(2)) for _ in range(50)]  # one of them most likely where the head was
    optimizer.add_param_group({"params": later})
    with pytest.raises(ValueError, match="not known"):
        repr(handle)


def test_lazy_modules_are_projected_once_they_have_their_shape():
    model = nn.Sequential(nn.LazyLinear(5), nn.Linear(5, 3))
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    handle = orthograd.attach(optimizer, where=lambda name, p: p.ndim > 1)
    assert "1 of 4 parameters" in repr(handle)
    model(torch.randn(3, 4)).square().sum().backward()
    before = model[0].weight.detach().clone()
    optimizer.step()
    assert cosine(model[0].weight.grad, before) < 1e-6


@pytest.mark.parametrize("form", ["attach", "orthogonal"])
def test_a_predicate_that_cannot_be_pickled_says_so(form):
    made, where = parameters((3, 3)), lambda name, p: p.ndim > 1
    if form == "attach":
        optimizer = optim.SGD(made, lr=0.1)
        orthograd.attach(optimizer, where=where)
    else:
        optimizer = orthograd.orthogonal(optim.SGD, where=where)(made, lr=0.1)
    with pytest.raises(pickle.PicklingError, match=r"pickled, got .*lambda.*at the top of a module.*state_dict"):
        pickle.dumps(optimizer)
    copy.deepcopy(optimizer)


def test_differentiable_steps_are_refused_with_a_way_out():
    optimizer = optim.SGD(parameters((3, 3)), lr=0.1, differentiable=True)
    with pytest.raises(ValueError, match=r"differentiable=False, got True.*orthograd\.projection\.orthogonal_gradient"):
        orthograd.attach(optimizer)
    with pytest.raises(ValueError, match="differentiable=False, got True"):
        orthograd.OrthoGrad(parameters((3, 3)), optim.Adam, lr=0.1, differentiable=True)
    # The way out is one: autograd follows it.
    pair = [torch.randn(4, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    assert torch.autograd.gradcheck(orthogonal_gradient, pair)


class SAM(optim.Optimizer):
    """Sharpness-aware minimization as most write it: up, gradient there, down again, and a step of the base."""

    def __init__(self, params, base=optim.SGD, rho=0.5, **options):
        super().__init__(params, {"rho": rho, **options})
        self.base_optimizer = base(self.param_groups, **options)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        for p in self.param_groups[0]["params"]:
            self.state[p]["before"] = p.detach().clone()
            p.add_(p.grad, alpha=self.param_groups[0]["rho"])

    @torch.no_grad()
    def second_step(self):
        for p in self.param_groups[0]["params"]:
            p.data = self.state[p]["before"]
        self.base_optimizer.step()

    def step(self, closure=None):
        self.first_step()
        self.zero_grad()
        with torch.enable_grad():
            closure()
        self.second_step()


def sam_step(optimizer, model, *, has_closure):
    """A whole step of SAM; returns weights before it and the gradients that the base optimizer was given."""
    before = [p.detach().clone() for p in model.parameters()]

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model, 0)
        loss.backward()
        return loss

    closure()
    if has_closure:
        optimizer.step(closure)
    else:
        optimizer.first_step(), closure(), optimizer.second_step()
    return [(p.grad, b) for p, b in zip(model.parameters(), before, strict=True) if p.numel() > 1]


@pytest.mark.parametrize("has_closure", [True, False])
@pytest.mark.parametrize("home", ["usual", "pytorch_optimizer SAM", "pytorch_optimizer WSAM"])
def test_sam_is_projected_at_the_weights_of_its_step(home, has_closure):
    model = network()
    if home == "usual":
        optimizer = SAM(model.parameters(), lr=0.1, momentum=0.9)
    else:
        package, name = home.split()
        kind = getattr(pytest.importorskip(package), name)
        extra = {"model": model} if name == "WSAM" else {}
        optimizer = kind(params=model.parameters(), base_optimizer=optim.SGD, lr=0.1, **extra)
    orthograd.attach(optimizer)
    for gradient, weight in sam_step(optimizer, model, has_closure=has_closure):
        assert cosine(gradient, weight) < 1e-6


@pytest.mark.parametrize("form", ["path", "class"])
def test_a_sam_made_with_orthograd_is_projected_inside(form):
    pytest.importorskip("pytorch_optimizer")
    model = network()
    base = "pytorch_optimizer.SAM" if form == "path" else SAM
    extra = {"base_optimizer": optim.SGD} if form == "path" else {}
    optimizer = orthograd.OrthoGrad(model.parameters(), base, lr=0.1, **extra)
    assert orthograd.attachment_of(optimizer.base_optimizer).is_attached
    for gradient, weight in sam_step(optimizer, model, has_closure=False):
        assert cosine(gradient, weight) < 1e-6


def test_a_sam_without_an_optimizer_inside_is_refused():
    class Alone(SAM):
        def __init__(self, params):
            super().__init__(params, lr=0.1)
            del self.base_optimizer

    with pytest.raises(ValueError, match=r"Alone updates weights in first_step and second_step.*base_optimizer"):
        orthograd.attach(Alone(parameters((3, 3))))


@pytest.mark.parametrize("calls_before", [0, 1])
def test_an_optimizer_that_calls_its_closure_at_other_weights_is_refused(calls_before):
    class Perturbing(optim.SGD):
        @torch.no_grad()
        def step(self, closure):
            with torch.enable_grad():
                for _ in range(calls_before):
                    closure()
            for p in self.param_groups[0]["params"]:
                p.data.add_(p.grad)
            with torch.enable_grad():
                closure()

    model = network()
    optimizer = Perturbing(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    loss_of(model, 0).backward()
    with pytest.raises(ValueError, match=r"Perturbing calls its closure at perturbed weights.*orthogonalize_"):
        optimizer.step(lambda: loss_of(model, 0).backward())


def test_acting_on_nothing_is_said():
    model = two_layers()
    with pytest.warns(UserWarning, match="⊥Grad acts on no parameter of this SGD"):
        orthograd.attach(optim.SGD(model.parameters(), lr=0.1), where=lambda name, p: p.ndim > 2)


def test_a_checkpoint_that_switches_everything_off_is_told_of():
    (weight,) = parameters((4, 3))
    off = torch.optim.SGD([{"params": [weight], "orthogonal": False}], lr=0.1)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    orthograd.attach(optimizer)
    optimizer.load_state_dict(off.state_dict())
    with pytest.warns(UserWarning, match="acts on no parameter of this SGD"):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()  # told once


def test_a_closure_by_another_name_is_projected():
    class Other(torch.optim.SGD):
        @torch.no_grad()
        def step(self, loss_closure=None):
            with torch.enable_grad():
                loss_closure()
            super().step()

    (weight,) = parameters((4, 3))  # with a gradient from before
    optimizer = Other([weight], lr=0.1)
    orthograd.attach(optimizer)

    def closure():
        optimizer.zero_grad()
        loss = (weight - 1).square().sum()
        loss.backward()
        return loss

    before = weight.detach().clone()
    optimizer.step(loss_closure=closure)
    assert cosine(weight.detach() - before, before) < 1e-5


def test_a_tensor_of_one_element_that_grows_is_projected():
    (scale,) = parameters((1,))
    optimizer = torch.optim.SGD([scale, *parameters((3, 3))], lr=0.1)
    orthograd.attach(optimizer)
    optimizer.step()
    scale.grad = None
    scale.data = torch.randn(5, 4)
    scale.grad = torch.randn(5, 4)
    optimizer.step()
    assert cosine(scale.grad, scale.detach() + 0.1 * scale.grad) < 1e-5


def test_parameters_that_were_named_can_still_be_swapped():
    model = two_layers()
    orthograd.attach(optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    torch.utils.swap_tensors(model[0].weight, nn.Parameter(torch.randn(5, 4)))  # refused where a weakref is


def test_post_local_sgd_is_projected():
    from torch.distributed.algorithms.model_averaging.averagers import ModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    class Alone(ModelAverager):
        """Averages over one process, which has nothing to average."""

        def __init__(self):
            self.step = 0

        def average_parameters(self, params):
            self.step += 1

    made = parameters((5, 4))
    before = made[0].detach().clone()
    optimizer = PostLocalSGDOptimizer(optim.SGD(made, lr=0.1), Alone())
    orthograd.attach(optimizer)
    optimizer.step()
    assert cosine(made[0].grad, before) < 1e-6
