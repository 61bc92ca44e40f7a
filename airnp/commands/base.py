"""What all commands share: how one is described, how it ends, and the arguments that several have.

This module and those of the commands import nothing that computes before a command runs, so that ``--help``
answers at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from airnp.results.atomic import real_path, write_atomically

if TYPE_CHECKING:
    import numpy.typing as npt


OK = 0
FAILED = 1
MISTAKE = 2  # argparse's own, for a wrong command line
INTERRUPTED = 130  # what a shell says of a program that SIGINT ended

EXIT_CODES = """exit codes:
  0    done
  1    the work failed
  2    a mistake in the command line or in a file; nothing was computed
  130  interrupted (Ctrl-C); a fit writes its result so far and says so
"""


class Command(NamedTuple):
    """One command: a line of help, what else to say, its arguments, what to do with them, and examples."""

    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    examples: str
    description: str = ""


class UsageError(Exception):
    """A mistake of the user: the message names the file or the argument."""


class WorkError(Exception):
    """Work that failed although the user made no mistake."""


# --- arguments that several commands have ---


def add_talk_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what decides how much is said, and how."""
    group = parser.add_argument_group("messages")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors (and --json)")
    group.add_argument(
        "--progress", action="store_true", help="show a progress bar even if standard error is no terminal"
    )
    group.add_argument("--json", action="store_true", help="print what was done as one JSON object")


def shows_progress(options: argparse.Namespace) -> bool:
    """Whether to show a progress bar: on a terminal, or if asked for, and never when quiet."""
    return bool(not options.quiet and (options.progress or sys.stderr.isatty()))


def report(options: argparse.Namespace, facts: Mapping[str, Any], text: str) -> None:
    """Print what was done: the facts as JSON, or the text, or nothing."""
    if options.json:
        print(json.dumps(facts, default=str, allow_nan=False))
    elif not options.quiet:
        print(text)


def given(options: argparse.Namespace, names: Iterable[str]) -> str | None:
    """Return the first of these options that was given, as it is written; None if none was.

    They are options without a default of their own: None, False for a flag, [] for one that is repeated.

    Examples
    --------
    >>> given(argparse.Namespace(seed=0, check_all=False, missing=[]), ("check_all", "missing", "seed"))
    '--seed'
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value is not False and value != []:
            return f"--{name.replace('_', '-')}"
    return None


# --- types of arguments ---


def whole_number(least: int) -> Callable[[str], int]:
    """Return a parser for whole numbers from `least` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"must be a whole number of at least {least}, got {text!r}")
        return value

    return parse


def share(text: str) -> float:
    """Parse a number between 0 and 1."""
    value = _number(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, got {text!r}")
    return value


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"must be a number above 0, got {text!r}")
    return value


def finite_number(text: str) -> float:
    """Parse a finite number."""
    value = _number(text)
    if not math.isfinite(value):
        raise argparse.ArgumentTypeError(f"must be a number, got {text!r}")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def add_output_arguments(parser: argparse.ArgumentParser, kinds: str, *, required: bool = True) -> None:
    """Add ``--output`` and ``--force``."""
    parser.add_argument(
        *("-o", "--output"), required=required, type=Path, metavar="FILE", help=f"what to write: {kinds}"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there already")


def check_archive(name: str, path: Path | None) -> None:
    """Raise a UsageError if a file for what only ``.npz`` can hold is called otherwise."""
    if path is not None and path.suffix != ".npz":
        raise UsageError(f"--{name}: expected a name that ends in .npz, got {path}")


def check_output(path: Path, force: bool) -> None:
    """Raise a UsageError unless this file can be written without harm."""
    folder = real_path(path).parent
    if not folder.is_dir():
        raise UsageError(f"{path}: the folder {folder} does not exist")
    if path.is_dir():
        raise UsageError(f"{path} is a folder")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no ordinary file")  # to replace a device would be a disaster
    if path.exists() and not force:
        raise UsageError(f"{path} is there already; --force overwrites")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{path}: no permission to write in {folder}")


def write_whole(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file through `write`: it is complete or as it was before, never in between.

    Raises
    ------
    WorkError
        If the disk refuses.
    """
    try:
        write_atomically(path, write)
    except OSError as error:
        raise WorkError(f"could not write {path}: {error}") from error


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

    from airnp.data.bounds import Bounds

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
