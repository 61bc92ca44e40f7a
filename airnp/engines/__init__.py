"""Engines carry out the operations that the mathematics is written in; this module chooses one per fit."""

from __future__ import annotations

import importlib
from typing import cast

from airnp._arrays import Namespace
from airnp.engines.contract import Engine

_MODULES = {"reference": "airnp.engines.reference"}


def select_engine(name: str, xp: Namespace) -> Engine:
    """Return the engine that will do the work of one fit.

    Parameters
    ----------
    name : str
        ``"auto"`` takes the fastest engine there is for ``xp``; ``"reference"`` takes the specification,
        which runs on every namespace.
    xp : module
        The array namespace of the problem.

    Returns
    -------
    Engine
        A module with the operations of :class:`airnp.engines.contract.Engine`.
    """
    if name != "auto" and name not in _MODULES:
        raise ValueError(f"engine: expected one of 'auto', {', '.join(map(repr, _MODULES))}, got {name!r}")
    chosen = "reference" if name == "auto" else name
    return cast(Engine, importlib.import_module(_MODULES[chosen]))
