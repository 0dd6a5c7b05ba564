"""Optimizer classes with ⊥Grad, importable by a dotted path such as ``orthograd.optim.OrthoAdamW``.

There is one for each class of `torch.optim`. It takes the arguments of its base, and the options of `orthograd.attach`
as keywords. `SGD` and `AdamW` take the same steps as `OrthoSGD` and `OrthoAdamW`, faster on CUDA.

>>> import torch
>>> from orthograd.optim import OrthoAdamW
>>> optimizer = OrthoAdamW(torch.nn.Linear(3, 2).parameters(), lr=1e-3, granularity="row")
>>> isinstance(optimizer, torch.optim.AdamW)
True
"""

from .by_name import NAMES, class_named
from .fused import SGD, AdamW

__all__ = ["SGD", "AdamW", *NAMES]
__getattr__ = class_named


def __dir__() -> list[str]:
    return sorted({*globals(), *NAMES})
