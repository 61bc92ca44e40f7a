"""Going on with a sparse fit from its file."""

from __future__ import annotations

from typing import Any

from airnp.data.inputs import Observations
from airnp.model.factored import Layout, SparseOptions, SparseProblem
from airnp.results.sparse_result import SparseFitResult
from airnp.sparse_choice import sparse_engine
from airnp.training.sparse_loop import SparseLoop
from airnp.training.sparse_saved import STORED_PROBLEM, SparseRunState
from airnp.training.sparse_watch import check_rule


def resumed_sparse(
    parts: dict[str, Any], asked: dict[str, Any], result: SparseFitResult, place: Observations
) -> SparseFitResult:
    """Go on with a run of the sparse form.

    Parameters
    ----------
    parts : dict
        What ``SparseTask`` and ``SparseRunState`` of :mod:`airnp.training.sparse_saved` stored:
        ``plain`` and ``state``, with arrays where the fit lives.
    asked : dict
        ``regularizers``, ``stop``, ``optimizer`` and ``init``, stored or given again.
    result : SparseFitResult
        Of the run so far.
    place : Observations
        Of any data, in the namespace of the fit.
    """
    plain = parts["plain"]
    check_rule(asked["stop"])
    stored = {name: plain[name] for name in STORED_PROBLEM}
    problem = SparseProblem(
        **stored,
        layout=Layout(**plain["layout"]),
        regularizers=asked["regularizers"],
        ops=sparse_engine(plain["engine"], place.xp),
    )
    options = SparseOptions(
        **plain["options"], init=asked["init"], optimizer=asked["optimizer"], rule=asked["stop"]
    )
    return SparseLoop(problem, options, (SparseRunState(**parts["state"]), result)).run()
