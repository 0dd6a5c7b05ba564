"""Never a silent no-op: steps that would bypass ⊥Grad are projected, or somebody is told; and `verify` says which."""

from __future__ import annotations

import copy
import pickle
import random
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn, optim

import orthograd
from tests.conftest import cosine, loss_of, network, parameters
from tests.test_attach import SAM, sam_step

NOTHING = "⊥Grad projects nothing for a parameter of shape .* it changes"


class Fused(optim.SGD):
    """An optimizer with a method for each parameter, as trainers with a fused backward pass call it."""

    @torch.no_grad()
    def step_param(self, p, group):
        if p.grad is not None:
            p.sub_(p.grad, alpha=group["lr"])

    def step_parameter(self, p, group, i):
        self.step_param(p, group)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                self.step_param(p, group)


def release(optimizer, method="step_param", dropped=True):
    """Step each parameter during the backward pass, as trainers do to save the memory of the gradients."""
    seen = []
    for group in optimizer.param_groups:
        for index, p in enumerate(group["params"]):

            def hook(p, group=group, index=index):
                weight = p.detach().clone()
                arguments = (p, group, index) if method == "step_parameter" else (p, group)
                getattr(optimizer, method)(*arguments)  # looked up at each call
                seen.append((weight, p.detach() - weight))
                if dropped:
                    p.grad = None

            p.register_post_accumulate_grad_hook(hook)
    return seen


def radial(seen):
    """The largest |cosine| of an update with its weight."""
    return max(cosine(update, weight) for weight, update in seen if weight.numel() > 1)


def backwards(model, count=3):
    for step in range(count):
        loss_of(model, step).backward()


# Gradient release


@pytest.mark.parametrize("method", ["step_param", "step_parameter"])
@pytest.mark.parametrize("form", ["attach", "orthogonal"])
def test_a_fused_backward_pass_is_projected(method, form):
    model = network()
    optimizer = (Fused if form == "attach" else orthograd.orthogonal(Fused))(model.parameters(), lr=0.1)
    if form == "attach":
        orthograd.attach(optimizer)
    seen = release(optimizer, method)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backwards(model, 4)
    assert len(seen) == 4 * 7
    assert radial(seen) < 1e-5
    scales = [update for weight, update in seen if weight.numel() == 1]
    assert all(update.abs() > 0 for update in scales)  # left alone, and trained


def test_updates_of_a_fused_backward_pass_are_projected():
    model = network()
    optimizer = Fused(model.parameters(), lr=0.1)
    orthograd.attach(optimizer, project="update")
    seen = release(optimizer)
    backwards(model)
    assert radial(seen) < 1e-5


def test_the_options_of_groups_hold_in_a_fused_backward_pass():
    model = network()
    groups = [{"params": [model.conv.weight], "orthogonal": False}, {"params": [model.head.weight]}]
    optimizer = Fused(groups, lr=0.1)
    orthograd.attach(optimizer)
    seen = release(optimizer)
    backwards(model, 1)
    told = {tuple(weight.shape): cosine(update, weight) for weight, update in seen}
    assert told[tuple(model.head.weight.shape)] < 1e-5 < told[tuple(model.conv.weight.shape)]
    optimizer.param_groups[0]["orthogonal"] = True
    seen.clear()
    backwards(model, 1)
    assert radial(seen) < 1e-5


@pytest.mark.parametrize("granularity", ["group", "model"])
def test_a_vector_of_several_parameters_cannot_be_projected_one_at_a_time(granularity):
    model = network()
    optimizer = Fused(model.parameters(), lr=0.1)
    orthograd.attach(optimizer, granularity=granularity)
    release(optimizer)
    with pytest.raises(ValueError, match=rf"'tensor' or 'row', got '{granularity}'.*Fused steps one at a time"):
        backwards(model, 1)


