"""Launches on copies of their arguments: the way to run a kernel under the sanitizers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .arguments import AddressTable, span
from .errors import KernelError, SanitizerError
from .module import RawModule


@dataclass(frozen=True)
class Launch:
    """One launch: the text, the kernel's name in it, and how it is called (see `RawModule`)."""

    code: str
    name: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: Sequence[Any]
    mode: str = "asan"
    order: int = 0
    options: tuple[str, ...] = ()
    name_expressions: tuple[str, ...] = ()


def sanitized(
    code: str, name: str, grid: tuple[int, ...], block: tuple[int, ...], args: Sequence[Any], **how: Any
) -> list[np.ndarray]:
    """Run one launch on copies; return the arrays among the arguments, in their order, as they are after it.

    The arrays of an `AddressTable` take its place.

    Parameters
    ----------
    code, name, grid, block, args
        See `Launch`.
    **how
        Further fields of `Launch`. Name all instantiations that will be used in ``name_expressions``, and the
        text is compiled once.

    Raises
    ------
    SanitizerError
        If a sanitizer or the race detector fired.
    KernelError
        If the kernel broke a rule that the executor itself watches.
    """
    return sanitized_many([Launch(code, name, grid, block, args, **how)])[0]


def sanitized_many(launches: Sequence[Launch], *, errors: str = "raise") -> list[Any]:
    """Run launches one by one, each text compiled once for all its kernels; return a list of their results.

    Parameters
    ----------
    launches : sequence of Launch
        They share nothing: each works on its own copies. Each result is what `sanitized` returns.
    errors : {"raise", "return"}
        Whether a SanitizerError or KernelError is raised or returned among the results.
    """
    names: dict[Any, dict[str, None]] = {}
    for launch in launches:
        known = names.setdefault((launch.code, launch.options, launch.mode), {})
        known.update(dict.fromkeys((*launch.name_expressions, launch.name)))
    modules = {
        (code, options, mode): RawModule(code, options=options, name_expressions=tuple(found), mode=mode)
        for (code, options, mode), found in names.items()
    }
    results: list[Any] = []
    for launch in launches:
        try:
            results.append(_run(modules[launch.code, launch.options, launch.mode], launch))
        except (SanitizerError, KernelError) as error:
            if errors == "raise":
                raise
            results.append(error)
    return results


def _run(module: RawModule, launch: Launch) -> list[np.ndarray]:
    copies: dict[tuple[int, int], np.ndarray] = {}

    def copy(argument: Any) -> Any:
        if isinstance(argument, AddressTable):
            return AddressTable([copy(word) for word in argument.words])
        if isinstance(argument, np.ndarray):  # an array that is given twice stays one array
            return copies.setdefault(span(argument, copies), argument.copy())
        return argument

    arguments = [copy(argument) for argument in launch.args]
    kernel = module.get_function(launch.name)
    kernel.order = launch.order
    kernel(launch.grid, launch.block, arguments)
    arrays: list[np.ndarray] = []
    for argument in arguments:
        arrays += argument.arrays() if isinstance(argument, AddressTable) else [argument]
    return [array for array in arrays if isinstance(array, np.ndarray)]
