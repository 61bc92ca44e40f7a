"""The parts that all commands share: their description, errors and exit codes, messages and output files.

Modules of commands import optional and heavy libraries only when a command runs, so that ``--help`` is quick.
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
    from airnp.results.result import FitResult
    from airnp.results.sparse_result import SparseFitResult

OK = 0
FAILED = 1
MISTAKE = 2  # argparse's own code for a wrong command line
INTERRUPTED = 130  # a shell's code for a program that SIGINT ended

EXIT_CODES = """exit codes:
  0    done
  1    the work failed
  2    a mistake in the command line or in a file; nothing was computed
  130  interrupted (Ctrl-C); a fit writes its result so far and says so
"""


class Command(NamedTuple):
    """One command: its arguments, its work, and its own help."""

    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    examples: str
    description: str = ""


class UsageError(Exception):
    """A mistake of the user; the message names the file or the argument."""


class WorkError(Exception):
    """Work that failed although the user made no mistake."""


# --- messages ---


def add_message_arguments(parser: argparse.ArgumentParser) -> None:
    """Add ``--quiet``, ``--progress`` and ``--json``."""
    group = parser.add_argument_group("messages")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors (and --json)")
    group.add_argument(
        "--progress", action="store_true", help="show a progress bar even if standard error is no terminal"
    )
    group.add_argument("--json", action="store_true", help="print what was done as one JSON object")


def shows_progress(options: argparse.Namespace) -> bool:
    """Return whether to show a progress bar: on a terminal or on request, but never when quiet."""
    return bool(not options.quiet and (options.progress or sys.stderr.isatty()))


def finish(options: argparse.Namespace, facts: Mapping[str, Any], text: str) -> int:
    """Print the facts as JSON, or the text, or nothing; return the exit code for ``facts["stop_reason"]``."""
    if options.json:
        print(json.dumps(facts, default=str, allow_nan=False))
    elif not options.quiet:
        print(text)
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


def first_given(options: argparse.Namespace, names: Iterable[str]) -> str | None:
    """Return the first of these options that the user gave, as it is typed; None if none was given.

    An option that was not given is None, or False for a flag, or [] for one that may be repeated.

    Examples
    --------
    >>> first_given(argparse.Namespace(seed=0, check_all=False, missing=[]), ("check_all", "missing", "seed"))
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


def fraction(text: str) -> float:
    """Parse a number between 0 and 1."""
    return _number(text, "a number between 0 and 1", lambda value: 0 < value < 1)


def positive_number(text: str) -> float:
    """Parse a finite number above 0."""
    return _number(text, "a number above 0", lambda value: 0 < value < math.inf)


def finite_number(text: str) -> float:
    """Parse a finite number."""
    return _number(text, "a number", math.isfinite)


def _number(text: str, expected: str, accepts: Callable[[float], bool]) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not accepts(value):
        raise argparse.ArgumentTypeError(f"must be {expected}, got {text!r}")
    return value


# --- output files ---


def add_output_arguments(parser: argparse.ArgumentParser, kinds: str, *, required: bool = True) -> None:
    """Add ``--output`` and ``--force``."""
    parser.add_argument(
        *("-o", "--output"), required=required, type=Path, metavar="FILE", help=f"what to write: {kinds}"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there already")


def check_outputs(options: argparse.Namespace, paths: Mapping[str, Path | None]) -> None:
    """Raise a UsageError unless all files can be written, none of them over another.

    Parameters
    ----------
    options : Namespace
    paths : mapping of str to Path or None
        Each file by the option that names it. ``--result`` and ``--checkpoint`` must end in ``.npz``.
    """
    owners: dict[Path, str] = {}
    for name, path in paths.items():
        if path is not None and name in ("--result", "--checkpoint") and path.suffix != ".npz":
            raise UsageError(f"{name}: expected a name that ends in .npz, got {path}")
    for name, path in paths.items():
        if path is not None:
            other = owners.setdefault(real_path(path), name)
            if other != name:
                raise UsageError(f"{name} and {other} are the same file")
            _check_output(path, options.force)


def _check_output(path: Path, force: bool) -> None:
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


def write_file(path: Path, write: Callable[[BinaryIO], None]) -> None:
    """Write a file completely or leave it as it was; raise a WorkError if the disk refuses."""
    try:
        write_atomically(path, write)
    except OSError as error:
        raise WorkError(f"could not write {path}: {error}") from error


def save_result(result: FitResult | SparseFitResult, path: Path | None) -> None:
    """Save a result if there is a path for it; raise a WorkError if the disk refuses."""
    if path is not None:
        try:
            result.save(path)
        except OSError as error:
            raise WorkError(f"could not write {path}: {error}") from error
