"""The kernels on a real GPU: against the float64 reference, inside CUDA graphs, without waiting for the device."""

from __future__ import annotations

import pytest
import torch

import orthograd
from orthograd.engine.plan import Pair
from orthograd.engine.projector import REMEMBERED, Projector
from orthograd.lab.bench.step import peak
from orthograd.projection import orthogonal_gradient
from tests.conftest import DTYPES, at_angle, cosine, relative_error

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
SHAPES = [(10,), (64,), (64, 3, 3, 3), (5000,), (129, 257), (512, 512, 3, 3), (3_000_001,), (0, 4)]


def pairs_of(shapes, dtype=torch.float32):
    return [[Pair(*(torch.randn(s, device="cuda").to(dtype) for _ in range(2)))] for s in shapes]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("engine", ["triton", "torch"])
def test_engines_agree_with_the_reference(dtype, renormalize, rows, engine):
    segments = pairs_of([s for s in SHAPES if not rows or len(s) > 1], dtype)
    expected = [orthogonal_gradient(*p[0], renormalize=renormalize, rows=rows) for p in segments]
    Projector(renormalize=renormalize, rows=rows, engine=engine).project_(segments)
    for pairs, right in zip(segments, expected, strict=True):
        # The reference is no more exact than float64 itself, so there both errors count.
        assert relative_error(pairs[0].gradient, right) < torch.finfo(dtype).eps * (4 if dtype.itemsize == 8 else 1)


@pytest.mark.parametrize("count", [3, 5, 200])
def test_many_tensors_as_one_vector(count):
    pairs = [pairs_of([SHAPES[i % 7]])[0][0] for i in range(count)]
    whole = [torch.cat([t.flatten() for t in column]) for column in zip(*pairs, strict=True)]
    expected = orthogonal_gradient(*whole)
    Projector().project_([pairs])
    assert relative_error(torch.cat([p.gradient.flatten() for p in pairs]), expected) < 1e-7


@pytest.mark.parametrize("size", [1_000, 100_000, 10_000_000])
def test_nearly_parallel_stays_exact(size):
    gradient, weight = (t.cuda() for t in at_angle(1e-6, size))
    expected = orthogonal_gradient(gradient, weight)
    before = gradient.double().norm()
    Projector().project_([[Pair(gradient, weight)]])
    assert relative_error(gradient, expected) < 1e-7
    assert cosine(gradient, weight) < 1e-7
    assert abs(float(gradient.double().norm() / before) - 1) < 1e-7


@pytest.mark.parametrize("factor", [1.0, 3.3, -0.1, 1e-20, 1e20])
def test_parallel_gives_exactly_zero(factor):
    weight = torch.randn(100_000, device="cuda")
    gradient = weight * factor
    Projector().project_([[Pair(gradient, weight)]])
    assert gradient.abs().max() == 0


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_scales(scale):
    gradient, weight = torch.randn(2, 70_000, device="cuda") * scale
    expected = orthogonal_gradient(gradient, weight)
    Projector().project_([[Pair(gradient, weight)]])
    assert relative_error(gradient, expected) < 1e-7


def test_broken_gradients_pass_through_and_leave_others_alone():
    segments = pairs_of(SHAPES)
    expected = [orthogonal_gradient(*p[0]) for p in segments]
    segments[3][0].gradient[7] = float("nan")
    segments[4][0].gradient[1, 2] = float("inf")
    broken = [segments[i][0].gradient.clone() for i in (3, 4)]
    Projector().project_(segments)
    for i, kept in zip((3, 4), broken, strict=True):
        assert torch.equal(segments[i][0].gradient.nan_to_num(5), kept.nan_to_num(5))
    for i in (0, 1, 2, 5, 6):
        assert relative_error(segments[i][0].gradient, expected[i]) < 1e-7


@pytest.mark.parametrize("layout", ["channels_last", "offset", "strided", "mixed"])
def test_memory_layouts(layout):
    weight, gradient = torch.randn(2, 32, 16, 3, 3, device="cuda")
    if layout == "channels_last":
        weight, gradient = (t.contiguous(memory_format=torch.channels_last) for t in (weight, gradient))
    elif layout == "offset":  # addresses that are not multiples of 16
        weight, gradient = (torch.cat([t.new_zeros(1), t.flatten()])[1:].view_as(t) for t in (weight, gradient))
    elif layout == "strided":
        weight, gradient = (t.repeat_interleave(2, 1)[:, ::2] for t in (weight, gradient))
    else:
        gradient = gradient.contiguous(memory_format=torch.channels_last)
    for rows in (True, False):
        found = gradient.clone()
        expected = orthogonal_gradient(gradient, weight, rows=rows)
        Projector(rows=rows).project_([[Pair(found, weight)]])
        assert relative_error(found, expected) < 1e-7


def test_runs_are_bitwise_equal():
    first, second = (pairs_of([(1_000_003,), (77,)]) for _ in range(2))
    for one, two in zip(first, second, strict=True):
        for a, b in zip(one[0], two[0], strict=True):
            b.copy_(a)
    Projector().project_(first)
    Projector().project_(second)
    assert all(torch.equal(a[0].gradient, b[0].gradient) for a, b in zip(first, second, strict=True))


