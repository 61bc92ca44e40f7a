"""Defects to plant in the CUDA kernels, and the tests' answer to each. ``python -m bench.mutants`` tries all.

What was tried, and which test found it, stands in ``docs/mutants.md``.
"""

from .fixed_graph import FIXED_GRAPH
from .learned_graph import LEARNED_GRAPH
from .mutation import MODULES, Mutation
from .passes import PASSES
from .sparse_entries import SPARSE_ENTRIES
from .sparse_lines import SPARSE_LINES
from .trial import LATE_FILES, NotAMutantError, Verdict, trial
from .updates import UPDATES

MUTATIONS: tuple[Mutation, ...] = (
    *LEARNED_GRAPH, *PASSES, *UPDATES, *FIXED_GRAPH, *SPARSE_ENTRIES, *SPARSE_LINES,
)  # fmt: skip

__all__ = ["LATE_FILES", "MODULES", "MUTATIONS", "Mutation", "NotAMutantError", "Verdict", "trial"]
