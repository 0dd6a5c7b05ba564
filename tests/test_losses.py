"""StableMax: a few units in the last place from a float64 reference, and otherwise torch's cross_entropy."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import pytest
import torch
from torch.nn import functional

from orthograd import calibration
from orthograd.losses import log_stablemax, stablemax, stablemax_cross_entropy

HALVES = (torch.float16, torch.bfloat16)
SCALES = (1e-3, 1.0, 30.0, 1e4, 1e12, 1e30)
CLASSES = 113


def reference(logits, dim=-1):
    """Probabilities and their logarithms in float64, with the rest of the largest summed by itself."""
    x = logits.double()
    s = torch.where(x < 0, 1 / (1 - x), 1 + x)
    place = s.argmax(dim, keepdim=True)
    ratio = s / s.gather(dim, place)
    rest = ratio.scatter(dim, place, 0).sum(dim, keepdim=True)
    return ratio / (1 + rest), ratio.log() - rest.log1p()


def ulps(values, expected):
    """The largest error in units in the last place of the expected values."""
    info = torch.finfo(values.dtype)
    unit = torch.exp2(expected.abs().clamp_min(info.smallest_normal).log2().floor()) * info.eps
    return float(((values.double() - expected).abs() / unit).max())


def logits_of(scale, dtype, rows=100):
    generator = torch.Generator().manual_seed(0)
    return (scale * torch.randn(rows, CLASSES, generator=generator)).to(dtype)


@pytest.mark.parametrize("scale", SCALES)
def test_float32_is_a_few_units_in_the_last_place_from_float64(scale):
    logits = logits_of(scale, torch.float32)
    probabilities, logs = reference(logits)
    assert ulps(stablemax(logits), probabilities) < 4
    assert ulps(log_stablemax(logits), logs) < 4


@pytest.mark.parametrize(("classes", "scale"), [(2, 10.0), (10, 1.0), (10, 1e4), (100, 10.0)])
def test_the_documented_limit_of_8_units_holds_for_100_000_samples(classes, scale):
    generator = torch.Generator().manual_seed(7)
    for _ in range(20):
        logits = scale * torch.randn(5000, classes, generator=generator)
        labels = torch.randint(classes, (len(logits),), generator=generator)
        labels[::2] = logits[::2].argmax(-1)  # confident samples, too
        target = torch.rand(logits.shape, generator=generator).softmax(-1)
        probabilities, logs = reference(logits)
        losses = -logs.gather(-1, labels[:, None])[:, 0]
        smoothed = 0.9 * losses - 0.1 * logs.mean(-1)
        assert ulps(stablemax(logits), probabilities) < 8
        assert ulps(log_stablemax(logits), logs) < 8
        for reduction, reduced in (("none", lambda x: x), ("mean", torch.mean)):
            options = {"reduction": reduction}
            assert ulps(stablemax_cross_entropy(logits, labels, **options), reduced(losses)) < 8
            expected = reduced(-(logs * target.double()).sum(-1))
            assert ulps(stablemax_cross_entropy(logits, target, **options), expected) < 8
            loss = stablemax_cross_entropy(logits, labels, label_smoothing=0.1, **options)
            assert ulps(loss, reduced(smoothed)) < 8


@pytest.mark.parametrize(("dtype", "scale"), product(HALVES, (1.0, 10.0, 1e4)))
def test_losses_in_half_precision_are_rounded_once(dtype, scale):
    logits, labels = logits_of(scale, dtype, rows=10_000), torch.arange(10_000) % CLASSES
    target = logits_of(1.0, dtype, rows=10_000).softmax(-1)
    _, logs = reference(logits)
    losses, spread = -logs.gather(-1, labels[:, None])[:, 0], -(logs * target.double()).sum(-1)
    for smoothing in (0.0, 0.1):
        uniform = -smoothing * logs.mean(-1)
        for given, expected in ((labels, losses), (target, spread)):
            loss = stablemax_cross_entropy(logits, given, reduction="none", label_smoothing=smoothing)
            assert ulps(loss, (1 - smoothing) * expected + uniform) < 0.51


@pytest.mark.parametrize(("scale", "dtype"), product((1e-3, 1.0, 30.0, 1e4), HALVES))
def test_half_precision_is_rounded_once(scale, dtype):
    logits = logits_of(scale, dtype)
    probabilities, logs = reference(logits)
    assert ulps(stablemax(logits), probabilities) < 0.51
    assert ulps(log_stablemax(logits), logs) < 0.51
    assert ulps(log_stablemax(logits, dtype=torch.float32), logs) < 4


def test_the_loss_of_a_confident_sample_is_not_zero():
    logits = torch.tensor([[1e12, -1e12, -1e12]])
    target = torch.tensor([0])
    assert functional.cross_entropy(logits, target) == 0
    # s is 10¹² + 1 once and 1 / (10¹² + 1) twice.
    assert float(stablemax_cross_entropy(logits, target)) == pytest.approx(2e-24, rel=1e-6)
    assert float(log_stablemax(logits)[0, 1]) == pytest.approx(-2 * math.log(1e12), rel=1e-6)


def exact_gradient(logits, label):
    """Gradient of the loss of one sample in rational numbers: (pₖ − [k is the label]) / (1 + |xₖ|)."""
    x = [Fraction(value) for value in logits.tolist()]
    s = [1 + value if value >= 0 else 1 / (1 - value) for value in x]
    return [(each / sum(s) - (k == label)) / (1 + abs(value)) for k, (each, value) in enumerate(zip(s, x, strict=True))]


@pytest.mark.parametrize("scale", SCALES)
def test_gradients_of_float32_are_accurate(scale):
    for logits in logits_of(scale, torch.float32, rows=3):
        for label in (int(logits.argmax()), 0):  # the class that is most likely, and another
            leaf = logits.clone().requires_grad_()
            stablemax_cross_entropy(leaf, torch.tensor(label)).backward()
            for ours, exact in zip(leaf.grad.tolist(), exact_gradient(logits, label), strict=True):
                assert abs(Fraction(ours) - exact) <= abs(exact) * Fraction(1e-6) + Fraction(1e-44)


def test_a_network_that_starts_at_zero_gets_a_gradient():
    logits = torch.zeros(1, 4, requires_grad=True)
    stablemax_cross_entropy(logits, torch.tensor([1])).backward()
    assert logits.grad.tolist() == [[0.25, -0.75, 0.25, 0.25]]


@pytest.mark.parametrize("function", [stablemax, log_stablemax])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_gradients_are_those_of_finite_differences(function, dim):
    logits = 3 * torch.randn(3, 5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, dim), logits)
    assert torch.autograd.gradgradcheck(lambda x: function(x, dim), logits)


@pytest.mark.parametrize("dim", [0, 1, 2, -2])
def test_any_dimension_can_be_that_of_the_classes(dim):
    logits = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(2))
    moved = stablemax(logits.movedim(dim, -1)).movedim(-1, dim)
    torch.testing.assert_close(stablemax(logits, dim), moved, rtol=1e-6, atol=0)
    torch.testing.assert_close(log_stablemax(logits, dim), moved.log(), rtol=1e-5, atol=1e-6)


def test_values_that_are_not_finite_are_treated_as_in_softmax():
    inf, nan = math.inf, math.nan
    rows = torch.tensor([[inf, 1, 2], [-inf, 1, 2], [-inf, -inf, -inf], [nan, 1, 2], [inf, inf, 1], [inf, -inf, 1]])
    for ours, theirs in ((stablemax, torch.softmax), (log_stablemax, torch.log_softmax)):
        for check in (torch.isnan, torch.isinf, torch.isfinite):
            assert check(ours(rows)).tolist() == check(theirs(rows, -1)).tolist()
    assert stablemax(rows[1]).tolist() == pytest.approx([0, 0.4, 0.6])


def test_a_masked_class_gets_no_gradient():
    logits = torch.tensor([[-math.inf, 1.0, 2.0]], requires_grad=True)
    stablemax_cross_entropy(logits, torch.tensor([1])).backward()
    assert logits.grad[0, 0] == 0
    assert logits.grad.isfinite().all()


SHAPES = ((6, 5), (2, 5, 3), (2, 5, 3, 2), (5,))
TARGETS = ("indices", "probabilities")
REDUCTIONS = ("mean", "sum", "none")


def sample(shape, target):
    generator = torch.Generator().manual_seed(3)
    logits = 4 * torch.randn(shape, dtype=torch.float64, generator=generator)
    dim = min(1, len(shape) - 1)
    if target == "probabilities":
        return logits, torch.rand(shape, dtype=torch.float64, generator=generator).softmax(dim)
    return logits, torch.randint(5, [*shape[:dim], *shape[dim + 1 :]], generator=generator)


@pytest.mark.parametrize(("shape", "target"), product(SHAPES, TARGETS))
@pytest.mark.parametrize(("reduction", "smoothing"), product(REDUCTIONS, (0.0, 0.3, 1.0)))
@pytest.mark.parametrize("is_weighted", [False, True])
def test_options_are_those_of_cross_entropy(shape, target, reduction, smoothing, is_weighted):
    """log_stablemax has exponentials that sum to 1, so torch's cross_entropy of it is the same loss."""
    logits, wanted = sample(shape, target)
    options = {"reduction": reduction, "label_smoothing": smoothing}
    options["weight"] = torch.tensor([1.0, 2.0, 0.5, 0.1, 3.0], dtype=torch.float64) if is_weighted else None
    if target == "indices" and shape != (5,):
        options["ignore_index"] = int(wanted.flatten()[0])
    expected = functional.cross_entropy(log_stablemax(logits, min(1, len(shape) - 1)), wanted, **options)
    torch.testing.assert_close(stablemax_cross_entropy(logits, wanted, **options), expected, rtol=1e-12, atol=1e-14)


