"""The examples of docs/scale.md, run as printed."""

from __future__ import annotations

import math
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orthograd.lab.jobs.store import Store
from tests.conftest import TORCH
from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow]
DOCUMENT = (Path(__file__).parent.parent / "docs" / "scale.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOCUMENT, re.M | re.S)


def shell(commands, folder, **variables):
    """What a shell makes of an example, with the commands of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.mark.skipif(TORCH < (2, 9), reason="FSDP2 over gloo reduces gradients wrongly in this torch")
def test_the_training_script_runs_under_torchrun(tmp_path):
    (script,) = [text for language, text in BLOCKS if language == "python"]
    (command,) = [text for language, text in BLOCKS if not language and "train.py" in text]
    (tmp_path / "train.py").write_text(script)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    done = shell(command, tmp_path, PET_MASTER_PORT=port, OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stderr
    (loss,) = re.findall(r"^loss (\S+)$", done.stdout, re.M)  # of one rank alone
    assert 0 < float(loss) < 2 * math.log(10)


def test_two_shells_share_the_runs_of_one_comparison(tmp_path):
    (commands,) = [text for _, text in BLOCKS if "&\n" in text]
    assert commands.count("orthograd compare") == 2
    done = shell(f"{commands}wait $!\n", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report: comparison/report.html") == 2
    assert len(list(Store(tmp_path / "comparison" / "runs").runs())) == 4
    assert not list(tmp_path.glob("comparison/runs/*/failure.txt"))
