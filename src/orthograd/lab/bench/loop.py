"""What ⊥Grad adds to a whole training step in an ordinary loop: forward pass, loss, backward pass, optimizer.

The data are random and stay on the device, so only the step is measured. Both loops train their own copy of the network
and take turns. The networks are plain PyTorch layers, without the kernels that the lab has for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from ...optimizer import attach
from ..networks.resnet import Block, ResNet, resnet18, resnet50
from ..networks.small import cnn
from .claim import Claim, Key, turns
from .step import PAPER, Make, bases

TRAINING_STEP, PLAIN_STEP, COMPILED = "training step", "ms a step without ⊥Grad", "torch.compile"
STEPS = {"cpu": 1, "cuda": 10}
"""Steps of a turn."""
ROUNDS = {"cpu": 31, "cuda": 11}
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Loop:
    """A network as people train it."""

    title: str
    network: Callable[[], nn.Module]
    batch: Callable[[], Batch]
    setting: str
    optimizer: str
    precision: str = "float32"

    def key(self, *, is_compiled: bool) -> Key:
        """Return the key of the measurement."""
        setting = f"{self.setting}, {COMPILED}" if is_compiled else self.setting
        return Key(TRAINING_STEP, model=self.title, precision=self.precision, optimizer=self.optimizer, setting=setting)


class Residual(nn.Module):
    """A block of the lab's residual networks, by PyTorch's own kernels."""

    def __init__(self, block: Block) -> None:
        super().__init__()
        self.residual, self.shortcut = block.residual, block.shortcut

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(residual(x) + shortcut(x))."""
        return torch.relu(self.residual(x) + self.shortcut(x))


def plain(network: ResNet) -> nn.Module:
    """Return the network with the same layers, called one by one."""
    blocks = (Residual(block) for block in network.blocks if isinstance(block, Block))
    return nn.Sequential(network.stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), network.classifier)


def _resnet18() -> nn.Module:
    return plain(resnet18((3, 32, 32), 10))


def _resnet50() -> nn.Module:
    return plain(resnet50((3, 32, 32), 10))


class LanguageModel(nn.Module):
    """GPT-2 small in PyTorch's own layers: 124 million parameters, the head tied to the embedding."""

    def __init__(self, words: int = 50257, context: int = 1024, width: int = 768, depth: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        layers = (
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.layers, self.norm = nn.ModuleList(layers), nn.LayerNorm(width)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of the next token, (batch, classes, place)."""
        length = tokens.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        hidden = self.words(tokens) + self.places.weight[:length]
        for layer in self.layers:
            hidden = layer(hidden, src_mask=mask, is_causal=True)
        logits: Tensor = self.norm(hidden) @ self.words.weight.T
        return logits.transpose(1, 2)


def images(count: int, shape: tuple[int, int, int] = (3, 32, 32)) -> Callable[[], Batch]:
    """Random images of ten classes."""
    return lambda: (torch.randn(count, *shape), torch.arange(count) % 10)


def tokens(count: int, length: int) -> Callable[[], Batch]:
    """Random tokens, to be predicted from those before them."""
    return lambda: (torch.randint(50257, (count, length)), torch.randint(50257, (count, length)))


CPU_LOOPS = (
    Loop("small CNN", lambda: cnn((1, 8, 8), 10), images(32, (1, 8, 8)), "batch of 32", PAPER),
    Loop("ResNet-18", _resnet18, images(64), "batch of 64", PAPER),
    Loop("ResNet-18", _resnet18, images(64), "batch of 64", "AdamW"),
)
CUDA_LOOPS = (
    Loop("ResNet-18", _resnet18, images(128), "batch of 128", PAPER, "bf16"),
    Loop("ResNet-50", _resnet50, images(128), "batch of 128", PAPER, "bf16"),
    Loop("GPT-2 small", LanguageModel, tokens(8, 1024), "8 × 1024 tokens", "AdamW", "bf16"),
    Loop("GPT-2 small", LanguageModel, tokens(8, 1024), "8 × 1024 tokens", PAPER, "bf16"),
)


def loop_cost(device: torch.device, *, quick: bool = False) -> Iterator[Claim]:
    """A training step with `attach` over the same step without it; on a GPU also compiled."""
    is_gpu = device.type == "cuda"
    loops = CUDA_LOOPS if is_gpu else CPU_LOOPS
    for loop in loops[:1] if quick else loops:
        for is_compiled in (False, True) if is_gpu and not quick else (False,):
            yield _cost(loop, device, is_compiled=is_compiled, rounds=5 if quick else ROUNDS[device.type])


def _cost(loop: Loop, device: torch.device, *, is_compiled: bool, rounds: int) -> Claim:
    make, batch = bases(device)[loop.optimizer], tuple(part.to(device) for part in loop.batch())
    contenders = {
        name: _steps(loop, make, (batch[0], batch[1]), device, is_orthogonal=name == "⊥Grad", is_compiled=is_compiled)
        for name in ("base", "⊥Grad")
    }
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = turns(contenders, rounds=rounds, settle=settle)
    step = 1000 * median(seconds["base"]) / STEPS[device.type]
    # Turn by turn: a slow minute of the machine falls on both sides of a ratio.
    ratio = median(own / base for own, base in zip(seconds["⊥Grad"], seconds["base"], strict=True))
    return Claim(loop.key(is_compiled=is_compiled), ratio, others={PLAIN_STEP: step})


def _steps(
    loop: Loop, make: Make, batch: Batch, device: torch.device, *, is_orthogonal: bool, is_compiled: bool
) -> Callable[[], None]:
    torch.manual_seed(0)
    model = loop.network().to(device).train()
    if batch[0].ndim == 4:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = make(list(model.parameters()))
    if is_orthogonal:
        attach(optimizer)
    forward = torch.compile(model) if is_compiled else model
    inputs, targets = batch

    def run() -> None:
        for _ in range(STEPS[device.type]):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=loop.precision == "bf16"):
                loss = cross_entropy(forward(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return run
