"""Tables of README.md and docs/ that show records of benchmarks.

Each function takes the folder of records and returns Markdown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from ...statistics.table import markdown_table
from .claim import EPOCH, EPOCH_IMAGES, OVERHEAD, SEEDS_COST, UPDATE_COSINE, Claim, claims_about, read_claims
from .loop import COMPILED, FUSED, PLAIN_STEP, TRAINING_STEP
from .step import PAPER, TORCH_MICROSECONDS

MACHINES = {
    "NVIDIA H200": ("bench-h200.json", "bench-h200-loop.json", "bench-h200-fused.json"),
    "2 CPU cores": ("bench-cpu.json", "bench-cpu-loop.json"),
}
"""Records of the optimizer and of training loops; those that are not there are left out."""
CALIBRATION = {
    "2 x86 cores": ("calibration-x86.json",),
    "2 ARM cores": ("calibration-cpu.json",),
    "NVIDIA H200": ("calibration-h200.json",),
}
GROKKING = {"NVIDIA H200": ("grokking-seeds-h200.json",), "2 CPU cores": ("grokking-seeds-cpu.json",)}
TYPICAL = "ResNet-18"
"""The network that sentences quote."""
OPTIMIZERS = {PAPER: "SGD with momentum", "SGD, neither": "SGD without momentum", "": "SGD with momentum"}
NETWORKS = {"resnet18": "ResNet-18", "wide_resnet28_10": "WideResNet-28-10"}


def answer(results: Path) -> str:
    """The cost of ⊥Grad in a few sentences; that on training loops needs a record of them."""
    loops, steps = (_quoted(results, what, PAPER) for what in (TRAINING_STEP, "step"))
    sentences = [
        f"With ⊥Grad the optimizer step alone takes {_list(steps)} as long.",
        f"Extra memory: {_list(_quoted(results, 'extra memory', ''), ' MiB')}.",
        f"All for {TYPICAL}, the steps for SGD with momentum.",
    ]
    if loops:
        sentences.insert(
            0, f"In an ordinary training loop, a step with ⊥Grad takes **{_list(loops)}** as long as without."
        )
    return " ".join(sentences) + "\n"


def costs(results: Path) -> str:
    """The cost section of README, as a list."""
    titles = {
        (TRAINING_STEP, PAPER): ("Training step, SGD with momentum", "×"),
        ("step", PAPER): ("Optimizer step alone, SGD with momentum", "×"),
        ("extra memory", ""): ("Extra memory", " MiB"),
    }
    rows = ((title, unit, _quoted(results, *key)) for key, (title, unit) in titles.items())
    return "".join(f"- {title}: {_list(values, unit)}.\n" for title, unit, values in rows if values)


def _quoted(results: Path, what: str, optimizer: str) -> dict[str, float]:
    """The value for the typical network on each machine that has one; training steps without torch.compile."""
    return {
        machine: claim.value
        for machine, claims in _by_machine(results, MACHINES, what).items()
        for claim in claims
        if (claim.key.model, claim.key.optimizer) == (TYPICAL, optimizer) and COMPILED not in claim.key.setting
    }


def _list(values: Mapping[str, float], unit: str = " times") -> str:
    return " and ".join(f"{value:.2f}{unit} ({machine})" for machine, value in values.items())


def loop_costs(results: Path) -> str:
    """Training steps with ⊥Grad and without; an empty text if no record has any."""
    rows = []
    for machine, claims in _by_machine(results, MACHINES, TRAINING_STEP).items():
        for claim in claims:
            key, alone = claim.key, claim.others[PLAIN_STEP]
            what = f"{key.model}, {key.setting}, {key.precision}", OPTIMIZERS.get(key.optimizer, key.optimizer)
            added = f"{alone * (claim.value - 1):+.2g}".replace("-", "−")
            fused = f"{claim.others[FUSED]:.3f}" if FUSED in claim.others else ""
            milliseconds = f"{alone:,.0f}" if alone >= 100 else f"{alone:.3g}"
            ratio = f"{claim.value:.3f}" + ("" if claim.holds else f" (target ≤ {claim.target:g} missed)")
            rows.append([machine, *what, milliseconds, added, ratio, fused])
    header = ["machine", "network", "optimizer", "ms a step without ⊥Grad", "ms added", "with / without", "fused class"]
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    return markdown_table(header, rows) + _sources(results, MACHINES, TRAINING_STEP) if rows else ""


def step_costs(results: Path) -> str:
    """Steps of the optimizer alone, with ⊥Grad over without, beside other implementations in the same run."""
    whats = "step", "step in a CUDA graph"
    return _pivot(results, MACHINES, *whats) + _sources(results, MACHINES, *whats)


def fused_costs(results: Path) -> str:
    """Steps of the fused classes over torch's fused optimizers, beside `attach` in the same run, on the GPU."""
    by_machine = _by_machine(results, MACHINES, "fused step")
    header = ["", "torch, µs", "`attach`", "fused class", "target"]
    rows = [
        [
            _row_name(claim),
            f"{claim.others[TORCH_MICROSECONDS]:,.0f}",
            f"{claim.others['attach']:.2f}",
            f"**{claim.value:.2f}**" + ("" if claim.holds else " (target missed)"),
            f"≤ {claim.target:g}",
        ]
        for claims in by_machine.values()
        for claim in claims
    ]
    return markdown_table(header, rows) + _sources(results, MACHINES, "fused step") if rows else ""


