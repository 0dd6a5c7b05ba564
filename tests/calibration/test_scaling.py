from __future__ import annotations

import copy
import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from orthograd.calibration.calibrators import softmax_regression
from orthograd.calibration.calibrators.calibrator import CalibrationWarning, Calibrator, NotFittedError
from orthograd.calibration.calibrators.ensemble import EnsembleTemperatureScaling
from orthograd.calibration.calibrators.one_vs_rest import HistogramBinning, IsotonicCalibration, PlattScaling
from orthograd.calibration.calibrators.scaling import (
    BiasCorrectedTemperatureScaling,
    DirichletCalibration,
    MatrixScaling,
    StructuredMatrixScaling,
    VectorScaling,
)
from orthograd.calibration.calibrators.temperature import TemperatureScaling
from tests.conftest import DTYPES

KINDS = [
    VectorScaling,
    BiasCorrectedTemperatureScaling,
    MatrixScaling,
    DirichletCalibration,
    StructuredMatrixScaling,
]
PENALTIES = ("off_diagonal_penalty", "diagonal_penalty", "intercept_penalty")


def with_penalties(kind: type[Calibrator], value: float) -> Calibrator:
    if kind is StructuredMatrixScaling:
        return kind(strength=value)
    return kind(penalty=value) if issubclass(kind, VectorScaling) else kind(**dict.fromkeys(PENALTIES, value))


