"""The command line: ``airnp complete``, ``airnp inpaint``, ``airnp graph`` and others, ``airnp --help``.

Here are the parser, the dispatch, and how errors are told; the commands are in :mod:`airnp.commands`.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from airnp import __version__
from airnp.commands import bench, complete, data, demo, graph, info, inpaint, ratings
from airnp.commands.base import EXIT_CODES, FAILED, INTERRUPTED, MISTAKE, UsageError, WorkError

__all__ = ["COMMANDS", "main"]

COMMANDS = {
    "complete": complete.COMMAND,
    "inpaint": inpaint.COMMAND,
    "ratings": ratings.COMMAND,
    "graph": graph.COMMAND,
    "demo": demo.COMMAND,
    "data": data.COMMAND,
    "bench": bench.COMMAND,
    "info": info.COMMAND,
}

EXAMPLES = """examples:
  airnp complete ratings.csv -o filled.csv --bounds 1 5
  airnp inpaint photo.png --mask mask.png -o restored.png
  airnp complete --help

"""


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="airnp",
        description="Complete matrices with learned graphs and deep factorisation.",
        epilog=EXAMPLES + EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"airnp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        own = commands.add_parser(
            name,
            help=command.help,
            description=command.description or command.help,
            epilog=f"examples:\n{command.examples}\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
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
        line, ``--help`` and ``--version`` leave through `SystemExit`, as argparse has it.
    """
    options = _parser().parse_args(arguments)

    # After the parser, which --help leaves through.
    from airnp.images.files import PictureError
    from airnp.tables import TableError

    try:
        with _plain_warnings(options):
            code = COMMANDS[options.command].run(options)
            sys.stdout.flush()  # here, where a reader that is gone can still be told from other errors
            return code
    except ModuleNotFoundError:
        raise  # no one foresaw it: a bug, unlike the ImportError that names the extra to install
    except BrokenPipeError:
        # Nobody reads on, as after `| head`. Python would complain again when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (UsageError, TableError, PictureError, OSError, ImportError) as error:
        return _told(options, str(error), MISTAKE)
    except WorkError as error:
        return _told(options, str(error), FAILED)
    except KeyboardInterrupt:
        return _told(options, "interrupted", INTERRUPTED)


def _told(options: argparse.Namespace, message: str, code: int) -> int:
    """Print an error, with its traceback if that is wanted, and return the exit code."""
    if options.traceback or os.environ.get("AIRNP_TRACEBACK", "0") not in ("", "0"):
        traceback.print_exc()
    print(f"airnp {options.command}: {message}", file=sys.stderr)
    return code


@contextmanager
def _plain_warnings(options: argparse.Namespace) -> Iterator[None]:
    """Show warnings as lines of our own, without a place in the source; none when quiet."""

    def show(message: Any, *where: Any, **more: Any) -> None:
        if not getattr(options, "quiet", False):
            print(f"airnp {options.command}: warning: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
