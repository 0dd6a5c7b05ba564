"""A model with its calibrator: saved, moved, compiled, exported, and read by another runtime."""

from __future__ import annotations

import io
from itertools import product

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from orthograd.calibration import (
    Calibrated,
    EnsembleTemperatureScaling,
    HistogramBinning,
    IsotonicCalibration,
    NotFittedError,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from tests.calibration.samples import predictions
from tests.calibration.test_calibrator_forms import EVERY

N = torch.export.Dim("n", max=10_000)

FORMS = {
    "rows": ({}, lambda: nn.Linear(6, 4), (6,), (4,)),
    "maps": ({"classes_dim": 1}, lambda: nn.Conv2d(3, 4, 3, padding=1), (3, 5, 7), (4, 5, 7)),
    "binary": ({"task": "binary"}, lambda: nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), (6,), ()),
    "multilabel": ({"task": "multilabel"}, lambda: nn.Linear(6, 3), (6,), (3,)),
}


def calibrated(kind, form="rows", output="probabilities"):
    """A small model with a fitted calibrator, and inputs."""
    options, network, inputs, _ = FORMS[form]
    torch.manual_seed(0)
    model = network().eval()
    x = 3 * torch.randn(60, *inputs)
    with torch.no_grad():
        logits = model(x)
    noisy = logits + torch.randn_like(logits)
    labels = (noisy > 0).long() if "task" in options else noisy.argmax(1)
    return Calibrated(model, kind(**options).fit(logits, labels), output=output).eval(), x


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", EVERY)
def test_the_outputs_are_those_of_the_calibrator(kind, form):
    both, x = calibrated(kind, form)
    logits = both.model(x)
    assert logits.shape == (60, *FORMS[form][3])
    assert torch.equal(both(x), both.calibrator.probabilities(logits))
    both.output = "logits"
    assert torch.equal(both(x), both.calibrator(logits))


@pytest.mark.parametrize("kind", EVERY)
def test_a_saved_module_is_the_same_module(kind, tmp_path):
    both, x = calibrated(kind)
    save_file(both.state_dict(), tmp_path / "both.safetensors")
    other = Calibrated(nn.Linear(6, 4), kind(), output="probabilities")
    with pytest.raises(NotFittedError):
        other(x)
    other.load_state_dict(load_file(tmp_path / "both.safetensors"))
    assert torch.equal(other(x), both(x))
    assert torch.equal(both.double()(x.double()).float(), both.calibrator.probabilities(both.model(x.double())).float())
    assert all(value.dtype == torch.float64 for value in both.half().calibrator.buffers())


FEW = [("maps", StructuredMatrixScaling), ("binary", EnsembleTemperatureScaling), ("multilabel", IsotonicCalibration)]
# Those of rows are exported on the way to ONNX, below.
REST = [case for case in product(FORMS, EVERY) if case not in FEW and (case[0] != "rows" or case[1] is EVERY[0])]


@pytest.mark.parametrize(("form", "kind"), [*FEW, *(pytest.param(*case, marks=pytest.mark.slow) for case in REST)])
def test_torch_export_keeps_it_for_any_number_of_samples(kind, form):
    both, x = calibrated(kind, form)
    program = torch.export.export(both, (x[:5],), dynamic_shapes=[{0: N}])
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    for batch in (x, x[:2]):
        torch.testing.assert_close(loaded(batch), both(batch))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "kind"), [*(("rows", kind) for kind in EVERY), *FEW])
def test_onnxruntime_gives_the_same_probabilities(kind, form, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    both, x = calibrated(kind, form)
    if kind in (
        HistogramBinning,
        IsotonicCalibration,
    ):  # they have steps: on either side for logits of another rounding
        both.model, x = nn.Identity(), both.model(x).detach()
    torch.onnx.export(both, (x[:5],), tmp_path / "both.onnx", dynamo=True, dynamic_shapes=[{0: N}], verbose=False)
    session = runtime.InferenceSession(tmp_path / "both.onnx", providers=["CPUExecutionProvider"])
    (name,) = (each.name for each in session.get_inputs())
    for batch in (x, x[:2]):
        (found,) = session.run(None, {name: batch.numpy()})
        torch.testing.assert_close(torch.from_numpy(found), both(batch), rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", EVERY)
def test_torch_compile_makes_one_graph_of_it(kind):
    torch.compiler.reset()
    both, x = calibrated(kind)
    torch.testing.assert_close(torch.compile(both, backend="eager", fullgraph=True)(x), both(x))


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(TypeError, match="expected a Calibrator, got a Identity"):
        Calibrated(nn.Identity(), nn.Identity())
    with pytest.raises(ValueError, match="logits in one tensor, got one for task 'multiple_choice'"):
        Calibrated(nn.Identity(), TemperatureScaling(task="multiple_choice"))
    with pytest.raises(ValueError, match="an output among logits, probabilities, got 'odds'"):
        Calibrated(nn.Identity(), TemperatureScaling(), output="odds")
    logits, labels = predictions(40, 3, dtype=torch.float32)
    both = Calibrated(nn.Linear(3, 4), VectorScaling().fit(logits, labels))
    with pytest.raises(ValueError, match=r"logits of 3 classes, as in fit, got \(40, 4\)"):
        both(logits)


def test_several_inputs_and_keywords_reach_the_model():
    class Both(nn.Module):
        def forward(self, left, *, right):
            return left + right

    logits, labels = predictions(40, 3)
    both = Calibrated(Both(), TemperatureScaling().fit(logits, labels))
    assert torch.equal(both(logits, right=logits), both.calibrator(2 * logits))
    assert "output='logits'" in repr(both)
