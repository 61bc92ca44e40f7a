"""Files that are whole at any moment: written beside their place, and put there in one step."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file through ``write``: it is complete or as it was before, never in between.

    The bytes go to ``.<name>.<random>.part`` beside it first. A process that is killed leaves this behind,
    and the next one that writes the same file removes it. Who writes holds a lock, so that nobody removes
    what is being written. Behind a link the file is replaced, not the link.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.bin"
    >>> write_atomically(file, lambda stream: stream.write(b"all of it"))
    >>> file.read_bytes(), len(list(file.parent.iterdir()))
    (b'all of it', 1)
    """
    path = real_path(path)
    _remove_leftovers(path)
    temporary, file = _created(path)
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # Windows moves no file that is open
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def real_path(path: Path) -> Path:
    """Return where a path leads, be it through links."""
    return Path(os.path.realpath(path))


def _created(path: Path) -> tuple[Path, BinaryIO]:
    """Return a new file beside ``path``, locked."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = open(temporary, "xb")  # noqa: SIM115
        _lock(file, wait=True)
        if temporary.exists():
            return temporary, file
        file.close()  # somebody took it for a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove what processes left behind that were killed while they wrote this file."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.part")
    # What cannot be listed, opened or removed stays: it does no harm.
    with suppress(OSError):
        for name in filter(pattern.fullmatch, os.listdir(path.parent)):
            with suppress(OSError):
                leftover = path.with_name(name)
                with open(leftover, "rb") as file:
                    if _lock(file, wait=False):
                        leftover.unlink()


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Return whether this process holds the lock of an open file now; it ends with the process."""
    try:
        import fcntl
    except ImportError:  # there are no such locks on Windows, where leftovers therefore stay
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
