"""The draws of an epoch applied to images, against the same done image by image."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys

import pytest
import torch

from orthograd.lab.data import Dataset
from orthograd.lab.training.batches import Draws, _table, byte_table, cropped, in_one_launch, prepared
from orthograd.lab.training.config import Config
from orthograd.lab.training.methods import METHODS

CROPPED = Config(augmentation="crop_flip", batch_size=16)


def by_hand(image: torch.Tensor, top: int, left: int, is_flipped: bool) -> torch.Tensor:
    canvas = torch.zeros(image.shape[0], image.shape[1] + 8, image.shape[2] + 8, dtype=image.dtype)
    canvas[:, 4:-4, 4:-4] = image
    crop = canvas[:, top : top + image.shape[1], left : left + image.shape[2]]
    return crop.flip(2) if is_flipped else crop


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crops_and_flips_are_those_of_one_image_at_a_time(dtype):
    images = (255 * torch.rand(40, 3, 9, 7, generator=torch.Generator().manual_seed(0))).to(dtype)
    draws = Draws.of(CROPPED, METHODS["baseline"], 40, torch.Generator().manual_seed(1))
    found = cropped(images, draws.offsets, draws.is_flipped)
    assert found.dtype == dtype
    for image, (top, left), flip, one in zip(images, draws.offsets.tolist(), draws.is_flipped, found, strict=True):
        assert torch.equal(one, by_hand(image, top, left, bool(flip)))


def test_every_crop_and_both_directions_come_about_equally_often():
    generator = torch.Generator().manual_seed(0)
    draws = [Draws.of(CROPPED, METHODS["baseline"], 1000, generator) for _ in range(9)]
    offsets = torch.cat([draw.offsets for draw in draws])
    for axis in (0, 1):
        counts = torch.bincount(offsets[:, axis], minlength=9)
        assert len(counts) == 9
        assert float((counts - 1000).abs().max()) < 5 * (1000 * 8 / 9) ** 0.5
    flips = torch.cat([draw.is_flipped for draw in draws]).sum()
    assert abs(float(flips) - 4500) < 5 * (9000 / 4) ** 0.5


def test_an_epoch_has_every_image_once_and_black_margins_are_black_before_normalization():
    images = torch.full((32, 2, 8, 8), 255, dtype=torch.uint8)
    data = Dataset("white", images, torch.zeros(32).long(), images, torch.zeros(32).long(), 2, (0.5, 0.25), (0.25, 0.5))
    draws = Draws.of(CROPPED, METHODS["baseline"], 32, torch.Generator().manual_seed(0))
    assert sorted(draws.rows.tolist()) == list(range(32))
    values, _ = prepared(data, images, torch.eye(32), draws)
    assert set(values[:, 0].unique().tolist()) == {-2.0, 2.0}
    assert set(values[:, 1].unique().tolist()) == {-0.5, 1.5}


def test_draws_without_augmentation_are_an_order_alone():
    draws = Draws.of(dataclasses.replace(CROPPED, augmentation="none"), METHODS["orthograd"], 5, torch.Generator())
    assert [draws.offsets, draws.is_flipped, draws.partners, draws.shares] == [None] * 4


def in_bytes(*shape: int) -> Dataset:
    images, labels = torch.randint(256, shape, dtype=torch.uint8), torch.arange(shape[0]) % 2
    mean, deviation = ((0.4914, 0.4822, 0.4465)[: shape[1]], (0.247, 0.2435, 0.2616)[: shape[1]])
    return Dataset("bytes", images, labels, images, labels, 2, mean, deviation)


@pytest.mark.parametrize("shape", [(40, 3, 9, 7), (24, 1, 8, 8), (17, 2, 3, 40), (20, 3, 32, 32), (16, 3, 1, 1)])
@pytest.mark.parametrize("augmentation", ["none", "crop_flip"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_launch_gives_the_same_bits(shape, augmentation, dtype):
    """Uses Triton's interpreter without a GPU."""
    pytest.importorskip("triton")
    data, device = in_bytes(*shape), "cuda" if torch.cuda.is_available() else "cpu"
    images, config = data.train_images.to(device), dataclasses.replace(CROPPED, augmentation=augmentation)
    draws = Draws.of(config, METHODS["baseline"], len(images), torch.Generator().manual_seed(1)).to(images.device)
    for order in (draws, draws.part(3, 8)):
        found = in_one_launch(images, order, _table(data, images, dtype))
        assert found.dtype == dtype
        assert found.is_contiguous(memory_format=torch.channels_last)
        wanted, _ = prepared(data, images, torch.eye(len(images), device=device), order)
        assert torch.equal(found, wanted.to(dtype))


def test_what_one_launch_cannot_do_has_no_table():
    class Squared(Dataset):
        def normalized(self, images):
            return super().normalized(images) ** 2

    data = in_bytes(4, 3, 8, 8)
    fields = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    images = data.train_images.to("cuda" if torch.cuda.is_available() else "cpu")
    for refused in (images.cpu(), images.float(), images.permute(0, 1, 3, 2)):
        assert byte_table(data, refused, torch.float32) is None
    assert byte_table(Squared(**fields), images, torch.float32) is None


@pytest.mark.slow
def test_the_kernel_compiles_for_a_gpu():
    pytest.importorskip("triton")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr[-2000:]


COMPILE = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from orthograd.lab.kernels.crop_triton import crop_kernel

for dtype in ("*bf16", "*fp32"):
    for crops in (True, False):
        types = {"images": "*u8", "rows": "*i64", "table": dtype, "out": dtype}
        types |= {"offsets": "*i64", "is_flipped": "*i1"} if crops else {}
        constants = {"CHANNELS": 3, "HEIGHT": 32, "WIDTH": 32, "MARGIN": 4, "CROPS": crops, "SIZE": 1024}
        signature = {argument: types.get(argument, "constexpr") for argument in crop_kernel.arg_names}
        places = {(i,): constants.get(a) for i, a in enumerate(crop_kernel.arg_names) if signature[a] == "constexpr"}
        source = ASTSource(fn=crop_kernel, signature=signature, constexprs=places)
        assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
print("compiled")
"""
