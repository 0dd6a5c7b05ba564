"""Two methods compared over seeds: effect sizes, intervals, tests, a verdict. Differences are candidate − baseline."""

try:
    import scipy as _needed  # noqa: F401
except ImportError:
    message = "orthograd.statistics needs scipy: pip install 'orthograd[lab]' (from a clone: pip install '.[lab]')"
    raise ImportError(message, name="scipy") from None

from .comparison import Comparison
from .difference import Estimate, Interval, bootstrap_interval, difference_interval, estimated_difference
from .effect import (
    EffectSize,
    ReportedEffect,
    cohens_d,
    from_effect_size,
    hedges_correction,
    hedges_g,
    paired_effect,
)
from .hypothesis import Equivalence, SignificanceTest, holm, t_test, tost, wilcoxon_test
from .power import independent_power, paired_power, seeds_needed
from .samples import Moments
from .table import ComparisonTable, compare, compare_table
from .verdict import Direction, Verdict

__all__ = [
    "Comparison",
    "ComparisonTable",
    "Direction",
    "EffectSize",
    "Equivalence",
    "Estimate",
    "Interval",
    "Moments",
    "ReportedEffect",
    "SignificanceTest",
    "Verdict",
    "bootstrap_interval",
    "cohens_d",
    "compare",
    "compare_table",
    "difference_interval",
    "estimated_difference",
    "from_effect_size",
    "hedges_correction",
    "hedges_g",
    "holm",
    "independent_power",
    "paired_effect",
    "paired_power",
    "seeds_needed",
    "t_test",
    "tost",
    "wilcoxon_test",
]
