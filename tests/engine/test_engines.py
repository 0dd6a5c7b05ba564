"""Every engine against the float64 reference: shapes, dtypes, strides, scales, and all that can break."""

from __future__ import annotations

import copy
import importlib.util
import math
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthograd import attach
from orthograd.engine.dense import DensePlan, DenseRowsPlan
from orthograd.engine.plan import Pair
from orthograd.engine.projector import REMEMBERED, Projector
from orthograd.projection import orthogonal_gradient
from tests.conftest import DTYPES, at_angle, cosine, relative_error


class Careful(Projector):
    """The engine of devices without one of their own, on the CPU."""

    def project_(self, segments):
        (DenseRowsPlan if self.rows else DensePlan)(segments, renormalize=self.renormalize).project_()


def engine(name, **options):
    return Careful(**options) if name == "careful" else Projector(engine=name, **options)


# Where there is a GPU, kernels are compiled for it: see `test_cuda`.
IS_INTERPRETED = importlib.util.find_spec("triton") is not None and not torch.cuda.is_available()
needs_interpreter = pytest.mark.skipif(not IS_INTERPRETED, reason="needs Triton's interpreter: Triton, and no GPU")
triton = pytest.param("triton", marks=needs_interpreter)
each_engine = pytest.mark.parametrize("name", ["torch", "careful", triton, "reference"])
each_dtype = pytest.mark.parametrize("dtype", DTYPES)


def tolerance(dtype):
    # Rounding to the dtype is off by half an eps. The reference itself is no more exact than float64, and float32
    # dot products of the CPU engine are good to 1e-6; Triton's interpreter cuts bfloat16 instead of rounding it.
    return {torch.float32: 1e-6, torch.float64: 1e-14}.get(dtype, torch.finfo(dtype).eps)


@each_engine
@each_dtype
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("rows", [pytest.param(True, marks=pytest.mark.slow), False])
def test_engine_agrees_with_the_reference(name, dtype, renormalize, rows):
    shapes = [(7, 5), (24, 3, 3, 3), (3, 2000), (10, 129), (2, 1), (0, 3)]
    pairs = [Pair(*(torch.randn(shape).to(dtype) for _ in range(2))) for shape in shapes]
    expected = [orthogonal_gradient(*pair, renormalize=renormalize, rows=rows) for pair in pairs]
    engine(name, renormalize=renormalize, rows=rows).project_([[pair] for pair in pairs])
    for pair, right in zip(pairs, expected, strict=True):
        assert relative_error(pair.gradient, right) <= tolerance(dtype)


@each_engine
@pytest.mark.parametrize("sizes", [(3, 4), (10, 5000, 1, 0, 300)])
def test_tensors_of_a_segment_count_as_one_vector(name, sizes):
    pairs = [Pair(*torch.randn(2, size)) for size in sizes]
    whole = [torch.cat(column) for column in zip(*pairs, strict=True)]
    expected = orthogonal_gradient(*whole)
    engine(name).project_([pairs])
    assert relative_error(torch.cat([pair.gradient for pair in pairs]), expected) < 1e-6


@each_engine
@pytest.mark.parametrize("angle", [1e-6, 1e-3, 0.3, 1.3, 1.5, math.pi - 1e-6])
@pytest.mark.parametrize("size", [1_000, 100_000])
def test_result_is_orthogonal_and_keeps_its_length_at_any_angle(name, angle, size):
    gradient, weight = at_angle(angle, min(size, 20_000) if name == "triton" else size)  # the interpreter is slow
    before = gradient.double().norm()
    engine(name).project_([[Pair(gradient, weight)]])
    assert cosine(gradient, weight) < 1e-6
    assert abs(float(gradient.double().norm() / before) - 1) < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("angle", [1e-6, 1.3, 1.5])
def test_large_tensors_stay_exact(angle):
    gradient, weight = at_angle(angle, 10_000_000)
    weight += weight.abs()  # sums of like signs are the hardest for float32
    before = gradient.double().norm()
    engine("torch").project_([[Pair(gradient, weight)]])
    assert cosine(gradient, weight) < 1e-6
    assert abs(float(gradient.double().norm() / before) - 1) < 1e-4


