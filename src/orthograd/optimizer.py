"""Four forms of ⊥Grad: on an existing optimizer, as a class, in the published form, and in place on ``.grad``."""

from __future__ import annotations

import copyreg
from collections.abc import Iterable
from functools import cache, wraps
from importlib import import_module
from typing import Any, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from .attachment import Attachment, Shipped, attachment_of, projector_for
from .engine.gradients import project_gradients_
from .engine.projector import Projector
from .options import Options, without_published_names
from .partition import Partition, Where


def attach(
    optimizer: Optimizer,
    *,
    renormalize: bool = True,
    granularity: str = "tensor",
    project: str = "gradient",
    where: Where | None = None,
    named_parameters: Iterable[tuple[str, Tensor]] | None = None,
    scalars: bool = False,
    decoupled_decay: bool | None = None,
    engine: str = "auto",
) -> Attachment:
    """Make every step of an optimizer a ⊥Grad step. The optimizer stays the same object; ``remove()`` undoes it.

    Args:
        renormalize: keep the norm of the gradient (definition 1), or let the projection reduce it.
        granularity: the unit that is projected. "tensor": each parameter (the paper's layer-wise). "row": each output
            neuron or filter. "group": all of a param group as one vector. "model": all parameters as one vector.
        project: "gradient" (the paper), or "update": the change that the optimizer makes to the weight, momentum
            included. Costs one copy of the weights.
        where: called with (name, parameter); False skips that parameter. Names come from the optimizer if it was built
            from ``named_parameters()``, or from the next argument. It is called again for all parameters when one is
            added, replaced, frozen or unfrozen. With a lambda the optimizer cannot be pickled; its ``state_dict`` can.
        named_parameters: ``model.named_parameters()`` of the model that this optimizer trains, for ``where``.
        scalars: project one-element tensors too. They have no orthogonal direction and would never change again.
        decoupled_decay: for ``project="update"``. True if ``weight_decay`` shrinks the weight directly, as in AdamW; it
            is then not projected. None: known for torch's optimizers, measured for others by a few steps on scratch
            weights.
        engine: "auto", or force "reference", "torch" or "triton".

    A param group can differ: ``{"params": …, "orthogonal": False}``, or ``"orthogonal": {"granularity": "row"}``.
    For SAM and other wrappers, ⊥Grad is attached to the inner optimizer that takes the step. The methods ``step_param``
    and ``step_parameter``, which a fused backward pass calls, take ⊥Grad steps too. If weights change in the first
    backward passes without a step that ⊥Grad sees, it warns.

    Returns:
        A handle. Its ``remove()`` restores the optimizer; it is also a context manager. ``verify()`` checks on a copy
        that ⊥Grad acts.

    Raises:
        TypeError: if ``optimizer`` is not a `torch.optim.Optimizer` with hooks, or an option has the wrong type.
        ValueError: if ⊥Grad is attached already; if ``where`` uses names that are not known; for FSDP1's flat
            parameters, ``differentiable=True``, a SAM without an inner optimizer, or a ``ScheduleFreeWrapper``; with
            ``project="update"``, for weight decay that is neither coupled nor lr · weight_decay.

    >>> model = torch.nn.Linear(3, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> handle = attach(optimizer, where=lambda name, parameter: parameter.ndim > 1)  # skip biases
    >>> handle.remove()
    """
    options = Options(renormalize, granularity, project, scalars, decoupled_decay, engine)
    optimizer = _innermost(optimizer)
    if attachment_of(optimizer) is not None:
        raise ValueError(
            f"⊥Grad is already attached to this {type(optimizer).__name__}: first call remove() of its handle, "
            f"orthograd.attachment_of(optimizer)"
        )
    return Attachment(optimizer, Partition(options, where, _named(optimizer, named_parameters)))


class _OrthogonalClass(type):
    """Metaclass of the classes that `orthogonal` makes: they pickle as the call that made them."""

    made_by: tuple[Any, ...]


def orthogonal(base: type[Optimizer], *, where: Where | None = None, **options: Any) -> type[Optimizer]:
    """Return a subclass of an optimizer class that takes ⊥Grad steps, for code that needs a class.

    Args:
        base: a subclass of `torch.optim.Optimizer`.
        where: as in `attach`.
        **options: the other options of `attach`, but for ``named_parameters``.

    Returns:
        The class ``Ortho…``. The same call returns the same class; instances can be copied and pickled.

    Raises:
        TypeError: if ``base`` is not a class of optimizers, or one that has ⊥Grad.

    >>> OrthoAdamW = orthogonal(torch.optim.AdamW)
    >>> optimizer = OrthoAdamW(torch.nn.Linear(3, 2).parameters(), lr=1e-3)
    """
    own = Options(**without_published_names(options, stacklevel=2))
    return _orthogonal(_checked_class(base), own, where)  # type: ignore[arg-type]