def network():
    return torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()


def test_step_in_a_cuda_graph_equals_eager_steps():
    eager, graphed = network(), network()
    graphed.load_state_dict(eager.state_dict())
    batch = torch.randn(32, 64, device="cuda")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.01, momentum=0.9) for m in (eager, graphed)]
    for optimizer in optimizers:
        orthograd.attach(optimizer)

    def step(model, optimizer):
        optimizer.zero_grad(set_to_none=True)
        model(batch).logsumexp(1).mean().backward()
        optimizer.step()

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step(graphed, optimizers[1])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizers[1].zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        step(graphed, optimizers[1])
    torch.randn(1_000_000, device="cuda")  # memory that was freed may be used again: the graph must not care
    for _ in range(20):
        graph.replay()
    for _ in range(23):
        step(eager, optimizers[0])
    for a, b in zip(eager.parameters(), graphed.parameters(), strict=True):
        assert relative_error(b, a) < 1e-6


def test_what_was_projected_before_stays_until_a_graph_is_captured():
    """Its memory would be given back with an event of the graph, on which whoever asks for some next would fail."""
    weight = torch.nn.Parameter(torch.randn(1000, device="cuda"))
    optimizer = torch.optim.SGD([weight], lr=0.01)
    orthograd.attach(optimizer)
    gradients = torch.randn(REMEMBERED + 1, 1000, device="cuda")  # each at another place
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for weight.grad in gradients[:-1]:
            optimizer.step()
    with torch.cuda.graph(graph, stream=side):
        weight.grad = gradients[-1]
        optimizer.step()
    graph.replay()
    assert torch.empty(1000, pin_memory=True).is_pinned()


def test_gradients_where_a_graph_has_its_own_are_projected_before_it_is_replayed():
    weight = torch.nn.Parameter(torch.randn(1000, device="cuda"))
    optimizer, graph = torch.optim.SGD([weight], lr=1.0), torch.cuda.CUDAGraph()
    orthograd.attach(optimizer)
    elsewhere, gradient = torch.randn(2, 1000, device="cuda")
    weight.grad = elsewhere
    optimizer.step()  # compiles, which a graph must not
    weight.grad = gradient
    expected = weight.detach() - orthogonal_gradient(gradient, weight.detach())
    with torch.cuda.graph(graph):
        optimizer.step()
    optimizer.step()
    assert relative_error(weight, expected) < 1e-6


@pytest.mark.parametrize("granularity", ["tensor", "row", "group", "model"])
@pytest.mark.parametrize("project", ["gradient", "update"])
def test_step_never_waits_for_the_device(granularity, project):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
    orthograd.attach(optimizer, granularity=granularity, project=project)
    for step in range(4):
        optimizer.zero_grad(set_to_none=True)
        model(torch.randn(8, 64, device="cuda")).sum().backward()
        torch.cuda.set_sync_debug_mode("error" if step else "default")
        try:
            optimizer.step()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    assert all(p.isfinite().all() for p in model.parameters())


def test_extra_memory_is_under_one_mebibyte():
    parameters = [torch.nn.Parameter(torch.randn(20_000_000, device="cuda")) for _ in range(3)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    orthograd.orthogonalize_(parameters)
    assert peak(torch.device("cuda"), lambda: orthograd.orthogonalize_(parameters)) <= 1


@pytest.mark.parametrize("fused", [True, False])
def test_grad_scaler_skips_steps_with_infinite_gradients(fused):
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5, fused=fused)
    orthograd.attach(optimizer, project="update")
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    before = [p.detach().clone() for p in model.parameters()]
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.full((8, 64), 100.0, device="cuda")).sum() * 1e30
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    for a, b in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("second", [(120, torch.float32), (100, torch.bfloat16)])
def test_the_bare_operation_takes_nothing_for_what_lay_there_before(second):
    memory = [torch.zeros(1024, dtype=torch.uint8, device="cuda") for _ in range(2)]
    for size, dtype in ((100, torch.float32), second):
        weight, gradient = (each.view(dtype)[:size].normal_() for each in memory)
        exact = orthogonal_gradient(gradient.clone(), weight)
        parameter = torch.nn.Parameter(weight)
        parameter.grad = gradient
        for _ in range(2):  # the second time by what is remembered
            orthograd.orthogonalize_([parameter])
        assert relative_error(parameter.grad, exact) < (1e-5 if dtype is torch.float32 else 1e-2)


def test_a_parameter_that_is_cut_short_in_its_place_is_projected_as_it_is():
    memory = torch.randn(2, 120, device="cuda")
    parameter = torch.nn.Parameter(memory[0])
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    orthograd.attach(optimizer)
    for size in (120, 100):
        parameter.grad = None
        parameter.data = memory[0, :size]
        parameter.grad = memory[1, :size].normal_()
        exact = orthogonal_gradient(parameter.grad.clone(), parameter.detach())
        for _ in range(2):
            optimizer.step()
        assert relative_error(parameter.grad, exact) < 1e-5
