"""The paper's theorems, run: what each says, what was measured, and whether it holds. See docs/theory.md."""

from .document import with_tables
from .statement import Demonstration, Statement
from .suite import DEMONSTRATIONS, as_record, demonstrated

__all__ = ["DEMONSTRATIONS", "Demonstration", "Statement", "as_record", "demonstrated", "with_tables"]
