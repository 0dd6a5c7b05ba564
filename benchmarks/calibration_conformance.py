"""Conformance: hard cases of calibration metrics by several libraries, beside the values derived by hand.

Libraries that are not installed are reported as not run. For docs/conformance.md:

    pip install netcal relplot torchmetrics scikit-learn probmetrics torch-uncertainty
    python benchmarks/calibration_conformance.py --record docs/results/conformance.json
    python benchmarks/calibration_conformance.py --page docs/conformance.md  # its tables, from the record
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from _conformance_cases import CASES, REFUSED
from _conformance_libraries import BINS, LIBRARIES

from orthograd.statistics.table import markdown_table

RECORD = Path(__file__).parents[1] / "docs/results/conformance.json"
SIGNS = {"equal": "{}", "convention": "{} *(c)*", "differs": "**{}**", "not offered": "", "not run": ""}


def outcome(case, functions):
    """What a library gives for a case, and how that compares with the expected value."""
    compute = functions[case.from_logits].get(case.metric)
    if compute is None:
        return {"verdict": "not offered"}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = compute(case.scores.clone(), case.labels.clone())
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())
        return {"error": words[:160], "verdict": "equal" if case.expected == REFUSED else "differs"}
    return {"value": value if math.isfinite(value) else str(value), **compared(value, case)}


def compared(value, case):
    if is_close(value, case.expected, case.tolerance):
        return {"verdict": "equal"}
    for meaning, other in case.conventions.items():
        if is_close(value, other, case.tolerance):
            return {"verdict": "convention", "convention": meaning}
    return {"verdict": "differs"}


def is_close(value, expected, tolerance):
    if expected == REFUSED:
        return math.isnan(value)
    return value == expected or (math.isfinite(expected) and abs(value - expected) <= tolerance * max(1, abs(expected)))


def measured():
    """The record: every case by every library."""
    libraries, functions = {}, {}
    for name, library in LIBRARIES.items():
        libraries[name] = {"page": library.page, "convention": library.convention}
        try:
            functions[name] = library.functions()
            libraries[name]["version"] = version(library.package)
        except (ImportError, PackageNotFoundError, RuntimeError) as error:
            libraries[name]["not_run"] = " ".join(f"{type(error).__name__}: {error}".split())
    cases = [
        {
            "name": case.name,
            "metric": case.metric,
            "from": "logits" if case.from_logits else "probabilities",
            "expected": case.expected if case.expected != math.inf else "inf",
            "derivation": case.derivation,
            "tolerance": case.tolerance,
            "conventions": case.conventions,
            "results": {
                name: outcome(case, functions[name]) if name in functions else {"verdict": "not run"}
                for name in LIBRARIES
            },
        }
        for case in CASES
    ]
    return {"bins": BINS, "versions": {"torch": version("torch")}, "libraries": libraries, "cases": cases}


def conformance(record):
    """Cases by libraries. Bold: differs from the expected value. (c): the value of another convention."""
    ran = [name for name, library in record["libraries"].items() if "version" in library]
    rows = [
        [case["name"], f"`{case['metric']}`", shown(case["expected"]), *(cell(case["results"][name]) for name in ran)]
        for case in record["cases"]
    ]
    return markdown_table(["case", "metric", "expected", *ran], rows)


def conformance_derivations(record):
    """How each expected value is derived, and what other conventions give."""
    rows = [
        [
            f"{case['name']}, `{case['metric']}` from {case['from']}",
            f"{shown(case['expected'])}: {case['derivation']}",
            "; ".join(f"{shown(value)}: {meaning}" for meaning, value in case["conventions"].items()),
        ]
        for case in record["cases"]
    ]
    return markdown_table(["case", "expected", "other conventions (c)"], rows)


def conformance_libraries(record):
    """Versions, conventions, and how many cases have the expected value."""
    rows = []
    for name, library in record["libraries"].items():
        verdicts = [case["results"][name]["verdict"] for case in record["cases"]]
        counts = (str(verdicts.count(verdict)) for verdict in ("equal", "convention", "differs", "not offered"))
        title = f"[{name}]({library['page']}) {library.get('version', '')}".strip()
        rows.append([title, library["convention"], *(counts if "version" in library else ["not run", "", "", ""])])
    return markdown_table(["library", "conventions", "expected", "convention", "differs", "not offered"], rows)


def cell(result):
    text = "error" if "error" in result else shown(result.get("value", ""))
    return SIGNS[result["verdict"]].format(text)


def shown(value):
    return value if isinstance(value, str) else f"{value:.4g}"


def page(text, record):
    """The page with the tables of a record."""
    for maker in (conformance, conformance_derivations, conformance_libraries):
        begin, end = f"<!-- {maker.__name__}: written by benchmarks/calibration_conformance.py -->\n", "<!-- end -->\n"
        head, rest = text.split(begin)
        text = head + begin + maker(record) + end + rest.split(end, 1)[1]
    return text


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, help="JSON file for the results")
    parser.add_argument("--page", type=Path, help="page whose tables are written from docs/results/conformance.json")
    options = parser.parse_args()
    if options.page:
        kept = json.loads(RECORD.read_text(encoding="utf-8"))
        options.page.write_text(page(options.page.read_text(encoding="utf-8"), kept), encoding="utf-8")
    else:
        made = measured()
        if options.record:
            options.record.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(conformance(made))
        print(conformance_libraries(made))