@each_engine
@pytest.mark.parametrize("factor", [1.0, 3.3, -0.1, 1e-20, 1e20])
@each_dtype
def test_parallel_gives_exactly_zero(name, factor, dtype):
    weight = torch.randn(5000).to(dtype)
    gradient = weight * factor
    if not gradient.isfinite().all() or torch.finfo(dtype).tiny > gradient.abs().max() * torch.finfo(dtype).eps:
        pytest.skip(f"{factor} · w is out of the range of {dtype}")
    engine(name).project_([[Pair(gradient, weight)]])
    assert gradient.abs().max() == 0


@each_engine
def test_zero_gradient_and_zero_weight(name):
    zero, kept = Pair(torch.zeros(50), torch.randn(50)), Pair(torch.randn(50), torch.zeros(50))
    before = kept.gradient.clone()
    engine(name).project_([[zero], [kept]])
    assert zero.gradient.abs().max() == 0
    assert torch.equal(kept.gradient, before)


@each_engine
@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("rows", [True, False])
def test_broken_gradients_pass_through_and_leave_others_alone(name, broken, rows):
    pairs = [Pair(*torch.randn(2, 6, size)) for size in (9, 3000, 9)]
    expected = [orthogonal_gradient(*pair, rows=rows) for pair in pairs]
    for pair in pairs[:2]:
        pair.gradient[2, 4] = broken
    kept = [pair.gradient.clone() for pair in pairs]
    engine(name, rows=rows).project_([[pair] for pair in pairs])
    assert relative_error(pairs[2].gradient, expected[2]) < 1e-6
    for pair, before, right in zip(pairs[:2], kept, expected, strict=False):
        same = pair.gradient.nan_to_num(7) == before.nan_to_num(7)
        assert same[2].all()
        if rows:  # other rows of the same tensor are projected as ever
            others = [0, 1, 3, 4, 5]
            assert relative_error(pair.gradient[others], right[others]) < 1e-6
        else:
            assert same.all()


@each_engine
def test_a_broken_tensor_leaves_its_whole_segment_alone(name):
    pairs = [Pair(*torch.randn(2, 8)) for _ in range(3)]
    pairs[1].gradient[0] = math.nan
    before = [pair.gradient.clone() for pair in pairs]
    engine(name).project_([pairs])
    assert all(torch.equal(p.gradient.nan_to_num(7), b.nan_to_num(7)) for p, b in zip(pairs, before, strict=True))


@each_engine
def test_finite_half_precision_stays_finite(name):
    # All of ‖g‖ lands on the second element, which float16 cannot hold.
    gradient, weight = torch.tensor([6e4, 6e4]).half(), torch.tensor([1.0, 0.0]).half()
    engine(name).project_([[Pair(gradient, weight)]])
    assert gradient.tolist() == [0.0, torch.finfo(torch.float16).max]


@each_engine
@pytest.mark.parametrize("layout", ["channels_last", "transposed", "strided", "mixed", "offset"])
@pytest.mark.parametrize("rows", [True, False])
def test_memory_layouts(name, layout, rows):
    weight, gradient = torch.randn(2, 16, 12, 3, 3)
    if layout == "channels_last":
        weight, gradient = (t.contiguous(memory_format=torch.channels_last) for t in (weight, gradient))
    elif layout == "transposed":
        weight, gradient = weight.transpose(0, 1), gradient.transpose(0, 1)
    elif layout == "strided":
        weight, gradient = weight[:, ::2], gradient[:, ::2]
    elif layout == "mixed":
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    else:
        weight, gradient = (torch.cat([t.new_zeros(1), t.flatten()])[1:].view_as(t) for t in (weight, gradient))
    strides, expected = gradient.stride(), orthogonal_gradient(gradient, weight, rows=rows)
    engine(name, rows=rows).project_([[Pair(gradient, weight)]])
    assert gradient.stride() == strides
    assert relative_error(gradient, expected) < 1e-6


