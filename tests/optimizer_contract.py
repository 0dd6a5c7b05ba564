"""The contract of ⊥Grad over optimizers that people use. `make optimizers` writes the record of what was run."""

from __future__ import annotations

import importlib
import importlib.metadata
import io
import json
import platform
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import torch
from torch import Tensor, nn

import orthograd
from orthograd.optimizer import named_class
from tests.conftest import cosine

ROOT = Path(__file__).parent.parent
RECORD, PAGE = ROOT / "docs/results/optimizers.json", ROOT / "docs/optimizers.md"


class Entry(NamedTuple):
    """An optimizer: its distribution, the dotted path of its class, its arguments, and what it needs."""

    distribution: str
    path: str
    arguments: dict[str, Any]
    matrices_only: bool = False
    size: int = 8
    """Width of the network. Low-bit optimizers quantize only large tensors."""
    is_compiled: bool = False
    """Compiled steps take long."""
    tolerance: float = 0.0
    """Between two runs of the same steps, for optimizers whose own runs differ in rounding without ⊥Grad."""
    create_graph: bool = False
    needs_closure: bool = False


def entries(distribution: str, module: str, names: dict[str, dict[str, Any]], **needs: Any) -> list[Entry]:
    return [Entry(distribution, f"{module}.{name}", arguments, **needs) for name, arguments in names.items()]


LR, SIGN, ADAPTIVE = {"lr": 0.01}, {"lr": 1e-3}, {"lr": 1.0, "d0": 1e-3}
FROM_PYTORCH_OPTIMIZER = """
    AdaBelief AdaBound Adai AdamP Adan AdEMAMix ADOPT Amos CAME DAdaptAdam DiffGrad FAdam Grams GrokFastAdamW Kron Lamb
    LaProp LARS Lion MADGRAD MARS NovoGrad Prodigy RAdam Ranger ScalableShampoo ScheduleFreeAdamW ScheduleFreeSGD SGDP
    Shampoo SOAP StableAdamW StableSPAM Tiger Yogi
""".split()  # noqa: SIM905
ROUNDING = {"pytorch_optimizer.Kron": 1e-6}
ENTRIES = [
    *entries("torch", "torch.optim", {"Muon": {"lr": 0.02}}, matrices_only=True),
    *entries("torch", "torch.optim", {"SGD": {"lr": 0.05, "momentum": 0.9}, "AdamW": LR, "Adafactor": LR}),
    *entries("transformers", "transformers.optimization", {"Adafactor": {"lr": 0.01, "relative_step": False}}),
    *entries("schedulefree", "schedulefree", {"SGDScheduleFree": {"lr": 0.05}, "AdamWScheduleFree": LR}),
    *entries("schedulefree", "schedulefree", {"RAdamScheduleFree": LR}),
    *entries("schedulefree", "schedulefree", {"AdamWScheduleFreeClosure": LR}, needs_closure=True),
    *entries("prodigyopt", "prodigyopt", {"Prodigy": ADAPTIVE}),
    *entries("prodigy-plus-schedule-free", "prodigyplus", {"ProdigyPlusScheduleFree": ADAPTIVE}),
    *entries("dadaptation", "dadaptation", {"DAdaptAdam": ADAPTIVE, "DAdaptSGD": ADAPTIVE}),
    *entries("lion-pytorch", "lion_pytorch", {"Lion": SIGN}),
    *entries("came-pytorch", "came_pytorch", {"CAME": SIGN}),
    *entries("adv-optm", "adv_optm", {"AdamW_adv": LR, "Adopt_adv": LR, "Lion_adv": SIGN, "Prodigy_adv": ADAPTIVE}),
    *entries("adv-optm", "adv_optm", {"SignSGD_adv": SIGN, "SinkSGD_adv": LR}),
    *entries("adv-optm", "adv_optm", {"Muon_adv": LR, "AdaMuon_adv": LR}, matrices_only=True),
    *(
        entry._replace(tolerance=ROUNDING.get(entry.path, 0.0))
        for entry in entries("pytorch_optimizer", "pytorch_optimizer", dict.fromkeys(FROM_PYTORCH_OPTIMIZER, LR))
    ),
    *entries("pytorch_optimizer", "pytorch_optimizer", {"Ranger21": {"lr": 0.01, "num_iterations": 100}}),
    *entries("pytorch_optimizer", "pytorch_optimizer", {"SophiaH": LR}, create_graph=True),
    *entries("bitsandbytes", "bitsandbytes.optim", {"AdamW8bit": LR, "Lion8bit": SIGN, "PagedAdamW8bit": LR}, size=64),
    *entries(
        "torchao",
        "torchao.optim",
        {"AdamW8bit": LR, "AdamW4bit": LR, "AdamWFp8": LR},
        size=64,
        is_compiled=True,
        tolerance=1e-3,
    ),
]


