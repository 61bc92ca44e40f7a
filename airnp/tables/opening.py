"""Files that may be compressed: opened to read and to write, with errors that name them."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from airnp.tables.table import TableError


@contextmanager
def packing(file: BinaryIO, kind: str) -> Iterator[BinaryIO]:
    """Return where to write a file's plain content, which is compressed if its kind ends in ``.gz``."""
    if kind.endswith(".gz"):
        # No name and no time inside: the same table gives the same bytes.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]
    else:
        yield file


@contextmanager
def opened(path: Path, kind: str) -> Iterator[BinaryIO]:
    """Open a file of one of the formats `SUFFIXES` to read; what is wrong with its content names the file."""
    with open(path, "rb") as file:
        try:
            with _unpacked(file, kind) as content:
                yield content
        except TableError as error:
            raise TableError(f"{path}: {error}") from error
        except (ImportError, MemoryError):
            raise
        except Exception as error:
            # Bytes that are not what the name says can fail in any way; to the user each means the same.
            raise TableError(f"{path}: cannot be read as {kind} ({error})") from error


def _unpacked(file: BinaryIO, kind: str) -> Any:
    return gzip.GzipFile(fileobj=file) if kind.endswith(".gz") else file
