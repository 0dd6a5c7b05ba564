"""The pages of docs/howto: their Python runs and does what they say, their commands exist."""

from __future__ import annotations

import inspect
import re
import shlex
import socket
import warnings
from pathlib import Path

import pytest
import torch
import typer.main
from typer.testing import CliRunner

import orthograd
from orthograd.attachment import attachment_of
from orthograd.cli.main import app
from orthograd.options import CHOICES
from tests.conftest import TORCH, cosine
from tests.optim.test_by_name import from_config
from tests.test_scale_document import shell

HOWTO = Path(__file__).parent.parent / "docs" / "howto"
PAGES = sorted(path.stem for path in HOWTO.glob("*.md"))
NEEDED = {
    "lightning": ["lightning", "torchmetrics"],
    "huggingface": ["transformers", "accelerate"],
    "accelerate": ["accelerate"],
    "jax": ["jax", "optax"],
    "scikit-learn": ["sklearn", "matplotlib"],
    "dataframes": ["pandas"],
    "cifar10c": ["sklearn"],
    "evaluate-what-you-have": ["sklearn", "matplotlib", "scipy"],
}


def blocks(page, language):
    """The fenced blocks of a page in a language; "" for those in none."""
    text = (HOWTO / f"{page}.md").read_text(encoding="utf-8")
    return [block for name, block in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S) if name == language]


def run(page, *, without="\0"):
    """The names that the Python of a page leaves behind, less the blocks with a word in them."""
    for module in NEEDED.get(page, []):
        pytest.importorskip(module)
    names = {"__name__": "__main__"}
    for number, block in enumerate(blocks(page, "python")):
        if without not in block:
            exec(compile(block, f"{page}.md, block {number + 1}", "exec"), names)
    return names


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the frameworks advise more workers and devices
        yield


def counts(handle):
    """How many parameters of how many ⊥Grad acts on."""
    return tuple(int(number) for number in re.search(r"(\d+) of (\d+) parameters", repr(handle)).groups())


def test_every_page_has_code_or_commands():
    assert len(PAGES) >= 10
    for page in PAGES:
        assert blocks(page, "python") or blocks(page, ""), page


def test_the_page_on_lightning_runs():
    trainer = run("lightning")["trainer"]
    assert counts(attachment_of(trainer.optimizers[0])) == (4, 4)
    assert 0 <= trainer.callback_metrics["ece"] <= 1


@pytest.mark.slow
def test_the_page_on_the_hugging_face_trainer_runs():
    names = run("huggingface")
    for way in ("trainer", "by_class", "by_hand"):
        optimizer = names[way].optimizer.optimizer  # the Trainer keeps it in Accelerate's wrapper
        assert counts(attachment_of(optimizer)) == (4, 4), way
    assert [group["weight_decay"] for group in names["trainer"].optimizer.param_groups] == [0.01, 0.0]
    names["trainer"].train()  # again: attached already
    assert 0 <= names["evaluated"].evaluate()["eval_ece"] <= 1
    assert set(names["BatchMetrics"]().metrics) < set(names["evaluated"].compute_metrics.func.__kwdefaults__["metrics"])


def test_the_page_on_accelerate_runs():
    handle = run("accelerate")["handle"]
    assert counts(handle) == (4, 4)
    assert type(handle.optimizer) is torch.optim.SGD


def test_the_page_on_scikit_learn_runs(tmp_path):
    names = run("scikit-learn")
    before, after = (
        names["evaluate_probabilities"](names[name].predict_proba(names["test"]), names["truth"]).ece
        for name in ("plain", "calibrated")
    )
    assert after < before / 2
    assert (tmp_path / "reliability.png").exists()


def test_the_page_on_frames_runs(capsys):
    names = run("dataframes")
    assert capsys.readouterr().out.count("3 samples, 2 classes") == 2
    assert "label" in names["frame"]


