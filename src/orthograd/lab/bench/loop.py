"""What ⊥Grad adds to a whole training step in an ordinary loop: forward pass, loss, backward pass, optimizer.

The data are random and stay on the device, so only the step is measured. The optimizers with and without ⊥Grad take
turns on one network, since two copies of it, in other places of memory, may differ themselves. The networks are plain
PyTorch layers, without the kernels that the lab has for its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import Optimizer

from ...optimizer import attach
from ...verification.bypass import STEPS as WATCHED_STEPS
from ..networks.resnet import Block, ResNet, resnet18, resnet50
from ..networks.small import cnn
from .claim import Claim, Key, turns
from .step import PAPER, Make, bases, fused_bases

TRAINING_STEP, PLAIN_STEP, COMPILED = "training step", "ms a step without ⊥Grad", "torch.compile"
FUSED = "orthograd.optim"
STEPS = {"cpu": 1, "cuda": 10}
"""Steps of a turn."""
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
    target: float | None = None
    rounds: int = 15
    """Turns of each contender: where the host launches kernels all the time, single turns vary by a tenth."""

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


class LargeImages(nn.Module):
    """ResNet-50 for images of 224 × 224: a convolution with stride 2 and a pooling before the lab's blocks."""

    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        network = plain(resnet50((3, 224, 224), classes))
        assert isinstance(network, nn.Sequential)
        stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
        self.layers = nn.Sequential(*stem, *list(network)[1:])

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        logits: Tensor = self.layers(x)
        return logits


class VisionTransformer(nn.Module):
    """ViT-S/16 in PyTorch's own layers: 22 million parameters, for images of 224 × 224."""

    def __init__(self, classes: int = 1000, width: int = 384, depth: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, 197, width))
        self.layers, self.norm = _blocks(width, depth), nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        hidden = torch.cat([self.token.expand(len(x), -1, -1), patches], 1) + self.places
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.head(self.norm(hidden[:, 0]))
        return logits


def _blocks(width: int, depth: int) -> nn.ModuleList:
    """Blocks of a transformer with heads of 64 channels."""
    return nn.ModuleList(
        nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        for _ in range(depth)
    )


class LanguageModel(nn.Module):
    """GPT-2 small in PyTorch's own layers: 124 million parameters, the head tied to the embedding."""

    def __init__(self, words: int = 50257, context: int = 1024, width: int = 768, depth: int = 12) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(context, width)
        self.layers, self.norm = _blocks(width, depth), nn.LayerNorm(width)

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
    """Random images, of ten classes."""
    return lambda: (torch.randn(count, *shape), torch.arange(count) % 10)


def tokens(count: int, length: int) -> Callable[[], Batch]:
    """Random tokens, to be predicted from those before them."""
    return lambda: (torch.randint(50257, (count, length)), torch.randint(50257, (count, length)))


CPU_LOOPS = (
    Loop("small CNN", lambda: cnn((1, 8, 8), 10), images(32, (1, 8, 8)), "batch of 32", PAPER, rounds=31),
    Loop("ResNet-18", _resnet18, images(64), "batch of 64", PAPER, rounds=31),
    Loop("ResNet-18", _resnet18, images(64), "batch of 64", "AdamW", rounds=31),
)
LARGE = images(64, (3, 224, 224)), "64 images of 224 × 224"
TARGET = 1.02
"""The bound for networks that people train. Small images keep a GPU less busy."""
CUDA_LOOPS = (
    *(
        Loop(title, network, *batch, optimizer, "bf16", TARGET, rounds)
        for title, network, batch, rounds in (
            ("ResNet-50", LargeImages, LARGE, 15),
            ("ViT-S", VisionTransformer, LARGE, 15),
            ("GPT-2 small", LanguageModel, (tokens(8, 1024), "8 × 1024 tokens"), 5),  # steady: it keeps the GPU busy
        )
        for optimizer in (PAPER, "AdamW")
    ),
    Loop("ResNet-18", _resnet18, images(128), "batch of 128", PAPER, "bf16"),
    Loop("ResNet-50", _resnet50, images(128), "batch of 128", PAPER, "bf16"),
)


def loop_cost(device: torch.device, *, quick: bool = False) -> Iterator[Claim]:
    """A training step with `attach` over the same step without it; on a GPU also compiled, and with the fused class."""
    is_gpu = device.type == "cuda"
    loops = CUDA_LOOPS if is_gpu else CPU_LOOPS
    for loop in loops[:1] if quick else loops:
        for is_compiled in (False, True) if is_gpu and not quick else (False,):
            yield _cost(loop, device, is_compiled=is_compiled, rounds=5 if quick else loop.rounds)


def _cost(loop: Loop, device: torch.device, *, is_compiled: bool, rounds: int) -> Claim:
    makers = {"base": bases(device)[loop.optimizer], "⊥Grad": _attached(bases(device)[loop.optimizer])}
    if device.type == "cuda":
        makers[FUSED] = fused_bases()[loop.optimizer]
    contenders = _contenders(loop, makers, device, is_compiled=is_compiled)
    settle = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    seconds = turns(contenders, rounds=rounds, settle=settle)
    step = 1000 * median(seconds["base"]) / STEPS[device.type]
    # Turn by turn: a slow minute of the machine falls on both sides of a ratio.
    ratio = {
        name: median(own / base for own, base in zip(each, seconds["base"], strict=True))
        for name, each in seconds.items()
    }
    others = {PLAIN_STEP: step} | {name: ratio[name] for name in makers if name == FUSED}
    return Claim(loop.key(is_compiled=is_compiled), ratio["⊥Grad"], loop.target, others)


def _attached(make: Make) -> Make:
    def attached(parameters: list[nn.Parameter]) -> Optimizer:
        optimizer = make(parameters)
        attach(optimizer)
        return optimizer

    return attached


def _contenders(
    loop: Loop, makers: dict[str, Make], device: torch.device, *, is_compiled: bool
) -> dict[str, Callable[[], None]]:
    """A turn of each optimizer, all of them on one network."""
    torch.manual_seed(0)
    model = loop.network().to(device).train()
    inputs, targets = (part.to(device) for part in loop.batch())
    if inputs.ndim == 4:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    forward = torch.compile(model) if is_compiled else model

    def steps(optimizer: Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16, enabled=loop.precision == "bf16"):
                loss = cross_entropy(forward(inputs), targets)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    contenders: dict[str, Callable[[], None]] = {}
    for name, make in makers.items():
        optimizer = make(list(model.parameters()))
        # In its first steps ⊥Grad looks whether anyone else changes the weights, as the others do later.
        steps(optimizer, WATCHED_STEPS)
        contenders[name] = partial(steps, optimizer, STEPS[device.type])
    return contenders