def sample(n: int = 300, classes: int = 4, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that are too large, more so for some classes, and mixed a little; labels from what they should be."""
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, classes, generator=generator, dtype=torch.float64)
    labels = z.softmax(1).multinomial(1, generator=generator)[:, 0]
    mixing = torch.eye(classes) + 0.2 * torch.randn(classes, classes, generator=generator)
    return 3 * z @ mixing.double() + torch.arange(classes) / classes, labels


def best_coldness(logits: Tensor, labels: Tensor) -> float:
    """1/T on a grid that closes in."""
    low, high = 1e-3, 10.0
    for _ in range(12):
        grid = torch.linspace(low, high, 41, dtype=torch.float64)
        best = int(torch.stack([cross_entropy(logits * beta, labels) for beta in grid]).argmin())
        low, high = float(grid[max(0, best - 1)]), float(grid[min(40, best + 1)])
    return (low + high) / 2


@pytest.mark.parametrize("kind", KINDS)
def test_by_hand_each_group_of_equal_logits_gets_its_frequencies(kind: type[Calibrator]) -> None:
    logits = torch.tensor([[3.0, 0.0]] * 50 + [[0.0, 3.0]] * 50)
    labels = torch.tensor([0] * 40 + [1] * 10 + [1] * 30 + [0] * 20)
    p = with_penalties(kind, 1e-7).fit(logits, labels).probabilities(logits[[0, 99]])
    torch.testing.assert_close(p, torch.tensor([[0.8, 0.2], [0.4, 0.6]]))


@pytest.mark.parametrize("kind", KINDS)
def test_by_hand_a_heavy_penalty_leaves_temperature_scaling(kind: type[Calibrator]) -> None:
    logits = torch.tensor([[3.0, 0.0]] * 50 + [[0.0, 3.0]] * 50)
    labels = torch.tensor([0] * 40 + [1] * 10 + [1] * 30 + [0] * 20)  # right in 70 of 100
    p = with_penalties(kind, 1e8).fit(logits, labels).probabilities(logits[[0, 99]])
    torch.testing.assert_close(p, torch.tensor([[0.7, 0.3], [0.3, 0.7]]))


@pytest.mark.parametrize("kind", [MatrixScaling, DirichletCalibration])
def test_classes_that_were_rotated_are_put_right(kind: type[Calibrator]) -> None:
    labels = torch.arange(300) % 3
    logits = 4.0 * one_hot((labels + 1) % 3, 3)
    assert bool((kind().fit(logits, labels)(logits).argmax(1) == labels).all())


def log_softmax(z: np.ndarray) -> np.ndarray:
    return z - np.log(np.exp(z).sum(1, keepdims=True))


def objective(kind: type[Calibrator], logits: Tensor, labels: Tensor) -> Callable[[np.ndarray], float]:
    """The penalized loss as a function of weights at the best temperature and intercepts, in numpy, as defined."""
    z, y, n = logits.numpy(), labels.numpy(), len(labels)
    classes, t = z.shape[1], 1 / best_coldness(logits, labels)
    features = {DirichletCalibration: log_softmax(z) / t, StructuredMatrixScaling: log_softmax(z / t)}
    f = features.get(kind, (z - z.mean(1, keepdims=True)) / t)
    eye = np.eye(classes)
    off, diagonal, intercept = {
        BiasCorrectedTemperatureScaling: (0, 1 / classes, 1),
        StructuredMatrixScaling: (classes * (classes - 1), classes, classes),
    }.get(kind, (30, 10, 10))

    def value(parameters: np.ndarray) -> float:
        w, b = parameters[:-classes], parameters[-classes:]
        u = w.reshape(classes, classes) if len(w) == classes**2 else w * eye
        scores = f @ u.T + b
        loss = (np.log(np.exp(scores).sum(1)) - scores[np.arange(n), y]).mean()
        squares = ((u - eye) ** 2) * np.where(eye == 1, diagonal, off)
        return float(loss + (squares.sum() + intercept * b @ b) / n)

    return value


@pytest.mark.parametrize("kind", KINDS)
def test_scipy_finds_nothing_better(kind: type[Calibrator]) -> None:
    logits, labels = sample(n=200, classes=3)
    value = objective(kind, logits, labels)
    fitted = kind().fit(logits, labels)
    scale = 1.0 if kind is StructuredMatrixScaling else best_coldness(logits, labels)
    ours = value(torch.cat([fitted.weight.flatten() / scale, fitted.bias]).numpy())
    weights = {VectorScaling: np.ones(3), BiasCorrectedTemperatureScaling: np.ones(1)}.get(kind, np.eye(3).ravel())
    start = np.concatenate([weights, np.zeros(3)])
    theirs = scipy.optimize.minimize(value, start, method="BFGS", options={"gtol": 1e-9, "maxiter": 1000})
    assert abs(ours - theirs.fun) < 1e-8
    assert ours < value(start)
    assert fitted.gradient < 1e-10


def test_without_a_penalty_bias_correction_is_the_maximum_likelihood() -> None:
    logits, labels = sample(n=200, classes=3)
    z, y = logits.numpy(), labels.numpy()

    def loss(parameters: np.ndarray) -> float:
        return float(-log_softmax(parameters[0] * z + np.append(parameters[1:], 0))[np.arange(200), y].mean())

    best = scipy.optimize.minimize(loss, [1.0, 0.0, 0.0], method="BFGS", options={"gtol": 1e-9}).x
    fitted = BiasCorrectedTemperatureScaling(penalty=1e-9).fit(logits, labels)
    expected = torch.tensor(log_softmax(best[0] * z + np.append(best[1:], 0)))
    torch.testing.assert_close(fitted(logits).log_softmax(1), expected, rtol=0, atol=1e-6)
    assert float(fitted.weight) == pytest.approx(best[0], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_conjugate_gradients_agree_with_the_factorised_hessian(
    kind: type[Calibrator], monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, labels = sample(classes=6)
    dense = kind().fit(logits, labels)
    monkeypatch.setattr(softmax_regression, "DENSE", 0)
    iterative = kind().fit(logits, labels)
    torch.testing.assert_close(iterative.weight, dense.weight, rtol=0, atol=1e-8)
    torch.testing.assert_close(iterative.bias, dense.bias, rtol=0, atol=1e-8)


def test_hessian_in_blocks_is_the_hessian(monkeypatch: pytest.MonkeyPatch) -> None:
    logits, labels = sample(n=50, classes=3)
    whole = MatrixScaling().fit(logits, labels)
    monkeypatch.setattr(softmax_regression, "ROWS", 7 * 12)
    torch.testing.assert_close(MatrixScaling().fit(logits, labels).weight, whole.weight, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dense", [0, 500])
@pytest.mark.parametrize("kind", KINDS)
def test_how_samples_are_split_does_not_matter(
    kind: type[Calibrator], dense: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    logits, labels = sample(n=50, classes=3)
    monkeypatch.setattr(softmax_regression, "DENSE", dense)
    whole = kind().fit(logits, labels)
    monkeypatch.setitem(softmax_regression.BLOCK, "cpu", 7)
    torch.testing.assert_close(kind().fit(logits, labels).weight, whole.weight, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_a_long_fit_says_what_it_costs(
    kind: type[Calibrator], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind().fit(*sample())
    assert not caplog.records  # this one takes no ten seconds
    monkeypatch.setattr(softmax_regression, "QUIET", 0.0)
    kind().fit(*sample())
    size = {VectorScaling: 8, BiasCorrectedTemperatureScaling: 5}.get(kind, 20)
    assert caplog.messages[0].startswith(f"{kind.__name__}, 300 samples, 4 classes, {size} parameters: 0 s, 1 passes")
    assert re.search(r"Most fits take 30 to 500 passes: here \d+ to \d+ s\.$", caplog.messages[-1])
    assert caplog.records[0].levelname == "WARNING"  # Python shows no less unless asked to


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_is_to_gain_nothing_is_searched(
    kind: type[Calibrator], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(softmax_regression, "QUIET", 0.0)
    monkeypatch.setattr(softmax_regression, "DENSE", 0)
    fitted = kind().fit(1e4 * torch.eye(5), torch.arange(5))
    assert fitted.gradient == 0
    assert len(caplog.records) < 10  # one for each pass over these samples


def test_many_classes_are_solved_as_well() -> None:
    logits, labels = sample(n=400, classes=40)
    fitted = MatrixScaling().fit(logits, labels)
    assert fitted.gradient < 1e-9
    assert cross_entropy(fitted(logits), labels) < cross_entropy(logits * best_coldness(logits, labels), labels)


@pytest.mark.parametrize("penalty", [1e-6, 1.0, 1e3])
@pytest.mark.parametrize("kind", KINDS)
def test_loss_is_at_most_that_of_temperature_scaling_and_of_the_identity(
    kind: type[Calibrator], penalty: float
) -> None:
    logits, labels = sample()
    temperature = cross_entropy(logits * best_coldness(logits, labels), labels)
    assert cross_entropy(with_penalties(kind, penalty).fit(logits, labels)(logits), labels) <= temperature + 1e-12
    assert temperature <= cross_entropy(logits, labels)


def test_matrix_fits_at_least_as_well_as_vector_without_penalties() -> None:
    logits, labels = sample()
    vector, matrix = (with_penalties(kind, 1e-9).fit(logits, labels) for kind in (VectorScaling, MatrixScaling))
    assert cross_entropy(matrix(logits), labels) <= cross_entropy(vector(logits), labels)


def test_dirichlet_is_matrix_scaling_where_rows_hold_the_same_logits() -> None:
    """Then log-probabilities and centered logits differ by one constant, which free intercepts absorb."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(3, generator=generator) for _ in range(200)]).double()
    labels = rows.softmax(1).multinomial(1, generator=generator)[:, 0]
    options = {"intercept_penalty": 1e-9}
    matrix, dirichlet = (kind(**options).fit(2 * rows, labels) for kind in (MatrixScaling, DirichletCalibration))
    torch.testing.assert_close(dirichlet.probabilities(2 * rows), matrix.probabilities(2 * rows), rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_a_constant_added_to_a_row_changes_nothing(kind: type[Calibrator]) -> None:
    logits, labels = sample()
    fitted, shifted = kind().fit(logits, labels), logits + 5 * torch.randn(len(logits), 1, dtype=torch.float64)
    p = fitted.probabilities(logits)
    torch.testing.assert_close(fitted.probabilities(shifted), p)
    torch.testing.assert_close(kind().fit(shifted, labels).probabilities(logits), p)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not DirichletCalibration])
