"""What all commands share: how one is described, how it ends, and the arguments that several have.

This module and those of the commands import nothing that computes before a command runs, so that ``--help``
answers at once.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

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