def _checked_class(base: Any) -> type[Optimizer]:
    if not (isinstance(base, type) and issubclass(base, Optimizer)):
        raise TypeError(f"expected a class of torch.optim.Optimizer, got {base!r}")
    if hasattr(base, "made_by"):
        raise TypeError(
            f"expected a class without ⊥Grad, got {base.__name__}, which takes ⊥Grad steps already: use it as it is, "
            f"with the options that it takes"
        )
    return base


@cache
def _orthogonal(base: type[Optimizer], options: Options, where: Where | None) -> type[Optimizer]:
    # No own step method: one that called super().step() would run the user's hooks twice.
    @wraps(base.__init__)
    def __init__(self: Optimizer, *args: Any, **kwargs: Any) -> None:
        base.__init__(self, *args, **kwargs)
        Attachment(_innermost(self), Partition(options, where))

    body: dict[str, Any] = {
        "__init__": __init__,
        "__module__": __name__,
        "__doc__": f"{base.__name__} with ⊥Grad steps.",
    }
    body["made_by"] = base, options, where
    return cast(type[Optimizer], _metaclass(type(base))(f"Ortho{base.__name__}", (base,), body))


def _metaclass(of_base: type) -> Any:
    """The metaclass for subclasses of a class that has one itself, such as an abstract base class."""
    metaclass: Any = _OrthogonalClass
    if of_base is not type:
        metaclass = type(metaclass.__name__, (metaclass, of_base), {})
    copyreg.pickle(metaclass, lambda made: (_made_again, (*made.made_by[:2], Shipped(made.made_by[2]))))
    return metaclass


def _made_again(base: type[Optimizer], options: Options, where: Shipped) -> type[Optimizer]:
    return _orthogonal(base, options, where.where)  # type: ignore[arg-type]


def OrthoGrad(
    params: Any,
    base_optimizer_cls: type[Optimizer] | str = torch.optim.SGD,
    *,
    renormalize: bool = True,
    granularity: str = "tensor",
    project: str = "gradient",
    scalars: bool = False,
    decoupled_decay: bool | None = None,
    engine: str = "auto",
    grad_renormalization: bool | None = None,
    **base_optimizer_kwargs: Any,
) -> Optimizer:
    """Return a base optimizer that takes ⊥Grad steps, in the calling form of the paper.

    Args:
        params: parameters or param groups, as for the base optimizer.
        base_optimizer_cls: class of the base optimizer, or its dotted path, as in a trainer's config file. A name
            without a dot is one of `torch.optim`.
        renormalize: as in `attach`, like the next five.
        granularity: the unit that is projected.
        project: "gradient" or "update".
        scalars: project one-element tensors too.
        decoupled_decay: for ``project="update"``.
        engine: implementation.
        grad_renormalization: the published name of ``renormalize``. It works, with a warning.
        **base_optimizer_kwargs: arguments of the base optimizer. It raises for those that it does not know.

    Raises:
        ImportError: if no class has that dotted path.
        TypeError: for a wrong or unknown argument.

    >>> optimizer = OrthoGrad(torch.nn.Linear(3, 2).parameters(), torch.optim.SGD, lr=0.01, momentum=0.9)
    >>> optimizer = OrthoGrad(torch.nn.Linear(3, 2).parameters(), "torch.optim.AdamW", lr=1e-3)
    """
    if grad_renormalization is not None:
        given = {"grad_renormalization": grad_renormalization, **({} if renormalize else {"renormalize": False})}
        renormalize = without_published_names(given, stacklevel=2)["renormalize"]
    base = named_class(base_optimizer_cls) if isinstance(base_optimizer_cls, str) else base_optimizer_cls
    options = Options(renormalize, granularity, project, scalars, decoupled_decay, engine)
    optimizer_class: Any = _checked_class(base)
    return _orthogonal(optimizer_class, options, None)(params, **base_optimizer_kwargs)


