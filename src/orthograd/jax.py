"""⊥Grad for JAX, as an optax gradient transformation; and StableMax, the twin of `orthograd.losses`.

    import optax
    from orthograd.jax import orthogonalize

    optimizer = optax.chain(orthogonalize(), optax.sgd(0.1, momentum=0.9))
    state = optimizer.init(params)
    updates, state = optimizer.update(gradients, state, params)  # the params are needed
    params = optax.apply_updates(params, updates)

The mathematics is that of `orthograd.projection`, and tested against it. Placed after the optimizer in the chain, the
transformation projects the update instead of the gradient, momentum and weight decay included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import optax  # type: ignore[import-untyped,unused-ignore]
except ImportError as error:
    raise ImportError("orthograd.jax needs jax and optax: pip install '.[jax]'") from error

Where = Callable[[str, Any], bool]
"""Predicate of (name, parameter): True for parameters that ⊥Grad acts on."""
Vector = Sequence[jax.Array]
"""Arrays that are projected together as one vector."""
GRANULARITIES = ("tensor", "row", "group", "model")


def orthogonalize(
    *, renormalize: bool = True, granularity: str = "tensor", where: Where | None = None, scalars: bool = False
) -> optax.GradientTransformation:
    """Return an optax transformation that replaces each gradient by its ⊥Grad projection.

    The projection is ĝ = (‖g‖ / ‖g⊥‖) g⊥ with g⊥ = g − (⟨g, w⟩ / ‖w‖²) w, or g⊥ itself without ``renormalize``.

    Args:
        renormalize: rescale g⊥ to the norm of g (definition 1 of the paper), or not (its appendix).
        granularity: the unit that is projected. "tensor": each array. "row": each slice along the first axis.
            "model" or "group": all arrays as one vector; use `optax.multi_transform` for groups.
        where: called with (name, parameter), the name as `jax.tree_util.keystr` writes it; False skips the parameter.
        scalars: project one-element arrays too. They have no orthogonal direction and would never change again.

    Returns:
        A stateless `optax.GradientTransformation`. Its ``update`` needs the params. Under ``jit`` sums run over whole
        arrays, sharded ones included. Inside ``shard_map`` or ``pmap`` each device has only its shard: project outside.

    Raises:
        ValueError: for an unknown granularity; in ``update``, without params or with gradients of another shape.
        TypeError: if ``renormalize`` or ``scalars`` is not a bool.

    >>> transform = orthogonalize()
    >>> params, gradients = {"w": jnp.array([0.0, 2.0])}, {"w": jnp.array([3.0, 4.0])}
    >>> transform.update(gradients, transform.init(params), params)[0]
    {'w': Array([5., 0.], dtype=float32)}
    """
    if granularity not in GRANULARITIES:
        raise ValueError(f"expected granularity to be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
    for name, value in (("renormalize", renormalize), ("scalars", scalars)):
        if not isinstance(value, bool):
            raise TypeError(f"expected {name} to be True or False, got {value!r}")

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        if params is None:
            raise ValueError(
                "orthogonalize needs the weights: expected update(gradients, state, params), got params=None"
            )
        leaves, structure = jax.tree_util.tree_flatten_with_path(updates, is_leaf=lambda leaf: leaf is None)
        weights = list(structure.flatten_up_to(params))  # type: ignore[attr-defined]  # jaxlib's stubs forget it
        gradients = [leaf for _, leaf in leaves]
        chosen = [
            number
            for number, ((path, gradient), weight) in enumerate(zip(leaves, weights, strict=True))
            if _is_chosen(jax.tree_util.keystr(path), gradient, weight, where, granularity, scalars)
        ]
        together = granularity in ("group", "model")
        for vector in [chosen] if together and chosen else [[number] for number in chosen]:
            projected = _projected(
                [gradients[n] for n in vector], [weights[n] for n in vector], renormalize, rows=granularity == "row"
            )
            for number, gradient in zip(vector, projected, strict=True):
                gradients[number] = gradient
        return jax.tree_util.tree_unflatten(structure, gradients), state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


def _is_chosen(name: str, gradient: Any, weight: Any, where: Where | None, granularity: str, scalars: bool) -> bool:
    if gradient is None or not jnp.issubdtype(jnp.result_type(gradient), jnp.inexact):
        return False
    if jnp.shape(gradient) != jnp.shape(weight):
        raise ValueError(f"{name}: expected a gradient of shape {jnp.shape(weight)}, got {jnp.shape(gradient)}")
    if where is not None and not where(name, weight):
        return False
    if granularity == "row":
        # Rows of a 1-D parameter have one element, and so no orthogonal direction.
        return weight.ndim > 1 and (scalars or weight.size > len(weight))
    return scalars or jnp.size(weight) != 1


def _projected(gradients: Vector, weights: Vector, renormalize: bool, *, rows: bool) -> list[jax.Array]:
    """The projected gradients of one vector, in their own dtypes."""
    originals = [_as_real(array) for array in gradients]
    g, size = _scaled(originals, rows)
    w, _ = _scaled([_as_real(array) for array in weights], rows)
    rounding = max(_rounding_of(array.dtype) for array in gradients)
    # In exact arithmetic a second projection does nothing. In floating point it removes the rounding error of ⟨g, w⟩,
    # which dominates when g is nearly parallel to w.
    across = _without_radial(_without_radial(g, w, rows), w, rows)
    square, whole = _inner(across, across, rows), _inner(g, g, rows)
    is_zero = square <= rounding**2 * whole
    factor = jnp.sqrt(whole / jnp.where(is_zero, 1, square)) if renormalize else jnp.ones_like(square)
    factor = jnp.where(is_zero, 0, factor)
    # Gradients with inf or NaN pass unchanged, so that other checks see them.
    is_sound = jnp.isfinite(square) & jnp.isfinite(whole)
    projections = []
    for gradient, original, part in zip(gradients, originals, across, strict=True):
        largest = jnp.finfo(gradient.dtype).max.astype(original.dtype)  # what is finite stays finite
        projected = jnp.clip(part * factor * size, -largest, largest)
        projections.append(_rounded(jnp.where(is_sound, projected, original), gradient.dtype))
    return projections


def _without_radial(g: Vector, w: Vector, rows: bool) -> list[jax.Array]:
    """g − (⟨g, w⟩ / ‖w‖²) w, and g itself where w is zero."""
    square = _inner(w, w, rows)
    # A zero weight has no direction, so no part of the gradient is radial.
    share = _inner(g, w, rows) / jnp.where(square > 0, square, 1)
    return [_minus_product(a, share, b) for a, b in zip(g, w, strict=True)]


def _minus_product(a: jax.Array, share: jax.Array, b: jax.Array) -> jax.Array:
    """a − share · b, in float32 as exactly as if the product were not rounded.

    For a gradient nearly parallel to its weight the difference is as small as the rounding error of the product.
    Halves of 12 bits have exact products, so float64, which many accelerators lack, is not needed.
    """
    if a.dtype != jnp.float32:
        return a - share * b
    (share_high, share_low), (b_high, b_low) = _halves(share), _halves(b)
    return a - share_high * b_high - share_high * b_low - share_low * b_high - share_low * b_low


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Split a float32 into its first 12 significant bits and the rest."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & jnp.int32(-(2**12))
    high = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return high, x - high


def _inner(left: Vector, right: Vector, rows: bool) -> jax.Array:
    """⟨left, right⟩ over all arrays, or for each row, in a shape that broadcasts with them."""
    products = [a * b for a, b in zip(left, right, strict=True)]
    if rows:
        return jnp.sum(products[0], axis=tuple(range(1, products[0].ndim)), keepdims=True)
    return sum((jnp.sum(product) for product in products[1:]), jnp.sum(products[0]))


def _scaled(vector: Vector, rows: bool) -> tuple[list[jax.Array], jax.Array]:
    """The vector divided by a power of two near its largest element, and that power. Keeps squares in range."""
    if rows:
        largest = jnp.max(jnp.abs(vector[0]), axis=tuple(range(1, vector[0].ndim)), keepdims=True, initial=0)
    else:
        largest = jnp.max(jnp.stack([jnp.max(jnp.abs(array), initial=0) for array in vector]))
    exponent = jnp.clip(jnp.frexp(largest)[1], -120, 120)  # beyond, powers of two leave the range of float32
    one = jnp.ones_like(largest)
    return [array * jnp.ldexp(one, -exponent) for array in vector], jnp.ldexp(one, exponent)


def _rounding_of(dtype: Any) -> float:
    """Largest ‖g⊥‖ / ‖g‖ that rounding can leave for a gradient parallel to its weight."""
    eps = float(jnp.finfo(dtype).eps)
    return 8 * eps if eps < 1e-10 else eps / 2


def _as_real(array: jax.Array) -> jax.Array:
    """The array in float32, or float64 if it has that width; complex arrays get a last axis of two parts."""
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag], axis=-1)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _rounded(array: jax.Array, dtype: Any) -> jax.Array:
    """Cast to the dtype of the gradient."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.lax.complex(array[..., 0], array[..., 1]).astype(dtype)
    return array.astype(dtype)


