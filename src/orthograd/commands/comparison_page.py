"""The page of a comparison, with what the records alone do not say: names for people, and the command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ..report.comparison import ArmPair
from ..report.page import FailedRun, page
from ..training import ARMS, Config
from ..training.config import recipe


def comparison_page(pair: ArmPair, failed: Sequence[FailedRun] = ()) -> str:
    """The page as HTML: the same whether `orthograd compare` or `orthograd report` makes it."""
    return page(pair, names=names_of(pair), command=command_of(pair), failed=failed)


def names_of(pair: ArmPair) -> tuple[str, str]:
    """What people call the two arms."""
    baseline, candidate = (ARMS[arm].title if arm in ARMS else arm for arm in pair.arms)
    return baseline, candidate


def command_of(pair: ArmPair) -> str:
    """The command line that makes these runs, with the settings that are not those of the data set's recipe."""
    config = Config.from_dict(dict(pair.baseline[0]["config"]) | {"arm": "baseline", "seed": 0})
    usual = recipe(config.dataset).as_dict() | {"dataset": "digits"}
    if config.device == "cuda":
        usual["precision"] = "tf32"
    seeds = {"seeds": len(pair.seeds), "first_seed": pair.seeds[0]}
    options = seeds | {"baseline": pair.arms[0], "candidate": pair.arms[1]} | config.as_dict()
    known = {"first_seed": 0, "baseline": "baseline", "candidate": "orthograd"} | usual
    words = ["orthograd", "compare"]
    for name, value in options.items():
        if name == "shifts" and value == "cifar10c":
            words.append("--corruptions")
        elif value != known.get(name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
