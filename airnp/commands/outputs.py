"""Files that a command writes: refused before the work if they cannot be meant, and whole or not there."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from airnp.commands.base import UsageError, WorkError
from airnp.saving.atomic import real_path, write_atomically


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