def stablemax(logits: jax.Array, axis: int = -1) -> jax.Array:
    """Return the probabilities s(xᵢ) / Σⱼ s(xⱼ), with s(x) = x + 1 where x ≥ 0 and 1 / (1 − x) below.

    The twin of `orthograd.losses.stablemax`: half precision is computed in float32, and rounded once.

    >>> stablemax(jnp.array([1.0, 0.0, -1.0, -1.0]))
    Array([0.5  , 0.25 , 0.125, 0.125], dtype=float32)
    """
    return _stablemax(_wide(logits), axis).astype(jnp.asarray(logits).dtype)


def log_stablemax(logits: jax.Array, axis: int = -1) -> jax.Array:
    """Return the logarithm of `stablemax`, accurate for probabilities near 1 too."""
    return _log_stablemax(_wide(logits), axis).astype(jnp.asarray(logits).dtype)


def stablemax_cross_entropy(
    logits: jax.Array, labels: jax.Array, *, axis: int = -1, label_smoothing: float = 0.0
) -> jax.Array:
    """Return the loss of each sample, as optax's losses do: take its mean for training.

    Args:
        logits: (…, classes), or with the classes in ``axis``.
        labels: class indices, integers of the shape of the logits without ``axis``; or probabilities of their shape.
            A class index out of range gives NaN.
        axis: the dimension of the classes.
        label_smoothing: from 0 to 1, share of the target that is spread over all classes.

    Raises:
        ValueError: for labels of another shape, or smoothing outside of 0 to 1.

    >>> stablemax_cross_entropy(jnp.array([[1.0, 0.0, -1.0, -1.0]]), jnp.array([0]))  # log 2
    Array([0.6931472], dtype=float32)
    """
    if not 0 <= label_smoothing <= 1:
        raise ValueError(f"expected label_smoothing from 0 to 1, got {label_smoothing}")
    logits, labels = jnp.moveaxis(jnp.asarray(logits), axis, -1), jnp.asarray(labels)
    is_index = jnp.issubdtype(labels.dtype, jnp.integer)
    labels = labels if is_index else jnp.moveaxis(labels, axis, -1)
    if labels.shape != (expected := logits.shape[:-1] if is_index else logits.shape):
        raise ValueError(f"expected labels of shape {expected}, got {labels.shape}")
    logs = _log_stablemax(_wide(logits), -1)
    if is_index:
        losses = -jnp.take_along_axis(logs, labels[..., None], -1, mode="fill")[..., 0]
    else:
        losses = -jnp.sum(logs * labels, -1)
    losses = (1 - label_smoothing) * losses - (label_smoothing * logs.mean(-1) if label_smoothing else 0)
    return losses.astype(logits.dtype)