@pytest.mark.parametrize("name", ["torch", triton, "reference"])
@pytest.mark.parametrize("rows", [True, False])
def test_complex_parameters(name, rows):
    gradient, weight = torch.randn(2, 5, 6, dtype=torch.complex64)
    expected = orthogonal_gradient(gradient, weight, rows=rows)
    engine(name, rows=rows).project_([[Pair(gradient, weight)]])
    torch.testing.assert_close(gradient, expected.to(gradient.dtype), rtol=1e-5, atol=1e-6)


def test_kernels_forced_upon_cpu_tensors_say_what_they_need(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ValueError, match=r"needs CUDA tensors, got CPU tensors"):
        Projector(engine="triton").project_([[Pair(*torch.randn(2, 5))]])


def counted_plans(projector, monkeypatch):
    """The sizes of what a projector makes plans for from now on."""
    sizes, planned = [], projector._planned
    monkeypatch.setattr(
        projector, "_planned", lambda segments: sizes.append(len(segments[0][0].weight)) or planned(segments)
    )
    return sizes


@needs_interpreter
def test_what_a_graph_captures_is_nothing_to_remember(monkeypatch):
    """Plans of a graph hold their addresses only once it is replayed; those from before stay while it is captured."""
    projector = Projector(engine="triton")
    pairs = [[[Pair(*torch.randn(2, 1 + number))]] for number in range(2 * REMEMBERED)]
    before, captured = pairs[:REMEMBERED], pairs[REMEMBERED:]
    for segments in before:
        projector.project_(segments)
    with monkeypatch.context() as capture:
        capture.setattr("orthograd.engine.projector.is_capturing", lambda: True)
        for segments in captured:
            projector.project_(segments)
    planned = counted_plans(projector, monkeypatch)
    for segments in before:
        projector.project_(segments)
    assert planned == []
    projector.project_(captured[0])
    assert planned == [1 + REMEMBERED]


@needs_interpreter
def test_what_lies_where_other_tensors_lay_is_projected_as_it_is(monkeypatch):
    projector, memory = Projector(engine="triton"), torch.randn(2, 120)
    planned = counted_plans(projector, monkeypatch)
    for size in (120, 100, 120):
        gradient, weight = memory[:, :size].normal_()
        expected = orthogonal_gradient(gradient.clone(), weight)
        for _ in range(2):  # the second time by the plan that is remembered
            projector.project_([[Pair(gradient, weight)]])
        assert relative_error(gradient, expected) < 1e-6
    assert planned == [120, 100]


def elsewhere(tensor: torch.Tensor, offset: int = 0) -> torch.Tensor:
    """Random values in the layout of a tensor, at an address of their own, so many elements from a round one."""
    return torch.randn(tensor.numel() + 64)[offset : offset + tensor.numel()].view_as(tensor)


@needs_interpreter
@pytest.mark.parametrize("rows", [False, True])
def test_gradients_that_lie_elsewhere_at_each_step_need_no_new_plan(monkeypatch, rows):
    projector = Projector(engine="triton", rows=rows)
    weights = [torch.randn(7, 5), torch.randn(3, 40), torch.randn(8, 1, 2)]
    planned, kept = counted_plans(projector, monkeypatch), []
    for _ in range(3):
        gradients = [elsewhere(weight) for weight in weights]
        kept.append(gradients)  # so that no address comes again
        expected = [orthogonal_gradient(g, w, rows=rows) for g, w in zip(gradients, weights, strict=True)]
        projector.project_([[Pair(g, w)] for g, w in zip(gradients, weights, strict=True)])
        assert max(map(relative_error, gradients, expected)) < 1e-6
    assert len(planned) == 1


