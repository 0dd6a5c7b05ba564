from __future__ import annotations

import functools
import math
import subprocess
import sys

import pytest
import torch

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

import orthograd  # noqa: E402
from orthograd.jax import orthogonalize  # noqa: E402
from orthograd.projection import orthogonal_gradient  # noqa: E402
from tests.conftest import at_angle, cosine  # noqa: E402

try:
    enable_x64 = jax.enable_x64
except AttributeError:  # before jax 0.8
    from jax.experimental import enable_x64

# What a result may be off by, as a share of its length: its rounding, and some float32 sums before it.
TOLERANCE = {"float32": 1e-6, "float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}
TORCH = {name: getattr(torch, name) for name in TOLERANCE}


@pytest.fixture
def _wide():
    with enable_x64(True):
        yield


def as_jax(tensor):
    if tensor.dtype == torch.bfloat16:
        return jnp.asarray(tensor.float().numpy(), dtype=jnp.bfloat16)
    return jnp.asarray(tensor.numpy())


def as_torch(array):
    wide = array if array.dtype.kind == "c" or array.dtype == jnp.float64 else array.astype(jnp.float32)
    return torch.from_numpy(np.array(wide))


def projected(gradients, params, **options):
    transform = orthogonalize(**options)
    return transform.update(gradients, transform.init(params), params)[0]


# Every new shape is compiled anew, so tests share theirs where they can.
SHAPE = (5, 20)


def error(found, expected):
    found = as_torch(found).to(expected.dtype)
    return float((found - expected).norm() / expected.norm().clamp_min(1e-300))


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float16", marks=pytest.mark.slow), "bfloat16"])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("rows", [True, False])
def test_random_trees_are_those_of_the_reference(dtype, renormalize, rows):
    shapes = {"a": SHAPE, "b": (4, 3, 2, 2)}
    tensors = {name: torch.randn(2, *shape).to(TORCH[dtype]) for name, shape in shapes.items()}
    gradients, params = ({name: as_jax(pair[i]) for name, pair in tensors.items()} for i in (0, 1))
    found = projected(gradients, params, renormalize=renormalize, granularity="row" if rows else "tensor")
    for name, (gradient, weight) in tensors.items():
        assert found[name].dtype == gradients[name].dtype
        expected = orthogonal_gradient(gradient, weight, renormalize=renormalize, rows=rows)
        assert error(found[name], expected) < TOLERANCE[dtype], name


@pytest.mark.parametrize("project", [projected, jax.jit(projected)], ids=["plain", "jit"])
@pytest.mark.parametrize("angle", [1.0, 1e-2, 1e-4, 1e-6, 3e-7, 3.14159])
def test_nearly_parallel_gradients_are_those_of_the_reference(angle, project):
    gradient, weight = at_angle(angle, 1000)
    found = project(as_jax(gradient), as_jax(weight))
    expected = orthogonal_gradient(gradient, weight)
    # The halves of a product are good to 2⁻³⁵ of ‖g‖, of which g⊥ is sin(angle).
    assert error(found, expected) < 1e-6 + 2**-33 / math.sin(angle)
    assert cosine(as_torch(found), weight) < 1e-6


@pytest.mark.parametrize("angle", [1.0, 1e-6, 1e-10, 1e-13])
@pytest.mark.usefixtures("_wide")
def test_float64_is_that_of_the_reference(angle):
    gradient, weight = at_angle(angle, 1000, torch.float64)
    assert (
        error(projected(as_jax(gradient), as_jax(weight)), orthogonal_gradient(gradient, weight))
        < 1e-14 + 1e-15 / angle
    )


@pytest.mark.parametrize("renormalize", [True, False])
def test_parallel_gives_exactly_zero_and_zero_gives_zero(renormalize):
    weight = as_jax(torch.randn(1000))
    project = functools.partial(projected, renormalize=renormalize)
    for gradient in (weight, -3.3 * weight, 0.1 * weight, jnp.zeros_like(weight)):
        for form in (project, jax.jit(project)):
            assert float(jnp.abs(form(gradient, weight)).max()) == 0


def test_zero_weight_has_no_direction_to_remove():
    gradient = as_jax(torch.randn(10))
    np.testing.assert_allclose(projected(gradient, jnp.zeros(10)), gradient, rtol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("weight_size", [1e-30, 1e30])
def test_squares_out_of_range_do_no_harm(size, weight_size):
    gradient, weight = (torch.randn(1000) * size, torch.randn(1000) * weight_size)
    assert error(projected(as_jax(gradient), as_jax(weight)), orthogonal_gradient(gradient, weight)) < 1e-6


def test_half_precision_that_would_overflow_stays_finite():
    gradient, weight = torch.full((4,), 60000.0).half(), torch.tensor([1.0, -1, 1, 1]).half()
    found = projected(as_jax(gradient), as_jax(weight))
    assert bool(jnp.isfinite(found).all())
    assert float(jnp.abs(found).max()) == 65504


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("granularity", ["tensor", "row"])
def test_broken_gradients_come_back_as_they_were(broken, granularity):
    gradient, weight = torch.randn(2, *SHAPE)
    gradient[1, 2] = broken
    found = np.array(projected(as_jax(gradient), as_jax(weight), granularity=granularity))
    np.testing.assert_array_equal(found[1], gradient[1].numpy())
    assert (found[0] == gradient[0].numpy()).all() == (granularity == "tensor")


@pytest.mark.parametrize("rows", [True, False])
def test_complex_numbers_take_the_real_inner_product(rows):
    gradient, weight = torch.randn(2, *SHAPE, dtype=torch.complex64)
    found = projected(as_jax(gradient), as_jax(weight), granularity="row" if rows else "tensor")
    real = [torch.view_as_real(tensor) for tensor in (gradient, weight)]
    expected = torch.view_as_complex(orthogonal_gradient(*real, rows=rows))
    assert found.dtype == jnp.complex64
    assert error(found, expected) < 1e-6


@pytest.mark.parametrize("granularity", ["model", "group"])
def test_a_model_is_one_vector(granularity):
    tensors = [torch.randn(2, *shape) for shape in ((7,), (5, 3), (1,))]
    gradients, params = ([as_jax(pair[i]) for pair in tensors] for i in (0, 1))
    found = projected(gradients, params, granularity=granularity, scalars=True)
    flat = [torch.cat([pair[i].flatten() for pair in tensors]) for i in (0, 1)]
    expected = orthogonal_gradient(*flat).split([7, 15, 1])
    for part, value in zip(expected, found, strict=True):
        assert error(value.reshape(-1), part) < 2e-6


def test_one_element_and_biases_are_left_alone_unless_asked():
    one, bias, thin = jnp.ones(1), jnp.arange(3.0), jnp.ones((3, 1))
    assert float(projected(one, 2 * one)[0]) == 1
    assert float(projected(one, 2 * one, scalars=True)[0]) == 0
    for leaf in (bias, thin):
        np.testing.assert_array_equal(projected(leaf, leaf + 1, granularity="row"), leaf)
    assert float(projected(jnp.array(3.0), jnp.array(2.0))) == 3


def test_where_is_asked_by_name():
    tree = {"dense": {"kernel": jnp.arange(4.0), "bias": jnp.arange(4.0)}}
    found = projected(tree, tree, where=lambda name, parameter: "bias" not in name)
    assert float(jnp.abs(found["dense"]["kernel"]).max()) == 0
    np.testing.assert_array_equal(found["dense"]["bias"], tree["dense"]["bias"])


def test_nothing_and_whole_numbers_pass_through():
    gradients, params = {"a": None, "b": jnp.arange(3)}, {"a": jnp.ones(3), "b": jnp.arange(3)}
    found = projected(gradients, params)
    assert found["a"] is None
    np.testing.assert_array_equal(found["b"], gradients["b"])
    assert projected({"a": None}, {"a": None}) == {"a": None}


def test_masked_leaves_are_not_touched():
    params = {"kernel": jnp.arange(1.0, 5), "bias": jnp.arange(1.0, 5)}
    transform = optax.masked(orthogonalize(), {"kernel": True, "bias": False})
    found, _ = transform.update(params, transform.init(params), params)
    assert float(jnp.abs(found["kernel"]).max()) == 0
    np.testing.assert_array_equal(found["bias"], params["bias"])


def test_multi_transform_makes_groups():
    params = {name: as_jax(torch.randn(6)) for name in "abc"}
    gradients = {name: as_jax(torch.randn(6)) for name in "abc"}
    labels = {"a": "one", "b": "one", "c": "plain"}
    transform = optax.multi_transform({"one": orthogonalize(granularity="group"), "plain": optax.identity()}, labels)
    found, _ = transform.update(gradients, transform.init(params), params)
    assert abs(sum(float(found[name] @ params[name]) for name in "ab")) < 1e-5
    np.testing.assert_array_equal(found["c"], gradients["c"])


def test_batches_of_networks_are_projected_one_by_one():
    gradients, weights = as_jax(torch.randn(SHAPE)), as_jax(torch.randn(SHAPE))
    found = jax.vmap(projected)(gradients, weights)
    np.testing.assert_allclose(found, projected(gradients, weights, granularity="row"), rtol=1e-5, atol=1e-6)


def test_update_without_params_says_so():
    transform = orthogonalize()
    with pytest.raises(ValueError, match="params"):
        transform.update(jnp.ones(3), transform.init(jnp.ones(3)))


def test_wrong_options_and_shapes_say_what_arrived():
    with pytest.raises(ValueError, match="layer"):
        orthogonalize(granularity="layer")
    with pytest.raises(TypeError, match="yes"):
        orthogonalize(renormalize="yes")
    with pytest.raises(ValueError, match=r"\(3,\)"):
        projected(jnp.ones(3), jnp.ones(4))


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("row", "model")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("granularity", ["tensor", *SLOW])
def test_fifty_steps_of_sgd_with_momentum_end_where_torch_ends(dtype, granularity):
    inputs, targets = torch.randn(20, 4, dtype=TORCH[dtype]), torch.randn(20, 2, dtype=TORCH[dtype])
    first, second = torch.randn(8, 4, dtype=TORCH[dtype]) / 2, torch.randn(2, 8, dtype=TORCH[dtype]) / 3
    weights = [torch.nn.Parameter(first.clone()), torch.nn.Parameter(second.clone())]
    optimizer = torch.optim.SGD(weights, lr=0.1, momentum=0.9)
    orthograd.attach(optimizer, granularity=granularity)
    for _ in range(50):
        optimizer.zero_grad()
        ((torch.tanh(inputs @ weights[0].T) @ weights[1].T - targets) ** 2).mean().backward()
        optimizer.step()
    with enable_x64(dtype == "float64"):
        found = _trained(*map(as_jax, (inputs, targets, first, second)), granularity)
        for array, weight in zip(found, weights, strict=True):
            # Fifty steps of rounding, which momentum carries on.
            assert error(array, weight.detach()) < (1e-4 if dtype == "float32" else 1e-11)


def _trained(inputs, targets, first, second, granularity):
    params = [first, second]
    optimizer = optax.chain(orthogonalize(granularity=granularity), optax.sgd(0.1, momentum=0.9))

    def loss(params):
        return ((jnp.tanh(inputs @ params[0].T) @ params[1].T - targets) ** 2).mean()

    @jax.jit
    def step(params, state):
        updates, state = optimizer.update(jax.grad(loss)(params), state, params)
        return optax.apply_updates(params, updates), state

    state = optimizer.init(params)
    for _ in range(50):
        params, state = step(params, state)
    return params


def test_without_jax_the_error_names_the_extra():
    code = "import sys; sys.modules['jax'] = None; import orthograd.jax"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert "pip install '.[jax]'" in run.stderr
