"""⊥Grad by name: dotted paths in a config file, `orthograd.optim`, and `everywhere` for trainers with fixed lists."""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
import threading

import pytest
import torch
from torch import nn, optim

import orthograd
import orthograd.optim
from orthograd.attachment import attachment_of
from orthograd.optim.by_name import OWN
from orthograd.optimizer import named_class
from orthograd.options import Options
from tests.conftest import cosine, loss_of, network, parameters
from tests.test_attach import SAM


def options_of(optimizer):
    return attachment_of(optimizer).partition.options


def assert_steps_are_orthogonal(optimizer):
    made = [p for group in optimizer.param_groups for p in group["params"]]
    before = [p.detach().clone() for p in made]
    for p in made:
        p.grad = p.detach() + torch.randn(p.shape)
    optimizer.step()
    assert max(cosine(p.grad, w) for p, w in zip(made, before, strict=True)) < 1e-6


# A trainer with a config file


def from_config(params, optimizer_type, optimizer_args, lr):
    """An optimizer as LoRA trainers make it: a dotted path, and arguments "key=value" whose values are literals."""
    kwargs = {}
    for argument in optimizer_args:
        key, value = argument.split("=")
        kwargs[key] = ast.literal_eval(value)
    module, name = optim, optimizer_type
    if "." in optimizer_type:
        *path, name = optimizer_type.split(".")
        module = importlib.import_module(".".join(path))
    optimizer_class = getattr(module, name)
    optimizer = optimizer_class(params, lr=lr, **kwargs)
    said = f"{optimizer_class.__module__}.{optimizer_class.__name__}"  # what the trainer logs and saves
    return optimizer, said


CONFIGS = [
    ("orthograd.OrthoGrad", [], optim.SGD, Options()),
    ("orthograd.OrthoGrad", ["base_optimizer_cls='torch.optim.AdamW'", "betas=(0.9, 0.99)"], optim.AdamW, Options()),
    ("orthograd.OrthoGrad", ["base_optimizer_cls='Adam'", "renormalize=False"], optim.Adam, Options(False)),
    ("orthograd.optim.OrthoAdamW", ["weight_decay=0.1"], optim.AdamW, Options()),
    ("orthograd.optim.OrthoSGD", ["momentum=0.9", "granularity='row'"], optim.SGD, Options(granularity="row")),
    ("orthograd.optim.OrthoAdamW", ["project='update'"], optim.AdamW, Options(project="update")),
]


@pytest.mark.parametrize(("path", "arguments", "base", "options"), CONFIGS)
def test_a_trainer_gets_orthograd_from_its_config_file(path, arguments, base, options):
    optimizer, said = from_config(parameters((4, 3)), path, arguments, lr=0.01)
    assert isinstance(optimizer, base)
    assert options_of(optimizer) == options
    assert optimizer.param_groups[0]["lr"] == 0.01
    assert said.startswith("orthograd.")
    if options.granularity == "tensor" and options.project == "gradient":
        assert_steps_are_orthogonal(optimizer)


def test_a_third_party_optimizer_is_reached_by_its_path():
    pytest.importorskip("pytorch_optimizer")
    arguments = ["base_optimizer_cls='pytorch_optimizer.Lion'", "weight_decay=0.0"]
    optimizer, _ = from_config(parameters((4, 3)), "orthograd.OrthoGrad", arguments, lr=0.01)
    assert type(optimizer).__name__ == "OrthoLion"
    assert_steps_are_orthogonal(optimizer)


@pytest.mark.parametrize("path", ["torch.optm.AdamW", "torch.optim.AdamX", "AdamX", ".torch.AdamW", ""])
def test_a_path_to_nothing_is_named(path):
    with pytest.raises(ImportError, match=rf"dotted path of an optimizer class.*torch.optim.AdamW.*got '{path}'"):
        orthograd.OrthoGrad(parameters((2, 2)), path, lr=0.1)


def test_a_path_to_something_else_is_named():
    with pytest.raises(TypeError, match=r"class of torch\.optim\.Optimizer, got <class .*Linear"):
        orthograd.OrthoGrad(parameters((2, 2)), "torch.nn.Linear", lr=0.1)


@pytest.mark.parametrize("path", ["orthograd.OrthoGrad", "orthograd.optim.OrthoSGD"])
@pytest.mark.parametrize("argument", ["renormalise=True", "granularty='row'", "momentun=0.9"])
def test_unknown_options_raise(path, argument):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        from_config(parameters((2, 2)), path, [argument], lr=0.1)


@pytest.mark.parametrize("choice", [True, False])
def test_the_published_keyword_works_with_a_hint(choice):
    with pytest.warns(FutureWarning, match="grad_renormalization is called renormalize here"):
        optimizer = orthograd.OrthoGrad(parameters((2, 2)), optim.SGD, grad_renormalization=choice, lr=0.1)
    assert options_of(optimizer).renormalize is choice
    with pytest.raises(TypeError, match="got both"):
        orthograd.OrthoGrad(parameters((2, 2)), optim.SGD, grad_renormalization=choice, renormalize=False, lr=0.1)