def network(entry: Entry) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, entry.size), nn.Tanh(), nn.Linear(entry.size, entry.size), nn.Linear(entry.size, 3)
    )


def chosen(entry: Entry, model: nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.ndim == 2 or not entry.matrices_only]


def made(entry: Entry, model: nn.Module) -> Any:
    return named_class(entry.path)(chosen(entry, model), **entry.arguments)  # type: ignore[call-arg]


def loss_of(model: nn.Module, step: int) -> Tensor:
    seeded = torch.Generator().manual_seed(step % 4)
    inputs, labels = torch.randn(16, 6, generator=seeded), torch.randint(3, (16,), generator=seeded)
    return nn.functional.cross_entropy(model(inputs), labels)


def train(
    entry: Entry, model: nn.Module, optimizer: Any, steps: range, project: Callable[[], None] = lambda: None
) -> float:
    """Take the steps, in the way of the optimizer, and return the last loss."""
    loss = torch.zeros(())
    if callable(getattr(optimizer, "train", None)):
        optimizer.train()
    for step in steps:

        def closure(step: int = step) -> Tensor:
            nonlocal loss
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward(create_graph=entry.create_graph)
            project()
            return loss

        torch.manual_seed(step)  # for those that round stochastically
        if entry.needs_closure:
            optimizer.step(closure)
        else:
            closure()
            optimizer.step()
    return float(loss)


def by_hand(entry: Entry, model: nn.Module) -> Callable[[], None]:
    """Projects the gradients, and makes certain that they are orthogonal to their weights."""

    def project() -> None:
        orthograd.orthogonalize_(chosen(entry, model))
        for p in chosen(entry, model):
            assert p.grad is not None
            assert cosine(p.grad, p) < 1e-5

    return project


def assert_same(entry: Entry, left: nn.Module, right: nn.Module) -> None:
    torch.testing.assert_close(left.state_dict(), right.state_dict(), rtol=entry.tolerance, atol=entry.tolerance)


# The contract


def steps_are_projected(entry: Entry) -> None:
    """An attached step is projection by hand, then the base's step; and another than the base's step alone."""
    attached, manual, plain = (network(entry) for _ in range(3))
    first, second, third = (made(entry, model) for model in (attached, manual, plain))
    orthograd.attach(first)
    train(entry, attached, first, range(6))
    train(entry, manual, second, range(6), by_hand(entry, manual))
    train(entry, plain, third, range(6))
    assert_same(entry, attached, manual)
    # Not all: the sign of a gradient, which some use, need not change in a small tensor.
    assert any(not torch.equal(p, q) for p, q in zip(chosen(entry, attached), chosen(entry, plain), strict=True))


def the_base_behaves(entry: Entry) -> None:
    """With ⊥Grad the loss falls, and a detached optimizer steps as the base does."""
    model, detached, plain = (network(entry) for _ in range(3))
    optimizer = made(entry, model)
    orthograd.attach(optimizer)
    before = float(loss_of(model, 0))
    train(entry, model, optimizer, range(41))
    assert float(loss_of(model, 0)) < before
    first, second = made(entry, detached), made(entry, plain)
    orthograd.attach(first).remove()
    train(entry, detached, first, range(3))
    train(entry, plain, second, range(3))
    assert_same(entry, detached, plain)