def memory_costs(results: Path) -> str:
    """Memory and host synchronizations of a projection, and its exactness."""
    return _pivot(results, MACHINES, "extra memory", "host synchronizations a step", "|cos(g⊥, w)|", "|‖ĝ‖/‖g‖ − 1|")


def metrics_costs(results: Path) -> str:
    """Time of metrics and of temperature scaling; `calibration_costs` has all rows."""
    return _pivot(results, CALIBRATION, "metrics", "metrics of tokens", "metrics of maps", "fitting a temperature")


def seeds_costs(results: Path) -> str:
    """Steps of twenty seeds of grokking over those of one."""
    return _pivot(results, GROKKING, SEEDS_COST) + _sources(results, GROKKING, SEEDS_COST)


def training_speeds(results: Path) -> str:
    """Images a second of the training engine beside a plain loop, and ⊥Grad's epoch over SGD's."""
    path = results / "training-h200.json"
    epochs = {
        (claim.key.model, claim.key.precision, claim.key.method): claim
        for claim in claims_about(path, EPOCH)
        if not claim.key.concurrent
    }
    rows = []
    for claim in claims_about(path, OVERHEAD):
        key = claim.key
        sgd, ours = (epochs[key.model, key.precision, method] for method in ("baseline", "orthograd"))
        seconds = sgd.others.get("plain loop"), sgd.value, ours.value
        shown = (f"{EPOCH_IMAGES / each:,.0f}" if each else "" for each in seconds)
        rows.append([f"{NETWORKS[key.model]}, {key.precision}", *shown, f"{claim.value:.3f}"])
    header = ["images a second", "plain loop, SGD", "concurrent runs, SGD", "concurrent runs, ⊥Grad"]
    return markdown_table([*header, "⊥Grad's epoch / SGD's"], rows)


Machines = Mapping[str, tuple[str, ...]]


def _by_machine(results: Path, machines: Machines, *whats: str) -> dict[str, list[Claim]]:
    claims = {
        machine: [claim for path in _existing(results, names) for claim in claims_about(path, *whats)]
        for machine, names in machines.items()
    }
    return {machine: of_it for machine, of_it in claims.items() if of_it}


def _existing(results: Path, names: Iterable[str]) -> list[Path]:
    return [results / name for name in names if (results / name).exists()]


def _pivot(results: Path, machines: Machines, *whats: str) -> str:
    """A row for each claim and a column for each machine: our value, then those of others in the same run."""
    by_machine = _by_machine(results, machines, *whats)
    rows: dict[str, dict[str, Claim]] = {}
    for machine, claims in by_machine.items():
        for claim in sorted(claims, key=lambda claim: whats.index(claim.key.what)):
            rows.setdefault(_row_name(claim), {})[machine] = claim
    cells = [
        [name, *(_values(of_it[machine]) if machine in of_it else "" for machine in by_machine), _targets(of_it)]
        for name, of_it in rows.items()
    ]
    return markdown_table(["", *by_machine, "target"], cells)


def _values(claim: Claim) -> str:
    ours = f"**{claim.value:.3g}**" + ("" if claim.holds else " (target missed)")
    return ", ".join((ours, *(f"{value:.3g} ({peer})" for peer, value in claim.others.items())))


def _targets(by_machine: Mapping[str, Claim]) -> str:
    """The target of a row, with the machines if it differs between them."""
    targets = {machine: claim.target for machine, claim in by_machine.items() if claim.target is not None}
    if len(set(targets.values())) > 1:
        return ", ".join(f"≤ {target:g} ({machine})" for machine, target in targets.items())
    return next((f"≤ {target:g}" for target in targets.values()), "")


