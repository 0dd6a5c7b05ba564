"""The kernels through Triton's real compiler, for a GPU that need not be here."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")
COMPILE = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from orthograd.engine import kernels, step_kernels

finish = {"RENORMALIZE": True, "ROUNDING": 2.0**-24, "LARGEST": 3.4e38}
for dtype in (tl.float16, tl.bfloat16, tl.float32, tl.float64):
    walk = {"TYPES": (dtype, dtype), "ALIGNED": True, "BLOCK": 1024}
    step = {**finish, **walk, "TYPES": (dtype, tl.float32), "SLOTS": 256, "RANDOM": False}
    momentum = {**step, "RULE": "momentum"}
    half = {**step, "TYPES": (dtype, tl.bfloat16), "COPY_TYPE": None, "READS_RATE": False, "RANDOM": True}
    for name, constants in [
        ("moments_kernel", walk),
        ("merge_kernel", {"SLOTS": 256}),
        ("apply_kernel", {**finish, **walk, "SLOTS": 256}),
        ("rows_kernel", {**finish, **walk}),
        ("sgd_kernel", {**momentum, "MEASURES": True, "PROJECTS": True, "COPY_TYPE": tl.bfloat16, "READS_RATE": True}),
        ("sgd_kernel", {**momentum, "MEASURES": False, "PROJECTS": False, "COPY_TYPE": None, "READS_RATE": False}),
        ("sgd_kernel", {**half, "MEASURES": False, "PROJECTS": True, "RULE": "plain"}),
        ("sgd_kernel", {**half, "MEASURES": True, "PROJECTS": True, "RULE": "nesterov"}),
        ("adamw_kernel", {**half, "MEASURES": True, "PROJECTS": True, "RULE": "adamw"}),
        ("measuring_kernel", {"RENORMALIZE": True, "ROUNDING": 2.0**-24, "BLOCK": 512, "SLOTS": 256}),
    ]:
        kernel = getattr(step_kernels if hasattr(step_kernels, name) else kernels, name)
        types = dict.fromkeys(("directory", "schedule", "ends", "counter"), "*i64")
        types |= dict.fromkeys(("tensors", "length", "chunk"), "i32")
        types |= dict.fromkeys(("correction", "table", "out"), "*fp64")
        types |= {"gradient": f"*{dtype}", "weight": "*fp32"}
        numbers = "rate inertia decay beta1 rest1 log1 beta2 rest2 log2 epsilon"
        types |= dict.fromkeys(numbers.split(), "fp32")
        if constants.get("READS_RATE"):
            types["rate"] = "*fp32"
        signature = {argument: types.get(argument, "constexpr") for argument in kernel.arg_names}
        places = {(kernel.arg_names.index(argument),): value for argument, value in constants.items()}
        source = ASTSource(fn=kernel, signature=signature, constexprs=places)
        assert "ptx" in triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm
print("compiled")
"""


@pytest.mark.slow
def test_kernels_compile_for_a_gpu():
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    run = subprocess.run([sys.executable, "-c", COMPILE], env=environment, capture_output=True, text=True)
    assert run.stdout.strip() == "compiled", run.stderr[-2000:]
