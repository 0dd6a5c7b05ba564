"""What `attach` and its companions promise beyond single steps: options, groups, names, hooks, bad input."""

from __future__ import annotations

import copy
import math

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
    with pytest.raises(ValueError, match=r"sparse.*granularity='row'.*\"orthogonal\": False"):
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
