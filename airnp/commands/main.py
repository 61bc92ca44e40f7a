"""The command line ``airnp``: its parser, the choice of the command, and the messages for errors."""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airnp import __version__
from airnp.commands.base import EXIT_CODES, FAILED, INTERRUPTED, MISTAKE, Command, UsageError, WorkError

__all__ = ["COMMANDS", "load_command", "main"]

COMMANDS = {
    "complete": "fill the gaps of a table",
    "inpaint": "fill the holes of a picture",
    "ratings": "predict ratings of users for items",
    "graph": "write the learned graph of rows or columns",
    "demo": "restore a damaged photograph and write before_after.png",
    "data": "list or fetch the data of the paper",
    "bench": "list or run the benchmarks of a clone",
    "info": "show versions, optional packages, BLAS, threads and devices",
}
"""Every command with its line in ``airnp --help``; it is the ``COMMAND`` of the module of its name."""

EXAMPLES = """examples:
  airnp complete ratings.csv -o filled.csv --bounds 1 5
  airnp inpaint photo.png --mask mask.png -o restored.png
  airnp complete --help

"""


def load_command(name: str) -> Command:
    """Return a command; its module brings what only this command needs."""
    command: Command = importlib.import_module(f"airnp.commands.{name}").COMMAND
    return command


def _parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """Return a parser that lists all commands and knows the arguments of the one in `words`."""
    parser = argparse.ArgumentParser(
        prog="airnp",
        description="Complete matrices: pictures with holes, tables with gaps, ratings.",
        epilog=EXAMPLES + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"airnp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    chosen = next((word for word in words if not word.startswith("-")), None)
    for name, line in COMMANDS.items():
        own = commands.add_parser(name, help=line, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == chosen:
            command = load_command(name)
            own.description = command.description or line
            own.epilog = f"examples:\n{command.examples}\n{EXIT_CODES}"
            own.add_argument(
                "--traceback",
                action="store_true",
                help="show where in the program an error arose; AIRNP_TRACEBACK=1 does the same",
            )
            command.arguments(own)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Parameters
    ----------
    arguments : sequence of str, optional
        The words after ``airnp``; those of the process if left out.

    Returns
    -------
    int
        0 if all went well, 1 if the work failed, 2 for a user's mistake, 130 if interrupted. A wrong command
        line, ``--help`` and ``--version`` raise `SystemExit`, as argparse does.
    """
    words = sys.argv[1:] if arguments is None else arguments
    options = _parser(words).parse_args(words)

    # After the parser, so that --help does without them.
    from airnp.images.formats import PictureError
    from airnp.tables import TableError

    try:
        with _plain_warnings(options):
            code = load_command(options.command).run(options)
            if sys.stdout is not None:  # as after >&-
                sys.stdout.flush()  # here, so that a closed pipe raises inside of this block
            return code
    except ModuleNotFoundError:
        raise  # a bug; the commands raise a plain ImportError that names the extra to install
    except BrokenPipeError:  # the reader is gone, as after `| head`
        _drop_unwritable_output()
        return FAILED
    except (UsageError, TableError, PictureError, OSError, ImportError) as error:
        full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
        if full:
            _drop_unwritable_output()
        return _print_error(options, str(error), FAILED if full else MISTAKE)
    except WorkError as error:
        return _print_error(options, str(error), FAILED)
    except KeyboardInterrupt:
        return _print_error(options, "interrupted", INTERRUPTED)


def _drop_unwritable_output() -> None:
    """Drop what standard output cannot take: Python would fail on it again at its end, with another code."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _print_error(options: argparse.Namespace, message: str, code: int) -> int:
    """Print an error, after its traceback if that is wanted, and return the exit code."""
    if options.traceback or os.environ.get("AIRNP_TRACEBACK", "0") not in ("", "0"):
        traceback.print_exc()
    print(f"airnp {options.command}: {message}", file=sys.stderr)
    return code


@contextmanager
def _plain_warnings(options: argparse.Namespace) -> Iterator[None]:
    """Show each warning as one line, without its place in the source; none when quiet."""

    def show(message: Any, *where: Any, **more: Any) -> None:
        if not getattr(options, "quiet", False):
            print(f"airnp {options.command}: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
