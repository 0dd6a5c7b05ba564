"""Write the tables of the documents: from the records in docs/results, and what metrics mean from the package."""

import json

from _markdown import ROOT, table
from _method_tables import diagnosed, expected, hidden_units, large_steps, lengths, recorder_costs, spared, when
from _performance_tables import bounds, floors, judging, kernels, overheads, packs, products, repeated, speeds, whole

from orthograd.calibration import CONVENTIONS
from orthograd.lab.comparison.page.tables import typeset
from orthograd.lab.comparison.pair import ArmPair
from orthograd.lab.jobs.bundles import read_bundle
from orthograd.paper.evidence import title_of
from orthograd.paper.verdicts.claims import sections
from orthograd.paper.verdicts.numbers import differences_of

RECORDS = {"NVIDIA H200": "bench-h200.json", "2 CPU cores": "bench-cpu.json"}
CALIBRATION = {"2 x86 cores": "calibration-x86.json", "2 ARM cores": "calibration-cpu.json"}
SHOWN = ("top1_accuracy", "loss", "ece", "ece_by_chance", "ece_by_chance_limit", "smooth_ece", "brier", "aurc")
COSINE = "|cos(Δ, w)|, "
END = "<!-- end -->\n"


def claims(name: str) -> list[dict]:
    return json.loads((ROOT / "docs/results" / name).read_text())["claims"]


def claim_rows(records: dict[str, str]) -> list[list[str]]:
    """Every claim on every machine, beside its bound and its peers."""
    rows = []
    for where, name in records.items():
        for claim in claims(name):
            if claim["what"].startswith(COSINE):
                continue
            bound = "" if claim["reach"] is None else f"≤ {claim['reach']:g}"
            bound += "" if claim["holds"] else ", **not reached**"
            others = ", ".join(f"{value:.3g} ({peer})" for peer, value in claim["others"].items())
            rows.append([claim["what"].replace("|", "\\|"), where, f"{claim['value']:.3g}", bound, others])
    return rows


def costs() -> str:
    return table(["what", "where", "⊥Grad here", "to reach", "others in the same run"], claim_rows(RECORDS))


def calibration_costs() -> str:
    return table(["what", "where", "here", "to reach", "others in the same run"], claim_rows(CALIBRATION))


def cosines() -> str:
    """How radial updates are."""
    found = [claim for claim in claims("bench-cpu.json") if claim["what"].startswith(COSINE)]
    rows = []
    for claim in found:
        base = claim["what"].removeprefix(COSINE).removesuffix(', project="update"')
        rows.append([base, *(f"{value:.2g}" for value in (*claim["others"].values(), claim["value"]))])
    return table(["base", *found[0]["others"], 'project="update"'], rows)


def conventions() -> str:
    """What each metric means."""
    rows = []
    for name, convention in CONVENTIONS.items():
        definition = convention.definition.format(bins=10, k=5).replace("|", "\\|")
        rows.append([f"`{name}`", definition, convention.unit, convention.better or ""])
    return table(["metric", "what it is", "unit", "better"], rows)


def digits() -> str:
    """The example, from the record that `orthograd evaluate` wrote."""
    found = json.loads((ROOT / "docs/results/digits/evaluation.json").read_text())["files"]
    rows = []
    for file in found:
        name = file["path"].removesuffix("-test.npz")
        name += "" if file["temperature"] is None else f", T = {file['temperature']['value']:.2f}"
        rows.append([name, *(f"{file['metrics'][metric]:.{CONVENTIONS[metric].digits}f}" for metric in SHOWN)])
    return table(["network", *(f"`{name}`" for name in SHOWN)], rows)


def comparisons() -> str:
    """What `orthograd compare` found, with the small network and with the same one with batch norm."""
    rows = []
    for name, title in (("cnn", "plain CNN"), ("cnn_batchnorm", "CNN with batch norm")):
        found = json.loads((ROOT / f"docs/results/compare/digits-{name}.json").read_text())["tables"]
        for images in ("clean", "shifted"):
            for metric in ("top1_accuracy", "loss", "ece"):
                row = found[images][metric]
                digits = CONVENTIONS[metric].digits
                means = [f"{row[arm]['mean']:.{digits}f}" for arm in ("baseline", "candidate")]
                low, high = row["interval"]
                difference = f"{low:+.{digits}f} to {high:+.{digits}f}"
                rows.append(
                    [title, images, f"`{metric}`", *means, difference, f"{row['corrected_p']:.2g}", row["verdict"]]
                )
    header = ["network", "test images", "metric", "SGD", "⊥Grad", "SGD − ⊥Grad, 95 %", "p, Holm", "⊥Grad is"]
    return table(header, rows)