def test_a_batch_that_is_all_ignored_has_no_mean():
    logits, target = sample((6, 5), "indices")
    for smoothing in (0.0, 0.1):
        assert stablemax_cross_entropy(logits, torch.full_like(target, -100), label_smoothing=smoothing).isnan()


@pytest.mark.parametrize("target", TARGETS)
def test_images_with_channels_last_have_a_gradient(target):
    logits, wanted = sample((2, 5, 3, 2), target)
    gradients = []
    for given in (logits, logits.to(memory_format=torch.channels_last)):
        leaf = given.clone().requires_grad_()
        stablemax_cross_entropy(leaf, wanted).backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients)


def test_gradients_of_targets_and_weights_are_those_of_finite_differences():
    logits, target = sample((2, 5, 3), "probabilities")
    inputs = [each.requires_grad_() for each in (logits, target, torch.arange(1.0, 6.0, dtype=torch.float64))]
    assert torch.autograd.gradcheck(lambda *given: stablemax_cross_entropy(*given, label_smoothing=0.1), inputs)
    assert torch.autograd.gradgradcheck(lambda *given: stablemax_cross_entropy(*given, label_smoothing=0.1), inputs)


FLOATS, LABELS, NAN = torch.zeros(3, 4), torch.tensor([0, 1, 2]), math.nan
PROBABILITIES = torch.full((3, 4), 0.25)
BAD = {
    "integer logits": ((FLOATS.long(), LABELS), {}),
    "complex logits": ((FLOATS.cfloat(), LABELS), {}),
    "a label beyond the classes": ((FLOATS, torch.tensor([0, 1, 4])), {}),
    "a negative label": ((FLOATS, torch.tensor([0, 1, -1])), {}),
    "labels of another number": ((FLOATS, LABELS[:2]), {}),
    "labels of another shape": ((FLOATS, LABELS[:, None, None]), {}),
    "labels in floating point": ((FLOATS, LABELS.float()), {}),
    "labels in int32": ((FLOATS, LABELS.int()), {}),
    "probabilities of other classes": ((FLOATS, torch.zeros(3, 5)), {}),
    "weights of other classes": ((FLOATS, LABELS, torch.ones(5)), {}),
    "weights of other classes, probabilities": ((FLOATS, FLOATS, torch.ones(5)), {}),
    "weights in float64": ((FLOATS, LABELS, torch.ones(4, dtype=torch.float64)), {}),
    "weights in float32 for half precision": ((FLOATS.half(), LABELS, torch.ones(4)), {}),
    "a reduction that is unknown": ((FLOATS, LABELS), {"reduction": "median"}),
    "a reduction that is unknown, probabilities": ((FLOATS, FLOATS), {"reduction": "median"}),
    "smoothing beyond 1": ((FLOATS, LABELS), {"label_smoothing": 1.5}),
    "smoothing beyond 1, probabilities": ((FLOATS, PROBABILITIES), {"label_smoothing": 1.5}),
    "smoothing below 0": ((FLOATS, LABELS), {"label_smoothing": -0.1}),
    "smoothing below 0, probabilities": ((FLOATS, PROBABILITIES), {"label_smoothing": -0.1}),
    "smoothing of NaN": ((FLOATS, LABELS), {"label_smoothing": NAN}),
    "smoothing of NaN, probabilities": ((FLOATS, PROBABILITIES), {"label_smoothing": NAN}),
    "smoothing of None": ((FLOATS, LABELS), {"label_smoothing": None}),
    "one weight, probabilities": ((FLOATS, PROBABILITIES, torch.ones(1)), {}),
    "a weight without dimensions, probabilities": ((FLOATS, PROBABILITIES, torch.tensor(1.0)), {}),
    "weights of shape (C, 1)": ((FLOATS, LABELS, torch.ones(4, 1)), {}),
    "weights of shape (C, 1), probabilities": ((FLOATS, PROBABILITIES, torch.ones(4, 1)), {}),
    "weights of shape (1, C), probabilities": ((FLOATS, PROBABILITIES, torch.ones(1, 4)), {}),
    "a list of weights": ((FLOATS, LABELS, [1.0] * 4), {}),
    "weights of zero": ((FLOATS, LABELS, torch.zeros(4)), {}),
    "weights of zero, smoothed": ((FLOATS, LABELS, torch.zeros(4)), {"label_smoothing": 0.1}),
    "weights of NaN": ((FLOATS, LABELS, torch.full((4,), NAN)), {}),
    "a list as target": ((FLOATS, [0, 1, 2]), {}),
    "no target": ((FLOATS, None), {}),
    "a list of logits": (([[0.0] * 4] * 3, LABELS), {}),
    "a reduction of None": ((FLOATS, LABELS), {"reduction": None}),
    "labels in uint8": ((FLOATS, LABELS.byte()), {}),
    # An index of uint8 would be a mask.
    "labels in uint8, smoothed": ((FLOATS[:, :3], LABELS.byte(), torch.ones(3)), {"label_smoothing": 0.1}),
    "labels in bool": ((FLOATS, LABELS.bool()), {}),
    "probabilities of NaN": ((FLOATS, PROBABILITIES * NAN), {}),
    "probabilities that are negative": ((FLOATS, -PROBABILITIES), {}),
    "probabilities in complex numbers": ((FLOATS, PROBABILITIES.cfloat()), {}),
    "an index to ignore in probabilities": ((FLOATS, FLOATS), {"ignore_index": 2}),
    "integers in place of probabilities": ((FLOATS, FLOATS.long()), {}),
    "a scalar": ((torch.tensor(1.0), torch.tensor(0)), {}),
    "a scalar with a label in 1-D": ((torch.tensor(1.0), torch.tensor([0])), {}),
    "a scalar with a probability": ((torch.tensor(1.0), torch.tensor(1.0)), {}),
    "an empty batch": ((FLOATS[:0], LABELS[:0]), {}),
    "an empty batch, summed": ((FLOATS[:0], LABELS[:0]), {"reduction": "sum"}),
    "an empty batch of probabilities": ((FLOATS[:0], FLOATS[:0]), {}),
    "an empty batch of probabilities, each": ((FLOATS[:0], FLOATS[:0]), {"reduction": "none"}),
    "no classes": ((FLOATS[:, :0], LABELS), {}),
    "no classes, probabilities": ((FLOATS[:, :0], FLOATS[:, :0]), {}),
    "no classes, probabilities, weighted": ((FLOATS[:, :0], FLOATS[:, :0], torch.ones(0)), {}),
    "no classes, probabilities, smoothed": ((FLOATS[:, :0], FLOATS[:, :0]), {"label_smoothing": 0.1}),
    "no classes, probabilities, summed": ((FLOATS[:, :0], FLOATS[:, :0]), {"reduction": "sum"}),
    "no classes, probabilities, each": ((FLOATS[:, :0], FLOATS[:, :0]), {"reduction": "none"}),
}