@needs_interpreter
@pytest.mark.parametrize("rows", [False, True])
def test_gradients_that_always_move_need_no_more_memory_on_the_device(rows):
    """It would move the next gradients: with `zero_grad` their memory and this come from one pool."""
    projector = Projector(engine="triton", rows=rows)
    weights = [torch.randn(7, 5), torch.randn(3, 40)]
    kept, memory = [], []
    for _ in range(3 * REMEMBERED):
        gradients = [elsewhere(weight) for weight in weights]
        kept.append(gradients)  # so that no address comes again
        expected = [orthogonal_gradient(g, w, rows=rows) for g, w in zip(gradients, weights, strict=True)]
        projector.project_([[Pair(g, w)] for g, w in zip(gradients, weights, strict=True)])
        assert max(map(relative_error, gradients, expected)) < 1e-6
        memory.append({plan._directories._there.data_ptr() for known in projector._remembered for plan in known.plans})
    assert [len(each) for each in memory[:REMEMBERED]] == list(range(1, REMEMBERED + 1))
    assert all(each == memory[REMEMBERED - 1] for each in memory[REMEMBERED:])


@needs_interpreter
def test_the_last_sets_of_gradients_need_no_copy_of_addresses(monkeypatch):
    projector, weight = Projector(engine="triton"), torch.randn(7, 5)
    sets = [elsewhere(weight) for _ in range(REMEMBERED + 1)]
    for gradient in sets:
        projector.project_([[Pair(gradient, weight)]])
    monkeypatch.setattr(projector, "_moved", lambda addresses: pytest.fail("known"))
    for gradient in sets[1:]:  # the first one's plan was taken over
        gradient.normal_()
        expected = orthogonal_gradient(gradient, weight)
        projector.project_([[Pair(gradient, weight)]])
        assert relative_error(gradient, expected) < 1e-6


@needs_interpreter
def test_plans_for_weights_of_before_are_forgotten(monkeypatch):
    projector = Projector(engine="triton")
    for weight in torch.randn(2, 7, 5):
        for gradient in [elsewhere(weight) for _ in range(2 * REMEMBERED)]:
            projector.project_([[Pair(gradient, weight)]])
    sets = [elsewhere(weight) for _ in range(2)]
    for gradient in sets:
        projector.project_([[Pair(gradient, weight)]])
    monkeypatch.setattr(projector, "_moved", lambda addresses: pytest.fail("known"))
    for gradient in 3 * sets:
        projector.project_([[Pair(gradient, weight)]])


@needs_interpreter
def test_plans_are_not_taken_over_where_projections_run_on_several_streams(monkeypatch):
    """Kernels on the other stream may not have read their addresses yet."""
    from orthograd.engine import launch  # needs Triton

    projector, weight, kept = Projector(engine="triton"), torch.randn(7, 5), []
    moved, taken = launch.TritonPlan.moved, []
    monkeypatch.setattr(
        launch.TritonPlan,
        "moved",
        lambda self, moves, *, in_place: taken.append(in_place) or moved(self, moves, in_place=in_place),
    )
    streams = iter([1] * (2 * REMEMBERED) + [2] * (2 * REMEMBERED))
    monkeypatch.setattr("orthograd.engine.projector.stream_of", lambda device: next(streams))
    for _ in range(4 * REMEMBERED):
        kept.append(elsewhere(weight))
        projector.project_([[Pair(kept[-1], weight)]])
    assert taken == [False] * (REMEMBERED - 1) + [True] * REMEMBERED + [False] * (2 * REMEMBERED)


@needs_interpreter
@pytest.mark.parametrize("rows", [False, True])
def test_of_several_plans_one_may_be_unable_to_move(monkeypatch, rows):
    projector = Projector(engine="triton", rows=rows)
    planned, kept = counted_plans(projector, monkeypatch), []
    weights = [torch.randn(7, 5), torch.randn(3, 40)]
    for step in range(3 * REMEMBERED):
        is_aligned = step not in (0, REMEMBERED, 2 * REMEMBERED)
        other = torch.randn(128).bfloat16()[int(not is_aligned) :][:120].view(3, 40)  # a dtype, so a plan, of its own
        gradients = [elsewhere(weights[0]), other]
        kept.append(gradients)
        for _ in range(2):
            expected = [orthogonal_gradient(g.clone(), w, rows=rows) for g, w in zip(gradients, weights, strict=True)]
            projector.project_([[Pair(g, w)] for g, w in zip(gradients, weights, strict=True)])
            assert relative_error(gradients[0], expected[0]) < 1e-6
            assert relative_error(gradients[1], expected[1]) < 1e-2
    assert len(planned) == 4  # the three that are not aligned, and the first that is