def test_the_scale_of_the_logits_changes_nothing(kind: type[Calibrator]) -> None:
    logits, labels = sample()
    p = kind().fit(logits, labels).probabilities(logits)
    torch.testing.assert_close(kind().fit(100 * logits, labels).probabilities(100 * logits), p)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_classes_and_samples_does_not_matter(kind: type[Calibrator]) -> None:
    logits, labels = sample()
    classes, rows = torch.tensor([2, 0, 3, 1]), torch.randperm(len(logits))
    renamed = kind().fit(logits[rows][:, classes], classes.argsort()[labels[rows]])
    expected = kind().fit(logits, labels).probabilities(logits)[:, classes]
    torch.testing.assert_close(renamed.probabilities(logits[:, classes]), expected)


HARD = {
    "one sample": (torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([0])),
    "fewer samples than classes": (torch.tensor([[1.0, 2.0, 0.0], [3.0, 1.0, 0.0]]), torch.tensor([1, 1])),
    "equal logits": (torch.zeros(6, 3), torch.tensor([0, 0, 0, 1, 1, 2])),
    "all correct": (8.0 * torch.eye(3).repeat(9, 1), torch.arange(27) % 3),
    "all correct, and confident": (1e4 * torch.eye(3).repeat(9, 1), torch.arange(27) % 3),
    "all wrong": (1e4 * torch.eye(3).repeat(9, 1), torch.arange(1, 28) % 3),
    "a class without a sample": (torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 2),
    "a class ruled out": (torch.tensor([[1.0, 0.5, -1e9], [0.0, 1.0, -1e9]] * 5), torch.tensor([0, 1, 1, 0, 1] * 2)),
}


