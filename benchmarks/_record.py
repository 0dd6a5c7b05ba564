"""Print each claim with its target, write all with --record FILE, and exit with 1 if a target is missed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from orthograd.lab.bench.claim import Claim, environment, write_record


def parser(description: str | None = None) -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--record", type=Path, help="JSON file for the claims and their environment")
    return made


def conclude(claims: Iterable[Claim], device: torch.device, record: Path | None) -> None:
    measured = []
    for claim in claims:
        measured.append(claim)
        others = "".join(f"   {name}: {value:.3g}" for name, value in claim.others.items())
        bound = "" if claim.target is None else f" (≤ {claim.target})"
        print(f"{'ok  ' if claim.holds else 'FAIL'} {claim.key}: {claim.value:.3g}{bound}{others}", flush=True)
    if record:
        write_record(record, measured, environment(device))
    sys.exit(not all(claim.holds for claim in measured))
