"""The files of examples/ run as a user runs them, and print what they promise."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE

pytestmark = pytest.mark.slow
EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDED = {"lightning_module": "lightning", "huggingface_trainer": "transformers"}


def output(name, folder, *arguments):
    """What an example prints."""
    if importlib.util.find_spec(NEEDED.get(name, "torch")) is None:
        pytest.skip(f"{NEEDED[name]} is not installed")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def numbers(text, name):
    """The numbers that stand behind a name."""
    return [float(number.replace("−", "-")) for number in re.findall(rf"{name} ([-+−]?[\d.]+)", text)]


def test_every_example_is_run_here():
    tested = Path(__file__).read_text(encoding="utf-8")
    for path in EXAMPLES.glob("*.py"):
        assert f'output("{path.stem}"' in tested, path.name


def test_the_quickstart_lowers_confidence_at_similar_accuracy(tmp_path):
    printed = output("quickstart", tmp_path)
    (sgd, orthograd), (accuracy, other) = numbers(printed, "confidence"), numbers(printed, "accuracy")
    assert orthograd < sgd
    assert min(accuracy, other) > 75


def test_the_head_alone_lowers_confidence(tmp_path):
    sgd, every, head = numbers(output("head_only", tmp_path), "confidence − accuracy")
    assert every < head < sgd


def test_a_temperature_repairs_an_overconfident_network(tmp_path):
    printed = output("repair_by_temperature", tmp_path)
    (temperature,), (before, after) = numbers(printed, "temperature"), numbers(printed, "loss")
    assert temperature > 1
    assert after < before
    assert len(set(numbers(printed, "accuracy"))) == 1  # a temperature changes no prediction


def test_the_lightning_module_learns(tmp_path):
    assert numbers(output("lightning_module", tmp_path), "top1_accuracy")[0] > 60


def test_the_hugging_face_trainer_learns(tmp_path):
    assert numbers(output("huggingface_trainer", tmp_path), "accuracy")[0] > 60


def test_the_diagnosis_leaves_its_figure_and_record(tmp_path):
    assert "⊥Grad" in output("diagnose", tmp_path, "out")
    record = json.loads((tmp_path / "out" / "diagnosis.json").read_text(encoding="utf-8"))
    assert {"environment", "diagnosis", "recorder"} == record.keys()
    assert (tmp_path / "out" / "radial.png").exists()


def test_the_digits_are_written_for_orthograd_evaluate(tmp_path):
    output("digits", tmp_path, "out")
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == sorted(path.name for path in (EXAMPLES.parent / "docs/results/digits").glob("*.npz"))
    with np.load(tmp_path / "out" / "overfitted-test.npz") as file:
        assert file["logits"].shape == (997, 10)
