"""The command line: ``airnp demo``, ``airnp data``, ``airnp info``, ``airnp --version``.

A command is a function that adds its arguments to a parser and one that runs it; `COMMANDS` is the table.
Modules that compute are imported by the command that needs them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import platform
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from airnp import __version__
from airnp.datasets import command as data_command

__all__ = ["COMMANDS", "Command", "main"]

MISTAKE = 2  # the exit code of argparse for a wrong command line; ours for the user's other mistakes as well


class Command(NamedTuple):
    """One entry of the table: a line of help, the arguments, and what to do with them."""

    help: str
    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class UsageError(Exception):
    """A command line that parses but makes no sense."""


# --- airnp demo ---


def _demo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", default="airnp-demo", metavar="DIR", help="where to write (%(default)s)")
    parser.add_argument(
        "--size", type=_whole_number(16), default=128, help="height and width of the picture (%(default)s)"
    )
    parser.add_argument(
        "--mask",
        choices=["random", "patch", "text", "scratches"],
        default="random",
        help="shape of the holes (%(default)s)",
    )
    parser.add_argument(
        "--missing",
        type=_share,
        metavar="SHARE",
        help="share of the entries to hide, between 0 and 1, for --mask random (0.3)",
    )
    parser.add_argument(
        "--seed", type=_whole_number(0), default=0, help="for the mask and the start of the fit (%(default)s)"
    )
    parser.add_argument(
        "--iterations", type=_whole_number(1), default=10_000, help="iterations of the fit (%(default)s)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite the files of an earlier run")
    parser.add_argument("--quiet", action="store_true", help="print nothing but errors")


def _demo(options: argparse.Namespace) -> int:
    if options.missing is not None and options.mask != "random":
        raise UsageError(f"--missing goes with --mask random; --mask {options.mask} has its own share")

    from airnp import demo

    outcome = demo.run(
        options.output,
        size=options.size,
        mask=options.mask,
        missing=0.3 if options.missing is None else options.missing,
        seed=options.seed,
        iterations=options.iterations,
        force=options.force,
        progress=not options.quiet and sys.stderr.isatty(),
    )
    if options.quiet:
        return 0
    print(f"{outcome.size}×{outcome.size} picture, {outcome.missing:.1%} missing ({outcome.mask} mask)")
    print(f"{outcome.n_iter} iterations in {outcome.seconds:.1f} s\n")
    width = max(len(score.method) for score in outcome.scores)
    print(f"{'on the missing entries':<{width}}    NMAE      PSNR")
    for score in outcome.scores:
        print(f"{score.method:<{width}}  {score.nmae:.4f}  {score.psnr:5.2f} dB")
    print(f"\nwrote {outcome.figure}\nwrote {outcome.report}")
    return 0


# --- airnp info ---

_PACKAGES = (
    *("numpy", "array-api-compat", "scipy", "numba", "threadpoolctl", "tqdm"),
    *("pillow", "scikit-image", "scikit-learn", "pandas", "matplotlib", "torch", "jax"),
)


def _no_arguments(parser: argparse.ArgumentParser) -> None:
    """Leave the parser of a command without arguments as it is."""


def _info(options: argparse.Namespace) -> int:
    print(f"airnp             {__version__}")
    print(f"python            {platform.python_version()} ({platform.system()} {platform.machine()})")
    for name in _PACKAGES:
        print(f"{name:<17} {_version(name)}")
    print(f"{'cupy':<17} {_cupy()}")
    return 0


def _version(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cupy() -> str:
    """Say whether CuPy is there, with which devices, and if not, why."""
    from airnp.engines.cuda_device import describe, first_line

    try:
        return describe()
    except ImportError as error:
        return f"installed, but does not load: {first_line(error)}"


# --- parsing ---

COMMANDS = {
    "demo": Command("complete a picture with holes and write before_after.png", _demo_arguments, _demo),
    "data": Command("list or fetch the data of the paper", data_command.arguments, data_command.run),
    "info": Command("show versions, optional packages and devices", _no_arguments, _info),
}


def _whole_number(least: int) -> Callable[[str], int]:
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


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"must be a number between 0 and 1, got {text!r}")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="airnp", description="Complete matrices with learned graphs and deep factorisation."
    )
    parser.add_argument("--version", action="version", version=f"airnp {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for name, command in COMMANDS.items():
        command.arguments(commands.add_parser(name, help=command.help, description=command.help))
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
        0 if all went well, 2 for a user's mistake, 130 if interrupted. A wrong command line, ``--help`` and
        ``--version`` leave through `SystemExit`, as argparse has it.
    """
    options = _parser().parse_args(arguments)
    try:
        return COMMANDS[options.command].run(options)
    except ModuleNotFoundError:
        raise  # no one foresaw it: a bug, unlike the ImportError that names the extra to install
    except (UsageError, OSError, ImportError) as error:
        print(f"airnp {options.command}: {error}", file=sys.stderr)
        return MISTAKE
    except KeyboardInterrupt:
        return 130
