"""`pip install .` brings torch and nothing else. This file runs as a script where that is all there is."""

from __future__ import annotations

import importlib.metadata
import pickle
import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

SOURCES = str(Path(__file__).parents[1] / "src")


def test_torch_alone_gives_metrics_calibrators_diagnosis_and_the_optimizer(tmp_path):
    bare = tmp_path / "site-packages"
    bare.mkdir()
    for distribution in brought_along("torch"):
        for path in distribution.files or []:
            name, source = path.parts[0], Path(str(distribution.locate_file(path.parts[0])))
            if name not in ("..", "__pycache__") and not (bare / name).exists():
                (bare / name).symlink_to(source)
    # -I: no PYTHONPATH, no user site. -S: no site-packages.
    command = [sys.executable, "-I", "-S", __file__, str(bare), SOURCES]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "torch alone suffices"


def brought_along(name, known=None):
    """A distribution and what it requires, and so on."""
    known = {} if known is None else known
    try:
        known[name] = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:  # for another platform
        return known.values()
    for requirement in known[name].requires or []:
        needed = re.match(r"[\w.-]+", requirement)[0]
        if "extra ==" not in requirement and needed not in known:
            brought_along(needed, known)
    return known.values()


def use_everything():
    missing = ("numpy", "scipy", "matplotlib", "sklearn", "rich", "typer", "PIL", "pyarrow", "safetensors", "pandas")
    for name in missing:
        refused(name, "No module named")
    use_calibration()
    use_calibrators()
    use_optimizer()
    for name, package in (("sklearn", "scikit-learn"), ("torchmetrics", "torchmetrics")):
        words = f"orthograd.calibration.{name} needs {package}: pip install 'orthograd[{name}]'"
        refused(f"orthograd.calibration.{name}", words)
    for name in ("compare", "t_test"):
        refused("orthograd.statistics", "orthograd.statistics needs scipy: pip install 'orthograd[lab]'", name)
    print("torch alone suffices")


def refused(module, words, name="anything"):
    assert words in said_by(lambda: exec(f"from {module} import {name}"))


def said_by(action):
    """The one line of an ImportError. Here is no pytest to expect it."""
    try:
        action()
    except ImportError as error:
        (line,) = str(error).splitlines()
        return line
    return "nothing"


def predictions(n=200, classes=6):
    import torch

    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(n, classes, generator=generator)
    return logits, logits.div(2).softmax(1).multinomial(1, generator=generator)[:, 0]


def use_calibration():
    from orthograd import calibration

    logits, labels = predictions()
    whole = calibration.evaluate(logits, labels)
    assert None not in whole.as_row().values(), whole
    probabilities = logits.softmax(1)
    assert calibration.evaluate_probabilities(probabilities, labels).smooth_ece > 0
    evaluation, other = calibration.Evaluation(metrics=calibration.ALL), calibration.Evaluation(metrics=calibration.ALL)
    evaluation.update(logits[:50], labels[:50])
    other.update(logits[50:], labels[50:])
    evaluation.merge(pickle.loads(pickle.dumps(other)))
    assert abs(evaluation.compute().smooth_ece - whole.smooth_ece) < 1e-9
    curve = evaluation.reliability()
    calibration.ReliabilityCurve.from_dict(calibration.average([curve, curve]).as_dict())
    for result in (
        calibration.intervals(logits, labels),
        calibration.intervals_probabilities(probabilities, labels),
        calibration.difference_intervals(logits, logits / 2, labels),
        calibration.difference_intervals_probabilities(probabilities, (logits / 2).softmax(1), labels),
    ):
        assert result
    assert len(calibration.risk_coverage(logits.amax(1), labels == 0)) == 2
    from orthograd.calibration.huggingface import BatchMetrics

    assert BatchMetrics(metrics=["ece"])(SimpleNamespace(predictions=logits, label_ids=labels), True)["ece"] > 0


def use_calibrators():
    from orthograd import calibration

    logits, labels = predictions()
    named = [getattr(calibration, name) for name in calibration.__all__]
    kinds = [kind for kind in named if isinstance(kind, type) and issubclass(kind, calibration.Calibrator)]
    assert len(kinds) == 11
    for kind in kinds:
        if kind is not calibration.Calibrator:
            fitted, loaded = kind().fit(logits.tolist(), labels.tolist()), kind()
            loaded.load_state_dict(fitted.state_dict())
            assert loaded.probabilities(logits).equal(fitted.probabilities(logits))
    assert calibration.fit_temperatures(logits[None], labels).excess < 1e-12


def use_optimizer():
    import torch

    import orthograd

    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 6))
    inputs, targets = predictions()
    assert "0.weight" in str(orthograd.diagnose(model, torch.nn.CrossEntropyLoss(), (inputs, targets)))
    for optimizer in (
        torch.optim.AdamW(model.parameters()),
        orthograd.OrthoGrad(model.parameters(), torch.optim.SGD, lr=0.1),
        orthograd.orthogonal(torch.optim.SGD)(model.parameters(), lr=0.1),
    ):
        if type(optimizer) is torch.optim.AdamW:
            orthograd.attach(optimizer)
        with orthograd.Recorder(optimizer, every=1, named_parameters=model.named_parameters()) as recorder:
            torch.nn.functional.cross_entropy(model(inputs), targets).backward()
            orthograd.orthogonalize_(model.parameters())
            optimizer.step()
        assert "0.weight" in recorder.table()
        figure = partial(recorder.figure, "radial.png")
        assert said_by(figure).startswith("a figure needs matplotlib: pip install 'orthograd[lab]'")


if __name__ == "__main__":
    sys.path[:0] = sys.argv[1:] or [SOURCES]
    use_everything()