@pytest.mark.slow
def test_the_page_on_jax_runs():
    names = run("jax")
    assert float(names["loss_of"](names["params"])) < 0.8  # from ln 3 = 1.1
    gradient = names["jax"].grad(names["loss_of"])(names["params"])
    for transform, name in ((names["weights_only"], "weight"), (names["orthogonalize"](), "bias")):
        updates, _ = transform.update(gradient, transform.init(names["params"]), names["params"])
        update, weight = (torch.tensor(tree[name].tolist()) for tree in (updates, names["params"]))
        assert cosine(update, weight) < 1e-6
    left_alone, _ = names["head_only"].update(gradient, names["head_only"].init(gradient), names["params"])
    assert all((left_alone[name] == gradient[name]).all() for name in gradient)


def test_the_page_on_cifar_10_c_runs():
    names = run("cifar10c")
    assert names["foggy"].shape == names["images"].shape
    assert len(names["corruption"].CORRUPTIONS) == 15


def test_the_page_on_mixed_precision_runs():
    names = run("mixed-precision", without="torch.compile")
    assert counts(attachment_of(names["optimizer"])) == (4, 4)
    assert all(parameter.isfinite().all() for parameter in names["model"].parameters())
    if torch.cuda.is_available():
        assert isinstance(names["graph"], torch.cuda.CUDAGraph)


@pytest.mark.slow
def test_the_page_on_mixed_precision_compiles():
    names = run("mixed-precision")
    before = [parameter.detach().clone() for parameter in names["model"].parameters()]
    names["compiled_step"]()
    for parameter, weight in zip(names["model"].parameters(), before, strict=True):
        assert cosine(parameter.grad, weight) < 1e-5


def test_the_page_on_trainers_prints_what_it_says(capsys):
    names = run("trainers")
    (printed,) = blocks("trainers", "text")
    assert capsys.readouterr().out.startswith(f"{printed}⊥Grad projects 4 of 4 parameters")
    for name in ("by_class", "by_path", "optimizer"):
        assert counts(attachment_of(names[name])) == (4, 4), name


def test_the_config_files_on_the_page_are_read():
    tomllib = pytest.importorskip("tomllib")
    for block in blocks("trainers", "toml"):
        config = tomllib.loads(block)
        if "prodigyopt" in block:
            pytest.importorskip("prodigyopt")
        optimizer, _ = from_config(torch.nn.Linear(3, 2).parameters(), **config, lr=0.01)
        assert attachment_of(optimizer) is not None


# Parameter groups


def test_the_page_on_parameter_groups_runs():
    names = run("parameter-groups")
    assert counts(names["skip_1d"]) == (2, 6)
    assert counts(names["head_only"]) == (2, 6)
    assert counts(names["by_group"]) == (1, 6)  # rows of the head's weight; its bias has none
    assert counts(attachment_of(names["decay_conv_only"])) == (6, 6)


def test_the_table_of_options_is_that_of_attach():
    text = (HOWTO / "parameter-groups.md").read_text(encoding="utf-8")
    rows = {name: cells for name, *cells in re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.*?) \| (.*?) \|$", text, re.M)}
    options = list(inspect.signature(orthograd.attach).parameters.values())[1:]
    assert list(rows) == [option.name for option in options]
    for option in options:
        assert option.kind is option.KEYWORD_ONLY
        assert rows[option.name][0].replace('"', "'") == repr(option.default)
        values = tuple(re.findall(r"\"(\w+)\"", rows[option.name][1]))
        assert values == CHOICES.get(option.name, ()), option.name


# Clipping


def gradients(model, inputs, labels, *, scale=5.0):
    model.zero_grad()
    (scale * torch.nn.functional.cross_entropy(model(inputs), labels)).backward()


