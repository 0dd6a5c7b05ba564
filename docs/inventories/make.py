"""Write the inventories beside this file: only the names that our reference links to, at their official addresses.

python docs/inventories/make.py, after a name was added below. The site is then built without a network.
"""

from __future__ import annotations

import zlib
from pathlib import Path

FUNCTIONS, STDTYPES = "library/functions.html#$", "library/stdtypes.html#$"
TYPING, ABC = "library/typing.html#$", "library/collections.abc.html#$"
ERRORS = "library/exceptions.html#$"

NAMES: dict[str, dict[str, tuple[str, str]]] = {
    "python": {
        **dict.fromkeys(("bool", "float", "int", "object", "property", "type"), ("py:class", FUNCTIONS)),
        **dict.fromkeys(("bytes", "dict", "frozenset", "list", "set", "str", "tuple"), ("py:class", STDTYPES)),
        **dict.fromkeys(
            (
                *("FileNotFoundError", "ImportError", "RuntimeError", "TypeError", "ValueError", "OSError"),
                *("UserWarning", "Warning", "Exception"),
            ),
            ("py:exception", ERRORS),
        ),
        **dict.fromkeys(("typing.Any", "typing.Literal"), ("py:data", TYPING)),
        "typing.NamedTuple": ("py:class", TYPING),
        **dict.fromkeys(
            [
                f"collections.abc.{name}"
                for name in ("Callable", "Collection", "Iterable", "Iterator", "Mapping", "Sequence")
            ],
            ("py:class", ABC),
        ),
        "pathlib.Path": ("py:class", "library/pathlib.html#$"),
        **dict.fromkeys(("None", "True", "False"), ("py:data", "library/constants.html#$")),
    },
    "torch": {
        "torch.Tensor": ("py:class", "tensors.html#$"),
        "torch.dtype": ("py:class", "tensor_attributes.html#$"),
        "torch.device": ("py:class", "tensor_attributes.html#$"),
        "torch.nn.Module": ("py:class", "generated/torch.nn.Module.html#$"),
        "torch.optim.Optimizer": ("py:class", "optim.html#$"),
        "torch.optim.SGD": ("py:class", "generated/torch.optim.SGD.html#$"),
    },
    "numpy": {
        "numpy.typing.ArrayLike": ("py:class", "reference/typing.html#$"),
        "numpy.ndarray": ("py:class", "reference/generated/numpy.ndarray.html#$"),
        "numpy.dtype": ("py:class", "reference/generated/numpy.dtype.html#$"),
    },
}
ALIASES = {
    "python": {"Path": "pathlib.Path", "Any": "typing.Any"},
    "torch": {"torch.optim.optimizer.Optimizer": "torch.optim.Optimizer", "torch.optim.sgd.SGD": "torch.optim.SGD",
              "torch.nn.modules.module.Module": "torch.nn.Module", "Tensor": "torch.Tensor"},
    "numpy": {"ArrayLike": "numpy.typing.ArrayLike"},
}  # fmt: skip
"""Names under which annotations have the same objects."""


def inventory(project: str) -> bytes:
    """Version 2 of Sphinx's format: four lines, then one compressed line for each name."""
    lines = [
        f"{name} {role} 1 {address.replace('$', name)} -" for name, (role, address) in sorted(NAMES[project].items())
    ]
    for alias, name in sorted(ALIASES[project].items()):
        role, address = NAMES[project][name]
        lines.append(f"{alias} {role} 1 {address.replace('$', name)} -")
    head = f"# Sphinx inventory version 2\n# Project: {project}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    return head.encode() + zlib.compress("\n".join([*lines, ""]).encode(), 9)


if __name__ == "__main__":
    for project in NAMES:
        (Path(__file__).parent / f"{project}.inv").write_bytes(inventory(project))