def named_class(path: str) -> type[Optimizer]:
    """The optimizer class at a dotted path. A name without a dot is one of `torch.optim`.

    >>> named_class("torch.optim.AdamW") is named_class("AdamW") is torch.optim.AdamW
    True
    """
    module, _, name = path.rpartition(".")
    try:
        return cast(type[Optimizer], getattr(import_module(module or "torch.optim"), name))
    except (ImportError, AttributeError, TypeError) as error:  # TypeError: a path that starts with a dot
        raise ImportError(
            f"expected the dotted path of an optimizer class, such as 'torch.optim.AdamW', got {path!r}: {error}"
        ) from error


def orthogonalize_(
    parameters: Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Tensor,
    *,
    renormalize: bool = True,
    granularity: str = "tensor",
    where: Where | None = None,
    scalars: bool = False,
    engine: str = "auto",
) -> None:
    """Project the gradients in ``.grad`` in place, for custom training loops.

    Args:
        parameters: a parameter, several, or ``model.named_parameters()`` if ``where`` uses names.
        renormalize: as in `attach`, like all other options.
        granularity: "group" and "model" both mean all given parameters as one vector.
        where: called with (name, parameter); False skips that parameter.
        scalars: project one-element tensors too.
        engine: "auto", or force "reference", "torch" or "triton".

    Raises:
        TypeError: if ``parameters`` is empty or holds anything but tensors.
        ValueError: if ``where`` uses names that are not known, or a gradient is sparse.

    >>> weight = torch.nn.Parameter(torch.tensor([0.0, 2.0]))
    >>> weight.grad = torch.tensor([3.0, 4.0])
    >>> orthogonalize_([weight])
    >>> weight.grad
    tensor([5., 0.])
    """
    options = Options(renormalize, granularity, scalars=scalars, engine=engine)
    given: list[Any] = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    named = [item for item in given if _is_named(item)]
    given = [item[1] if _is_named(item) else item for item in given]
    wrong = next((item for item in given if not isinstance(item, Tensor)), None)
    if wrong is not None or not given:
        raise TypeError(f"expected parameters, got {'none' if not given else repr(wrong)}")
    segments = Partition(options, where, named).segments([{"params": given}]).get(options, [])
    # A projector identifies tensors by address, and a tensor of another size or dtype may have the same address later.
    layouts = tuple((p.shape, p.dtype, None if p.grad is None else p.grad.dtype) for each in segments for p in each)
    project_gradients_(segments, options, _shared_projector(options, layouts))


@cache
def _shared_projector(options: Options, layouts: tuple[Any, ...]) -> Projector:
    return projector_for(options)


def _is_named(item: Any) -> bool:
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str) and isinstance(item[1], Tensor)


def _named(optimizer: Optimizer, named_parameters: Iterable[Any] | None) -> list[tuple[str, Tensor]]:
    """The named parameters as a list. Raises if none of them belongs to the optimizer."""
    named = list(named_parameters or ())
    if wrong := [item for item in named if not _is_named(item)]:
        raise TypeError(f"expected named_parameters to be pairs (name, parameter), got a {type(wrong[0]).__name__}")
    members = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if named_parameters is not None and not any(id(parameter) in members for _, parameter in named):
        raise ValueError(
            f"none of the {len(named)} named_parameters is a parameter of this {type(optimizer).__name__}: expected "
            f"those of the model that it trains, got those of another model"
        )
    return named


def _innermost(optimizer: Any) -> Optimizer:
    """The inner optimizer that takes the steps: Accelerate, Lightning and SAM wrap it."""
    _refuse_other_weights(optimizer)
    while (inner := _inside(optimizer)) is not None:
        optimizer = inner
        _refuse_other_weights(optimizer)
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"expected a torch.optim.Optimizer, got {optimizer!r}")
    return optimizer


def _refuse_other_weights(optimizer: Any) -> None:
    """Raise for wrappers whose inner optimizer steps from other weights than those of the gradient."""
    name = type(optimizer).__name__
    if name.startswith("ScheduleFreeWrapper"):
        raise ValueError(
            f"{name} gives its inner optimizer other weights than those at which the gradient was computed, so ⊥Grad "
            f"would project at the wrong weights. Call orthograd.orthogonalize_(parameters) before each step, or use "
            f"a class that is schedule-free itself, such as AdamWScheduleFree."
        )


def _inside(optimizer: Any) -> Optimizer | None:
    # PostLocalSGDOptimizer has no hooks. ZeroRedundancyOptimizer has, and holds all parameters.
    names = ["optimizer", "base_optimizer"] + ["optim"] * (not hasattr(optimizer, "_optimizer_step_pre_hooks"))
    inner = (getattr(optimizer, name, None) for name in names)
    return next((each for each in inner if isinstance(each, Optimizer)), None)