@pytest.mark.parametrize("penalty", [1e-6, 10.0])
@pytest.mark.parametrize("case", HARD)
@pytest.mark.parametrize("kind", KINDS)
def test_hard_data_gives_a_finite_certified_result_no_worse_than_before(
    kind: type[Calibrator], case: str, penalty: float
) -> None:
    logits, labels = HARD[case]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        fitted = with_penalties(kind, penalty).fit(logits, labels)
    assert bool(fitted.weight.isfinite().all() & fitted.bias.isfinite().all())
    calibrated = fitted(logits.double())
    assert bool(calibrated.isfinite().all())
    assert cross_entropy(calibrated, labels) <= cross_entropy(logits.double(), labels) + 1e-9


def test_a_fit_that_stops_short_warns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orthograd.calibration.calibrators.newton.ITERATIONS", 0)
    with pytest.warns(CalibrationWarning, match="VectorScaling stopped at a gradient of"):
        assert VectorScaling().fit(*sample()).gradient > 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_unfitted_use_and_another_number_of_classes_raise(kind: type[Calibrator]) -> None:
    with pytest.raises(NotFittedError, match=kind.__name__):
        kind()(torch.zeros(2, 4))
    fitted = kind().fit(*sample())
    with pytest.raises(ValueError, match=r"expected logits of 4 classes, as in fit, got \(2, 3\)"):
        fitted(torch.zeros(2, 3))
    assert fitted.fit(*sample(classes=3))(torch.zeros(2, 3)).shape == (2, 3)


@pytest.mark.parametrize("value", [-math.inf, math.inf, math.nan])
@pytest.mark.parametrize("kind", [*KINDS, TemperatureScaling])
def test_logits_that_are_not_finite_are_refused_with_a_way_out(kind: type[Calibrator], value: float) -> None:
    logits, labels = sample()
    fitted = kind().fit(logits, labels)
    logits[7, 2] = value
    words = rf"expected finite logits, got {value} in row 7, class 2 \(1 of 1200 are not finite\)"
    if value == -math.inf:
        words += "; to exclude a class, remove its column, or set it to -inf after calibration"
    with pytest.raises(ValueError, match=words):
        kind().fit(logits, labels)
    if kind is not TemperatureScaling:
        with pytest.raises(ValueError, match=words):
            fitted(logits)