def distributed_steps() -> str:
    """What ⊥Grad adds to a step of FSDP2, measured and predicted."""
    found = {claim["what"]: claim for claim in claims("distributed-step.json")}
    rows = []
    for ranks in (1, 2, 4):
        where = f"{ranks} processes, ResNet-18"
        step, guess = found[f"FSDP2 step, {where}"], found.get(f"predicted over measured, {where}")
        parts = list(guess["others"].values()) if guess else []
        others = [step["others"][name] for name in ("ms without", "optimizer's step alone", "ms added")]
        rows.append(
            [
                str(ranks),
                f"{others[0]:.0f}",
                f"{step['value']:.2f}",
                f"{others[1]:.2f}",
                f"{others[2]:.1f}",
                f"{' + '.join(f'{part:.1f}' for part in parts)} = {sum(parts):.1f}" if parts else "–",
                f"{guess['value']:.2f}" if guess else "–",
            ]
        )
    header = ["processes", "step without, ms", "step with / without", "optimizer's step with / without"]
    predicted = "predicted: memory + host + 2 all-reduces, ms"
    shown = table([*header, "added to it, ms", predicted, "predicted / measured"], rows)
    off = [abs(claim["value"] - 1) for what, claim in found.items() if what.startswith("predicted over measured")]
    return shown + (f"\nThe prediction is off by {100 * max(off):.0f} % at most.\n" if off else "")


def ray_costs() -> str:
    """What Ray costs on one machine, and what follows for a thousand runs on 64 GPUs."""
    rows = claim_rows({"2 CPU cores": "ray-overhead.json"})
    driver = next(claim["value"] for claim in claims("ray-overhead.json") if claim["what"].startswith("driver, "))
    load = 64 * 4 * driver / 1000 / (20 * 60)
    return table(["what", "where", "here", "to reach", "others in the same run"], rows) + (
        f"\nSo $d$ = {driver:.1f} ms of processor time, and the limit is {1000 / driver:.0f} runs a second. For runs "
        f"of $t_4$ = 20 minutes, four on each GPU: 4 rounds, 80 minutes, 0.2 runs a second, {100 * load:.1f} % of one "
        "core.\n"
    )


def reproduction() -> str:
    """Table 1 of the paper beside ours, as far as there are runs."""
    folder = ROOT / "docs/results/reproduction"
    records = [record for arm in ("baseline", "orthograd") for record in read_bundle(folder / f"resnet18-{arm}.json")]
    pair = ArmPair.of(records, baseline="baseline", candidate="orthograd")
    printed, rows = sections()["table1_resnet18"].rows, []
    ours = differences_of(pair, [row.quantity for row in printed])
    for theirs in printed:
        row, digits = ours[theirs.quantity], theirs.baseline.digits
        means = [f"{arm.mean:.{digits}f} ± {arm.sd:.{digits}f}" for arm in (row.baseline, row.candidate)]
        effects = [typeset(f"{theirs.d.value:+.2f}") if theirs.d else "–", typeset(f"{row.cohens_d.value:+.2f}")]
        p = typeset(f"{row.corrected_p:.2g}")
        rows.append(
            [
                title_of(theirs.quantity).replace("|", "\\|"),
                str(theirs.baseline),
                str(theirs.candidate),
                *means,
                *effects,
                p,
            ]
        )
    ours_header = f"ours, {len(pair.seeds)} seeds: SGD"
    return table(
        ["ResNet-18, clean", "paper: SGD", "⊥Grad", ours_header, "⊥Grad", "paper: d", "ours: d", "ours: p, Holm"], rows
    )


DOCUMENTS = {
    "README.md": [reproduction, comparisons, costs],
    "docs/method.md": [expected, when, lengths, large_steps, hidden_units, spared, cosines, diagnosed, recorder_costs],
    "docs/performance.md": [whole, repeated, floors, speeds, packs, bounds, overheads, products, kernels, judging],
    "docs/calibration.md": [conventions, digits, calibration_costs],
    "docs/scale.md": [distributed_steps, ray_costs],
}


def with_tables(text: str, makers: list) -> str:
    for maker in makers:
        begin = f"<!-- {maker.__name__}: written by benchmarks/tables.py -->\n"
        head, rest = text.split(begin)
        text = head + begin + maker() + END + rest.split(END, 1)[1]
    return text


if __name__ == "__main__":
    for name, makers in DOCUMENTS.items():
        document = ROOT / name
        document.write_text(with_tables(document.read_text(), makers))
