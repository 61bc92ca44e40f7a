"""Engines carry out the operations that the mathematics is written in; this module chooses one per fit."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import cast

from array_api_compat import is_cupy_namespace, is_numpy_namespace

from airnp._arrays import Namespace, namespace_name
from airnp.engines.contract import Engine

INSTALL_CUPY = 'pip install "airnp[cuda12x]" or "airnp[cuda13x]"'

_MODULES = {
    "reference": "airnp.engines.reference",
    "cpu": "airnp.engines.cpu",
    "cuda": "airnp.engines.cuda",
}


def select_engine(name: str, xp: Namespace) -> Engine:
    """Return the engine that will do the work of one fit.

    Parameters
    ----------
    name : str
        ``"auto"`` takes the fastest engine there is for ``xp``; ``"cpu"`` is fused numba and BLAS, for NumPy;
        ``"cuda"`` is fused kernels and cuBLAS, for CuPy; ``"reference"`` takes the specification, which runs
        on every namespace.
    xp : module
        The array namespace of the problem.

    Returns
    -------
    Engine
        A module with the operations of :class:`airnp.engines.contract.Engine`.
    """
    if not isinstance(name, str) or (name != "auto" and name not in _MODULES):
        raise ValueError(f"engine: expected one of 'auto', {', '.join(map(repr, _MODULES))}, got {name!r}")
    if name == "cpu" and not is_numpy_namespace(xp):
        raise ValueError(f"engine: 'cpu' works on NumPy arrays, the problem is in {namespace_name(xp)}")
    if name == "cuda" and not is_cupy_namespace(xp):
        raise ValueError(
            f"engine: 'cuda' works on CuPy arrays, the problem is in {namespace_name(xp)}; say xp=cupy"
            + ("" if find_spec("cupy") else f" (CuPy is not installed: {INSTALL_CUPY})")
        )
    automatic = "cpu" if is_numpy_namespace(xp) else "cuda" if is_cupy_namespace(xp) else "reference"
    return cast(Engine, importlib.import_module(_MODULES[automatic if name == "auto" else name]))
