"""Write the tables of the documents: from the records in docs/results, and what metrics mean from the package."""

import json

from _markdown import ROOT, table
from _method_tables import diagnosed, expected, recorder_costs, when
from _performance_tables import floors, kernels, overheads, packs, speeds, whole

from orthograd.calibration import CONVENTIONS
from orthograd.paper.bundles import read_bundle
from orthograd.paper.claims import sections
from orthograd.paper.differences import differences_of
from orthograd.paper.quantities import title_of
from orthograd.report.comparison import ArmPair
from orthograd.report.page.tables import typeset

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


def reproduction() -> str:
    """Table 1 of the paper beside ours, as far as there are runs."""
    folder = ROOT / "docs/results/reproduction"
    records = [record for arm in ("baseline", "orthograd") for record in read_bundle(folder / f"resnet18-{arm}.json")]
    pair = ArmPair.of(records, baseline="baseline", candidate="orthograd")
    printed, rows = sections()["table1_resnet18"].rows, []
    ours = differences_of(pair, [row.quantity for row in printed])
    for theirs in printed:
        found, digits = ours[theirs.quantity], theirs.baseline.digits
        means = [
            f"{mean:.{digits}f} ± {deviation:.{digits}f}"
            for mean, deviation in zip(found.means, found.deviations, strict=True)
        ]
        effects = [typeset(f"{theirs.d.value:+.2f}") if theirs.d else "–", typeset(f"{found.d:+.2f}")]
        p = typeset(f"{found.corrected_p:.2g}")
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
    "docs/method.md": [expected, when, cosines, diagnosed, recorder_costs],
    "docs/performance.md": [whole, floors, speeds, packs, overheads, kernels],
    "docs/calibration.md": [conventions, digits, calibration_costs],
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