def resumed(entry: Entry, *, orthogonal: bool) -> str:
    """How resuming from a state_dict differs from never having stopped; empty if it does not."""
    straight, stopped, fresh = (network(entry) for _ in range(3))
    optimizers = []
    for model in (straight, stopped, fresh):
        optimizers.append(made(entry, model))
        if orthogonal:
            orthograd.attach(optimizers[-1])
    train(entry, straight, optimizers[0], range(8))
    train(entry, stopped, optimizers[1], range(2))
    saved = through_a_file((stopped.state_dict(), optimizers[1].state_dict()))
    fresh.load_state_dict(saved[0])
    try:
        optimizers[2].load_state_dict(saved[1])
        train(entry, fresh, optimizers[2], range(2, 8))
        assert_same(entry, straight, fresh)
    except AssertionError:
        return "a resumed run differs"
    except KeyError:
        return "a resumed run raises KeyError"
    return ""


def a_state_dict_resumes(entry: Entry) -> str:
    """Resuming from a state_dict equals never having stopped, or differs as it does without ⊥Grad."""
    difference = resumed(entry, orthogonal=True)
    if difference:
        assert resumed(entry, orthogonal=False) == difference
        return f"{difference}, without ⊥Grad too"
    return ""


def verify_agrees(entry: Entry) -> None:
    """`verify` says that all is projected, and changes nothing."""
    model = network(entry)
    optimizer = made(entry, model)
    handle = orthograd.attach(optimizer)
    train(entry, model, optimizer, range(2))
    before = through_a_file((model.state_dict(), optimizer.state_dict()))
    told = handle.verify()
    assert is_same(before, (model.state_dict(), optimizer.state_dict()))
    assert told.is_complete, told


def through_a_file(content: Any) -> Any:
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def is_same(left: Any, right: Any) -> bool:
    """True if nested containers hold the same tensors and numbers."""
    if isinstance(left, Tensor):
        left, right = (each.dequantize() if hasattr(each, "codes") else each for each in (left, right))
        return torch.equal(left, right)
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(is_same(left[key], right[key]) for key in left)
    if isinstance(left, list | tuple):
        return len(left) == len(right) and all(map(is_same, left, right))
    return bool(left == right) or is_same(vars(left), vars(right))  # an object of the package


def a_path_reaches_it(entry: Entry) -> None:
    """`OrthoGrad` with the dotted path is the same as `attach`."""
    attached, by_path = network(entry), network(entry)
    first = made(entry, attached)
    orthograd.attach(first)
    second = orthograd.OrthoGrad(chosen(entry, by_path), entry.path, **entry.arguments)
    for model, optimizer in ((attached, first), (by_path, second)):
        train(entry, model, optimizer, range(3))
    assert_same(entry, attached, by_path)


def a_fused_backward_pass_is_projected(entry: Entry) -> str:
    """With its method for one parameter called in the backward pass, equal to projection by hand."""
    fused, manual = network(entry), network(entry)
    first, second = made(entry, fused), made(entry, manual)
    name = next((each for each in ("step_parameter", "step_param") if hasattr(first, each)), None)
    if name is None:
        return ""
    orthograd.attach(first)
    for optimizer, is_manual in ((first, False), (second, True)):
        if callable(getattr(optimizer, "train", None)):
            optimizer.train()
        for group in optimizer.param_groups:
            for index, p in enumerate(group["params"]):

                def hook(p: Tensor, g: Any = group, i: int = index, o: Any = optimizer, m: bool = is_manual) -> None:
                    if m:
                        orthograd.orthogonalize_(p)
                    getattr(o, name)(*((p, g, i) if name == "step_parameter" else (p, g)))
                    p.grad = None

                p.register_post_accumulate_grad_hook(hook)
    for model in (fused, manual):
        for step in range(4):
            torch.manual_seed(step)
            loss_of(model, step).backward()
    assert_same(entry, fused, manual)
    return "with fused backward pass"


