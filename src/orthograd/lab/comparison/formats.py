"""The table of a comparison as Markdown, LaTeX and CSV, with the titles of metrics and image sets."""

from __future__ import annotations

import re

from ...calibration import CONVENTIONS
from ...statistics import Comparison, ComparisonTable
from ...statistics.table import ARROWS, markdown_table
from ...statistics.verdict import probability
from ..page.document import csv_text

TITLES = {
    "top1_accuracy": "accuracy, %",
    "top5_accuracy": "top-5 accuracy, %",
    "loss": "loss",
    "ece": "ECE",
    "brier": "Brier score",
    "entropy": "entropy",
    "max_softmax": "confidence",
    "max_logit": "max |logit|",
    "logit_variance": "logit variance",
    "confidence_accuracy_correlation": "confidence–accuracy",
    "smooth_ece": "smooth ECE",
    "aurc": "AURC",
}
"""Titles of the compared metrics, in the order of the table."""

IMAGES = {
    "clean": "clean test samples",
    "shifted": "corrupted test samples",
    "temperature-scaled": "clean test samples after temperature scaling",
    "shifted-temperature-scaled": "corrupted test samples after temperature scaling",
}
"""Titles of the image sets of a comparison's tables."""

TEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    **{sign: f"\\{sign}" for sign in "&%$#_"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "|": r"\textbar{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "⊥": r"$\perp$",
    "±": r"$\pm$",
    "−": r"$-$",
    "–": "--",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
}


def header(baseline: str, candidate: str) -> list[str]:
    """Names of the columns."""
    difference = f"{candidate} − {baseline} (95% interval)"
    return ["metric", baseline, candidate, difference, "d (95% interval)", "p", "p (Holm)", "verdict"]


def caption(baseline: str, candidate: str) -> str:
    """A sentence for the caption of a table: the sign of its differences and the meaning of the arrows.

    >>> caption("SGD", "⊥Grad")
    'Differences are ⊥Grad − SGD; ↓ lower is better, ↑ higher is better.'
    """
    return f"Differences are {candidate} − {baseline}; ↓ lower is better, ↑ higher is better."


def metric_title(metric: str) -> str:
    """The title of a metric, with an arrow for its good direction.

    >>> metric_title("ece"), metric_title("top1_accuracy"), metric_title("entropy")
    ('ECE ↓', 'accuracy, % ↑', 'entropy')
    """
    return TITLES[metric] + ARROWS[CONVENTIONS[metric].better]


def rows(table: ComparisonTable) -> list[list[str]]:
    """A row of text for each metric."""
    return [cells(row) for row in table]


def cells(row: Comparison) -> list[str]:
    """The text of one metric under each column of `header`."""
    digits = CONVENTIONS[str(row.metric)].digits
    low, high = row.interval
    exact = row.cohens_d.exact
    return [
        metric_title(str(row.metric)),
        f"{row.baseline.mean:.{digits}f} ± {row.baseline.sd:.{digits}f}",
        f"{row.candidate.mean:.{digits}f} ± {row.candidate.sd:.{digits}f}",
        f"{row.difference:+.{digits}f} ({low:+.{digits}f} to {high:+.{digits}f})",
        f"{row.cohens_d.value:+.2f} ({exact.low:+.2f} to {exact.high:+.2f})",
        probability(row.p),
        "" if row.corrected_p is None else probability(row.corrected_p),
        row.verdict,
    ]


def markdown(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """The table for a README or an issue."""
    return markdown_table(header(baseline, candidate), rows(table))


def as_csv(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    """The table for a spreadsheet."""
    named = [[str(row.metric), *cells(row)[1:]] for row in table]
    return csv_text([header(baseline, candidate), *named])


def latex(table: ComparisonTable, *, baseline: str, candidate: str) -> str:
    r"""The table for a paper, as wide as its text; it needs \usepackage{booktabs,graphicx}.

    To save space, it omits the interval of d and the uncorrected p.
    """
    names = header(baseline, candidate)
    narrow = [[*names[:4], "d", *names[6:]], *([*line[:4], line[4].split()[0], *line[6:]] for line in rows(table))]
    lines = [" & ".join(map(tex, line)) + r" \\" for line in narrow]
    body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
    return f"\\noindent\\resizebox{{\\linewidth}}{{!}}{{%\n\\begin{{tabular}}{{lrrrrrl}}\n{body}\n\\end{{tabular}}}}\n"


def tex(text: str) -> str:
    r"""Text as LaTeX: special characters escaped, minus signs and exponents in math mode.

    >>> print(tex("⊥Grad, 95%"), tex("-0.5 (+0.1 to +0.2)"), tex("8.2e-05"))
    $\perp$Grad, 95\% $-$0.5 (+0.1 to +0.2) $8.2 \cdot 10^{-5}$
    """
    escaped = "".join(TEX.get(sign, sign) for sign in text)
    escaped = re.sub(r"(?<![\w.])-(?=\d|inf)", "$-$", escaped)
    return re.sub(r"\b(\d[\d.]*)e([+-]\d+)\b", lambda power: f"${power[1]} \\cdot 10^{{{int(power[2])}}}$", escaped)
