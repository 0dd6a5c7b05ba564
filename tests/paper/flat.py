"""Blocks of a document with what is folded laid open."""

from __future__ import annotations

from collections.abc import Iterable

from orthograd.paper.document.blocks import Block, Folded, Table


def flat(blocks: Iterable[Block]) -> list[Block]:
    """The blocks, with the contents of folded ones in their place."""
    return [each for block in blocks for each in (block.blocks if isinstance(block, Folded) else (block,))]


def tables(blocks: Iterable[Block]) -> list[Table]:
    """The tables, folded or not."""
    return [block for block in flat(blocks) if isinstance(block, Table)]
