"""Tables of docs/performance.md and README.md, from committed records and from one that is measured here."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from orthograd.lab.bench import document
from orthograd.lab.bench.claim import SEEDS_COST, Key, environment, write_record
from orthograd.lab.bench.loop import PLAIN_STEP, loop_cost
from orthograd.lab.jobs.bundles import read_bundles

RESULTS = Path(__file__).parents[3] / "docs" / "results"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def claim():
    (measured,) = loop_cost(CPU, quick=True)
    return measured


@pytest.fixture
def results(tmp_path):
    """The records of the optimizer, without training loops."""
    for name in ("bench-h200.json", "bench-cpu.json"):
        shutil.copy(RESULTS / name, tmp_path)
    return tmp_path


def test_without_a_record_of_training_loops_their_table_is_left_out(results):
    assert document.loop_costs(results) == ""
    assert document.answer(results).startswith("With ⊥Grad the optimizer step alone takes ")
    assert "Training step" not in document.costs(results)


def test_training_loops_are_a_table_with_their_record(results, claim):
    write_record(results / "bench-cpu-loop.json", [claim], environment(CPU))
    header, _, row, _, records = document.loop_costs(results).splitlines()
    assert header.endswith("| ms a step without ⊥Grad | ms added | with / without |")
    machine, network, optimizer, alone, _, ratio = row.strip("| ").split(" | ")
    assert (machine, network) == ("2 CPU cores", "small CNN, batch of 32, float32")
    assert optimizer == "SGD with momentum"
    assert float(alone) == pytest.approx(claim.others[PLAIN_STEP], rel=0.01)
    assert float(ratio) == pytest.approx(claim.value, abs=0.0006)
    assert records.startswith("Records: [bench-cpu-loop.json](results/bench-cpu-loop.json) (")
    assert "commit " in records or "orthograd " in records


def test_a_training_step_that_misses_its_target_says_so(results, claim):
    write_record(results / "bench-cpu-loop.json", [replace(claim, value=1.0206, target=1.02)], environment(CPU))
    assert "| 1.021 (target ≤ 1.02 missed) |" in document.loop_costs(results)


def test_the_answer_and_readme_quote_the_same_loop(results, claim):
    eager = replace(claim, key=replace(claim.key, model="ResNet-18"))
    compiled = replace(eager, key=replace(eager.key, setting="batch of 32, torch.compile"), value=9.0)
    write_record(results / "bench-cpu-loop.json", [eager, compiled], environment(CPU))
    assert f"**{claim.value:.2f} times (2 CPU cores)**" in document.answer(results)
    assert f"- Training step, SGD with momentum: {claim.value:.2f}× (2 CPU cores).\n" in document.costs(results)


def test_loops_in_the_record_of_the_optimizer_count_as_well(results, claim):
    write_record(results / "bench-cpu.json", [claim], environment(CPU))
    assert "| 2 CPU cores | small CNN" in document.loop_costs(results)
    assert "small CNN" not in document.step_costs(results)


def test_every_value_of_a_step_is_in_its_table():
    table = document.step_costs(RESULTS)
    for machine, names in document.MACHINES.items():
        assert machine in table
        for claim in document.claims_about(RESULTS / names[0], "step", "step in a CUDA graph"):
            assert f"**{claim.value:.3g}**" in table
            assert all(f"{value:.3g} ({peer})" in table for peer, value in claim.others.items())


def test_the_40_runs_that_were_trained_twice_agree_bit_for_bit():
    one, other = (
        {(run["config"]["method"], run["config"]["seed"]): run for run in read_bundles(RESULTS / name).values()}
        for name in ("table1-tf32", "table1-tf32-corrupted")
    )
    assert one.keys() == other.keys()
    assert len(one) == 40
    for key, run in one.items():
        again = other[key]
        assert (run["losses"], run["weight_norm"]) == (again["losses"], again["weight_norm"])
        assert run["metrics"]["clean"] == again["metrics"]["clean"]


def test_a_target_that_differs_between_machines_names_them(tmp_path, claim):
    for machine, target in {"h200": 3.0, "cpu": 8.0}.items():
        twenty = replace(claim, key=Key(SEEDS_COST, model="MLP"), value=5.0, target=target, others={})
        write_record(tmp_path / f"grokking-seeds-{machine}.json", [twenty], environment(CPU))
    assert document.seeds_costs(tmp_path).splitlines()[2] == (
        "| 20 seeds over one, MLP | **5** (target missed) | **5** | ≤ 3 (NVIDIA H200), ≤ 8 (2 CPU cores) |"
    )
