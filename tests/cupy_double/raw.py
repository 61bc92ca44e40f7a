"""``cupy.RawModule``, whose kernels run in the SIMT executor."""

from __future__ import annotations

import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.cupy_double.array import check_device, ndarray
from tests.cupy_double.memory import Allocation, pool_of
from tests.cupy_double.state import machine
from tests.cupy_double.streams import current_stream, submit

_LARGEST_GRID = (2**31 - 1, 65535, 65535)
_LARGEST_BLOCK = (1024, 1024, 64)
_MOST_THREADS = 1024


class RawModule:
    """Kernels of one text; compiled when the first of them is asked for."""

    def __init__(
        self,
        code: str | None = None,
        *,
        options: tuple[str, ...] = (),
        name_expressions: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(code, str):
            raise TypeError("Exactly one of `code` and `path` keyword arguments must be given.")
        if not isinstance(options, tuple):
            raise TypeError(
                f"Argument 'options' has incorrect type (expected tuple, got {type(options).__name__})"
            )
        self.code = code
        self.options = options
        self.name_expressions = None if name_expressions is None else tuple(name_expressions)
        self._built: dict[str, Any] = {}

    def get_function(self, name: str) -> RawKernel:
        """Return a kernel by its name, or by the name expression that the module was given."""
        machine.device()
        if "<" in name and name not in (self.name_expressions or ()):
            raise ValueError(f"{name}: not one of the module's name_expressions, {self.name_expressions}")
        mode = machine.settings.executor_mode
        with machine.lock:
            if mode not in self._built:
                self._built[mode] = _executor(self, mode)
        return RawKernel(name, self._built[mode].get_function(name), _read_only(self.code, name))


def _executor(module: RawModule, mode: str) -> Any:
    # Not at the top: arrays do without the executor, and without a compiler.
    from tests import simt

    names = None if module.name_expressions is None else list(module.name_expressions)
    return simt.RawModule(code=module.code, options=module.options, name_expressions=names, mode=mode)


def _read_only(code: str, name: str) -> tuple[bool, ...]:
    """Return, for each parameter of a kernel, whether it is declared as a pointer to constants."""
    base = re.escape(name.partition("<")[0])
    head = re.search(rf"__global__[^{{;]*?\b{base}\(([^)]*)\)", code)
    return tuple("const " in part and "*" in part for part in head[1].split(",")) if head else ()


def _behind(table: ndarray) -> list[Allocation]:
    """Return the live allocations whose addresses a table of integers has."""
    words = set(table._host.ravel().tolist())
    return [found for found in list(pool_of(table.device.id).live) if found.address in words]


class RawKernel:
    """A kernel; in CuPy it can also be made without a module, here not."""

    def __init__(self, name: str, function: Any, read_only: Sequence[bool]) -> None:
        self.name = name
        self._function = function
        self._read_only = read_only

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], *, shared_mem: int = 0
    ) -> None:
        """Launch on the current stream."""
        machine.device()
        if shared_mem:
            raise NotImplementedError("the executor has no dynamic shared memory")
        grid = _checked_size("grid", grid, _LARGEST_GRID)
        block = _checked_size("block", block, _LARGEST_BLOCK)
        if int(np.prod(block)) > _MOST_THREADS:
            raise ValueError(f"{self.name}: a block of {block} has more than {_MOST_THREADS} threads")
        passed: list[Any] = []
        reads: list[Allocation] = []
        writes: list[Allocation] = []
        for position, value in enumerate(args):
            argument, allocation = self._argument(position, value)
            passed.append(argument)
            if allocation is None:
                continue
            is_read_only = position < len(self._read_only) and self._read_only[position]
            (reads if is_read_only else writes).append(allocation)
            if value.dtype == np.int64 and current_stream().is_capturing():
                writes += _behind(value)
        function, name = self._function, self.name
        submit(
            lambda: function(grid, block, tuple(passed)),
            lambda: machine.count_named("launches", name),
            reads=reads,
            writes=writes,
        )

    def _argument(self, position: int, value: Any) -> tuple[Any, Allocation | None]:
        """Return an argument for the executor; an array becomes an address, which does not keep it alive."""
        where = f"{self.name}: argument {position}"
        if isinstance(value, ndarray):
            check_device(value)
            if not value.flags.c_contiguous:
                raise ValueError(f"{where} is an array that is not C-contiguous")
            place = SimpleNamespace(data=SimpleNamespace(ptr=value.data.ptr), dtype=value.dtype)
            return place, value._allocation
        if isinstance(value, np.generic):
            return value, None
        for kind, width in ((bool, np.bool_), (int, np.int64), (float, np.float64)):
            if isinstance(value, kind):
                return width(value), None  # as CuPy passes it; the executor compares the width
        if value is None:
            raise TypeError(
                f"{where} is None, which not every CuPy takes for a null pointer; use np.uint64(0)"
            )
        raise TypeError(f"{where}: Unsupported type {type(value)}")


def _checked_size(name: str, size: Any, largest: tuple[int, int, int]) -> tuple[int, int, int]:
    if not isinstance(size, tuple):
        raise TypeError(f"Argument '{name}' has incorrect type (expected tuple, got {type(size).__name__})")
    if not 1 <= len(size) <= 3 or not all(isinstance(part, int | np.integer) for part in size):
        raise TypeError(f"{name}: expected one to three whole numbers, got {size}")
    x, y, z = (*map(int, size), 1, 1)[:3]
    if any(not 1 <= part <= most for part, most in zip((x, y, z), largest, strict=True)):
        raise ValueError(f"CUDA_ERROR_INVALID_VALUE: invalid argument: {name} {size}, at most {largest}")
    return x, y, z
