"""Install the double in place of CuPy for a test, and restore the real package afterwards."""

from __future__ import annotations

import importlib
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import array_api_compat
import pytest

from airnp._devices import warn_of_slow_double
from airnp.engines import _cublas, launching
from tests.cupy_double import modules
from tests.cupy_double.cublas import Library, gemm_strided_batched
from tests.cupy_double.memory import check_all_guards
from tests.cupy_double.state import Counters, Settings, machine

_REPLACED = ("cupy", "cupyx", "cupy_backends", "array_api_compat.cupy")

_compat_modules: dict[str, ModuleType] = {}
"""array_api_compat's wrapper of the double: imported once, because a namespace is compared by identity."""


class Double:
    """The double, as a test uses it.

    Attributes
    ----------
    cupy, cupyx : module
        The modules that ``import cupy`` and ``import cupyx`` give.
    gemm_strided_batched : function
        cuBLAS; see :mod:`tests.cupy_double.cublas`.
    """

    def __init__(self) -> None:
        built = modules.build()
        self.cupy: Any = built["cupy"]
        self.cupyx: Any = built["cupyx"]
        self.gemm_strided_batched: Callable[..., None] = gemm_strided_batched
        self.cublas: Library | None = None

    @property
    def counters(self) -> Counters:
        """Counters of operations; ``reset()`` sets them to zero."""
        return machine.counters

    @property
    def settings(self) -> Settings:
        """Properties of the machine; every test starts with the defaults."""
        return machine.settings

    def pending(self) -> int:
        """Return how much submitted work is not done yet, also of streams that are gone."""
        return sum(len(timeline.pending) for timeline in machine.timelines.values())

    def check_memory(self) -> None:
        """Raise if something was written beyond an allocation; the fixture also checks at the end."""
        check_all_guards()
        if machine.damage:
            raise AssertionError("; ".join(machine.damage))


def _is_replaced(name: str) -> bool:
    return any(name == top or name.startswith(f"{top}.") for top in _REPLACED)


def _forget_classes() -> None:
    """Empty array_api_compat's caches of what belongs to CuPy."""
    for item in vars(array_api_compat.common._helpers).values():
        if hasattr(item, "cache_clear"):
            item.cache_clear()


def _take_away() -> dict[str, ModuleType]:
    """Remove everything of CuPy from ``sys.modules``; return it."""
    return {name: sys.modules.pop(name) for name in list(sys.modules) if _is_replaced(name)}


@contextmanager
def installed() -> Iterator[Double]:
    """Make ``import cupy`` return the double; restore the real modules on exit."""
    real, wrapper = _take_away(), vars(array_api_compat).pop("cupy", None)
    _forget_classes()
    machine.renew()
    try:
        sys.modules.update(modules.build())
        sys.modules["cupy_backends"] = None  # type: ignore[assignment]  # cannot be imported
        sys.modules.update(_compat_modules)
        compat = importlib.import_module("array_api_compat.cupy")
        vars(array_api_compat)["cupy"] = compat
        _compat_modules.update(
            {name: item for name, item in sys.modules.items() if name.startswith("array_api_compat.cupy")}
        )
        yield Double()
    finally:
        _take_away()
        vars(array_api_compat).pop("cupy", None)
        sys.modules.update(real)
        if wrapper is not None:
            vars(array_api_compat)["cupy"] = wrapper
        _forget_classes()


@pytest.fixture
def cupy_double() -> Iterator[Double]:
    """The double in place of CuPy: a machine with two devices of 4 GiB, nothing allocated or counted yet."""
    with installed() as double:
        yield double
        double.check_memory()


@pytest.fixture
def gpu(cupy_double: Double, monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    """The double with two devices, its own cuBLAS and no compiled kernels, for fits by the CUDA engine."""
    cupy_double.cublas = Library()
    monkeypatch.setattr(_cublas, "_library", lambda: cupy_double.cublas)
    monkeypatch.setattr(_cublas, "_local", _cublas._Local())
    monkeypatch.setattr(_cublas, "_idle", defaultdict(list))
    monkeypatch.setattr(launching, "_choose_compiler", lambda: None)
    _forget_devices()
    yield cupy_double
    _forget_devices()


def _forget_devices() -> None:
    """Empty caches of what belongs to a device."""
    for cached in (launching._function, launching._compiled, warn_of_slow_double):
        cached.cache_clear()
