"""Files that a command writes: refused before the work if they cannot be meant, and whole or not there."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from airnp.commands.base import UsageError, WorkError


def add_output_arguments(parser: argparse.ArgumentParser, kinds: str) -> None:
    """Add ``--output`` and ``--force``."""
    parser.add_argument(
        *("-o", "--output"), required=True, type=Path, metavar="FILE", help=f"what to write: {kinds}"
    )
    parser.add_argument("--force", action="store_true", help="overwrite files that are there already")


def check_output(path: Path, force: bool) -> None:
    """Raise a UsageError unless this file can be written without harm."""
    folder = _real(path).parent
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
    real = _real(path)
    temporary = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, real)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise WorkError(f"could not write {path}: {error}") from error
        raise


def _real(path: Path) -> Path:
    """Return where a path leads: behind a link the file is replaced, not the link."""
    return Path(os.path.realpath(path))
