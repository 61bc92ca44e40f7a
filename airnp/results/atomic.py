"""Atomic file writes: write a temporary file beside the target, then replace the target in one step."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file through ``write``, so that readers see the old content or the new, never a part.

    The bytes go to ``.<name>.<random>.part`` first. A process that is killed leaves this file behind, and the
    next process that writes the same target removes it. The writer holds a lock on it, so that no other
    process removes it too early. A link stays; the file that it points to is replaced.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "a.bin"
    >>> write_atomically(file, lambda stream: stream.write(b"content"))
    >>> file.read_bytes(), len(list(file.parent.iterdir()))
    (b'content', 1)
    """
    path = real_path(path)
    _remove_leftovers(path)
    temporary, file = _create(path)
    try:
        with file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            if os.name == "nt":
                file.close()  # Windows cannot move an open file
            os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def real_path(path: Path) -> Path:
    """Return a path with its links resolved."""
    return Path(os.path.realpath(path))


def _create(path: Path) -> tuple[Path, BinaryIO]:
    """Create and lock a temporary file beside ``path``."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
        file = open(temporary, "xb")  # noqa: SIM115
        _lock(file, wait=True)
        if temporary.exists():
            return temporary, file
        file.close()  # another process removed it as a leftover before it was locked


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files of processes that were killed while they wrote this file."""
    pattern = re.compile(re.escape(f".{path.name}.") + r"[0-9a-f]{8}\.part")
    # Ignore what cannot be listed, opened or removed: a leftover does no harm.
    with suppress(OSError):
        for name in filter(pattern.fullmatch, os.listdir(path.parent)):
            with suppress(OSError):
                leftover = path.with_name(name)
                with open(leftover, "rb") as file:
                    if _lock(file, wait=False):
                        leftover.unlink()


def _lock(file: BinaryIO, *, wait: bool) -> bool:
    """Lock an open file until the process ends; return whether that succeeded."""
    try:
        import fcntl
    except ImportError:  # Windows has no such locks, so leftovers stay there
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError:
        return False
    return True