def outcome(function, arguments, options):
    try:
        return str(function(*arguments, **options))
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error)


@pytest.mark.parametrize("bad", BAD)
def test_bad_input_ends_as_in_cross_entropy(bad):
    """All logits are zero: there stablemax and softmax are equal."""
    assert outcome(stablemax_cross_entropy, *BAD[bad]) == outcome(functional.cross_entropy, *BAD[bad])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0,), ()])
def test_empty_and_scalar_logits_have_the_shape_of_softmax(shape):
    logits = torch.zeros(shape)
    assert stablemax(logits).tolist() == torch.softmax(logits, -1).tolist()


@pytest.mark.parametrize("function", [stablemax, log_stablemax])
def test_logits_that_softmax_refuses_raise(function):
    for logits in (torch.zeros(2, 3, dtype=torch.int64), torch.zeros(2, 3, dtype=torch.bool)):
        with pytest.raises(RuntimeError, match="not implemented"):
            function(logits)
    with pytest.raises(IndexError, match="out of range"):
        function(torch.zeros(2, 3), 2)


@pytest.mark.parametrize("dtype", HALVES)
def test_the_dtype_is_that_of_cross_entropy(dtype):
    logits, target = logits_of(1.0, dtype), torch.arange(100)
    assert stablemax_cross_entropy(logits, target).dtype == functional.cross_entropy(logits, target).dtype == dtype
    weight, spread = torch.ones(CLASSES, dtype=dtype), logits.float().softmax(-1)
    for pair in ((logits, spread), (logits.float(), spread.double()), (logits, spread.to(dtype))):
        assert stablemax_cross_entropy(*pair).dtype == functional.cross_entropy(*pair).dtype
    assert stablemax_cross_entropy(logits, target, weight).dtype == dtype
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = functional.cross_entropy(logits, target).dtype
        assert stablemax_cross_entropy(logits, target).dtype == expected == torch.float32
        wrong = (logits, target, torch.ones(CLASSES, dtype=torch.float64))  # autocast leaves float64 as it is
        assert outcome(stablemax_cross_entropy, wrong, {}) == outcome(functional.cross_entropy, wrong, {})
    leaf = logits.clone().requires_grad_()
    stablemax_cross_entropy(leaf, target).backward()
    assert leaf.grad.dtype == dtype