@needs_interpreter
def test_one_thread_at_a_time_uses_the_plans(monkeypatch):
    """`orthogonalize_` in two threads may share a projector, and plans change when gradients have moved."""
    from orthograd.engine import launch  # needs Triton

    projector, weight = Projector(engine="triton"), torch.randn(7, 5)
    first = elsewhere(weight)  # kept alive: a later gradient at its address would be a known one
    projector.project_([[Pair(first, weight)]])
    moved, inside, most = launch.TritonPlan.moved, [], []

    def slow(plan, moves, *, in_place):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        inside.pop()
        return moved(plan, moves, in_place=in_place)

    monkeypatch.setattr(launch.TritonPlan, "moved", slow)
    gradients = [elsewhere(weight) for _ in range(8)]
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda gradient: projector.project_([[Pair(gradient, weight)]]), gradients))
    assert most == [1] * len(gradients)


@needs_interpreter
def test_a_projector_with_plans_can_be_copied():
    """With a handle on ⊥Grad, which may be an attribute of what is copied."""
    weight = torch.nn.Parameter(torch.randn(7, 5))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    handle = attach(optimizer, engine="triton")
    weight.grad = elsewhere(weight.detach())
    optimizer.step()
    assert copy.deepcopy(handle).is_attached


@needs_interpreter
def test_plans_made_in_inference_mode_are_moved_outside_of_it():
    projector, weight, kept = Projector(engine="triton"), torch.randn(7, 5), []
    for step in range(3 * REMEMBERED):
        kept.append(elsewhere(weight))
        expected = orthogonal_gradient(kept[-1].clone(), weight)
        with torch.inference_mode(step < REMEMBERED):
            projector.project_([[Pair(kept[-1], weight)]])
        assert relative_error(kept[-1], expected) < 1e-6


@needs_interpreter
def test_plans_that_a_graph_has_are_not_taken_over(monkeypatch):
    projector, weight = Projector(engine="triton"), torch.randn(7, 5)
    sets = [elsewhere(weight) for _ in range(3 * REMEMBERED)]
    projector.project_([[Pair(sets[0], weight)]])
    with monkeypatch.context() as capture:
        capture.setattr("orthograd.engine.projector.is_capturing", lambda: True)
        projector.project_([[Pair(sets[0], weight)]])
    (captured,) = projector._captured
    for gradient in sets[1:]:
        projector.project_([[Pair(gradient, weight)]])
    sets[0].normal_()
    expected = orthogonal_gradient(sets[0], weight)
    for plan in captured:  # as a replay does
        plan.project_()
    assert relative_error(sets[0], expected) < 1e-6


@needs_interpreter
@pytest.mark.parametrize("change", ["alignment", "dtype", "strides", "one is missing", "weights"])
def test_where_more_than_the_address_of_gradients_is_new_so_is_the_plan(monkeypatch, change):
    projector, weights = Projector(engine="triton"), [torch.randn(8, 6), torch.randn(50)]
    planned, kept = counted_plans(projector, monkeypatch), []
    for is_changed in (False, True, False):
        gradients = [elsewhere(weight, offset=int(is_changed and change == "alignment")) for weight in weights]
        if is_changed and change == "dtype":
            gradients = [gradient.bfloat16() for gradient in gradients]
        if is_changed and change == "strides":
            gradients[0] = torch.randn(6, 8).t()
        if is_changed and change == "weights":
            weights = [weight.clone() for weight in weights]
        kept.append((gradients, weights))
        pairs = [Pair(g, w) for g, w in zip(gradients, weights, strict=True)]
        pairs = pairs[:1] if is_changed and change == "one is missing" else pairs
        expected = [orthogonal_gradient(pair.gradient.clone(), pair.weight) for pair in pairs]
        projector.project_([[pair] for pair in pairs])
        for pair, wanted in zip(pairs, expected, strict=True):
            assert relative_error(pair.gradient, wanted) < (1e-2 if pair.gradient.dtype == torch.bfloat16 else 1e-6)
    assert len(planned) >= 2


