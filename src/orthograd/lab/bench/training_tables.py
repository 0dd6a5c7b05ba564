"""Tables of notes/performance.md on how fast networks train, from records of an H200.

Each function takes the folder of records and returns a table in Markdown.
"""

from __future__ import annotations

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
    Claim,
    claims_about,
    read_claims,
)
from .document import bound

TITLES = {"baseline": "SGD", "orthograd": "⊥Grad"}


def speeds(results: Path) -> str:
    """Images a second: the plain loop, one run, the fastest number of concurrent runs; and the target."""
    epochs = list(claims_about(_training(results), EPOCH))
    alone = {_network(claim): claim.value for claim in epochs if claim.key.concurrent == 1}
    rows = []
    for claim in (each for each in epochs if not each.key.concurrent):
        key, one = claim.key, alone[_network(claim)] if claim.key.method == "baseline" else None
        values = claim.others.get("plain loop"), one, claim.value, claim.target
        shown = [f"{EPOCH_IMAGES / value:,.0f}" if value else "" for value in values]
        rows.append([key.model, key.precision, TITLES[key.method], *shown, "" if claim.holds else "no"])
    return markdown_table(
        ["network", "precision", "", "plain loop", "one run", "concurrent runs", "target", "reached"], rows
    )


def concurrent_runs(results: Path) -> str:
    """Images a second over the number of runs at once."""
    seconds: dict[str, dict[int, float]] = {}
    for claim in claims_about(_training(results), EPOCH):
        if claim.key.concurrent:
            seconds.setdefault(_network(claim), {})[claim.key.concurrent] = claim.value
    sizes = list(dict.fromkeys(size for by_size in seconds.values() for size in by_size))
    rows = [
        [network, *(f"{EPOCH_IMAGES / by_size[size]:,.0f}" if size in by_size else "" for size in sizes)]
        for network, by_size in seconds.items()
    ]
    return markdown_table(["SGD", *(f"{size} at once" for size in sizes)], rows)


def bounds(results: Path) -> str:
    """Images a second of concurrent runs, and of their convolutions alone, by our kernels and by cuDNN."""
    epochs = (each for each in claims_about(_training(results), EPOCH) if not each.key.concurrent)
    sgd = {_network(claim): claim.value for claim in epochs if claim.key.method == "baseline"}
    rows = []
    for claim in claims_about(_training(results), CONVOLUTIONS):
        network = _network(claim)
        seconds = sgd[network], claim.value, claim.others["cuDNN"]
        shown = (f"{EPOCH_IMAGES / each:,.0f}" for each in seconds)
        rows.append([network, *shown, f"{claim.value / sgd[network]:.0%}"])
    columns = ["images a second", "its convolutions alone", "cuDNN's alone", "share of its convolutions"]
    return markdown_table(["SGD, concurrent runs", *columns], rows)


def overheads(results: Path) -> str:
    """⊥Grad's epoch over SGD's, with norm statistics computed during the backward pass or by the step."""
    records = results.glob("backward-statistics-*.json")
    measured_early = {_network(claim): claim for path in records for claim in claims_about(path, OVERHEAD)}
    rows = []
    for claim in claims_about(_training(results), OVERHEAD):
        again = measured_early[_network(claim)]
        shown = _with_ends(claim), _with_ends(again), f"{again.others['by the step']:.3f}"
        rows.append([_network(claim), *shown, f"≤ {claim.target:g}{_verdict(claim, again)}"])
    ways = "during backward", "during backward, another run", "in the step, that run"
    return markdown_table([f"{OVERHEAD}, concurrent runs", *ways, "target"], rows)


def _verdict(*claims: Claim) -> str:
    """The median decides; where one of the ends is past the bound, it is not settled."""
    if not all(claim.holds for claim in claims):
        return ", **missed**"
    is_settled = all(claim.ends and claim.target and claim.ends[1] <= claim.target for claim in claims)
    return "" if is_settled else ", **not settled**"


def _with_ends(claim: Claim) -> str:
    return f"{claim.value:.3f} ({' to '.join(f'{end:.3f}' for end in claim.ends or ())})"


def products(results: Path) -> str:
    """Our convolutions over cuDNN's, network by network and layer by layer, and all of a step."""
    rows: dict[tuple[str, str], list[str]] = {}
    parts = ["forward", "input gradient", "weight gradient"]
    for claim in read_claims(results / "convolution-products-h200.json"):
        network, layer = _network(claim), claim.key.setting
        if claim.key.part:
            row = rows.setdefault((network, layer), [network, layer, "", "", ""])
            row[2 + parts.index(claim.key.part)] = f"{claim.value:.2f} ({claim.others['ours, µs']:.0f} µs)"
        else:
            rows[network, layer] = [network, "**all of these**", f"**{claim.value:.2f}**", "", ""]
    return markdown_table(["time over cuDNN's", "", *parts], rows.values())


def kernels(results: Path) -> str:
    """Time of a step by the purpose of its kernels."""
    spent: dict[str, dict[str, float]] = {}
    for claim in claims_about(_training(results), KERNELS):
        spent.setdefault(_network(claim), {})[claim.key.part] = claim.value
    parts = list(dict.fromkeys(part for times in spent.values() for part in times))
    rows = [[part, *(f"{times.get(part, 0):,.0f}" for times in spent.values())] for part in parts]
    rows.append(["sum", *(f"{sum(times.values()):,.0f}" for times in spent.values())])
    return markdown_table(["µs a step, one run alone", *spent], rows)


def evaluation(results: Path) -> str:
    """Seconds to make CIFAR-10-C, and to evaluate one network on it."""
    claims = [
        *claims_about(results / "evaluation-h200.json", CORRUPTION, EVALUATION),
        *claims_about(results / "corruption-cpu.json", CORRUPTION),
    ]
    rows = []
    for claim in claims:
        what = ", ".join(part for part in (claim.key.what, claim.key.model, claim.key.precision) if part)
        rows.append([what, claim.key.device, f"{claim.value:.1f}", bound(claim)])
    return markdown_table([claims[0].key.setting, "device", "s", "target"], rows)


def _training(results: Path) -> Path:
    return results / "training-h200.json"


def _network(claim: Claim) -> str:
    return f"{claim.key.model}, {claim.key.precision}"
