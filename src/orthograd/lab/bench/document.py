"""Tables of README.md and docs/ that show records of benchmarks.

Each function takes the folder of records and returns a table in Markdown.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from ...statistics.table import markdown_table
from .claim import (
    CONVOLUTIONS,
    CORRUPTION,
    EPOCH,
    EPOCH_IMAGES,
    EVALUATION,
    KERNELS,
    OVERHEAD,
    UPDATE_COSINE,
    Claim,
    read_claims,
)

TITLES = {"baseline": "SGD", "orthograd": "⊥Grad"}
STEP_RECORDS = {"NVIDIA H200": "bench-h200.json", "2 CPU cores": "bench-cpu.json"}


def step_costs(results: Path) -> str:
    """Cost of ⊥Grad on a GPU and on a CPU."""
    return _all_claims(results, STEP_RECORDS, ours="⊥Grad")


COSTS = {
    ("step", "SGD, momentum, weight decay"): ("Optimizer step, SGD with momentum", "×"),
    ("step", "AdamW"): ("Optimizer step, AdamW", "×"),
    ("extra memory", ""): ("Extra memory", " MiB"),
}
"""Claims about ResNet-18 that README quotes, by subject and optimizer."""


def costs(results: Path) -> str:
    """Costs in README: three rows of `step_costs`, as a list."""
    measured = {where: _of_resnet18(results / name) for where, name in STEP_RECORDS.items()}
    lines = []
    for key, (title, unit) in COSTS.items():
        values = " and ".join(f"{each[key]:.2f}{unit} ({where})" for where, each in measured.items())
        lines.append(f"- {title}: {values}.\n")
    return "".join(lines)


def _of_resnet18(path: Path) -> dict[tuple[str, str], float]:
    claims = (claim for claim in read_claims(path) if claim.key.model == "ResNet-18")
    return {(claim.key.what, claim.key.optimizer): claim.value for claim in claims}


def calibration_costs(results: Path) -> str:
    """Cost of calibration metrics and calibrators."""
    return _all_claims(results, {"2 x86 cores": "calibration-x86.json", "2 ARM cores": "calibration-cpu.json"})


def _all_claims(results: Path, records: Mapping[str, str], *, ours: str = "orthograd") -> str:
    """Every claim on every machine, with its target and other implementations; without cosines of updates."""
    rows = []
    for where, name in records.items():
        for claim in read_claims(results / name):
            if claim.key.what != UPDATE_COSINE:
                others = ", ".join(f"{value:.3g} ({peer})" for peer, value in claim.others.items())
                rows.append([str(claim.key), where, f"{claim.value:.3g}", _bound(claim), others])
    return markdown_table(["measurement", "machine", ours, "target", "others in the same run"], rows)


def _bound(claim: Claim) -> str:
    return ("" if claim.target is None else f"≤ {claim.target:g}") + ("" if claim.holds else ", **missed**")


def update_cosines(results: Path) -> str:
    """Mean |cos(Δ, w)| of updates by optimizer."""
    claims = list(_about(results / "bench-cpu.json", UPDATE_COSINE))
    values = ((claim.key.optimizer, (*claim.others.values(), claim.value)) for claim in claims)
    rows = [[optimizer, *(f"{value:.2g}" for value in each)] for optimizer, each in values]
    return markdown_table(["base", *claims[0].others, claims[0].key.method], rows)


def recorder_costs(results: Path) -> str:
    """Share of the training time that a recorder takes."""
    path = results / "recorder-cost.json"
    facts = json.loads(path.read_text(encoding="utf-8"))["environment"]
    rows = [
        [
            f"{claim.key.model}, {claim.key.setting}",
            f"{100 * claim.value:.2g}%{'' if claim.holds else ', **missed**'}",
        ]
        for claim in read_claims(path)
    ]
    header = [f"{facts['device']}, {facts['threads']} threads", "share of the training time; target: 1%"]
    return markdown_table(header, rows)


def distributed_steps(results: Path) -> str:
    """Cost of ⊥Grad in an FSDP2 step, measured and predicted."""
    claims = {(claim.key.what, claim.key.setting): claim for claim in read_claims(results / "distributed-step.json")}
    rows, errors = [], []
    for ranks in (1, 2, 4):
        step = claims["FSDP2 step", f"{ranks} processes"]
        guess = claims["FSDP2 step, predicted over measured", f"{ranks} processes"]
        without, alone, added = (step.others[name] for name in ("ms without", "optimizer's step alone", "ms added"))
        parts = " + ".join(f"{part:.1f}" for part in guess.others.values())
        shown = f"{without:.0f}", f"{step.value:.2f}", f"{alone:.2f}", f"{added:.1f}"
        rows.append([str(ranks), *shown, f"{parts} = {sum(guess.others.values()):.1f}", f"{guess.value:.2f}"])
        errors.append(abs(guess.value - 1))
    header = ["processes", "step without ⊥Grad, ms", "step with / without", "optimizer step with / without"]
    header += ["added, ms", "predicted: memory + host + 2 all-reduces, ms", "predicted / measured"]
    return markdown_table(header, rows) + f"\nThe prediction is off by at most {100 * max(errors):.0f}%.\n"


def ray_costs(results: Path) -> str:
    """Cost of Ray on one machine, and the driver's load for a thousand runs on 64 GPUs."""
    (driver,) = (claim.value for claim in _about(results / "ray-overhead.json", "driver"))
    load = 64 * 4 * driver / 1000 / (20 * 60)
    return _all_claims(results, {"2 CPU cores": "ray-overhead.json"}) + (
        f"\nSo $d$ = {driver:.1f} ms of CPU time, and the limit is {1000 / driver:.0f} runs per second. For runs of "
        f"$t_4$ = 20 minutes, four on each GPU: 4 rounds, 80 minutes, 0.2 runs per second, {100 * load:.1f}% of one "
        "core.\n"
    )


