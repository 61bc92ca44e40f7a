"""Fits that differ in nothing but their seed, as one stack: the same iterations for all, in one go.

A stack shares everything but data and parameters: weights, depth, learning rate and the rest are numbers of
the whole fit. What may differ from problem to problem is where it starts, so each member is given the
factors and graphs that its own seed draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

import numpy as np
from array_api_compat import array_namespace

from airnp._arrays import on_device, to_numpy
from airnp.defaults import chosen_regularizers
from airnp.fitting import fit
from airnp.inputs import Observations
from airnp.objective import Objective
from airnp.result import FitResult

_MOST_ENTRIES = 2**20
"""Entries of a stack at most; a fit needs memory for about thirty times as many."""

_DEFAULTS = {name: parameter.default for name, parameter in signature(fit).parameters.items()}
_OF_THE_OBJECTIVE = ("depth", "rank", "fidelity", "loss", "huber_delta", "engine")


def groups(fits: Sequence[Mapping[str, Any]], entries: int) -> list[list[int]]:
    """Return which fits may go together: equal but for their seeds, and not too many.

    Parameters
    ----------
    fits : sequence of mappings
        Arguments of :func:`airnp.fit`, each with a seed.
    entries : int
        Of one matrix.

    Examples
    --------
    >>> groups([{"depth": 2, "seed": 0}, {"depth": 3, "seed": 0}, {"depth": 2, "seed": 1}], entries=12)
    [[0, 2], [1]]
    """
    alike: dict[Any, list[int]] = {}
    for index, arguments in enumerate(fits):
        kind = frozenset((name, _mark(value)) for name, value in arguments.items() if name != "seed")
        alike.setdefault(kind, []).append(index)
    most = max(1, _MOST_ENTRIES // entries)
    return [members[i : i + most] for members in alike.values() for i in range(0, len(members), most)]


def _mark(value: Any) -> Any:
    """Return something that is equal for equal plain values, and otherwise for the same object."""
    return value if value is None or isinstance(value, bool | int | float | str) else ("id", id(value))


def fitted_together(seen: Observations, kept: Any, fits: Sequence[Mapping[str, Any]]) -> FitResult:
    """Fit a stack of copies of one matrix, each from the start that its own seed draws.

    Parameters
    ----------
    seen : Observations
        What was read, (m, n).
    kept : boolean array (m, n)
        Which entries the fits may see.
    fits : sequence of mappings
        Arguments of :func:`airnp.fit`, equal but for ``seed``.
    """
    shared = {name: value for name, value in fits[0].items() if name != "seed"}
    starts = [_start(seen, kept, shared, arguments["seed"]) for arguments in fits]
    xp = array_namespace(seen.values)
    with on_device(xp, seen.device):
        stack = xp.stack([seen.values] * len(fits))
    init = [np.stack(level) for level in zip(*starts, strict=True)]
    return fit(stack, kept, **{**shared, "init": init, "seed": fits[0]["seed"]})


def _start(seen: Observations, kept: Any, shared: Mapping[str, Any], seed: int) -> list[Any]:
    """Return the parameters, in NumPy's arrays, that a fit with this seed starts from."""
    settings: dict[str, Any] = {name: shared.get(name, _DEFAULTS[name]) for name in _OF_THE_OBJECTIVE}
    settings |= {name: shared.get(name) for name in ("weights", "xp", "dtype")}
    with on_device(seen.xp, seen.device):
        model = chosen_regularizers(shared.get("regularizers", "auto"), seen.moved(), measured=False)
    objective = Objective(seen.values, kept, regularizers=model, **settings)
    return [to_numpy(array) for array in objective.init(seed, shared.get("init", "gaussian"))]
