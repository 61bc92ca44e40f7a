"""Fuzzing: a budget of examples or of time for each target, what holds around a call, and strategies."""

from __future__ import annotations

import functools
import os
import random
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import hypothesis
import numba
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

import airnp
from tests.strategies import seeds

SECONDS = float(os.environ.get("AIRNP_FUZZ_SECONDS", "0"))
"""Time for all targets together; 0 for the few examples of a normal run."""

BATCH = 25
"""Examples between two looks at the clock."""

COUNTS: dict[str, tuple[int, int, float]] = {}
"""Examples, refusals among them, and seconds of each target that has run in this process."""

_refusals = 0

_TARGETS: list[str] = []


def fuzzed(examples: int, *strategies: Any) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Return a decorator that makes a test of a check on drawn arguments.

    Normally the same few ``examples`` are run. With ``AIRNP_FUZZ_SECONDS`` all targets share that time, and
    draw others each time; a failure is then printed with the arguments that reproduce it.
    """

    def decorate(check: Callable[..., None]) -> Callable[[], None]:
        _TARGETS.append(check.__name__)

        @pytest.mark.fuzz
        @functools.wraps(check)
        def test() -> None:
            started, count, refusals = time.monotonic(), 0, _refusals

            def counted(drawn: Any) -> None:
                nonlocal count
                count += 1
                with untouched():
                    check(*drawn)

            counted.__name__ = check.__name__
            options: dict[str, Any] = {
                "database": None,
                "deadline": None,
                "suppress_health_check": list(HealthCheck),
            }
            try:
                if not SECONDS:
                    same = settings(max_examples=examples, derandomize=True, **options)
                    same(given(st.tuples(*strategies))(counted))()
                    return
                first = random.SystemRandom().getrandbits(32)
                while time.monotonic() - started < SECONDS / len(_TARGETS):
                    batch = settings(max_examples=BATCH, **options)(given(st.tuples(*strategies))(counted))
                    hypothesis.seed(first + count)(batch)()
            finally:
                COUNTS[check.__name__] = count, _refusals - refusals, time.monotonic() - started

        del test.__wrapped__  # pytest would ask for fixtures with the names of the drawn arguments
        return test

    return decorate


# --- what must hold around every call ---


def _global_state() -> dict[str, Any]:
    kind, keys, *position = np.random.get_state()  # noqa: NPY002  # it is that one that must not change
    return {
        "NumPy's random state": (kind, keys.tobytes(), *position),
        "Python's random state": random.getstate(),
        "signal handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "warning filters": list(warnings.filters),
        "environment": dict(os.environ),
        # In this order: the first call starts numba's pool, which sets the threads of OpenMP.
        "threads of numba": numba.get_num_threads(),
        "threads of BLAS": sorted((each["filepath"], each["num_threads"]) for each in threadpool_info()),
        "floating-point errors": np.geterr(),
        "print options": np.get_printoptions(),
        "current folder": os.getcwd(),
    }


@contextmanager
def untouched() -> Iterator[None]:
    """Fail if the global state of the process is another one afterwards."""
    with warnings.catch_warnings():
        # Lines without entries and columns left out are drawn on purpose.
        warnings.simplefilter("ignore", UserWarning)
        before = _global_state()
        yield
        after = _global_state()
    # A library that is loaded first adds its own pool of threads.
    known = {path for path, _ in before["threads of BLAS"]}
    after["threads of BLAS"] = [each for each in after["threads of BLAS"] if each[0] in known]
    for name, value in before.items():
        assert after[name] == value, f"{name} changed: {value} became {after[name]}"


class Frozen:
    """Arguments of a call, to be compared with themselves after it."""

    def __init__(self, *values: Any) -> None:
        self._values = values
        self._before = [_content(value) for value in values]

    def check(self) -> None:
        for value, before in zip(self._values, self._before, strict=True):
            assert _content(value) == before, f"the call changed {type(value).__name__}"


def _content(value: Any) -> Any:
    if isinstance(value, pd.DataFrame):
        return [value.to_csv(), list(map(str, value.dtypes))]
    if sp.issparse(value):
        return [value.format, value.shape, *(_content(part) for part in _parts(value))]
    if isinstance(value, np.ma.MaskedArray):
        return [_content(value.data), _content(np.ma.getmaskarray(value))]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, value.strides, value.tobytes()]
    return repr(value)


def _parts(matrix: Any) -> list[Any]:
    if matrix.format == "dok":
        return [sorted(matrix.items())]
    names = ("data", "indices", "indptr", "row", "col", "offsets", "rows")
    return [np.asarray(getattr(matrix, name)).tolist() for name in names if hasattr(matrix, name)]


_NAMED = re.compile(r"[A-Za-z_]\w*(, \w+)*: .")


def refused(call: Callable[[], Any]) -> Any:
    """Return what a call returns; None if it refuses its arguments by an error that names one of them."""
    global _refusals
    try:
        return call()
    except (ValueError, TypeError) as error:
        if not _NAMED.match(str(error)):
            raise
    except airnp.DivergenceError:
        pass
    _refusals += 1
    return None


def same_bits(first: Any, second: Any) -> None:
    """Fail unless two arrays are equal to the bit."""
    first, second = np.asarray(first), np.asarray(second)
    assert first.dtype == second.dtype
    assert first.shape == second.shape
    assert first.tobytes() == second.tobytes()


# --- strategies ---

SCALES = (1.0, 1.0, 255.0, 1e-3, 1e6, 1e-30, 1e30, 1e-200, 1e200)
DTYPES = ("float64", "float64", "float32", "float16", "uint8", "int16", "int64", "bool", ">f8", ">i4")
CONTAINERS = ("array", "array", "list", "masked", "frame", "coo", "csr", "csc", "strict")
LAYOUTS = ("C", "F", "strided", "reversed", "read-only")
MASK_KINDS = ("bool", "uint8", "int64", "0 and 255", "float", "list", "none")


def laid_out(array: np.ndarray, layout: str) -> np.ndarray:
    """Return an equal array with another layout in memory."""
    if layout == "F":
        return np.asfortranarray(array)
    if layout == "strided":
        return np.repeat(np.repeat(array, 2, axis=-1), 2, axis=-2)[..., ::2, ::2]
    if layout == "reversed":
        return array[..., ::-1, ::-1].copy()[..., ::-1, ::-1]
    if layout == "read-only":
        array = array.copy()
        array.flags.writeable = False
    return array


@dataclass(frozen=True)
class Data:
    """What a user may pass for a matrix with gaps, and what it means."""

    Y: Any
    mask: Any
    values: np.ndarray
    """As floats, whatever stands in gaps."""
    observed: np.ndarray
    told: str

    def __repr__(self) -> str:
        return f"Data({self.told}, values={self.values.tolist()}, observed={self.observed.tolist()})"


@st.composite
def matrices(draw: st.DrawFn, *, most: int = 8, containers: Any = CONTAINERS, least: int = 1) -> Data:
    """A matrix in some container, dtype, layout and scale, with gaps marked in some way."""
    m, n = draw(st.integers(least, most)), draw(st.integers(least, most))
    rng = np.random.default_rng(draw(seeds))
    dtype, layout = draw(st.sampled_from(DTYPES)), draw(st.sampled_from(LAYOUTS))
    container = draw(st.sampled_from(containers))
    scale = draw(st.sampled_from(SCALES)) if np.dtype(dtype) == np.float64 else 1.0
    kind = draw(st.sampled_from(["random", "low rank", "constant", "whole", "binary"]))
    base = {
        "random": lambda: rng.standard_normal((m, n)),
        "low rank": lambda: rng.random((m, 1)) @ rng.random((1, n)) + draw(st.sampled_from([0, 5, -100])),
        "constant": lambda: np.full((m, n), draw(st.sampled_from([0.0, 1.0, -3.5]))),
        "whole": lambda: rng.integers(0, 100, (m, n)).astype(float),
        "binary": lambda: (rng.random((m, n)) < 0.5).astype(float),
    }[kind]()
    with np.errstate(invalid="ignore"):
        array = (base * scale).astype(dtype)
    observed = rng.random((m, n)) < draw(st.sampled_from([0.3, 0.7, 0.95, 1.0]))
    observed[rng.integers(m), rng.integers(n)] = True
    told = f"{m}x{n} {kind} {dtype} {layout} {container} scale {scale:g}"
    values = array.astype(np.float64)
    if container in ("coo", "csr", "csc"):
        rows, columns = np.nonzero(observed)
        plain = array[rows, columns].astype(array.dtype.newbyteorder("="))
        if plain.dtype == np.float16:
            plain = plain.astype(np.float32)
        matrix = sp.coo_array((plain, (rows, columns)), shape=(m, n)).asformat(container)
        return Data(matrix, None, values, observed, told)
    if container == "masked":
        return Data(np.ma.array(array, mask=~observed), None, values, observed, told)
    way = draw(st.sampled_from(MASK_KINDS))
    if way == "none" and array.dtype.kind == "f":
        array = np.where(observed, array, np.nan).astype(array.dtype)
    elif way == "none":
        observed = np.ones_like(observed)
    mask: Any = {
        "bool": lambda: laid_out(observed, layout),
        "uint8": lambda: observed.astype(np.uint8),
        "int64": lambda: observed.astype(np.int64),
        "0 and 255": lambda: observed.astype(np.uint8) * np.uint8(255),
        "float": lambda: observed.astype(np.float64),
        "list": observed.tolist,
        "none": lambda: None,
    }[way]()
    if container == "list":
        Y: Any = array.tolist()
    elif container == "frame":
        Y = pd.DataFrame(array.astype(array.dtype.newbyteorder("=")))
    elif container == "strict":
        import array_api_strict

        native = array.astype(array.dtype.newbyteorder("="))
        Y = array_api_strict.asarray(native.astype(np.float32) if native.dtype == np.float16 else native)
    else:
        Y = laid_out(array, layout)
    return Data(Y, mask, values, observed, f"{told}, mask {way}")


@st.composite
def options(draw: st.DrawFn, **choices: tuple[list[Any], list[Any]]) -> dict[str, Any]:
    """Some of these options, each with a value that makes sense or, sometimes, with one that makes none."""
    names = draw(st.lists(st.sampled_from(sorted(choices)), unique=True, max_size=3))
    senseless = draw(st.sampled_from([False, False, False, True]))
    return {name: draw(st.sampled_from(choices[name][senseless] or choices[name][0])) for name in names}