def in_everywhere(params, **options):
    with orthograd.everywhere(**options):
        return optim.AdamW(params)


@pytest.mark.parametrize(
    "make",
    [
        orthograd.optim.OrthoAdamW,
        orthograd.optim.AdamW,
        lambda params, **options: orthograd.orthogonal(optim.AdamW, **options)(params),
        in_everywhere,
    ],
)
def test_the_published_keyword_works_wherever_options_are_keywords(make):
    with pytest.warns(FutureWarning, match="grad_renormalization is called renormalize here") as caught:
        optimizer = make(parameters((2, 2)), grad_renormalization=False)
    assert options_of(optimizer).renormalize is False
    assert caught[0].filename == __file__
    with pytest.raises(TypeError, match="got both"):
        make(parameters((2, 2)), grad_renormalization=True, renormalize=True)


# orthograd.optim


def test_every_class_of_torch_has_one_with_its_signature():
    assert {"OrthoSGD", "OrthoAdamW", "OrthoRMSprop"} <= set(orthograd.optim.__all__) <= set(dir(orthograd.optim))
    for name in orthograd.optim.__all__:
        made, base = getattr(orthograd.optim, name), getattr(optim, name.removeprefix("Ortho"))
        assert issubclass(made, base)
        assert made is getattr(importlib.import_module("orthograd.optim"), name)
        own, of_base = inspect.signature(made).parameters, inspect.signature(base).parameters
        assert list(own)[: len(of_base) + len(OWN)] == [*of_base, *OWN], name
        assert all(own[key].default == of_base[key].default for key in of_base)
        assert own["renormalize"].kind is inspect.Parameter.KEYWORD_ONLY


def test_a_name_that_is_not_there_says_what_is():
    with pytest.raises(AttributeError, match=r"'OrthoLion': expected one of .*OrthoAdamW.*base_optimizer_cls"):
        orthograd.optim.OrthoLion  # noqa: B018


@pytest.mark.parametrize("through", [copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))])
def test_they_can_be_copied_with_their_options(through):
    optimizer = orthograd.optim.OrthoAdamW(parameters((4, 3)), lr=0.01, renormalize=False)
    optimizer.step()
    copied = through(optimizer)
    assert type(copied) is orthograd.optim.OrthoAdamW
    assert options_of(copied) == Options(renormalize=False)
    assert_steps_are_orthogonal(copied)


def test_they_step_as_attach_does():
    one, other = network(), network()
    other.load_state_dict(one.state_dict())
    attached = optim.AdamW(other.parameters(), lr=0.01)
    orthograd.attach(attached)
    for model, optimizer in ((one, orthograd.optim.OrthoAdamW(one.parameters(), lr=0.01)), (other, attached)):
        for step in range(3):
            optimizer.zero_grad()
            loss_of(model, step).backward()
            optimizer.step()
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


# everywhere


@pytest.fixture(autouse=True)
def _constructors_are_restored():
    before = {each: vars(each).get("__init__") for each in (optim.Optimizer, optim.SGD, optim.AdamW, SAM)}
    yield
    assert {each: vars(each).get("__init__") for each in before} == before
    assert "__init_subclass__" not in vars(optim.Optimizer)


def test_every_optimizer_made_inside_is_attached_and_no_other():
    before = optim.SGD(parameters((3, 3)), lr=0.1)
    with orthograd.everywhere(renormalize=False) as handles:
        inside = [optim.SGD(parameters((3, 3)), lr=0.1), optim.AdamW(parameters((4, 3)), lr=0.1)]
    after = optim.SGD(parameters((3, 3)), lr=0.1)
    assert [handle.optimizer for handle in handles] == inside
    assert attachment_of(before) is attachment_of(after) is None
    for optimizer in inside:
        assert options_of(optimizer) == Options(renormalize=False)
        assert_steps_are_orthogonal(optimizer)


def test_subclasses_and_classes_defined_inside_are_attached_once():
    class Own(optim.SGD):
        def __init__(self, params, lr, extra=None):
            super().__init__(params, lr)
            self.extra = extra
            self.add_param_group({"params": parameters((5, 5))})  # after the base's constructor

    with orthograd.everywhere() as handles:

        class Later(Own):
            def __init__(self, params):
                super().__init__(params, 0.1, extra=1)

        class Inherits(Own):
            pass

        made = [Own(parameters((3, 3)), lr=0.1), Later(parameters((3, 3))), Inherits(parameters((3, 3)), 0.1)]
    assert [handle.optimizer for handle in handles] == made
    for optimizer in made:
        assert len(optimizer._optimizer_step_pre_hooks) == 1
        assert_steps_are_orthogonal(optimizer)
    assert "2 of 2 parameters" in repr(handles[0])


def test_of_a_wrapper_the_optimizer_that_steps_is_attached():
    with orthograd.everywhere() as handles:
        sam = SAM(parameters((3, 3)), lr=0.1)
    assert [handle.optimizer for handle in handles] == [sam.base_optimizer]


