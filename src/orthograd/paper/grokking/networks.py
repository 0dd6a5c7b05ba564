"""The tasks and the networks of several seeds: tensors with a leading dimension of seeds.

Every seed has its own generator for its data, its weights and its dropout, so it does not matter which seeds train
beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn import functional

from ...lab.training.task import seeded
from .rows import Row

MODULUS = 113
BITS, RELEVANT_BITS, PARITY_SAMPLES = 43, 3, 2000
HIDDEN = 200
WIDTH, HEADS, FEED_FORWARD, DROPOUT = 128, 4, 2048, 0.1

Samples = tuple[Tensor, Tensor]
"""Inputs and labels."""


@dataclass(frozen=True, eq=False)
class Data:
    """Inputs (seeds, n, …) and labels (seeds, n) for training and testing."""

    train: Samples
    test: Samples

    @classmethod
    def of(cls, row: Row, seeds: Sequence[int], device: torch.device) -> Data:
        """The data of these seeds."""
        each = [_split(row, seed) for seed in seeds]
        train, test = (
            tuple(torch.stack(tensors).to(device) for tensors in zip(*(split[part] for split in each), strict=True))
            for part in (0, 1)
        )
        dtype = getattr(torch, row.dtype)
        return cls((train[0].to(dtype), train[1]), (test[0].to(dtype), test[1]))


def _split(row: Row, seed: int) -> tuple[Samples, Samples]:
    """Training and test samples of one seed."""
    generator = torch.Generator().manual_seed(seed)
    inputs, labels = _parity(generator) if row.task == "parity" else _pairs(row)
    order = torch.randperm(len(labels), generator=generator)
    train, test = order[: int(row.train_share * len(labels))], order[int(row.train_share * len(labels)) :]
    return (inputs[train], labels[train]), (inputs[test], labels[test])


def _pairs(row: Row) -> Samples:
    """All pairs (a, b) as two one-hots, and a + b or a · b modulo 113. The transformer's numbers start at 1."""
    first = 1 if row.network == "transformer" else 0
    a, b = torch.cartesian_prod(*[torch.arange(first, MODULUS)] * 2).T
    labels = (a + b if row.task == "addition" else a * b) % MODULUS
    return functional.one_hot(torch.stack([a, b], 1), MODULUS).float(), labels


def _parity(generator: torch.Generator) -> Samples:
    """Random bits, and the parity of the first three."""
    bits = torch.randint(2, (PARITY_SAMPLES, BITS), generator=generator)
    return bits.float(), bits[:, :RELEVANT_BITS].sum(1) % 2


def mlp(row: Row) -> nn.Module:
    """Two hidden layers of 200 units, without biases but for parity."""
    is_parity = row.task == "parity"
    sizes = (BITS, HIDDEN, HIDDEN, 2) if is_parity else (2 * MODULUS, HIDDEN, HIDDEN, MODULUS)
    linear = [nn.Linear(inputs, outputs, bias=is_parity) for inputs, outputs in pairwise(sizes)]
    return nn.Sequential(nn.Flatten(-1 if is_parity else -2), linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2])


class Transformer(nn.Module):
    """One encoder layer over two tokens, without positions. The prediction is that at the last token.

    The weights, with their initial values, are those of `torch.nn.TransformerEncoderLayer`. Dropout gets its masks from
    the caller, so that each seed can have its own, and only the last token is computed after the attention.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(MODULUS, WIDTH)
        self.layer = nn.TransformerEncoderLayer(WIDTH, HEADS, FEED_FORWARD, DROPOUT)
        self.head = nn.Linear(WIDTH, MODULUS)

    def forward(self, one_hots: Tensor, *masks: Tensor) -> Tensor:
        """Logits (n, 113) of one-hots (n, 2, 113). Masks are those of `mask_shapes`; none: no dropout."""
        drop = _dropping(masks)
        layer = self.layer
        x = one_hots @ self.embedding.weight
        context = self._attended(x, drop)
        x = layer.norm1(x[:, -1] + drop(1, layer.self_attn.out_proj(context)))
        hidden = drop(2, layer.linear1(x).relu())
        return self.head(layer.norm2(x + drop(3, layer.linear2(hidden))))  # type: ignore[no-any-return]

    def _attended(self, x: Tensor, drop: Callable[[int, Tensor], Tensor]) -> Tensor:
        """The attention of the last token to all, heads beside each other."""
        attention = self.layer.self_attn
        weights, biases = attention.in_proj_weight.chunk(3), attention.in_proj_bias.chunk(3)
        query, key, value = (
            functional.linear(part, weight, bias).unflatten(-1, (HEADS, -1))
            for part, weight, bias in zip((x[:, -1:], x, x), weights, biases, strict=True)
        )
        scores = (query * key).sum(-1) / sqrt(WIDTH // HEADS)  # (n, tokens, heads)
        shares = drop(0, scores.softmax(1))
        attended: Tensor = (shares.unsqueeze(-1) * value).sum(1).flatten(1)
        return attended

    @staticmethod
    def mask_shapes(n: int) -> list[tuple[int, ...]]:
        """The shapes of the four dropout masks of n samples."""
        return [(n, 2, HEADS), (n, WIDTH), (n, FEED_FORWARD), (n, WIDTH)]


def _dropping(masks: Sequence[Tensor]) -> Callable[[int, Tensor], Tensor]:
    """A function that applies the mask of a number."""
    return lambda number, values: values * masks[number] / (1 - DROPOUT) if masks else values


class Networks:
    """The networks of several seeds as one: each parameter is a stack with one layer of each seed."""

    def __init__(self, row: Row, seeds: Sequence[int], device: torch.device) -> None:
        networks = [_initial(row, seed) for seed in seeds]
        stacked, _ = stack_module_state(networks)
        dtype = getattr(torch, row.dtype)
        self.parameters: dict[str, Tensor] = {
            name: nn.Parameter(value.detach().to(device, dtype)) for name, value in stacked.items()
        }
        self._skeleton = networks[0].to("meta")
        has_dropout = isinstance(self._skeleton, Transformer)
        self.generators = [torch.Generator(device).manual_seed(seed) for seed in seeds] if has_dropout else []
        self._device = device

    def logits(self, inputs: Tensor, masks: Sequence[Tensor] = ()) -> Tensor:
        """Logits (seeds, n, classes)."""

        def one(parameters: dict[str, Tensor], *arguments: Tensor) -> Tensor:
            return functional_call(self._skeleton, parameters, arguments)  # type: ignore[no-any-return]

        return torch.vmap(one)(self.parameters, inputs, *masks)

    def masks(self, n: int) -> list[Tensor]:
        """New dropout masks (seeds, …) for n samples, each seed's by its own generator."""
        shapes = self._skeleton.mask_shapes(n) if isinstance(self._skeleton, Transformer) else []
        return [torch.stack([self._mask(shape, generator) for generator in self.generators]) for shape in shapes]

    def _mask(self, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=generator, device=self._device) >= DROPOUT


def _initial(row: Row, seed: int) -> nn.Module:
    with seeded(seed):
        return Transformer() if row.network == "transformer" else mlp(row)