@pytest.mark.parametrize("what", ["shape", "device"])
def test_mismatched_pairs_are_named(what):
    gradient = torch.randn(3, 2) if what == "shape" else torch.randn(2, 3, device="meta")
    with pytest.raises(ValueError, match=f"gradient with the {what} of its weight"):
        Projector().project_([[Pair(gradient, torch.randn(2, 3))]])


@pytest.mark.parametrize("name", ["torch", "careful", *["triton"] * IS_INTERPRETED])
@pytest.mark.parametrize("is_strided", [False, True])
@pytest.mark.parametrize(("gradient_scale", "weight_scale"), [(1e19, 1e-22), (1e-21, 1e20)])
def test_a_ratio_beyond_float32_is_no_trouble(name, is_strided, gradient_scale, weight_scale):
    """Gradient and weight are float32 numbers; c, some 1e±41, is not."""
    generator = torch.Generator().manual_seed(0)
    gradient = torch.randn(7, 8, 9, 18, generator=generator) * gradient_scale
    weight = torch.randn(7, 8, 9, 9, generator=generator) * weight_scale
    gradient = gradient[..., ::2] if is_strided else gradient[..., :9].contiguous()
    expected, before = orthogonal_gradient(gradient, weight, renormalize=False), gradient.double()
    assert (expected - before).norm() > 1e-4 * before.norm()  # there is something to project away
    engine(name, renormalize=False).project_([[Pair(gradient, weight)]])
    assert (gradient.double() - expected).norm() <= tolerance(torch.float32) * before.norm()


@each_engine
@pytest.mark.parametrize("tiny", [1e-3, 1e-12, 1e-30])
def test_a_beginning_that_is_no_sample_of_the_rest_does_no_harm(name, tiny):
    generator = torch.Generator().manual_seed(0)
    gradient, weight = (torch.randn(20_000, generator=generator) for _ in range(2))
    weight[:3000] *= tiny
    expected = orthogonal_gradient(gradient.double(), weight.double())
    engine(name).project_([[Pair(gradient, weight)]])
    assert relative_error(gradient, expected) < 1e-6


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple)
exponents = st.floats(-30, 30)


@settings(max_examples=150)
@given(
    st.sampled_from(["torch", "careful", *["triton"] * IS_INTERPRETED]), shapes, st.sampled_from(DTYPES),
    exponents, exponents, st.permutations(range(4)), st.booleans(), st.booleans(), st.integers(0, 1000),
)  # fmt: skip
def test_any_shape_dtype_stride_and_scale(name, shape, dtype, first, second, order, renormalize, strided, seed):
    torch.manual_seed(seed)
    limit = math.log10(torch.finfo(dtype).max) - 2
    floor = math.log10(torch.finfo(dtype).tiny) + 4
    gradient, weight = (
        (torch.randn(*shape, dtype=torch.float64) * 10 ** max(floor, min(limit, power))).to(dtype)
        for power in (first, second)
    )
    axes = [axis for axis in order if axis < len(shape)]
    gradient = gradient.permute(axes)
    weight = weight.permute(axes)
    if strided:
        gradient = gradient.unsqueeze(-1).expand(*gradient.shape, 2).contiguous()[..., 0]
    before = gradient.double().norm()
    expected = orthogonal_gradient(gradient, weight, renormalize=renormalize)
    largest = torch.finfo(dtype).max
    engine(name, renormalize=renormalize).project_([[Pair(gradient, weight)]])
    error = (gradient.double() - expected.clamp(-largest, largest)).norm() / before.clamp_min(1e-300)
    assert error <= 2 * tolerance(dtype)