def test_what_has_orthograd_already_keeps_its_options():
    with orthograd.everywhere(renormalize=False) as handles:
        first = orthograd.optim.OrthoSGD(parameters((3, 3)), lr=0.1)
        second = orthograd.OrthoGrad(parameters((3, 3)), "AdamW", granularity="row")
        third = optim.SGD(parameters((3, 3)), lr=0.1)
        with pytest.raises(ValueError, match="already attached to this SGD"):
            orthograd.attach(third)
    assert len(handles) == 1
    assert options_of(first) == Options()
    assert options_of(second) == Options(granularity="row")
    assert all(len(each._optimizer_step_pre_hooks) == 1 for each in (first, second, third))


@pytest.mark.parametrize("name", ["orthograd.optim.OrthoSGD", "orthograd.optim.SGD", "orthograd.optim.AdamW"])
def test_a_class_that_has_orthograd_is_not_given_it_again(name):
    for make in (
        lambda base: orthograd.OrthoGrad(parameters((3, 3)), base, lr=0.1, renormalize=False),
        lambda base: orthograd.orthogonal(named_class(base), granularity="row"),
        lambda base: orthograd.orthogonal(orthograd.orthogonal(optim.SGD)),
    ):
        with pytest.raises(TypeError, match=r"a class without ⊥Grad, got \w+, which takes ⊥Grad steps already"):
            make(name)


def test_the_handle_of_a_class_can_be_had():
    optimizer = orthograd.OrthoGrad(parameters((3, 3)), "torch.optim.SGD", lr=0.1)
    with pytest.raises(ValueError, match=r"call remove\(\) of its handle, orthograd\.attachment_of\(optimizer\)"):
        orthograd.attach(optimizer)
    orthograd.attachment_of(optimizer).remove()
    assert orthograd.attach(optimizer, granularity="row").is_attached


def test_of_nested_blocks_the_inner_counts():
    with orthograd.everywhere() as outer:
        first = optim.SGD(parameters((3, 3)), lr=0.1)
        with orthograd.everywhere(granularity="row") as inner:
            second = optim.SGD(parameters((3, 3)), lr=0.1)
        third = optim.SGD(parameters((3, 3)), lr=0.1)
    assert [handle.optimizer for handle in outer] == [first, third]
    assert [handle.optimizer for handle in inner] == [second]
    assert options_of(second) == Options(granularity="row")


def test_errors_leave_nothing_behind():
    with pytest.raises(KeyError), orthograd.everywhere():  # noqa: PT012
        with pytest.raises(ValueError, match="Invalid learning rate"):
            optim.SGD(parameters((3, 3)), lr=-1)
        with pytest.raises(ValueError, match="differentiable=False, got True"):
            optim.SGD(parameters((3, 3)), lr=0.1, differentiable=True)
        assert attachment_of(optim.SGD(parameters((3, 3)), lr=0.1)) is not None
        raise KeyError
    assert attachment_of(optim.SGD(parameters((3, 3)), lr=0.1)) is None


def test_other_threads_are_left_alone_and_may_have_blocks_of_their_own():
    made, opened, closed = {}, threading.Event(), threading.Event()

    def plain():
        opened.wait(10)
        made["plain"] = optim.SGD(parameters((3, 3)), lr=0.1)
        closed.set()

    def own():
        with orthograd.everywhere(granularity="row"):
            opened.set()
            closed.wait(10)
            made["own"] = optim.SGD(parameters((3, 3)), lr=0.1)

    threads = [threading.Thread(target=each) for each in (plain, own)]
    for thread in threads:
        thread.start()
    with orthograd.everywhere():
        made["here"] = optim.SGD(parameters((3, 3)), lr=0.1)
    for thread in threads:
        thread.join(20)
    assert attachment_of(made["plain"]) is None
    assert options_of(made["own"]) == Options(granularity="row")
    assert options_of(made["here"]) == Options()


def test_measuring_weight_decay_inside_a_block_is_not_disturbed():
    class Decoupled(optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(p.grad, alpha=group["lr"])

    with orthograd.everywhere(project="update") as handles:
        optimizer = Decoupled(parameters((3, 3)), lr=0.1, weight_decay=0.1)
    assert [handle.optimizer for handle in handles] == [optimizer]
    (share,) = handles[0]._decay.shares(options_of(optimizer), [optimizer.param_groups[0]["params"]]).values()
    assert share == pytest.approx(0.01)


def test_wrong_options_raise_at_the_block():
    with pytest.raises(TypeError, match="unexpected keyword argument 'granularty'"), orthograd.everywhere(granularty=1):
        pass
    with pytest.raises(TypeError, match="where to be a function"), orthograd.everywhere(where="weight"):
        pass


def test_a_block_in_which_nothing_is_made_says_so():
    with pytest.warns(UserWarning, match=r"no optimizer was made inside everywhere\(\)"), orthograd.everywhere():
        nn.Linear(2, 2)