def _row_name(claim: Claim) -> str:
    key = claim.key
    if key.what.startswith(("step", "fused step")):
        graph = ", in a CUDA graph" if "graph" in key.what + key.setting else ""
        return f"{key.model}, {OPTIMIZERS.get(key.optimizer, key.optimizer)}{graph}"
    return str(key)


def _sources(results: Path, machines: Machines, *whats: str) -> str:
    """The records that have such claims, with their machine, version of torch and commit."""
    lines = []
    for names in machines.values():
        for path in _existing(results, names):
            if any(True for _ in claims_about(path, *whats)):
                facts = json.loads(path.read_text(encoding="utf-8"))["environment"]
                about = f"{facts['device']}, {facts['threads']} threads, torch {facts['torch']}{_made_by(facts)}"
                lines.append(f"[{path.name}](results/{path.name}) ({about})")
    return f"\nRecords: {'; '.join(lines)}.\n"


def _made_by(facts: Mapping[str, str]) -> str:
    """The commit of a record, as far as it keeps one.

    >>> _made_by({"source": 40 * "a" + "+changes"}), _made_by({"source": "0.1.0"}), _made_by({})
    (', commit aaaaaaa+changes', ', orthograd 0.1.0', '')
    """
    commit, plus, changes = facts.get("source", "").partition("+")
    if not commit:
        return ""
    return f", orthograd {commit}" if "." in commit else f", commit {commit[:7]}{plus}{changes}"


def calibration_costs(results: Path) -> str:
    """Every measurement of calibration metrics and calibrators."""
    return _all_claims(results, CALIBRATION)


def _all_claims(results: Path, machines: Machines) -> str:
    """Every claim on every machine, beside its bound and its peers."""
    rows = []
    for where, names in machines.items():
        for claim in (claim for path in _existing(results, names) for claim in read_claims(path)):
            others = ", ".join(f"{value:.3g} ({peer})" for peer, value in claim.others.items())
            rows.append([str(claim.key), where, f"{claim.value:.3g}", bound(claim), others])
    return markdown_table(["what", "where", "here", "target", "others in the same run"], rows)


def bound(claim: Claim) -> str:
    """The bound of a claim, and whether it is missed."""
    return ("" if claim.target is None else f"≤ {claim.target:g}") + ("" if claim.holds else ", **missed**")


def update_cosines(results: Path) -> str:
    """Cosines of update and weight."""
    claims = list(claims_about(results / "bench-cpu.json", UPDATE_COSINE))
    values = ((claim.key.optimizer, (*claim.others.values(), claim.value)) for claim in claims)
    rows = [[optimizer, *(f"{value:.2g}" for value in each)] for optimizer, each in values]
    return markdown_table(["base", *claims[0].others, claims[0].key.method], rows)


def recorder_costs(results: Path) -> str:
    """Share of training time that a recorder takes."""
    path = results / "recorder-cost.json"
    facts = json.loads(path.read_text(encoding="utf-8"))["environment"]
    rows = [
        [
            f"{claim.key.model}, {claim.key.setting}",
            f"{100 * claim.value:.2g}%{'' if claim.holds else ', **missed**'}",
        ]
        for claim in read_claims(path)
    ]
    header = [f"{facts['device']}, {facts['threads']} threads", "of the time of training; target: 1%"]
    return markdown_table(header, rows)


def distributed_steps(results: Path) -> str:
    """Time that ⊥Grad adds to a step of FSDP2, measured and predicted."""
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
    header = ["processes", "step without, ms", "step with / without", "optimizer's step with / without"]
    header += ["added to it, ms", "predicted: memory + host + 2 all-reduces, ms", "predicted / measured"]
    return markdown_table(header, rows) + f"\nThe prediction is off by {100 * max(errors):.0f}% at most.\n"


def ray_costs(results: Path) -> str:
    """Overhead of Ray on one machine, and the resulting load for a thousand runs on 64 GPUs."""
    (driver,) = (claim.value for claim in claims_about(results / "ray-overhead.json", "driver"))
    load = 64 * 4 * driver / 1000 / (20 * 60)
    return _all_claims(results, {"2 CPU cores": ("ray-overhead.json",)}) + (
        f"\nSo $d$ = {driver:.1f} ms of processor time, and the limit is {1000 / driver:.0f} runs a second. For runs "
        f"of $t_4$ = 20 minutes, four on each GPU: 4 rounds, 80 minutes, 0.2 runs a second, {100 * load:.1f}% of one "
        "core.\n"
    )
