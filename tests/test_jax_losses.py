"""StableMax in JAX: the values and gradients of its twin in torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402

from orthograd import jax as ours  # noqa: E402
from orthograd import losses  # noqa: E402

CLASSES = 7


def logits_of(scale):
    return scale * np.random.default_rng(0).standard_normal((20, CLASSES)).astype(np.float32)


LABELS = np.arange(20) % CLASSES
SPREAD = np.random.default_rng(1).dirichlet(np.ones(CLASSES), 20).astype(np.float32)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 1e12, 1e30])
@pytest.mark.parametrize("name", ["stablemax", "log_stablemax"])
@pytest.mark.parametrize("axis", [0, -1])
def test_values_are_those_of_torch(scale, name, axis):
    logits = logits_of(scale)
    expected = getattr(losses, name)(torch.tensor(logits), axis).numpy()
    np.testing.assert_allclose(getattr(ours, name)(jnp.asarray(logits), axis), expected, rtol=1e-6, atol=1e-37)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("labels", [LABELS, SPREAD], ids=["indices", "probabilities"])
def test_losses_and_gradients_are_those_of_torch(smoothing, labels):
    @jax.jit  # once for all scales
    @jax.value_and_grad
    def mean(logits):
        return ours.stablemax_cross_entropy(logits, labels, label_smoothing=smoothing).mean()

    for scale in (1.0, 30.0, 1e12):
        leaf = torch.tensor(logits_of(scale), requires_grad=True)
        loss = losses.stablemax_cross_entropy(leaf, torch.tensor(labels), label_smoothing=smoothing)
        loss.backward()
        value, gradient = mean(jnp.asarray(logits_of(scale)))
        assert float(value) == pytest.approx(loss.item(), rel=1e-6), scale
        np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=2e-5, atol=1e-7 * float(leaf.grad.abs().max()))


@pytest.mark.parametrize("kind", ["indices", "probabilities"])
@pytest.mark.parametrize("axis", [1, -2])
def test_the_classes_can_be_in_the_axis_of_torch(kind, axis):
    logits = np.moveaxis(logits_of(3.0).reshape(4, 5, CLASSES), -1, 1)
    labels = LABELS.reshape(4, 5) if kind == "indices" else np.moveaxis(SPREAD.reshape(4, 5, CLASSES), -1, 1)
    expected = losses.stablemax_cross_entropy(
        torch.tensor(logits.copy()), torch.tensor(labels.copy()), reduction="none", label_smoothing=0.1
    )
    values = ours.stablemax_cross_entropy(logits, labels, axis=axis, label_smoothing=0.1)
    np.testing.assert_allclose(values, expected.numpy(), rtol=1e-6)


def test_the_gradient_of_a_confident_sample_is_not_zero():
    logits, labels = jnp.array([[1e6, -1e6, -1e6]]), jnp.array([0])
    gradient = jax.grad(lambda x: ours.stablemax_cross_entropy(x, labels).sum())(logits)
    assert float(gradient[0, 0]) == pytest.approx(-2e-18, rel=1e-5)
    assert float(ours.stablemax_cross_entropy(logits, labels)[0]) == pytest.approx(2e-12, rel=1e-5)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_rounded_once(dtype):
    logits = jnp.asarray(logits_of(5.0)).astype(dtype)
    expected = ours.log_stablemax(logits.astype(jnp.float32)).astype(dtype)
    assert (ours.log_stablemax(logits) == expected).all()
    assert ours.stablemax(logits).dtype == ours.stablemax_cross_entropy(logits, LABELS).dtype == dtype


def test_gradients_of_probabilities_are_those_of_torch():
    logits, direction = logits_of(3.0), logits_of(1.0)
    leaf = torch.tensor(logits, requires_grad=True)
    (losses.stablemax(leaf) * torch.tensor(direction)).sum().backward()
    gradient = jax.grad(lambda x: (ours.stablemax(x) * direction).sum())(jnp.asarray(logits))
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-4, atol=1e-7)


def test_wrong_input_raises():
    logits = jnp.zeros((2, 3))
    with pytest.raises(ValueError, match=r"labels of shape \(2,\), got \(3,\)"):
        ours.stablemax_cross_entropy(logits, jnp.zeros(3, int))
    with pytest.raises(ValueError, match=r"labels of shape \(2, 3\), got \(2, 4\)"):
        ours.stablemax_cross_entropy(logits, jnp.zeros((2, 4)))
    with pytest.raises(ValueError, match="label_smoothing from 0 to 1, got 2"):
        ours.stablemax_cross_entropy(logits, jnp.zeros(2, int), label_smoothing=2)
    with pytest.raises(TypeError, match="floating point, got int32"):
        ours.stablemax(jnp.zeros(3, int))
    assert jnp.isnan(ours.stablemax_cross_entropy(logits, jnp.array([0, 3])))[1]