def _wide(logits: jax.Array) -> jax.Array:
    logits = jnp.asarray(logits)
    if not jnp.issubdtype(logits.dtype, jnp.floating):
        raise TypeError(f"expected logits in floating point, got {logits.dtype}")
    return logits.astype(jnp.promote_types(logits.dtype, jnp.float32))


def _ratios(x: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """s(x) / s(m) for the largest logit m, and the sum of these ratios without that of m itself."""
    top = x.max(axis, keepdims=True)
    ratio = (1 + jax.nn.relu(x)) / (1 + jax.nn.relu(top)) * ((1 + jax.nn.relu(-top)) / (1 + jax.nn.relu(-x)))
    is_top = jax.nn.one_hot(x.argmax(axis), x.shape[axis], dtype=x.dtype, axis=axis)
    return ratio, (ratio - is_top).sum(axis, keepdims=True)


def _log_s(x: jax.Array) -> jax.Array:
    return jnp.log1p(jax.nn.relu(x)) - jnp.log1p(jax.nn.relu(-x))


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _log_stablemax(x: jax.Array, axis: int) -> jax.Array:
    ratio, rest = _ratios(x, axis)
    # XLA flushes numbers below the smallest normal one to zero.
    log_ratio = jnp.where(
        ratio >= jnp.finfo(x.dtype).tiny, jnp.log(ratio), _log_s(x) - _log_s(x.max(axis, keepdims=True))
    )
    return log_ratio - jnp.log1p(rest)


def _pulled_back(gradient: jax.Array, x: jax.Array, axis: int) -> jax.Array:
    """(gₖ (1 − pₖ) − pₖ Σ_{j≠k} gⱼ) / (1 + |xₖ|): no difference of numbers that are nearly equal."""
    ratio, rest = _ratios(x, axis)
    others = gradient.sum(axis, keepdims=True) - gradient
    own = (1 - ratio + rest) / (1 + rest)
    return (gradient * own - ratio / (1 + rest) * others) / (1 + jnp.abs(x))


_log_stablemax.defvjp(
    lambda x, axis: (_log_stablemax(x, axis), x),
    lambda axis, x, gradient: (_pulled_back(gradient, x, axis),),
)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _stablemax(x: jax.Array, axis: int) -> jax.Array:
    ratio, rest = _ratios(x, axis)
    return ratio / (1 + rest)


_stablemax.defvjp(
    lambda x, axis: (_stablemax(x, axis), x),
    lambda axis, x, gradient: (_pulled_back(gradient * _stablemax(x, axis), x, axis),),
)