CONTRACT: list[Callable[[Entry], Any]] = [
    steps_are_projected,
    the_base_behaves,
    a_state_dict_resumes,
    verify_agrees,
    a_path_reaches_it,
    a_fused_backward_pass_is_projected,
]


# What is refused, or acts through an inner optimizer


def parts() -> tuple[nn.Module, Any]:
    model = network(ENTRIES[0])
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def wrapped(path: str) -> str:
    """The same contract for an optimizer around SGD: each step's gradient is orthogonal."""
    model, inner = parts()
    optimizer: Any = named_class(path)(inner)  # type: ignore[arg-type]
    orthograd.attach(optimizer)
    for step in range(6):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        before = [p.detach().clone() for p in model.parameters()]
        optimizer.step()
        assert all(
            cosine(p.grad, w) < 1e-5 for p, w in zip(model.parameters(), before, strict=True) if p.grad is not None
        )
    return "through the inner optimizer"


def sharpness_aware(path: str) -> str:
    """SAM: the gradient of its second backward pass is orthogonal to the weights of its step."""
    model, _ = parts()
    extra = {"model": model} if path.endswith("WSAM") else {}
    sam_class: Any = named_class(path)
    optimizer = sam_class(params=model.parameters(), base_optimizer=torch.optim.SGD, lr=0.1, **extra)
    orthograd.attach(optimizer)
    for step in range(3):

        def closure(step: int = step) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(model, step)
            loss.backward()
            return loss

        before = [p.detach().clone() for p in model.parameters()]
        closure()
        optimizer.step(closure)
        assert all(
            cosine(p.grad, w) < 1e-5 for p, w in zip(model.parameters(), before, strict=True) if p.grad is not None
        )
    return "through the inner optimizer, with a closure"


def low_rank_adapters(path: str) -> str:
    """AdamW on the adapters of peft: only they change, and all are projected."""
    peft = importlib.import_module(path.split(".")[0])
    torch.manual_seed(0)
    base = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    model = peft.get_peft_model(base, peft.LoraConfig(target_modules=["0", "2"], r=2))
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.01)
    handle = orthograd.attach(optimizer)
    for step in range(4):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        before = [p.detach().clone() for p in trained]
        optimizer.step()
        assert all(cosine(p.grad, w) < 1e-5 for p, w in zip(trained, before, strict=True) if p.grad is not None)
    assert handle.verify().is_complete
    return "AdamW on LoRA adapters"


def refused(path: str) -> str:
    """The message of the error or warning that a user gets."""
    model, inner = parts()
    optimizer_class: Any = named_class(path)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            if "LOMO" in path:
                optimizer = optimizer_class(model)
                orthograd.attach(optimizer)
                for step in range(3):
                    optimizer.fused_backward(loss_of(model, step), lr=0.1)
            elif path.endswith("BSAM"):
                orthograd.attach(optimizer_class(model.parameters(), num_data=16))
            else:
                orthograd.attach(optimizer_class(inner))
        except (TypeError, ValueError) as error:
            return f"raises, as {REASONS[path]}" if "⊥Grad" in str(error) else ""
    return f"warns, as {REASONS[path]}" if any("⊥Grad projects nothing" in str(each.message) for each in told) else ""


REASONS = {
    "schedulefree.ScheduleFreeWrapper": "its inner optimizer has other weights; use a schedule-free class",
    "pytorch_optimizer.ScheduleFreeWrapper": "its inner optimizer has other weights; use a schedule-free class",
    "pytorch_optimizer.BSAM": "it steps without an inner optimizer; use SAM",
    "pytorch_optimizer.LOMO": "it updates weights inside its own backward pass",
    "pytorch_optimizer.AdaLOMO": "it updates weights inside its own backward pass",
}
OTHERS: dict[str, Callable[[str], str]] = {
    "pytorch_optimizer.SAM": sharpness_aware,
    "pytorch_optimizer.WSAM": sharpness_aware,
    "pytorch_optimizer.Lookahead": wrapped,
    "pytorch_optimizer.TRAC": wrapped,
    "peft.LoraConfig": low_rank_adapters,
    **dict.fromkeys(REASONS, refused),
}


