"""`orthograd compare` and `orthograd reproduce` in one Ray cluster: the runs of other executors, and their failures."""

from __future__ import annotations

import pytest
import torch

from orthograd.lab.jobs.store import Store
from tests.cli.forks import Forks
from tests.cli.test_compare_failures import assert_failures_are_named, breaking_comparisons, failures_of
from tests.cli.test_reproduce_command import TINY, invoked
from tests.lab.jobs.ray_nodes import two_nodes

pytestmark = pytest.mark.slow
pytest.importorskip("ray", reason="Ray is not installed")


@pytest.fixture(scope="module")
def cluster():
    nodes = two_nodes()
    yield ["--executor", "ray", "--address", nodes.address]
    nodes.shutdown()


def test_a_failed_run_of_compare_is_named_and_leads_to_its_output(cluster, tmp_path):
    with breaking_comparisons() as compared:
        assert_failures_are_named(tmp_path, compared(tmp_path, *cluster, broken="1"))
    for file in failures_of(tmp_path / "out" / "report.html")[1]:
        assert "output in " in file.read_text().splitlines()[0]


def test_the_runs_of_reproduce_are_those_of_this_process(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["table1", *TINY[:-2], "--shifts", "simple"]
    with Forks() as forks:
        done = forks.run(tmp_path, "reproduce", *given, *cluster, "--max-concurrent", "2", "--out", "ray")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "ray" / "reproduction.html").exists()
    torch.set_num_threads(1)  # as the workers
    code, said = invoked(*given, "--workers", "1", "--out", tmp_path / "here")
    assert code == 0, said
    ray, here = (
        {run["hash"]: run["files"] for run in Store(tmp_path / name / "runs").runs()} for name in ("ray", "here")
    )
    assert len(ray) == 4
    assert ray == here  # hashes of all logits
