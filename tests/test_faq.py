"""docs/faq.md, the glossary and the bibliography: their code runs, their facts hold, their links lead somewhere."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import pytest
import torch

import orthograd
from orthograd.projection import orthogonal_gradient
from tests.conftest import cosine

DOCS = Path(__file__).parent.parent / "docs"


@pytest.fixture(scope="module")
def names():
    """What the code of the page leaves behind."""
    names = {}
    for block in re.findall(r"^```python\n(.*?)^```$", (DOCS / "faq.md").read_text(encoding="utf-8"), re.M | re.S):
        exec(block, names)
    return names


def test_the_ece_of_a_perfect_model_is_not_zero_and_no_evidence(names):
    assert 0 < names["metrics"].ece < names["metrics"].ece_by_chance_limit


def test_the_gradient_of_a_weight_in_front_of_batch_norm_is_orthogonal_to_it_already(names):
    model = names["model"]
    model.zero_grad()
    torch.nn.functional.cross_entropy(model(names["inputs"]), torch.arange(64) % 3).backward()
    assert cosine(model[0].weight.grad, model[0].weight) < 1e-4
    assert cosine(model[2].weight.grad, model[2].weight) > 1e-3


def test_ten_bins_and_fifteen_give_other_numbers(names):
    fifteen = names["calibration"].evaluate(names["logits"], names["labels"], bins=15)
    assert abs(fifteen.ece - names["metrics"].ece) > 1e-4


def test_the_first_gradient_of_a_weight_that_is_zero_passes_unchanged():
    gradient = torch.randn(4, 3, dtype=torch.float64)
    torch.testing.assert_close(orthogonal_gradient(gradient, torch.zeros_like(gradient)), gradient, rtol=0, atol=0)


def test_frozen_weights_are_skipped():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 3))
    model[0].requires_grad_(False)
    before = copy.deepcopy(model[0].state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    orthograd.attach(optimizer)
    model(torch.randn(5, 4)).square().sum().backward()
    weight = model[1].weight.detach().clone()
    optimizer.step()
    torch.testing.assert_close(model[0].state_dict(), before, rtol=0, atol=0)
    assert cosine(model[1].weight.grad, weight) < 1e-6


def test_checkpoints_load_with_and_without_it():
    model = torch.nn.Linear(4, 3)
    optimizer, plain = (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for _ in range(2))
    handle = orthograd.attach(optimizer)
    model(torch.randn(5, 4)).square().sum().backward()
    optimizer.step()
    plain.load_state_dict(optimizer.state_dict())
    optimizer.load_state_dict(plain.state_dict())
    assert handle.is_attached
    handle.remove()
    assert all("momentum_buffer" in state for state in optimizer.state.values())


PAGES = [DOCS / "faq.md", DOCS / "migration.md", DOCS / "reference/glossary.md", DOCS / "reference/bibliography.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith(("https://", "http://")) or (page.parent / target).exists(), target


@pytest.mark.parametrize("name", ["glossary", "bibliography"])
def test_entries_are_in_order_and_none_twice(name):
    text = (DOCS / "reference" / f"{name}.md").read_text(encoding="utf-8")
    for section in re.split(r"^## ", text, flags=re.M):
        terms = re.findall(r"^\*\*(.+?)\*\*", section, re.M)
        keys = [term.lower().lstrip("⊥") for term in terms]
        assert keys == sorted(set(keys)), name
