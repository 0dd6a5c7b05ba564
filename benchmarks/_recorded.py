"""Print each claim beside its bound, keep all with --record FILE, and exit with 1 if one is not kept."""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from orthograd.lab.bench.claim import Claim
from orthograd.lab.bench.suite import environment


def recording_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--record", type=Path, help="a JSON file for the claims and what they were measured on")
    return parser


def check(claims: Iterable[Claim]) -> None:
    conclude(claims, torch.device("cpu"), recording_parser().parse_args().record)


def conclude(claims: Iterable[Claim], device: torch.device, record: Path | None) -> None:
    found = []
    for claim in claims:
        found.append(claim)
        others = "".join(f"   {name}: {value:.3g}" for name, value in claim.others.items())
        bound = "" if claim.reach is None else f" (≤ {claim.reach})"
        print(f"{'ok  ' if claim.holds else 'FAIL'} {claim.what}: {claim.value:.3g}{bound}{others}", flush=True)
    if record:
        kept = {"environment": environment(device), "claims": [claim.as_row() for claim in found]}
        record.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(not all(claim.holds for claim in found))
