"""Launches in a child process that has AddressSanitizer loaded, with copies of the arguments."""

import atexit
import contextlib
import functools
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arguments import AddressTable, scalar, span
from .build import compiler
from .errors import ArgumentError, SanitizerError

_OPTIONS = {
    # Python leaks on purpose; fibers have no fake stacks; two modules may have kernels of the same name.
    "ASAN_OPTIONS": "detect_leaks=0:detect_stack_use_after_return=0:detect_odr_violation=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


class Remote:
    """A module in the sanitized child, with the methods of `binary.Binary`."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def signatures(self) -> dict[str, tuple[int, list[tuple[bytes, bytes, int]]]]:
        """Return, for each kernel, the most threads of a block and its parameters."""
        return _ask({"path": self._path})

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], args: Sequence[Any], order: int
    ) -> str | None:
        """Run a checked launch on copies and copy them back; return what the kernel did wrong, if it did."""
        copies = _Copies()
        slots = [copies.slot(argument) for argument in args]
        request = {
            "path": self._path,
            "name": name,
            "grid": grid,
            "block": block,
            "order": order,
            "slots": slots,
        }
        answer = _ask({**request, "buffers": copies.contents, "links": copies.links})
        if "report" in answer:
            raise SanitizerError(answer["report"])
        copies.write_back(answer["buffers"])
        return answer["message"]


class _Copies:
    """Copies of the arguments for the child, which has them at other addresses."""

    def __init__(self) -> None:
        self.contents: list[bytes] = []
        self.links: list[tuple[int, int, int]] = []
        self._arrays: list[np.ndarray | None] = []
        self._known: dict[tuple[int, int], int] = {}  # an array that is passed twice is copied once

    def slot(self, argument: Any) -> bytes | int:
        """Return the bytes of a number, or the index of the buffer of an array."""
        value = scalar(argument)
        if value is not None:
            return value.tobytes()
        if argument is None:
            return bytes(8)
        return self._table(argument) if isinstance(argument, AddressTable) else self._array(argument)

    def _array(self, array: Any) -> int:
        if not isinstance(array, np.ndarray):
            raise ArgumentError("the sanitized child gets copies, and only NumPy arrays can be copied to it")
        where = span(array, self._known)
        if where not in self._known:
            self._known[where] = self._add(array.tobytes(), array)
        return self._known[where]

    def _table(self, table: AddressTable) -> int:
        numbers = [int(word) if isinstance(word, int | np.integer) else 0 for word in table.words]
        here = self._add(np.array(numbers, dtype=np.uint64).tobytes(), None)
        for i, word in enumerate(table.words):
            if not isinstance(word, int | np.integer):
                self.links.append((here, i, self._array(word)))
        return here

    def _add(self, content: bytes, array: np.ndarray | None) -> int:
        self.contents.append(content)
        self._arrays.append(array)
        return len(self.contents) - 1

    def write_back(self, contents: Sequence[bytes]) -> None:
        for array, content in zip(self._arrays, contents, strict=True):
            if array is not None and array.flags.writeable:
                array[...] = np.frombuffer(content, dtype=array.dtype).reshape(array.shape)


def _ask(request: dict[str, Any]) -> Any:
    process = _child()
    try:
        pickle.dump(request, process.stdin)
        process.stdin.flush()
        return pickle.load(process.stdout)
    except (BrokenPipeError, EOFError):
        raise RuntimeError(
            f"the sanitized child ended with status {process.wait()}; see its messages"
        ) from None


@functools.cache
def _child() -> subprocess.Popen:
    """Start the child, which lives as long as this process."""
    runtimes = (_runtime("libasan.so"), _runtime("libubsan.so"))
    environment = {**os.environ, **_OPTIONS, "LD_PRELOAD": " ".join(runtimes)}
    command = [*_fixed_addresses(), sys.executable, "-E", "-S", str(Path(__file__).with_name("child.py"))]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)

    def end() -> None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        child.wait()
        child.stdout.close()

    atexit.register(end)
    return child


def _runtime(name: str) -> str:
    command = [compiler(), f"-print-file-name={name}"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    if not os.path.isabs(found):
        raise FileNotFoundError(f"g++ has no {name}")
    return os.path.realpath(found)


def _fixed_addresses() -> list[str]:
    """Return a command prefix that disables address randomisation, if allowed: sanitizers need the room."""
    setarch = shutil.which("setarch")
    if setarch is None:
        return []
    works = (
        subprocess.run([setarch, "-R", sys.executable, "-c", ""], capture_output=True, check=False).returncode
        == 0
    )
    return [setarch, "-R"] if works else []
