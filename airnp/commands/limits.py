"""``--bounds`` as an argument, and numbers that break it, in the words of the user's file."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airnp.commands.base import UsageError, finite_number

if TYPE_CHECKING:
    import numpy.typing as npt


def add_bounds_argument(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--bounds``."""
    parser.add_argument("--bounds", nargs=2, type=finite_number, metavar=("LOW", "HIGH"), help=help)


def bounds_of(options: argparse.Namespace) -> tuple[float, float] | None:
    """Return the bounds as :func:`airnp.fit` takes them."""
    return None if options.bounds is None else (options.bounds[0], options.bounds[1])


def check_within(
    options: argparse.Namespace, source: Path, values: npt.NDArray[Any], place: Callable[[int], str]
) -> None:
    """Raise a UsageError if numbers of a file are outside of the bounds.

    Parameters
    ----------
    options : Namespace
    source : Path
        The file.
    values : array (k,)
        Its numbers, NaN where one is missing.
    place : callable
        Says where number k is.
    """
    import numpy as np

    from airnp.bounds import Bounds

    if options.bounds is None:
        return
    low, high = options.bounds
    if low > high:
        raise UsageError(f"--bounds: expected LOW <= HIGH, got {low:g} {high:g}")
    limits = Bounds.of((low, high))
    assert limits is not None
    outside = np.flatnonzero(limits.outside(values))
    if len(outside):
        raise UsageError(
            f"{source}: {len(outside)} numbers are outside --bounds {low:g} {high:g}, the first is "
            f"{values[outside[0]]:g} in {place(int(outside[0]))}"
        )
