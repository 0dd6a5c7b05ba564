"""The rows of the experiment: one setting each, as in the published code, with rivals and controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

SEEDS = 20


@dataclass(frozen=True)
class Row:
    """One setting, trained on several seeds at once. The defaults are AdamW as in the published code.

    ``loss_dtype`` is the precision of the softmax and the loss, ``dtype`` that of the network. ``figure`` is the figure
    of Prieto et al. that shows this row, empty for rivals and controls.
    """

    name: str
    title: str
    figure: str = ""
    task: str = "addition"
    network: str = "mlp"
    train_share: float = 0.4
    optimizer: str = "adamw"
    is_orthogonal: bool = False
    learning_rate: float = 0.01
    beta2: float = 0.99
    epsilon: float = 1e-25
    weight_decay: float = 0.0
    momentum: float = 0.0
    loss: str = "softmax"
    loss_dtype: str = "float32"
    dtype: str = "float32"
    steps: int = 300

    def as_dict(self) -> dict[str, Any]:
        """The settings as plain data, without the texts."""
        return {name: value for name, value in asdict(self).items() if name not in ("title", "figure")}


def _orthogonal(row: Row, name: str, **changes: Any) -> Row:
    """⊥AdamW as the published code runs it: its class gets neither β₂ nor ε, so torch's defaults apply."""
    settings = {"title": row.title.replace("AdamW", "⊥AdamW"), "is_orthogonal": True, "beta2": 0.999, "epsilon": 1e-8}
    return replace(row, name=name, **{**settings, **changes})


ADAMW = Row("adamw", "AdamW")
ORTHO = _orthogonal(ADAMW, "ortho_adamw", figure="1")
SLOWER = Row("adamw_slower", "AdamW, rate 0.005", "6", learning_rate=0.005, steps=500)
TRANSFORMER = Row("transformer_adamw", "transformer, AdamW", "6", network="transformer", learning_rate=1e-3, steps=5000)
STABLEMAX = Row("stablemax", "AdamW with StableMax", "1, 4", loss="stablemax", beta2=0.999, steps=100_000)
PARITY: dict[str, Any] = {"task": "parity", "train_share": 0.5}
DECAYS = (1.0, 2.0, 4.0, 8.0, 16.0)


def _precisions() -> list[Row]:
    """Figure 2: softmax in three precisions, at three shares of training pairs. Its ε differs at 40%."""
    rows = []
    for share in (0.4, 0.6, 0.7):
        for bits in (16, 32, 64):
            title = f"AdamW, softmax in float{bits}, {share:.0%} of pairs"
            settings: dict[str, Any] = {
                "train_share": share,
                "loss_dtype": f"float{bits}",
                "epsilon": 1e-30 if share == 0.4 else 1e-25,
            }
            rows.append(Row(f"float{bits}_{share:.0%}"[:-1], title, "2", learning_rate=5e-4, steps=20_000, **settings))
    return rows


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        # Figure 1, with both settings of β₂ and ε for both methods.
        ADAMW,
        ORTHO,
        replace(ADAMW, name="adamw_defaults", title="AdamW, torch's β₂ and ε", beta2=0.999, epsilon=1e-8),
        _orthogonal(ADAMW, "ortho_adamw_stated", title="⊥AdamW, AdamW's β₂ and ε", beta2=0.99, epsilon=1e-25),
        # Figure 6.
        SLOWER,
        _orthogonal(SLOWER, "ortho_adamw_slower"),
        Row(
            "ortho_sgd",
            "⊥SGD with StableMax, float64",
            "6",
            optimizer="sgd",
            is_orthogonal=True,
            learning_rate=10.0,
            momentum=0.8,
            loss="stablemax",
            loss_dtype="float64",
            dtype="float64",
            steps=500,
        ),
        TRANSFORMER,
        _orthogonal(TRANSFORMER, "transformer_ortho_adamw"),
        replace(
            TRANSFORMER, name="transformer_decay", title="transformer, AdamW with weight decay 1.5", weight_decay=1.5
        ),
        # Rivals and controls, as short as ⊥AdamW.
        *(
            replace(ADAMW, name=f"decay_{decay:g}", title=f"AdamW with weight decay {decay:g}", weight_decay=decay)
            for decay in DECAYS
        ),
        replace(ADAMW, name="adamw_float64", title="AdamW, softmax in float64", loss_dtype="float64"),
        replace(STABLEMAX, name="stablemax_short", figure="", steps=300),
        _orthogonal(ADAMW, "ortho_stablemax", title="⊥AdamW with StableMax", loss="stablemax"),
        replace(ADAMW, name="product_adamw", title="product, AdamW", task="product"),
        _orthogonal(ADAMW, "product_ortho_adamw", title="product, ⊥AdamW", task="product"),
        Row("parity_adamw", "sparse parity, AdamW", epsilon=1e-18, steps=2000, **PARITY),
        _orthogonal(ADAMW, "parity_ortho_adamw", title="sparse parity, ⊥AdamW", steps=2000, **PARITY),
        # Long rows.
        replace(
            STABLEMAX,
            name="stablemax_parity",
            title="sparse parity, AdamW with StableMax",
            figure="4",
            epsilon=1e-18,
            **PARITY,
        ),
        *_precisions(),
        replace(ADAMW, name="adamw_long", steps=20_000),
        replace(
            ADAMW,
            name="float64_long",
            title="AdamW, softmax in float64",
            figure="1",
            loss_dtype="float64",
            steps=80_000,
        ),
        STABLEMAX,
        replace(STABLEMAX, name="stablemax_product", title="product, AdamW with StableMax", figure="4", task="product"),
    )
}
"""Every row by name, short ones first."""

QUICK = ("adamw", "ortho_adamw", "decay_8")
QUICK_ON_A_GPU = (*QUICK, "stablemax")
"""StableMax needs some 100,000 steps, which a GPU takes in minutes."""
QUICK_SEEDS = 5


def rows_named(names: Sequence[str]) -> list[Row]:
    """The rows of these names, all for none; ValueError for an unknown name.

    >>> [row.title for row in rows_named(["ortho_adamw"])]
    ['⊥AdamW']
    """
    if unknown := [name for name in names if name not in ROWS]:
        raise ValueError(f"expected rows among {', '.join(ROWS)}, got {', '.join(unknown)}")
    return [ROWS[name] for name in names] or list(ROWS.values())