def test_a_step_that_calls_the_method_projects_once():
    one, other = network(), network()
    other.load_state_dict(one.state_dict())
    fused, plain = Fused(one.parameters(), lr=0.1), optim.SGD(other.parameters(), lr=0.1)
    for model, optimizer in ((one, fused), (other, plain)):
        orthograd.attach(optimizer)
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_a_step_that_failed_does_not_switch_the_projection_off():
    class Failing(Fused):
        def step(self, closure=None):
            raise MemoryError

    model = network()
    optimizer = Failing(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    with pytest.raises(MemoryError):
        optimizer.step()
    seen = release(optimizer)
    backwards(model, 1)
    assert radial(seen) < 1e-5


def test_detaching_gives_the_methods_back():
    optimizer = Fused(parameters((3, 3)), lr=0.1)
    handle = orthograd.attach(optimizer)
    assert "step_param" in vars(optimizer)
    copied = copy.deepcopy(optimizer)
    handle.remove()
    assert not {"step_param", "step_parameter"} & set(vars(optimizer))
    assert vars(copied)["step_param"].__wrapped__.__self__ is copied

    def own(p, group):
        pass

    optimizer.step_param = own
    orthograd.attach(optimizer).remove()
    assert optimizer.step_param is own


@torch.no_grad()
def patched_step(self, p, group):
    p.add_(p.grad, alpha=-group["lr"])


def test_a_method_that_was_patched_in_before_attach_is_projected():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    optimizer.step_param = patched_step.__get__(optimizer)
    orthograd.attach(optimizer)
    seen = release(optimizer)
    backwards(model)
    assert radial(seen) < 1e-5


@pytest.mark.parametrize("has_method", [True, False])
def test_a_method_that_is_patched_in_after_attach_is_told_of(has_method):
    model = network()
    optimizer = (Fused if has_method else optim.SGD)(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    optimizer.step_param = patched_step.__get__(optimizer)
    seen = release(optimizer)
    with pytest.warns(UserWarning, match=NOTHING) as told:
        backwards(model, 5)
    assert len(told) == 1
    assert "attach ⊥Grad after the trainer has set it up" in str(told[0].message)
    assert radial(seen) > 1e-3  # the reason for the warning


@pytest.mark.parametrize("is_late", [True, False])
def test_hooks_that_update_weights_by_themselves_are_told_of(is_late):
    model = network()

    def update(p):
        p.data.sub_(p.grad, alpha=0.1)  # unseen by _version

    def register():
        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)

    if not is_late:
        register()
    handle = orthograd.attach(optim.SGD(model.parameters(), lr=0.1))
    if is_late:
        register()
    with pytest.warns(UserWarning, match=NOTHING):
        backwards(model)
    assert handle.is_attached


def one_released(model, optimizer, parameter):
    """Six steps in which a hook of its own updates one parameter."""

    def update(p):
        p.data.sub_(p.grad, alpha=0.1)
        p.grad = None

    parameter.register_post_accumulate_grad_hook(update)
    for step in range(6):
        loss_of(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()


def test_the_release_of_a_single_parameter_is_told_of():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    with pytest.warns(UserWarning, match=NOTHING) as told:
        one_released(model, optimizer, model.head.weight)
    assert len(told) == 1
    assert str(tuple(model.head.weight.shape)) in str(told[0].message)


def test_the_release_of_a_parameter_that_came_later_is_told_of():
    model = network()
    optimizer = optim.SGD([p for p in model.parameters() if p is not model.head.weight], lr=0.1)
    orthograd.attach(optimizer)
    for step in range(6):
        loss_of(model, step).backward()
        optimizer.step()
        optimizer.zero_grad()
    model.zero_grad()
    optimizer.add_param_group({"params": [model.head.weight]})
    with pytest.warns(UserWarning, match=NOTHING):
        one_released(model, optimizer, model.head.weight)


def test_an_optimizer_that_was_thrown_away_does_not_warn():
    model = network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(2):  # as when the cell of a notebook is run again
            optimizer = optim.SGD(model.parameters(), lr=0.1)
            orthograd.attach(optimizer)
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()


def test_empty_steps_do_not_hide_a_gradient_release():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)

    @torch.no_grad()
    def update(p):
        p.sub_(p.grad, alpha=0.1)
        p.grad = None

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(update)
    with pytest.warns(UserWarning, match=NOTHING) as told:  # noqa: PT031
        for step in range(4):
            loss_of(model, step).backward()
            optimizer.step()
    assert len(told) == 1


def test_a_method_is_found_by_the_name_of_its_parameter():
    model = network()
    optimizer = Fused(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    loss_of(model, 0).backward()
    before = model.head.weight.detach().clone()
    optimizer.step_param(p=model.head.weight, group=optimizer.param_groups[0])
    assert cosine(model.head.weight.detach() - before, before) < 1e-5


def test_an_optimizer_for_each_parameter_is_projected():
    model, seen = network(), []
    optimizers = {p: optim.Adam([p], lr=0.1) for p in model.parameters() if p.numel() > 1}
    for optimizer in optimizers.values():
        orthograd.attach(optimizer)

    def hook(p):
        weight = p.detach().clone()
        optimizers[p].step()
        seen.append((weight, p.grad.clone()))
        optimizers[p].zero_grad()

    for p in optimizers:
        p.register_post_accumulate_grad_hook(hook)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        backwards(model)
    assert len(seen) == 3 * len(optimizers)
    assert radial(seen) < 1e-5


def test_the_optimizer_in_the_backward_pass_of_torch_is_projected():
    from torch.distributed.optim import _apply_optimizer_in_backward

    model = nn.Sequential(nn.Linear(6, 4, bias=False), nn.Linear(4, 3, bias=False))
    before = [p.detach().clone() for p in model.parameters()]
    _apply_optimizer_in_backward(orthograd.orthogonal(optim.SGD), model.parameters(), {"lr": 0.1})
    model(torch.randn(5, 6)).square().sum().backward()
    assert radial([(w, p.detach() - w) for p, w in zip(model.parameters(), before, strict=True)]) < 1e-5


# Steps that are not what they were


@pytest.mark.parametrize("is_late", [True, False])
def test_a_step_that_was_replaced_is_told_of(is_late):
    @torch.no_grad()
    def own_step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            p.sub_(p.grad, alpha=0.1)

    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    if is_late:
        orthograd.attach(optimizer)
    optimizer.step = own_step.__get__(optimizer)
    if not is_late:
        orthograd.attach(optimizer)
    with pytest.warns(UserWarning, match=rf"{NOTHING}.*handle\.project_gradients_\(\)"):  # noqa: PT031
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()


def test_a_step_that_was_wrapped_still_works():
    model = network()
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    optim.lr_scheduler.StepLR(optimizer, 1)  # wraps step
    original = optimizer.step
    orthograd.attach(optimizer)
    optimizer.step = lambda *args: original(*args)
    before = model.head.weight.detach().clone()
    backwards(model, 1)
    optimizer.step()
    assert cosine(model.head.weight.grad, before) < 1e-6


def test_gradients_that_are_elsewhere_are_told_of_in_the_first_step():
    class Elsewhere(optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                p.sub_(p.main_grad, alpha=0.1)

    made = parameters((4, 3), (5, 5))
    for p in made:
        p.main_grad, p.grad = p.grad, None
    optimizer = Elsewhere(made, lr=0.1)
    orthograd.attach(optimizer)
    with pytest.warns(
        UserWarning, match=r"nothing for 2 parameters, the first of shape \(4, 3\).*reads gradients else"
    ):
        optimizer.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        optimizer.step()  # told once


def test_an_optimizer_without_hooks_is_refused():
    class Bare(optim.Optimizer):
        def __init__(self, params):
            self.param_groups = [{"params": params}]

    with pytest.raises(TypeError, match=r"Bare has no step hooks.*orthogonalize_\(parameters\)"):
        orthograd.attach(Bare(parameters((2, 2))))


def test_a_wrapper_whose_inner_optimizer_has_other_weights_is_refused():
    class ScheduleFreeWrapper:
        def __init__(self, optimizer):
            self.optimizer = optimizer

    inner = ScheduleFreeWrapper(optim.SGD(parameters((2, 2)), lr=0.1))
    with pytest.raises(ValueError, match=r"ScheduleFreeWrapper gives.*orthogonalize_\(parameters\) before each step"):
        orthograd.attach(inner)


def test_functional_optimizers_are_refused():
    from torch.distributed.optim import functional_sgd

    with pytest.raises(TypeError, match=r"expected a torch\.optim\.Optimizer, got"):
        orthograd.attach(functional_sgd._FunctionalSGD(parameters((2, 2)), lr=0.1))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("way", ["steps", "accumulation", "closure", "SAM", "no step", "unused"])
def test_ordinary_training_is_told_nothing(way):
    model = network()
    if way == "SAM":
        optimizer = SAM(model.parameters(), lr=0.1)
        orthograd.attach(optimizer)
        for _ in range(3):
            sam_step(optimizer, model, has_closure=False)
        return
    unused = parameters((3, 3))
    unused[0].grad = None
    optimizer = optim.SGD([*model.parameters(), *unused], lr=0.1)
    orthograd.attach(optimizer)
    for step in range(4):
        if way == "closure":
            optimizer.step(lambda step=step: loss_of(model, step).backward())
            continue
        backwards(model, 3 if way == "accumulation" else 1)
        if way != "no step":
            optimizer.step()


def test_parameters_that_cannot_be_summed_do_not_stop_training():
    optimizer = optim.SGD([nn.Parameter(torch.ones(4, 3, device="meta"))], lr=0.1)
    orthograd.attach(optimizer)
    for _ in range(3):
        optimizer.param_groups[0]["params"][0].square().sum().backward()
    optimizer.zero_grad()
    optimizer.step()


# Parameters that are not what they were


def test_replaced_swapped_and_unfrozen_parameters_are_projected():
    first, second, frozen = parameters((4, 3), (5, 3), (6, 3))
    frozen.requires_grad_(False)
    optimizer = optim.SGD([first, second, frozen], lr=0.1)
    orthograd.attach(optimizer)
    optimizer.step()
    (new,) = parameters((4, 3))
    optimizer.param_groups[0]["params"][0] = new
    second.grad, (other,) = None, parameters((5, 3))
    gradient, other.grad = other.grad, None
    torch.utils.swap_tensors(second, other)
    second.grad = gradient
    frozen.requires_grad_(True)
    before = [p.detach().clone() for p in (new, second, frozen)]
    optimizer.step()
    for p, weight in zip((new, second, frozen), before, strict=True):
        assert cosine(p.grad, weight) < 1e-6


def test_adapters_are_projected_and_frozen_weights_are_not_touched():
    class Adapted(nn.Module):
        """A frozen layer with a low-rank update, as in LoRA: B starts at zero."""

        def __init__(self):
            super().__init__()
            self.base = nn.Linear(6, 4).requires_grad_(False)
            self.a, self.b = nn.Parameter(torch.randn(2, 6)), nn.Parameter(torch.zeros(4, 2))

        def forward(self, inputs):
            return self.base(inputs) + inputs @ self.a.T @ self.b.T

    model = Adapted()
    optimizer = optim.AdamW(model.parameters(), lr=0.1)
    handle = orthograd.attach(optimizer, named_parameters=model.named_parameters())
    reasons = {row.name: row.reason for row in handle.verify()}
    assert reasons == {"a": "", "b": "zero: it has no direction yet", "base.weight": "frozen", "base.bias": "frozen"}
    base = copy.deepcopy(model.base)
    for _ in range(3):
        optimizer.zero_grad()
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        model(torch.randn(5, 6)).square().sum().backward()
        optimizer.step()
    assert cosine(model.a.grad, before["a"]) < 1e-5
    assert cosine(model.b.grad, before["b"]) < 1e-5
    assert all(torch.equal(p, q) for p, q in zip(model.base.parameters(), base.parameters(), strict=True))


def test_models_can_be_copied_before_the_first_step_and_keep_no_hooks_after_four():
    model = nn.Linear(4, 3)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    assert len(model.weight._post_accumulate_grad_hooks) == 1
    copied, pickled = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    assert not copied.weight._post_accumulate_grad_hooks
    assert not pickled.weight._post_accumulate_grad_hooks
    for _ in range(4):
        assert model.weight._post_accumulate_grad_hooks
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
    assert not model.weight._post_accumulate_grad_hooks


def test_gradients_that_were_set_by_hand_cost_no_sum(monkeypatch):
    """On a GPU a sum waits for it."""
    made = parameters((4, 3))
    optimizer = optim.SGD(made, lr=0.1)
    orthograd.attach(optimizer)
    monkeypatch.delattr("orthograd.verification.bypass.sum_of")
    optimizer.step()


@pytest.mark.parametrize("is_everywhere", [True, False])
def test_a_wrapper_that_steps_from_other_weights_is_told_of(is_everywhere):
    schedulefree = pytest.importorskip("schedulefree")
    model = network()
    with orthograd.everywhere() if is_everywhere else nullcontext():
        inner = optim.SGD(model.parameters(), lr=0.5)
    if not is_everywhere:
        orthograd.attach(inner)
    optimizer = schedulefree.ScheduleFreeWrapper(inner, momentum=0.9)
    optimizer.train()
    with pytest.warns(UserWarning, match="at other weights than those of the gradient.*ScheduleFreeWrapper") as told:  # noqa: PT031
        for step in range(6):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    assert len(told) == 1


# verify


def state_of(model, optimizer):
    return copy.deepcopy((list(model.parameters()), optimizer.state_dict())), torch.get_rng_state(), random.getstate()


@pytest.mark.parametrize("project", ["gradient", "update"])
@pytest.mark.parametrize("granularity", ["tensor", "row", "group", "model"])
@pytest.mark.parametrize("base", ["SGD", "AdamW"])
def test_verify_says_what_is_projected_and_changes_nothing(project, granularity, base):
    model = network()
    optimizer = getattr(optim, base)(model.parameters(), lr=0.1, weight_decay=0.1)
    handle = orthograd.attach(
        optimizer, project=project, granularity=granularity, named_parameters=model.named_parameters()
    )
    backwards(model, 1)
    gradients = [p.grad.clone() for p in model.parameters()]
    before = state_of(model, optimizer)
    told = handle.verify()
    (now, rng, python), (then, rng_before, python_before) = state_of(model, optimizer), before
    torch.testing.assert_close(now, then, rtol=0, atol=0)
    assert torch.equal(rng, rng_before)
    assert python == python_before
    assert all(torch.equal(p.grad, g) for p, g in zip(model.parameters(), gradients, strict=True))
    assert len(model.head.weight._post_accumulate_grad_hooks) == 1  # its own check goes on
    assert told.is_complete, told
    rows = {row.name: row for row in told}
    assert rows["scale"].reason == "left alone: no orthogonal direction"
    assert rows["head.weight"].is_projected
    assert rows["head.weight"].cosine_with < 1e-5 < 0.1 < rows["head.weight"].cosine_without
    assert "head.weight" in str(told)


def test_verify_gives_the_reason_for_what_is_left_alone():
    made = parameters((3, 3), (4,), (1,), (5, 5))
    made[3].requires_grad_(False)
    groups = [{"params": [made[0]], "orthogonal": False}, {"params": made[1:]}]
    told = orthograd.attach(optim.SGD(groups, lr=0.1), where=lambda name, p: p.ndim != 1 or len(p) < 4, scalars=True)
    reasons = [row.reason for row in told.verify()]
    assert reasons[0] == 'left alone: its group has "orthogonal": False'
    assert reasons[1] == "left alone: by where or granularity"
    assert reasons[3] == "frozen"


def test_verify_finds_an_optimizer_that_reads_other_gradients():
    class Elsewhere(optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                p.sub_(torch.ones_like(p), alpha=0.1)

    told = orthograd.attach(Elsewhere(parameters((4, 3)), lr=0.1)).verify()
    assert not told.is_complete
    assert told[0].reason == "NOT projected: the step does not use .grad"


def test_verify_takes_optimizers_that_need_a_closure():
    handle = orthograd.attach(optim.LBFGS(parameters((4, 3), (5,)), lr=0.1))
    assert handle.verify().is_complete


def test_verify_works_at_a_learning_rate_of_zero_and_in_low_precision():
    assert orthograd.attach(optim.SGD(parameters((4, 3)), lr=0.0)).verify().is_complete
    made = parameters((40, 30), dtype=torch.bfloat16)
    assert orthograd.attach(optim.SGD(made, lr=0.1)).verify().is_complete


@pytest.mark.parametrize("rate", [1e-4, 1e-5])
def test_verify_allows_for_the_rounding_of_small_updates(rate):
    made = parameters((64, 64))
    assert orthograd.attach(optim.AdamW(made, lr=rate), project="update").verify().is_complete
    with pytest.MonkeyPatch.context() as patch:  # and still finds a radial part
        patch.setattr(orthograd.update.Updates, "project_", lambda *_: None)
        report = orthograd.attach(optim.AdamW(parameters((64, 64)), lr=rate), project="update").verify()
    assert report[0].reason == "NOT projected: a radial part is left"


@pytest.mark.parametrize("project", ["gradient", "update"])
def test_verify_says_when_steps_are_lost_in_rounding(project):
    torch.manual_seed(1)
    made = parameters((16, 6), dtype=torch.bfloat16)
    report = orthograd.attach(optim.Adam(made, lr=1e-4), project=project).verify()
    assert not report.is_complete
    assert report[0].reason.startswith("NOT known: its steps are lost in rounding")


def test_verify_does_not_vouch_for_a_replaced_step():
    optimizer = optim.SGD(parameters((4, 3)), lr=0.1)
    handle = orthograd.attach(optimizer)
    optimizer.step = (lambda self, closure=None: None).__get__(optimizer)
    assert not handle.verify().is_complete
    assert "step() was replaced" in str(handle.verify())


def test_verify_after_remove_is_refused():
    handle = orthograd.attach(optim.SGD(parameters((4, 3)), lr=0.1))
    handle.remove()
    with pytest.raises(ValueError, match="was removed from this SGD"):
        handle.verify()


def test_verify_names_a_step_that_fails_on_copies():
    class Elsewhere(optim.SGD):
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                p.data.sub_(p.main_grad)

    with pytest.raises(RuntimeError, match=r"step on a copy of this Elsewhere.*main_grad"):
        orthograd.attach(Elsewhere(parameters((4, 3)), lr=0.1)).verify()


def test_verify_warns_of_nothing_that_attach_has_warned_of():
    with pytest.warns(UserWarning, match="acts on no parameter"):
        handle = orthograd.attach(optim.SGD(parameters((4, 3)), lr=0.1), where=lambda name, parameter: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not handle.verify().is_complete


def test_verify_leaves_the_original_alone_behind_a_scheduler():
    made = parameters((4, 3))
    optimizer = optim.SGD(made, lr=0.1)
    optim.lr_scheduler.StepLR(optimizer, 1)  # its wrapper of step holds the original
    before = made[0].detach().clone()
    assert orthograd.attach(optimizer).verify().is_complete
    assert torch.equal(made[0], before)


def test_verify_names_what_cannot_be_copied():
    optimizer = optim.SGD(parameters((4, 3)), lr=0.1)
    optimizer.stream = (each for each in ())
    with pytest.raises(TypeError, match=r"copy of this SGD, and its attribute 'stream' cannot be copied"):
        orthograd.attach(optimizer).verify()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_all_of_this_holds_on_a_gpu():
    def on_gpu(base):
        model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 32)).cuda()
        return model, base(model.parameters(), lr=0.1)

    def backward(model):
        model(torch.randn(8, 64, device="cuda")).square().mean().backward()

    model, optimizer = on_gpu(Fused)
    handle = orthograd.attach(optimizer)
    state = torch.cuda.get_rng_state()
    assert handle.verify().is_complete
    assert torch.equal(torch.cuda.get_rng_state(), state)
    seen = release(optimizer)
    for _ in range(4):
        backward(model)
    assert len(seen) == 16
    assert radial(seen) < 1e-4
    model, optimizer = on_gpu(optim.SGD)
    orthograd.attach(optimizer)
    optimizer.step_param = patched_step.__get__(optimizer)
    release(optimizer)
    with pytest.warns(UserWarning, match=NOTHING):  # noqa: PT031
        for _ in range(3):
            backward(model)


@pytest.mark.parametrize("model", [nn.LazyLinear(3), nn.Linear(2, 3, device="meta")])
def test_verify_says_which_parameter_has_no_values_yet(model):
    handle = orthograd.attach(optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    with pytest.raises(ValueError, match=r"verify\(\) needs the values of weight: initialize it first"):
        handle.verify()


def test_verify_refuses_shards(tmp_path):
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    if not hasattr(fsdp, "fully_shard"):
        pytest.skip("this torch has no public FSDP2")
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, init_method=f"file://{tmp_path}/store")
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (1,))
        model = fsdp.fully_shard(nn.Linear(2, 3), mesh=mesh)
        with pytest.raises(TypeError, match="is sharded: verify before you shard"):
            orthograd.attach(optim.SGD(model.parameters(), lr=0.1)).verify()
    finally:
        torch.distributed.destroy_process_group()


def test_verify_knows_channels_last_weights():
    model = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    optimizer = optim.AdamW(model.parameters(), fused=True)
    assert orthograd.attach(optimizer).verify().is_complete