def missing(path: str) -> str:
    """Why an optimizer cannot be run here; empty if it can."""
    try:
        named_class(path)
    except ImportError as error:
        return str(error.__cause__ or error)
    return ""


# The record and its table


def outcome(entry: Entry) -> dict[str, str]:
    if missing(entry.path):
        return {"result": "not run", "note": "not installed here"}
    notes = [note for check in CONTRACT if (note := check(entry))]
    return {"result": "works", "note": "; ".join(notes)}


def outcomes() -> Iterator[dict[str, str]]:
    for entry in ENTRIES:
        yield {"distribution": entry.distribution, "path": entry.path, **outcome(entry)}
    for path, check in OTHERS.items():
        note = "not installed here" if missing(path) else check(path)
        result = "not run" if missing(path) else "refused" if check is refused else "works"
        yield {"distribution": path.split(".")[0], "path": path, "result": result, "note": note}


TRAINERS = {"lightning": "lightning", "hugging_face": "transformers", "accelerate": "accelerate"}
"""The distribution of each trainer, by the word that its tests begin with."""


def trainers() -> list[dict[str, Any]]:
    """A row for each test of tests/test_frameworks.py, whose names say what was trained, and how many cases passed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}"]
        subprocess.run([*command, str(ROOT / "tests/test_frameworks.py")], cwd=ROOT, check=True)
        cases = [case for case in ElementTree.parse(report).iter("testcase") if not len(case)]  # a child: skipped
    counts = Counter(case.attrib["name"].partition("[")[0].removeprefix("test_") for case in cases)
    named = ((word, test) for test in counts for word in TRAINERS if test.startswith(word))
    return [
        {"distribution": TRAINERS[word], "what": test[len(word) :].replace("_", " ").strip(), "passed": counts[test]}
        for word, test in named
    ]


def version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution).split("+")[0]
    except importlib.metadata.PackageNotFoundError:
        return "–"


def record() -> dict[str, Any]:
    rows, trained = list(outcomes()), trainers()
    names = {"torch", *(row["distribution"] for row in (*rows, *trained))}
    versions = {name: version(name) for name in sorted(names)}
    machine = {"device": "cpu", "processor": platform.machine(), "python": platform.python_version()}
    return {"machine": machine, "versions": versions, "optimizers": rows, "trainers": trained}


def table(content: dict[str, Any]) -> str:
    """The rows of the page: optimizers of one package with the same result are one row."""
    rows: dict[tuple[str, str, str], list[str]] = {}
    for each in content["optimizers"]:
        key = each["distribution"], each["result"], each["note"]
        rows.setdefault(key, []).append(f"`{each['path'].split('.')[-1]}`")
    lines = ["| package | optimizers | result |", "| --- | --- | --- |"]
    for (distribution, result, note), names in sorted(rows.items(), key=lambda row: (row[0][1] != "works", row[0])):
        told = "; ".join(filter(None, [result, note]))
        lines.append(f"| {distribution} {content['versions'][distribution]} | {', '.join(names)} | {told} |")
    return "\n".join(lines)


def table_of_trainers(content: dict[str, Any]) -> str:
    """A row for each test of a trainer."""
    lines = ["| trainer | trained | cases that passed |", "| --- | --- | --- |"]
    for each in content["trainers"]:
        name = each["distribution"]
        lines.append(f"| {name} {content['versions'][name]} | {each['what']} | {each['passed']} |")
    return "\n".join(lines)


def with_tables(page: str, content: dict[str, Any]) -> str:
    for name, text in (("optimizers", table(content)), ("trainers", table_of_trainers(content))):
        begin, end = f"<!-- {name}: written by make optimizers -->\n", "\n<!-- end -->"
        before, _, rest = page.partition(begin)
        page = before + begin + text + end + rest.partition(end)[2]
    return page


if __name__ == "__main__":
    content = record()
    RECORD.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), content), encoding="utf-8")
