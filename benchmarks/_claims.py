"""Run measurements, print each claim beside its bound, and exit with 1 if one is not kept."""

import argparse
import sys

import torch


def check(*on_any_device, on_cuda=()):
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads; the bounds are for 2")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    device = torch.device(options.device)
    claims = [claim for measure in on_any_device for claim in measure(device)]
    claims += [claim for measure in on_cuda if device.type == "cuda" for claim in measure()]
    for claim in claims:
        others = "".join(f"   {name}: {value:.3g}" for name, value in claim.others.items())
        print(f"{'ok  ' if claim.holds else 'FAIL'} {claim.what}: {claim.value:.3g} (≤ {claim.reach}){others}")
    sys.exit(not all(claim.holds for claim in claims))
