"""Engines carry out the operations that the mathematics is written in; this module chooses one per fit."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, NamedTuple, cast, get_args

from array_api_compat import is_cupy_namespace, is_numpy_namespace

from airnp._arrays import Namespace, namespace_name
from airnp._checks import checked_whole
from airnp._devices import INSTALL_CUPY
from airnp.engines.contract import Engine, Precision
from airnp.engines.threads import available_threads

_MODULES = {
    "reference": "airnp.engines.reference",
    "cpu": "airnp.engines.cpu",
    "cuda": "airnp.engines.cuda",
}


@dataclass(frozen=True)
class CPU:
    """The CPU engine, numba and BLAS on NumPy arrays.

    Parameters
    ----------
    threads : int, optional
        Threads that it may use. Default: one for each processor, or fewer if ``OMP_NUM_THREADS``,
        ``OPENBLAS_NUM_THREADS`` or ``NUMBA_NUM_THREADS`` say so.
    """

    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            checked_whole("threads", self.threads)


@dataclass(frozen=True)
class CUDA:
    """The CUDA engine, fused kernels and cuBLAS on CuPy arrays.

    Parameters
    ----------
    precision : {"tf32", "tf32x3", "bf16x9"}, optional
        How to multiply float32 matrices. Default: by float32 units. ``"tf32"`` takes tensor cores, which keep
        10 bits of a significand: faster on large matrices, coarser. ``"tf32x3"`` has the accuracy of float32
        from three products of split operands on these cores. ``"bf16x9"`` has it, too, by cuBLAS 12.9 or
        newer on devices of compute capability 10.0 and 10.3.
    """

    precision: Precision | None = None

    def __post_init__(self) -> None:
        known = get_args(Precision)
        if self.precision is not None and self.precision not in known:
            raise ValueError(
                f"precision: expected None, {', '.join(map(repr, known))}; got {self.precision!r}"
            )


@dataclass(frozen=True)
class Auto:
    """The fastest engine that there is for the data, with so many threads if that is the CPU engine.

    What ``"auto"`` means, for callers that share a machine among several fits.
    """

    threads: int | None = None


class EngineChoice(NamedTuple):
    """The engine of one fit.

    Attributes
    ----------
    name : {"cpu", "cuda", "reference"}
    ops : Engine
        A module with the operations of :class:`airnp.engines.contract.Engine`.
    threads : int
        For engines of the CPU.
    precision : {"tf32", "tf32x3", "bf16x9"} or None
        For the CUDA engine.
    """

    name: str
    ops: Engine
    threads: int
    precision: Precision | None

    @property
    def settings(self) -> str | CPU | CUDA:
        """What to ask for to get the same engine again."""
        own: dict[str, Any] = {"cpu": CPU(self.threads), "cuda": CUDA(self.precision)}
        return cast("str | CPU | CUDA", own.get(self.name, self.name))


def select_engine(engine: Any, xp: Namespace) -> EngineChoice:
    """Return the engine that will do the work of one fit.

    Parameters
    ----------
    engine : {"auto", "cpu", "cuda", "reference"}, CPU or CUDA
        ``"auto"`` takes the fastest engine there is for ``xp``; ``"cpu"`` is fused numba and BLAS, for NumPy;
        ``"cuda"`` is fused kernels and cuBLAS, for CuPy; ``"reference"`` takes the specification, which runs
        on every namespace. The two classes are for settings.
    xp : module
        The array namespace of the problem.
    """
    names = {CPU: "cpu", CUDA: "cuda", Auto: "auto"}
    name = names.get(type(engine), engine)
    if not isinstance(name, str) or (name != "auto" and name not in _MODULES):
        known = ", ".join(map(repr, _MODULES))
        raise ValueError(f"engine: expected one of 'auto', {known}, or CPU() or CUDA(), got {engine!r}")
    if name == "cpu" and not is_numpy_namespace(xp):
        raise ValueError(f"engine: 'cpu' works on NumPy arrays, the problem is in {namespace_name(xp)}")
    if name == "cuda" and not is_cupy_namespace(xp):
        raise ValueError(
            f"engine: 'cuda' works on CuPy arrays, the problem is in {namespace_name(xp)}; say xp=cupy"
            + ("" if find_spec("cupy") else f" (CuPy is not installed: {INSTALL_CUPY})")
        )
    if name == "auto":
        name = "cpu" if is_numpy_namespace(xp) else "cuda" if is_cupy_namespace(xp) else "reference"
    threads = engine.threads if isinstance(engine, CPU | Auto) else None
    precision = engine.precision if isinstance(engine, CUDA) else None
    ops = cast(Engine, importlib.import_module(_MODULES[name]))
    return EngineChoice(name, ops, available_threads() if threads is None else threads, precision)
