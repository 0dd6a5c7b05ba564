"""The tables of docs/performance.md, from the records of the benchmark and of the runs."""

import dataclasses
import json
import re
from itertools import chain
from statistics import fmean

import torch
from _markdown import ROOT, table
from scipy.stats import ttest_rel
from torch.utils.flop_counter import FlopCounterMode

from orthograd.lab.jobs.bundles import read_bundles
from orthograd.lab.networks import resnet18
from orthograd.paper.cost import EPOCH, IMAGES
from orthograd.paper.evidence import shares
from orthograd.paper.plan import PAIR, PAPER

BATCH, RUNS, IMAGES_A_RUN = 64, 40, 100 * IMAGES
BF16_RATE = 790e12  # assumed, not measured here: what large products of matrices are said to reach on an H200
ALONE = re.compile(r"convolutions alone in an epoch of (?P<what>.+), s a run")
OVERHEAD = "⊥Grad's epoch over SGD's, "
WATCHED = sorted((ROOT / "docs/results").glob("watch-*.json"))
STEP = re.compile(r"a step of (?P<model>\S+), (?P<precision>\S+), orthograd: (?P<kind>.+), µs")


def claims_of(name: str) -> list[dict]:
    return json.loads((ROOT / f"docs/results/{name}.json").read_text())["claims"]


def speeds() -> str:
    """Images a second: the plain loop, one run, the best pack; and what is to be reached."""
    rows = []
    for claim in claims_of("training-h200"):
        if match := EPOCH.fullmatch(claim["what"]):
            others = claim["others"]
            values = [others.get("plain loop"), others.get("1 at once"), claim["value"], claim["reach"]]
            shown = [f"{IMAGES / value:,.0f}" if value else "" for value in values]
            arm = {"baseline": "SGD", "orthograd": "⊥Grad"}[match["arm"]]
            rows.append([match["model"], match["precision"], arm, *shown, "" if claim["holds"] else "no"])
    return table(["network", "precision", "", "plain loop", "one run", "pack", "to reach", "reached"], rows)


def packs() -> str:
    """Images a second over the number of runs at once."""
    found = {}
    for claim in claims_of("training-h200"):
        sizes = {name: value for name, value in claim["others"].items() if name.endswith("at once")}
        if sizes and (match := EPOCH.fullmatch(claim["what"])):
            found[f"{match['model']}, {match['precision']}"] = sizes
    names = list(dict.fromkeys(chain.from_iterable(found.values())))
    rows = [
        [what, *(f"{IMAGES / sizes[name]:,.0f}" if name in sizes else "" for name in names)]
        for what, sizes in found.items()
    ]
    return table(["SGD", *names], rows)


def bounds() -> str:
    """Images a second of packs, and were there nothing but convolutions, as they are and as cuDNN has them."""
    claims = {claim["what"]: claim for claim in claims_of("training-h200")}
    rows = []
    for what, claim in claims.items():
        if match := ALONE.fullmatch(what):
            pack = claims[f"an epoch of {match['what']}, baseline, s a run"]["value"]
            seconds = pack, claim["value"], claim["others"]["cuDNN"]
            rows.append([match["what"], *(f"{IMAGES / each:,.0f}" for each in seconds), f"{seconds[1] / pack:.0%}"])
    columns = ["images a second", "of its convolutions alone", "of cuDNN's alone", "share of its convolutions"]
    return table(["SGD, in packs", *columns], rows)


def overheads() -> str:
    """What ⊥Grad adds to an epoch, gradients measured beside the backward pass: by two runs, one of them both ways."""
    compared = {claim["what"]: claim for path in WATCHED for claim in claims_of(path.stem)}
    rows = []
    for claim in claims_of("training-h200"):
        if claim["what"].startswith(OVERHEAD):
            again = compared[claim["what"]]
            found = _with_ends(claim), _with_ends(again), f"{again['others']['by the step']:.3f}"
            rows.append([claim["what"].removeprefix(OVERHEAD), *found, f"≤ {claim['reach']:g}{_verdict(claim, again)}"])
    ways = "beside the pass", "beside the pass, in another run", "by the step, in that run"
    return table([f"{OVERHEAD.removesuffix(', ')}, in packs", *ways, "to reach"], rows)


def _verdict(*claims: dict) -> str:
    """Medians count; but where one of the ends is past the bound, it may be luck."""
    if not all(claim["holds"] for claim in claims):
        return ", **not reached**"
    return "" if all(max(_ends(claim)) <= claim["reach"] for claim in claims) else ", **not settled**"


def _with_ends(claim: dict) -> str:
    return f"{claim['value']:.3f} ({' to '.join(f'{end:.3f}' for end in _ends(claim))})"


def _ends(claim: dict) -> list[float]:
    return [value for name, value in claim["others"].items() if " of " in name]


def products() -> str:
    """Our convolutions over cuDNN's, network by network and kind by kind, and all of a step."""
    rows: dict[str, list[str]] = {}
    kinds = ["forward", "back", "weights"]
    for claim in claims_of("convolution-products-h200"):
        network, product = claim["what"].removesuffix(": ours over cuDNN's").split(": ")
        what, _, kind = product.rpartition(", ")
        if kind in kinds:
            found = f"{claim['value']:.2f} ({claim['others']['ours, µs']:.0f} µs)"
            rows.setdefault(f"{network}: {what}", [network, what, "", "", ""])[2 + kinds.index(kind)] = found
        else:
            rows[claim["what"]] = [network, f"**{product}**", f"**{claim['value']:.2f}**", "", ""]
    return table(["time over cuDNN's", "", "forward", "slopes of images", "slopes of weights"], [*rows.values()])


