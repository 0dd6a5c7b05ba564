"""The example of docs/scale.md, run as printed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from orthograd.lab.jobs.store import Store
from tests.patience import PATIENCE

pytestmark = [pytest.mark.slow]
DOCUMENT = (Path(__file__).parent.parent / "docs" / "scale.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", DOCUMENT, re.M | re.S)


def shell(commands, folder, **variables):
    """Run an example in a shell, with the commands of this environment."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": os.pathsep.join(sys.path), **variables}
    return subprocess.run(
        ["sh", "-e", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


def test_two_shells_share_the_runs_of_one_comparison(tmp_path):
    (commands,) = [text for _, text in BLOCKS if "&\n" in text]
    assert commands.count("orthograd compare") == 2
    done = shell(f"{commands}wait $!\n", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Report: comparison/report.html") == 2
    assert len(list(Store(tmp_path / "comparison" / "runs").runs())) == 4
    assert not list(tmp_path.glob("comparison/runs/*/failure.txt"))
