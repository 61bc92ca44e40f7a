"""Launches in this process: the fast modes, and the race detector."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .arguments import pack
from .binary import Binary
from .errors import SanitizerError
from .places import explain

_RACE = "data race"


class Local:
    """A module in this process, with the methods of `remote.Remote`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._binary = _load(path)
        self.signatures = self._binary.signatures

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], order: int
    ) -> str | None:
        """Run a checked launch; return what the kernel did wrong, if it did."""
        memory, alive = pack(args)
        message = self._binary.launch(name, grid, block, memory, order)
        del alive
        if message is not None and message.startswith(_RACE):
            raise SanitizerError(f"{name}: {explain(message, self._path, args)}")
        return message


@functools.cache
def _load(path: Path) -> Binary:
    return Binary(str(path))
