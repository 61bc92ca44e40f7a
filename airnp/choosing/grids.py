"""Settings to try: a dict of lists, or a list of dicts, as a list of arguments of :func:`airnp.fit`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from airnp.fitting import fit

_OF_THE_PROBLEM = ("Y", "mask", "weights", "operator", "shape", "xp", "device", "dtype", "truth")
_OF_ONE_FIT = ("callback", "progress", "checkpoint", "checkpoint_every")
_OF_SPARSE_FITS = ("form", "offsets", "mask_factor", "batch_size")
_ALL = tuple(inspect.signature(fit).parameters)

CHOOSABLE = tuple(name for name in _ALL if name not in (*_OF_THE_PROBLEM, *_OF_ONE_FIT, *_OF_SPARSE_FITS))
"""Arguments of :func:`airnp.fit` that a grid may hold."""

SHARED = (*CHOOSABLE, "weights", "xp", "device", "dtype")
"""Those that all candidates may share."""


def expanded(grid: Any, shared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the candidates that a grid stands for, in order, checked by their names.

    Parameters
    ----------
    grid : mapping of str to list, or list of mappings
        All combinations of the lists' values, the last varying fastest; or each mapping as it is.
    shared : mapping
        What all candidates have in common, which a grid must not say again.

    Examples
    --------
    >>> expanded({"depth": [2, 3], "rank": [5, None]}, {})
    [{'depth': 2, 'rank': 5}, {'depth': 2, 'rank': None}, {'depth': 3, 'rank': 5}, {'depth': 3, 'rank': None}]
    >>> expanded([{"depth": 2}, {}], {})
    [{'depth': 2}, {}]
    """
    if isinstance(grid, Mapping):
        for name, values in grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence):
                raise TypeError(f"grid: expected a list of values to try for {name!r}, got {values!r}")
            if not values:
                raise ValueError(f"grid: expected at least one value to try for {name!r}")
        candidates = [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
    elif isinstance(grid, Sequence) and all(isinstance(each, Mapping) for each in grid):
        candidates = [dict(each) for each in grid]
    else:
        raise TypeError(f"grid: expected a dict of lists, or a list of dicts, got {grid!r}")
    if not candidates:
        raise ValueError("grid: expected at least one candidate")
    for name in dict.fromkeys(name for candidate in candidates for name in candidate):
        _check_name("grid", name, CHOOSABLE)
        if name in shared:
            raise TypeError(f"grid: {name!r} is given for all candidates already")
    return candidates


def check_shared(settings: Mapping[str, Any]) -> None:
    """Raise TypeError for what all candidates cannot share."""
    for name in settings:
        _check_name("settings", name, SHARED)


def _check_name(argument: str, name: Any, known: tuple[str, ...]) -> None:
    if name in known:
        return
    if name in _OF_SPARSE_FITS:
        raise TypeError(f"{argument}: {name!r} is for form='sparse', and only dense fits are searched")
    if name in _ALL:
        raise TypeError(f"{argument}: {name!r} is nothing that fits can be searched for with")
    raise TypeError(f"{argument}: {name!r} is no argument of airnp.fit; there are {', '.join(known)}")