def test_a_temperature_keeps_a_class_that_is_ruled_out_at_zero() -> None:
    logits, labels = sample()
    fitted = TemperatureScaling().fit(logits, labels)
    ruled_out = logits.index_fill(1, torch.tensor([2]), -math.inf)
    assert bool((fitted.probabilities(ruled_out)[:, 2] == 0).all())
    others = [0, 1, 3]
    torch.testing.assert_close(fitted.probabilities(ruled_out)[:, others], fitted.probabilities(logits[:, others]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_check_does_not_stand_in_the_way_of_compilation_and_vmap(kind: type[Calibrator]) -> None:
    logits, labels = sample()
    fitted = kind().fit(logits, labels)
    compiled = torch.compile(fitted, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits), fitted(logits))
    in_parts = torch.func.vmap(fitted)(logits.view(3, 100, 4)).flatten(0, 1)
    torch.testing.assert_close(in_parts, fitted(logits))


ALL_KINDS = [
    *KINDS,
    TemperatureScaling,
    EnsembleTemperatureScaling,
    PlattScaling,
    IsotonicCalibration,
    HistogramBinning,
]


@pytest.mark.parametrize(
    ("logits", "got"),
    [
        (torch.tensor([[4, 0, 1, 2]]), "torch.int64"),
        (torch.ones(2, 4, dtype=torch.bool), "torch.bool"),
        (torch.ones(2, 4, dtype=torch.complex64), "torch.complex64"),
        ([[4.0, 0.0, 1.0, 2.0]], "list"),
        (np.zeros((2, 4)), "ndarray"),
    ],
)
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_only_tensors_of_floating_point_are_calibrated(kind: type[Calibrator], logits: object, got: str) -> None:
    fitted = kind().fit(*sample())
    with pytest.raises(TypeError, match=f"expected logits as a tensor in floating point, got {got}"):
        fitted(logits)


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_logits_whose_squares_are_no_number_are_not_fitted(kind: type[Calibrator]) -> None:
    logits, labels = sample()
    with pytest.raises(ValueError, match=r"expected logits of size 1e\+150 at most, got -?\d\.\d+e\+307; divide them"):
        kind().fit(1e306 * logits, labels)
    large = kind().fit(1e148 * logits, labels).probabilities(1e148 * logits)
    assert bool(large.isfinite().all())


@pytest.mark.parametrize(
    ("kind", "other"),
    [(MatrixScaling, DirichletCalibration), (VectorScaling, MatrixScaling), (MatrixScaling, StructuredMatrixScaling)],
)
def test_a_calibrator_does_not_load_what_another_kind_has_saved(
    kind: type[Calibrator], other: type[Calibrator], tmp_path: Path
) -> None:
    for wanted, given in ((kind, other), (other, kind)):
        model, fresh = nn.Sequential(given().fit(*sample())), nn.Sequential(wanted())
        save_file(model.state_dict(), tmp_path / "state.safetensors")
        words = f"expected the state of a {wanted.__name__}, got that of a {given.__name__}"
        with pytest.raises(RuntimeError, match=words):
            fresh.load_state_dict(load_file(tmp_path / "state.safetensors"))
        assert not fresh[0].is_fitted


def test_the_temperatures_of_several_labels_are_not_those_of_classes() -> None:
    logits, labels = sample()
    several = TemperatureScaling(task="multilabel").fit(logits, one_hot(labels, 4))
    with pytest.raises(
        RuntimeError, match="state of a TemperatureScaling, got that of a TemperatureScaling of several l"
    ):
        TemperatureScaling().load_state_dict(several.state_dict())


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_penalty_that_allows_no_unique_finite_optimum_raises(value: float) -> None:
    with pytest.raises(ValueError, match=f"expected penalty above zero and finite, got {value}"):
        VectorScaling(penalty=value)
    with pytest.raises(ValueError, match="strength"):
        StructuredMatrixScaling(strength=value)
    for name in PENALTIES:
        with pytest.raises(ValueError, match=name):
            MatrixScaling(**{name: value})


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_every_dtype_comes_back_as_it_went_in(kind: type[Calibrator], dtype: torch.dtype) -> None:
    logits, labels = sample()
    fitted = kind().fit(logits.to(dtype), labels)
    calibrated = fitted(logits.to(dtype))
    assert calibrated.dtype == dtype
    assert fitted.weight.dtype == torch.float64
    expected = kind().fit(logits, labels)(logits)
    tolerance = {torch.float64: 1e-12, torch.float32: 1e-4}.get(dtype, 0.1)
    torch.testing.assert_close(calibrated.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_it_ships_with_its_model(kind: type[Calibrator], tmp_path: object) -> None:
    logits, labels = sample(classes=3)
    model = nn.Sequential(nn.Linear(3, 3, dtype=torch.float64), kind())
    model[1].fit(model[0](logits), labels)
    save_file(model.state_dict(), f"{tmp_path}/model.safetensors")
    other = nn.Sequential(nn.Linear(3, 3, dtype=torch.float64), kind())
    other.load_state_dict(load_file(f"{tmp_path}/model.safetensors"))
    assert torch.equal(other(logits), model(logits))
    assert torch.equal(copy.deepcopy(model)(logits), model(logits))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_pass_through_to_the_model(kind: type[Calibrator]) -> None:
    logits, labels = sample(n=20, classes=3)
    fitted = kind().fit(logits, labels)
    assert torch.autograd.gradcheck(fitted, (logits[:4].requires_grad_(),))
    assert not list(fitted.parameters())