def speeds(results: Path) -> str:
    """Images per second: the plain loop, one run, the fastest number of concurrent runs; and the target."""
    epochs = list(_about(_training(results), EPOCH))
    alone = {_network(claim): claim.value for claim in epochs if claim.key.concurrent == 1}
    rows = []
    for claim in (each for each in epochs if not each.key.concurrent):
        key, one = claim.key, alone[_network(claim)] if claim.key.method == "baseline" else None
        values = claim.others.get("plain loop"), one, claim.value, claim.target
        shown = [f"{EPOCH_IMAGES / value:,.0f}" if value else "" for value in values]
        rows.append([key.model, key.precision, TITLES[key.method], *shown, "" if claim.holds else "no"])
    return markdown_table(
        ["network", "precision", "method", "plain loop", "one run", "concurrent runs", "target", "target met"], rows
    )


def concurrent_runs(results: Path) -> str:
    """Images per second by the number of concurrent runs."""
    seconds: dict[str, dict[int, float]] = {}
    for claim in _about(_training(results), EPOCH):
        if claim.key.concurrent:
            seconds.setdefault(_network(claim), {})[claim.key.concurrent] = claim.value
    sizes = list(dict.fromkeys(size for by_size in seconds.values() for size in by_size))
    rows = [
        [network, *(f"{EPOCH_IMAGES / by_size[size]:,.0f}" if size in by_size else "" for size in sizes)]
        for network, by_size in seconds.items()
    ]
    return markdown_table(["SGD", *(f"{size} run{'s' * (size > 1)}" for size in sizes)], rows)


def bounds(results: Path) -> str:
    """Images per second of concurrent runs, and of their convolutions alone, by orthograd and by cuDNN."""
    epochs = (each for each in _about(_training(results), EPOCH) if not each.key.concurrent)
    sgd = {_network(claim): claim.value for claim in epochs if claim.key.method == "baseline"}
    rows = []
    for claim in _about(_training(results), CONVOLUTIONS):
        network = _network(claim)
        seconds = sgd[network], claim.value, claim.others["cuDNN"]
        shown = (f"{EPOCH_IMAGES / each:,.0f}" for each in seconds)
        rows.append([network, *shown, f"{claim.value / sgd[network]:.0%}"])
    columns = ["images per second", "convolutions only", "cuDNN's convolutions only", "share of convolutions"]
    return markdown_table(["SGD, concurrent runs", *columns], rows)


