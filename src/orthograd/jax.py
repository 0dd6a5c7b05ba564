"""⊥Grad for JAX, as a gradient transformation of optax.

    import optax
    from orthograd.jax import orthogonalize

    optimizer = optax.chain(orthogonalize(), optax.sgd(0.1, momentum=0.9))
    state = optimizer.init(params)
    updates, state = optimizer.update(gradients, state, params)  # the params are needed
    params = optax.apply_updates(params, updates)

The mathematics is that of `orthograd.projection`, which it is tested against. Behind the optimizer instead of before
it, the transformation makes the update orthogonal: momentum and all, and weight decay too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

try:
    import jax
    import jax.numpy as jnp
    import optax  # type: ignore[import-untyped,unused-ignore]
except ImportError as error:
    raise ImportError("orthograd.jax needs jax and optax: pip install '.[jax]'") from error

Where = Callable[[str, Any], bool]
"""A predicate on the name and the parameter: whether ⊥Grad acts on it."""
Vector = Sequence[jax.Array]
"""Arrays that count together as one vector."""
GRANULARITIES = ("tensor", "row", "group", "model")


def orthogonalize(
    *, renormalize: bool = True, granularity: str = "tensor", where: Where | None = None, scalars: bool = False
) -> optax.GradientTransformation:
    """ĝ = (‖g‖ / ‖g⊥‖) g⊥ with g⊥ = g − (⟨g, w⟩ / ‖w‖²) w, or g⊥ itself without ``renormalize``.

    Args:
        renormalize: whether g⊥ gets back the norm of g (definition 1 of the paper) or not (its appendix).
        granularity: what is orthogonal to what. "tensor": each array. "row": each slice along the first axis.
            "model" or "group": all arrays as one vector; `optax.multi_transform` makes groups.
        where: called with (name, parameter), the name as `jax.tree_util.keystr` writes it; False leaves it alone.
        scalars: project one-element arrays too. They have no orthogonal direction and would never change again.

    Sums run over whole arrays, and over sharded ones under ``jit``. Inside ``shard_map`` or ``pmap`` each device sees
    its part alone: split parameters must be projected outside.
    """
    if granularity not in GRANULARITIES:
        raise ValueError(f"expected granularity to be one of {', '.join(GRANULARITIES)}, got {granularity!r}")
    for name, value in (("renormalize", renormalize), ("scalars", scalars)):
        if not isinstance(value, bool):
            raise TypeError(f"expected {name} to be True or False, got {value!r}")

    def update(updates: Any, state: optax.EmptyState, params: Any = None) -> tuple[Any, optax.EmptyState]:
        if params is None:
            raise ValueError(
                "orthogonalize needs the weights: expected update(gradients, state, params), got no params"
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
        # A bias has one number per neuron: no row to be orthogonal to.
        return weight.ndim > 1 and (scalars or weight.size > len(weight))
    return scalars or jnp.size(weight) != 1


def _projected(gradients: Vector, weights: Vector, renormalize: bool, *, rows: bool) -> list[jax.Array]:
    """What ⊥Grad makes of one vector, in the dtypes of its gradients."""
    originals = [_as_real(array) for array in gradients]
    g, size = _scaled(originals, rows)
    w, _ = _scaled([_as_real(array) for array in weights], rows)
    rounding = max(_rounding_of(array.dtype) for array in gradients)
    # In exact arithmetic a second projection does nothing. In floating point the first one leaves the rounding of
    # ⟨g, w⟩ behind, which is all there is to see when g is nearly parallel to w.
    across = _without_radial(_without_radial(g, w, rows), w, rows)
    square, whole = _inner(across, across, rows), _inner(g, g, rows)
    is_zero = square <= rounding**2 * whole
    factor = jnp.sqrt(whole / jnp.where(is_zero, 1, square)) if renormalize else jnp.ones_like(square)
    factor = jnp.where(is_zero, 0, factor)
    # A vector with anything infinite or NaN in it stays as it was: ⊥Grad hides no broken gradient.
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
    # A zero weight has no direction, so nothing of the gradient is radial.
    share = _inner(g, w, rows) / jnp.where(square > 0, square, 1)
    return [_minus_product(a, share, b) for a, b in zip(g, w, strict=True)]


def _minus_product(a: jax.Array, share: jax.Array, b: jax.Array) -> jax.Array:
    """a − share · b, in float32 as exactly as if the product were not rounded.

    A gradient nearly parallel to its weight is almost share · b, and rounding the product would be all that is left
    of it. Halves of 12 bits have exact products; float64, which many accelerators lack, is not needed.
    """
    if a.dtype != jnp.float32:
        return a - share * b
    (share_high, share_low), (b_high, b_low) = _halves(share), _halves(b)
    return a - share_high * b_high - share_high * b_low - share_low * b_high - share_low * b_low


def _halves(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """A float32 as the sum of its first 12 significant bits and the others."""
    bits = jax.lax.bitcast_convert_type(x, jnp.int32) & jnp.int32(-(2**12))
    high = jax.lax.bitcast_convert_type(bits, jnp.float32)
    return high, x - high


def _inner(left: Vector, right: Vector, rows: bool) -> jax.Array:
    """⟨left, right⟩ of all arrays together, or of each row, shaped to multiply what it came from."""
    products = [a * b for a, b in zip(left, right, strict=True)]
    if rows:
        return jnp.sum(products[0], axis=tuple(range(1, products[0].ndim)), keepdims=True)
    return sum((jnp.sum(product) for product in products[1:]), jnp.sum(products[0]))


def _scaled(vector: Vector, rows: bool) -> tuple[list[jax.Array], jax.Array]:
    """The vector divided by a power of two near its largest element, and that power: squares stay in range."""
    if rows:
        largest = jnp.max(jnp.abs(vector[0]), axis=tuple(range(1, vector[0].ndim)), keepdims=True, initial=0)
    else:
        largest = jnp.max(jnp.stack([jnp.max(jnp.abs(array), initial=0) for array in vector]))
    exponent = jnp.clip(jnp.frexp(largest)[1], -120, 120)  # beyond, powers of two leave the range of float32
    one = jnp.ones_like(largest)
    return [array * jnp.ldexp(one, -exponent) for array in vector], jnp.ldexp(one, exponent)


def _rounding_of(dtype: Any) -> float:
    """‖g⊥‖ / ‖g‖ that rounding alone can leave of a gradient that is parallel to its weight."""
    eps = float(jnp.finfo(dtype).eps)
    return 8 * eps if eps < 1e-10 else eps / 2


def _as_real(array: jax.Array) -> jax.Array:
    """The array in float32, or float64 if it is as wide; a complex one with its two parts along a last axis."""
    if jnp.iscomplexobj(array):
        array = jnp.stack([array.real, array.imag], axis=-1)
    return array.astype(jnp.promote_types(array.dtype, jnp.float32))


def _rounded(array: jax.Array, dtype: Any) -> jax.Array:
    """Back to the dtype that the gradient came in."""
    if jnp.issubdtype(dtype, jnp.complexfloating):
        return jax.lax.complex(array[..., 0], array[..., 1]).astype(dtype)
    return array.astype(dtype)
