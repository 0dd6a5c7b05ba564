"""The paper's theorems, run: what each says, what was measured, and whether it holds. See docs/theory.md."""
