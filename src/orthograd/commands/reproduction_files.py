"""What `orthograd reproduce` writes beside the runs: the page, a table for each experiment, and the figures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..paper.blocks import Picture, as_markdown
from ..paper.contents import contents
from ..paper.evidence import Evidence
from ..paper.experiments import Experiment
from ..paper.page import as_page
from ..paper.parts import part_of
from .comparison_files import write_text


def write_reproduction(
    evidence: Evidence, experiments: Sequence[Experiment], folder: Path, *, records: Path | None = None
) -> list[Path]:
    """Write reproduction.html and .md about everything, tables/NAME.md of these experiments, and figures.

    Files of records, if any, lie in the folder ``records``.
    """
    blocks = contents(evidence, records=None if records is None else Path(os.path.relpath(records, folder)).as_posix())
    texts = {
        "reproduction.html": as_page(blocks),
        "reproduction.md": as_markdown(blocks, figures="figures"),
        **{f"figures/{block.name}": block.svg for block in blocks if isinstance(block, Picture)},
    }
    for experiment in experiments:
        texts[f"tables/{experiment.name}.md"] = as_markdown(part_of(experiment, evidence), figures="../figures")
    return [write_text(folder / name, text) for name, text in texts.items()]
