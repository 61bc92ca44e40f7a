"""Dense or sparse? On request, or by what fits into memory."""

from __future__ import annotations

import os
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal, TypeAlias

import numpy as np
from array_api_compat import is_cupy_namespace, is_numpy_namespace

from airnp._arrays import namespace_name, on_device, standard_namespace
from airnp._devices import check_device
from airnp.data.entries import is_sparse
from airnp.data.inputs import read
from airnp.engines.contract import SparseOperations
from airnp.model.factorization import needed_bytes
from airnp.regularizers.base import checked_choice

Form: TypeAlias = Literal["auto", "dense", "sparse"]

_FORMS = ("auto", "dense", "sparse")


def wants_sparse(
    form: Any, Y: Any, depth: int, rank: Any, dtype: Any, xp: Any = None, device: Any = None
) -> bool:
    """Whether ``airnp.fit`` is to take the sparse form: on request, or when the dense one would not fit.

    The dense form is thought not to fit if it needs more than the memory that is available now: the host's,
    or that of the device for ``xp=cupy``.
    """
    checked_choice("form", form, _FORMS)
    if form != "auto" or not is_sparse(Y) or Y.ndim != 2:
        return bool(form == "sparse")
    kind = "float32" if dtype is not None and np.dtype(dtype) == np.float32 else "float64"
    width = rank if isinstance(rank, int) and rank > 0 else None
    m, n = Y.shape
    on_cupy = xp is not None and is_cupy_namespace(standard_namespace(xp))
    memory = device_memory(device) if on_cupy else available_memory()
    return needed_bytes((), m, n, max(int(depth), 2), width, kind) > memory


def on_the_host(Y: Any, xp: Any, device: Any) -> tuple[Any, Any, Any]:
    """Return Y, ``xp`` and ``device``; for a sparse matrix of CuPy the one of SciPy, and where it comes from.

    A matrix that lives on a device is computed with there.
    """
    found = sys.modules.get("cupyx.scipy.sparse")
    if found is None or not found.issparse(Y):
        return Y, xp, device
    import cupy

    if xp is not None and xp is not cupy:
        return Y.get(), xp, device
    home = Y.data.device
    if device is not None and int(getattr(device, "id", device)) != home.id:
        raise ValueError(f"device: expected {home}, where Y is, got {device}; move Y, or leave device out")
    return Y.get(), cupy, home


def sparse_place(xp: Any, device: Any) -> AbstractContextManager[Any]:
    """Return a context in which a sparse fit works on the device that was asked for, which is checked."""
    # A matrix of no importance: reading it checks what is meant by the namespace and the device.
    place = read(np.zeros((1, 1)), xp=xp, device=device)
    return on_device(place.xp, place.device)


def available_memory() -> int:
    """Return how many bytes this process may still get, as far as the system tells; else 8 GiB."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 8 * 2**30


def device_memory(device: Any = None) -> int:
    """Return how many bytes of a CUDA device, by default the current one, are free."""
    import cupy

    check_device(device)
    number = getattr(device, "id", device)
    with nullcontext() if number is None else cupy.cuda.Device(number):
        return int(cupy.cuda.runtime.memGetInfo()[0])


def refuse_for_sparse(**options: Any) -> None:
    """Say which options the sparse form does not have."""
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)}: not with form='sparse', whose stored entries are what is observed"
        )


def refuse_for_dense(**options: Any) -> None:
    """Say which options only the sparse form has."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise ValueError(f"{', '.join(given)}: only with a scipy.sparse Y and form='sparse'")


def sparse_engine(engine: Any, xp: Any) -> SparseOperations:
    """Return who carries out the operations of the sparse form: for NumPy arrays, or for those of CuPy."""
    space = None if xp is None else standard_namespace(xp)
    on_cupy = space is not None and is_cupy_namespace(space)
    if space is not None and not (on_cupy or is_numpy_namespace(space)):
        raise ValueError(f"xp: form='sparse' works on arrays of NumPy and CuPy, got {namespace_name(space)}")
    from airnp.engines import sparse_cpu as cpu
    from airnp.engines import sparse_cuda as cuda
    from airnp.engines import sparse_reference as reference

    known: dict[str, Any] = {"auto": cpu, "cpu": cpu, "reference": reference}
    if on_cupy:
        known = {"auto": cuda, "cuda": cuda}
    if not (isinstance(engine, str) and engine in known):
        names = ", ".join(map(repr, known))
        arrays = "CuPy" if on_cupy else "NumPy; say xp=cupy for 'cuda'"
        raise ValueError(f"engine: form='sparse' has {names} for arrays of {arrays}, got {engine!r}")
    if on_cupy:
        check_device()
    found: SparseOperations = known[engine]
    return found