def kernels() -> str:
    """Where the time of a step goes, by what kernels are for."""
    found: dict[str, dict[str, float]] = {}
    for claim in claims_of("training-h200"):
        if match := STEP.fullmatch(claim["what"]):
            found.setdefault(f"{match['model']}, {match['precision']}", {})[match["kind"]] = claim["value"]
    kinds = list(dict.fromkeys(chain.from_iterable(found.values())))
    rows = [[kind, *(f"{times.get(kind, 0):,.0f}" for times in found.values())] for kind in kinds]
    rows.append(["together", *(f"{sum(times.values()):,.0f}" for times in found.values())])
    return table(["µs a step, one run by itself", *found], rows)


def floors() -> str:
    """What table 1 takes at the least, were a GPU to do nothing but its products."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        resnet18((3, 32, 32), 10)(torch.empty(1, 3, 32, 32))
    forward = counter.get_total_flops()
    whole = 3 * forward * IMAGES_A_RUN * RUNS  # backward has two products for each of forward's
    rows = [
        ["forward pass of an image", f"{forward / 1e9:.2f} GFLOP"],
        [f"step of training, {BATCH} images", f"{3 * BATCH * forward / 1e9:.0f} GFLOP"],
        [f"{RUNS} runs of 100 epochs", f"{whole / 1e15:.0f} PFLOP"],
        [f"the same at {BF16_RATE / 1e12:.0f} TFLOP/s, the rate assumed for bf16", f"{whole / BF16_RATE:.0f} s"],
    ]
    return table(["ResNet-18 for 32 × 32", "adding and multiplying counted apart"], rows)


TABLE_1 = (
    ("tf32", "clean", "table1-tf32", 10),
    ("bf16", "clean", "more-seeds-bf16", 5),
    ("tf32", "clean and corrupted", "table1-tf32-corrupted", None),
    ("bf16", "clean and corrupted", "table1-bf16", None),
)
"""Runs of the paper's recipe that one command each has left, what they were judged on, and minutes for 40 of them."""


def whole() -> str:
    """What runs of table 1 took; side by side each has its share of the time."""
    rows = []
    for precision, images, folder, reach in TABLE_1:
        seconds = [sum(share.values()) for share in shares(list(read_bundles(ROOT / "docs/results" / folder).values()))]
        each = sum(seconds) / len(seconds)
        minutes = each * RUNS / 60
        told = "" if reach is None else f"≤ {reach}" + ("" if minutes <= reach else ", **not reached**")
        shown = str(len(seconds)), f"{sum(seconds) / 60:.1f}", f"{each:.1f}", f"{minutes:.1f}"
        rows.append([precision, images, *shown, told])
    columns = ["runs", "minutes", "seconds a run", f"minutes for {RUNS} at that pace", "to reach"]
    return table(["precision", "judged on", *columns], rows)


REPEATED = (
    ("tf32", "cuDNN's", ("reproduction",)),
    ("tf32", "our own", ("table1-tf32-corrupted",)),
    ("bf16", "cuDNN's", ("reproduction",)),
    ("bf16", "our own", ("table1-bf16",)),
    ("bf16", "our own", ("more-seeds-bf16",)),
    ("bf16", "our own", ("table1-bf16", "more-seeds-bf16")),
)
"""Sets of runs of table 1: their precision, whose convolutions they had, and where their records lie."""


def repeated() -> str:
    """What each set says of ⊥Grad: other kernels round otherwise, and other seeds are other runs altogether."""
    rows = []
    for precision, whose, folders in REPEATED:
        records = [record for each in folders for record in read_bundles(ROOT / "docs/results" / each).values()]
        found = [record for record in records if _is_of_table_1(record["config"], precision)]
        runs = {(record["config"]["arm"], record["config"]["seed"]): record["metrics"] for record in found}
        seeds = sorted(seed for arm, seed in runs if arm == PAIR[0])
        for images in ("clean", "corrupted"):
            if images == "clean" or all(len(metrics) > 1 for metrics in runs.values()):
                sgd, own = ([_ece(runs[arm, seed], images) for seed in seeds] for arm in PAIR)
                told = f"{precision}, {whose}", f"{seeds[0]} to {seeds[-1]}", images
                p = ttest_rel(sgd, own).pvalue
                rows.append([*told, f"{fmean(sgd):.4f}", f"{fmean(own):.4f}", f"{p:.2g}"])
    return table(["convolutions", "seeds", "images", "ECE, SGD", "ECE, ⊥Grad", "p, not corrected"], rows)


def _is_of_table_1(config: dict, precision: str) -> bool:
    base = dataclasses.replace(PAPER, precision=precision).as_dict()
    return config["arm"] in PAIR and config == {**base, **{name: config[name] for name in ("arm", "seed", "shifts")}}


def _ece(metrics: dict, images: str) -> float:
    return fmean(found["ece"] for name, found in metrics.items() if (name == "clean") == (images == "clean"))


def judging() -> str:
    """How long judging one network on CIFAR-10-C takes, and making the images."""
    claims = [*claims_of("judging-h200"), *claims_of("corruption-cpu")]
    rows = [
        [
            claim["what"].removesuffix(", s"),
            f"{claim['value']:.1f}",
            f"≤ {claim['reach']:g}" + ("" if claim["holds"] else ", **not reached**"),
        ]
        for claim in claims
        if claim["what"].startswith(("15 × 5", "ResNet-18 judges"))
    ]
    return table(["what", "s", "to reach"], rows)
