"""README.md and the page on whether to use ⊥Grad: short, and every block of code is run or checked."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest
import torch
from typer.main import get_command

import orthograd
from orthograd import calibration
from orthograd.cli.main import app
from tests.prose import WORD, sentences

try:
    import tomllib
except ImportError:  # Python 3.10
    tomllib = pytest.importorskip("tomli")

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/should-i-use-it.md")
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.S | re.M)
PYTHON = [block for language, block in BLOCKS if language == "python"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
TAGLINE = "⊥Grad for any PyTorch optimizer, and the tools to measure whether your classifier's confidence got better"


def test_the_readme_has_at_most_160_lines():
    assert len(README.splitlines()) <= 160


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_long(page):
    counts = [len(WORD.findall(sentence)) for sentence in sentences((ROOT / page).read_text())]
    assert len(counts) > 20
    assert max(counts) <= 35


def test_the_package_says_what_it_is_in_the_same_words_everywhere():
    assert f"**{TAGLINE}.**" in README
    assert PROJECT["description"] == TAGLINE
    assert PROJECT["readme"]["text"].strip().startswith(TAGLINE)
    assert orthograd.__doc__ == app.info.help == f"{TAGLINE}."


def test_the_long_description_has_no_link_that_needs_a_checkout():
    links = re.findall(r"\]\(([^)]*)\)", PROJECT["readme"]["text"])
    assert links
    assert all(link.startswith("https://arxiv.org/abs/") for link in links)


def printed(block: str) -> str:
    """What a block prints, on one thread."""
    threads, output = torch.get_num_threads(), io.StringIO()
    torch.set_num_threads(1)
    try:
        with contextlib.redirect_stdout(output):
            exec(block, {})
    finally:
        torch.set_num_threads(threads)
    return output.getvalue().strip()


def numbers(line: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+\.\d+", line)]


def test_the_quickstart_prints_what_it_says():
    """Digits may differ a little on another processor: half a point of accuracy, and 0.02 otherwise."""
    attach = "orthograd.attach(optimizer)"
    assert PYTHON[0].count(attach) == 1
    said = re.findall(r"`(accuracy [^`]*)`", README)
    for line, block in zip(said, (PYTHON[0], PYTHON[0].replace(attach, "")), strict=True):
        actual = printed(block)
        assert re.sub(r"\d", "0", actual) == re.sub(r"\d", "0", line)
        assert numbers(actual)[0] == pytest.approx(numbers(line)[0], abs=0.5)
        assert numbers(actual)[1:] == pytest.approx(numbers(line)[1:], abs=0.02)


def test_the_other_python_blocks_run(capsys):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    names = {"torch": torch, "orthograd": orthograd, "calibration": calibration, "model": model}
    names |= {"images": torch.randn(50, 4), "labels": torch.randint(3, (50,)), "logits": torch.randn(50, 3)}
    names |= {"held_out_logits": torch.randn(50, 3), "held_out_labels": torch.randint(3, (50,))}
    names["optimizer"] = torch.optim.SGD(model.parameters(), lr=0.1)
    for block in PYTHON[1:]:
        exec(block, names)
    assert names["OrthoAdamW"].__name__ == "OrthoAdamW"
    assert "50 samples" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES)
def test_shell_blocks_have_commands_and_options_that_there_are(page):
    targets = re.findall(r"^(\w[\w-]*):", (ROOT / "Makefile").read_text(), re.M)
    commands, count = get_command(app).commands, 0
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.S | re.M):
        for line in block.splitlines() if not language else ():
            program, command, *rest = shlex.split(re.split(r"\s{3,}", line)[0])
            if program == "make":
                assert command in targets
            else:
                assert program == "orthograd"
                known = {option for parameter in commands[command].params for option in parameter.opts}
                assert {word for word in rest if word.startswith("--")} <= known
            count += 1
    assert count
    assert {language for language, _ in BLOCKS} <= {"", "python", "bibtex"}


def test_every_extra_is_in_the_table_of_the_readme():
    assert set(re.findall(r"'\.\[(\w+)\]'", README)) == set(PROJECT["optional-dependencies"])


def test_counts_of_metrics_and_calibrators_are_right():
    public = [getattr(calibration, name) for name in calibration.__all__]
    calibrators = [each for each in public if hasattr(each, "fit") and each is not calibration.Calibrator]
    assert "23 metrics, ten calibrators" in README
    assert (len(calibration.CONVENTIONS), len(calibrators)) == (23, 10), calibrators
