"""Defects to plant in the CUDA kernels, and the tests' answer to each.

``python -m bench.mutants`` tries all of them; ``docs/mutants.md`` says which test finds which.
"""

from .defects import MUTATIONS
from .mutation import MODULES, Mutation
from .trial import LATE_FILES, NotAMutantError, Verdict, trial

__all__ = ["LATE_FILES", "MODULES", "MUTATIONS", "Mutation", "NotAMutantError", "Verdict", "trial"]
