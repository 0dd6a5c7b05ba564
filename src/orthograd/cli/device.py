"""Where to compute."""

from __future__ import annotations

import torch
import typer


def device_named(name: str) -> torch.device:
    """The device of the option --device."""
    known = {"auto": "cuda" if torch.cuda.is_available() else "cpu", "cpu": "cpu", "cuda": "cuda"}
    if name not in known or (name == "cuda" and not torch.cuda.is_available()):
        raise typer.BadParameter(f"expected cpu, auto, or cuda where there is a GPU, got {name}")
    return torch.device(known[name])