def overheads(results: Path) -> str:
    """Cost of ⊥Grad per epoch, with gradients measured in the backward pass (two runs) or in the step (one)."""
    records = results.glob("backward-statistics-*.json")
    measured_early = {_network(claim): claim for path in records for claim in _about(path, OVERHEAD)}
    rows = []
    for claim in _about(_training(results), OVERHEAD):
        again = measured_early[_network(claim)]
        shown = _with_ends(claim), _with_ends(again), f"{again.others['by the step']:.3f}"
        rows.append([_network(claim), *shown, f"≤ {claim.target:g}{_verdict(claim, again)}"])
    ways = "measured in backward", "the same, second run", "measured in the step, second run"
    return markdown_table([f"{OVERHEAD}, concurrent runs", *ways, "target"], rows)


def _verdict(*claims: Claim) -> str:
    """Verdict by the medians; inconclusive if an end is beyond the target."""
    if not all(claim.holds for claim in claims):
        return ", **missed**"
    is_clear = all(claim.ends and claim.target and claim.ends[1] <= claim.target for claim in claims)
    return "" if is_clear else ", **inconclusive**"


def _with_ends(claim: Claim) -> str:
    return f"{claim.value:.3f} ({' to '.join(f'{end:.3f}' for end in claim.ends or ())})"


def products(results: Path) -> str:
    """Time of orthograd's convolutions over cuDNN's, by network and layer, and for all of these."""
    rows: dict[tuple[str, str], list[str]] = {}
    parts = ["forward", "input gradient", "weight gradient"]
    for claim in read_claims(results / "convolution-products-h200.json"):
        network, layer = _network(claim), claim.key.setting
        if claim.key.part:
            row = rows.setdefault((network, layer), [network, layer, "", "", ""])
            row[2 + parts.index(claim.key.part)] = f"{claim.value:.2f} ({claim.others['ours, µs']:.0f} µs)"
        else:
            rows[network, layer] = [network, "**all of the above**", f"**{claim.value:.2f}**", "", ""]
    return markdown_table(["time / cuDNN's", "layer", *parts], rows.values())


def kernels(results: Path) -> str:
    """Time of a step by groups of kernels."""
    spent: dict[str, dict[str, float]] = {}
    for claim in _about(_training(results), KERNELS):
        spent.setdefault(_network(claim), {})[claim.key.part] = claim.value
    parts = list(dict.fromkeys(part for times in spent.values() for part in times))
    rows = [[part, *(f"{times.get(part, 0):,.0f}" for times in spent.values())] for part in parts]
    rows.append(["total", *(f"{sum(times.values()):,.0f}" for times in spent.values())])
    return markdown_table(["µs per step, one run", *spent], rows)


def evaluation(results: Path) -> str:
    """Seconds to make CIFAR-10-C, and to evaluate one network on it."""
    claims = [
        *_about(results / "evaluation-h200.json", CORRUPTION, EVALUATION),
        *_about(results / "corruption-cpu.json", CORRUPTION),
    ]
    rows = []
    for claim in claims:
        what = ", ".join(part for part in (claim.key.what, claim.key.model, claim.key.precision) if part)
        rows.append([what, claim.key.device, f"{claim.value:.1f}", _bound(claim)])
    return markdown_table([claims[0].key.setting, "device", "s", "target"], rows)


def _training(results: Path) -> Path:
    return results / "training-h200.json"


def _about(path: Path, *whats: str) -> Iterator[Claim]:
    return (claim for claim in read_claims(path) if claim.key.what in whats)


def _network(claim: Claim) -> str:
    return f"{claim.key.model}, {claim.key.precision}"
