"""Compiled kernels, called as CuPy's are."""

from collections.abc import Sequence
from typing import Any

from .arguments import check
from .binary import Parameter
from .build import library
from .errors import ArgumentError, KernelError, LaunchError
from .local import Local
from .remote import Remote

_MOST_THREADS, _MOST_BLOCK = 1024, (1024, 1024, 64)
_MOST_GRID = (2**31 - 1, 65535, 65535)


class RawModule:
    """`cupy.RawModule`, with the text compiled by g++ and run on the CPU.

    Parameters
    ----------
    code : str
        CUDA C++.
    options : tuple of str
        Options of NVRTC: ``-std=c++..`` and ``-D..`` only.
    name_expressions : sequence of str, optional
        Template instantiations to offer, such as ``"adam<float>"``.
    mode : {"fast", "fma", "asan", "tsan"}
        How the text is compiled and watched.
    order : int
        In which order blocks and threads take turns: 0 the natural one, 1 the reverse, others are shuffled.
    """

    def __init__(
        self,
        code: str,
        *,
        options: tuple[str, ...] = (),
        name_expressions: Sequence[str] | None = None,
        mode: str = "fast",
        order: int = 0,
    ) -> None:
        path = library(code, tuple(name_expressions or ()), options, mode)
        self._place = Remote(path) if mode == "asan" else Local(path)
        self._signatures = self._place.signatures()
        self._order = order

    def get_function(self, name: str) -> "RawKernel":
        """Return a kernel by its name expression, spelt as it was given, or by its ``extern "C"`` name."""
        if name not in self._signatures:
            known = ", ".join(map(repr, self._signatures))
            raise ValueError(f"the module has no kernel {name!r}; it has {known}")
        most_threads, parameters = self._signatures[name]
        return RawKernel(
            self._place, name, most_threads, [Parameter(*fields) for fields in parameters], self._order
        )


class RawKernel:
    """One kernel of a module; ``order`` may be changed between launches."""

    def __init__(
        self, place: Local | Remote, name: str, most_threads: int, parameters: list[Parameter], order: int
    ) -> None:
        self._place, self._most_threads, self._parameters = place, most_threads, parameters
        self.name, self.order = name, order

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], *, shared_mem: int = 0
    ):
        """Launch, and return when the whole grid has run."""
        if shared_mem:
            raise LaunchError("the executor has no dynamic shared memory")
        full_grid, full_block = launch_shape(grid, block, self._most_threads)
        if not isinstance(args, tuple | list):
            raise ArgumentError("the arguments of a launch come as a tuple")
        check(args, self._parameters, self.name)
        problem = self._place.launch(self.name, full_grid, full_block, args, self.order)
        if problem is not None:
            raise KernelError(f"{self.name}: {problem}")


def launch_shape(grid: tuple[int, ...], block: tuple[int, ...], most_threads: int) -> tuple[tuple, tuple]:
    """Return grid and block with three sizes each, or raise LaunchError as CUDA does."""
    shapes = []
    for what, sizes, most in (("grid", grid, _MOST_GRID), ("block", block, _MOST_BLOCK)):
        if not isinstance(sizes, tuple) or not 1 <= len(sizes) <= 3:
            raise LaunchError(f"the {what} must be a tuple of one to three sizes, not {sizes!r}")
        full = tuple(int(size) for size in (*sizes, 1, 1)[:3])
        if not all(1 <= size <= limit for size, limit in zip(full, most, strict=True)):
            raise LaunchError(f"the {what} {sizes} is outside 1 .. {most}")
        shapes.append(full)
    threads = shapes[1][0] * shapes[1][1] * shapes[1][2]
    if threads > min(_MOST_THREADS, most_threads):
        raise LaunchError(
            f"a block of {threads} threads; the kernel allows {min(_MOST_THREADS, most_threads)}"
        )
    return shapes[0], shapes[1]