def test_it_runs_under_vmap():
    logits = torch.randn(4, 3, 5, generator=torch.Generator().manual_seed(4))
    assert torch.equal(torch.vmap(stablemax)(logits), stablemax(logits))
    target = torch.randint(5, (4, 3), generator=torch.Generator().manual_seed(5))
    losses = torch.vmap(stablemax_cross_entropy)(logits, target)
    expected = [stablemax_cross_entropy(*each) for each in zip(logits, target, strict=True)]
    torch.testing.assert_close(losses, torch.stack(expected))


@pytest.mark.slow
def test_it_compiles_as_one_graph():
    logits, target = logits_of(30.0, torch.float32), torch.arange(100)
    results = []
    for function in (stablemax_cross_entropy, torch.compile(stablemax_cross_entropy, fullgraph=True)):
        leaf = logits.clone().requires_grad_()
        loss = function(leaf, target, label_smoothing=0.1)
        loss.backward()
        results.append((loss.detach(), leaf.grad))
    torch.testing.assert_close(*results, rtol=1e-5, atol=1e-8)


def test_calibration_takes_its_probabilities():
    logits, labels = logits_of(3.0, torch.float32), torch.arange(100)
    direct = calibration.evaluate_probabilities(stablemax(logits), labels)
    by_logs = calibration.evaluate(log_stablemax(logits), labels)
    assert direct.top1_accuracy == by_logs.top1_accuracy
    assert direct.ece == pytest.approx(by_logs.ece, abs=1e-6)
    assert by_logs.loss == pytest.approx(float(stablemax_cross_entropy(logits, labels)), rel=1e-6)