def in_order(*steps, renormalize):
    """The gradients that come of clipping and projecting in an order, of the same weights and images."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    gradients(model, torch.randn(16, 8), torch.randint(3, (16,)))
    actions = {
        "norm": lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1),
        "value": lambda: torch.nn.utils.clip_grad_value_(model.parameters(), 0.01),
        "project": lambda: orthograd.orthogonalize_(model.parameters(), renormalize=renormalize),
    }
    for step in steps:
        actions[step]()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters()])


def test_the_page_on_clipping_prints_what_it_says(capsys):
    run("gradient-accumulation-and-clipping")
    (printed,) = blocks("gradient-accumulation-and-clipping", "text")
    assert capsys.readouterr().out == printed


def test_clipping_by_norm_and_projecting_may_change_places_when_norms_are_kept():
    one, other = (in_order(*order, renormalize=True) for order in (("norm", "project"), ("project", "norm")))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-7)
    assert float(one.norm()) == pytest.approx(0.1, rel=1e-4)


def test_clipping_first_gives_the_smaller_gradient_when_norms_are_not_kept():
    one, other = (in_order(*order, renormalize=False) for order in (("norm", "project"), ("project", "norm")))
    assert float(one.norm()) < float(other.norm()) <= 0.1 + 1e-6


@pytest.mark.parametrize("renormalize", [True, False])
def test_projecting_after_clipping_by_value_may_exceed_the_value(renormalize):
    assert float(in_order("value", "project", renormalize=renormalize).abs().max()) > 0.01


def test_attach_projects_the_clipped_gradient_in_the_step_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    orthograd.attach(optimizer)
    gradients(model, torch.randn(16, 8), torch.randint(3, (16,)))
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    assert max(cosine(parameter.grad, parameter) for parameter in model.parameters()) > 1e-3
    optimizer.step()
    found = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
    torch.testing.assert_close(found, in_order("norm", "project", renormalize=True), rtol=1e-4, atol=1e-7)


# Several processes


@pytest.mark.slow
@pytest.mark.skipif(TORCH < (2, 9), reason="FSDP2 over gloo reduces gradients wrongly in this torch")
@pytest.mark.parametrize("number", range(3))
def test_the_commands_of_the_page_on_distributed_training_run(number, tmp_path):
    (script,), (commands,) = blocks("distributed", "python"), blocks("distributed", "")
    # Threads of gloo that still hold a tensor when Python ends abort the process, now and then (pytorch issue 190489).
    leave = "import os\n\nsys.stdout.flush()\nos._exit(0)\n"
    (tmp_path / "train.py").write_text(script + leave, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = commands.splitlines()[number]
    done = shell(command, tmp_path, PET_MASTER_PORT=port, OMP_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    (loss,) = re.findall(rf"^{command.split()[-1]}: loss (\S+)$", done.stdout, re.M)  # of one rank alone
    assert 0 < float(loss) < 5


# Commands


def commands():
    lines = [(page, line) for page in PAGES for block in blocks(page, "") for line in block.splitlines()]
    return [(page, line) for page, line in lines if re.match(r"(srun )?orthograd ", line)]


@pytest.mark.parametrize(("page", "line"), commands())
def test_commands_parse(page, line):
    words = shlex.split(line, comments=True)
    name, *arguments = words[words.index("orthograd") + 1 :]
    typer.main.get_command(app).commands[name].make_context(name, arguments)  # raises for what is not an option


@pytest.mark.slow
def test_the_commands_of_the_page_on_evaluating_run(tmp_path):
    run("evaluate-what-you-have")
    lines = [line for page, line in commands() if page == "evaluate-what-you-have"]
    assert len(lines) >= 7
    for line in lines:
        done = CliRunner().invoke(app, shlex.split(line)[1:])
        assert done.exit_code == 0, (line, done.output)
    for name in ("digits", "seeds", "quiz", "masks"):
        assert (tmp_path / f"{name}.html").read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_links_lead_somewhere():
    for page in PAGES:
        text = (HOWTO / f"{page}.md").read_text(encoding="utf-8")
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert target.startswith("https://") or (HOWTO / target).exists(), f"{page}: {target}"
