"""Print each claim beside its bound, keep all with --record FILE, and exit with 1 if one is not kept."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from orthograd.benchmark.claim import Claim
from orthograd.benchmark.suite import environment


def check(claims: Iterable[Claim]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, help="a JSON file for the claims and what they were measured on")
    options, found = parser.parse_args(), []
    for claim in claims:
        found.append(claim)
        others = "".join(f"   {name}: {value:.3g}" for name, value in claim.others.items())
        bound = "" if claim.reach is None else f" (≤ {claim.reach})"
        print(f"{'ok  ' if claim.holds else 'FAIL'} {claim.what}: {claim.value:.3g}{bound}{others}", flush=True)
    if options.record:
        record = {"environment": environment(torch.device("cpu")), "claims": [claim.as_row() for claim in found]}
        options.record.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    sys.exit(not all(claim.holds for claim in found))
