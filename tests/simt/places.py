"""Translate addresses in a report of the race detector to lines of the kernel and entries of arrays."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .arguments import AddressTable
from .source import FILENAME


def explain(message: str, path: Path, arguments: Sequence[Any]) -> str:
    """Return the message with ``{+0x..}``, a place in the code, and ``{&0x..}``, one in memory, replaced."""
    message = re.sub(r"\{\+(0x\w+)\}", lambda match: _line(path, match[1]), message)
    return re.sub(r"\{&(0x\w+)\}", lambda match: _entry(int(match[1], 16), arguments), message)


def _line(path: Path, offset: str) -> str:
    tool = shutil.which("addr2line")
    if tool is None:
        return f"{path}+{offset}"
    command = [tool, "-e", str(path), "-i", offset]
    frames = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    ours = [frame for frame in frames if f"{FILENAME}:" in frame]
    return Path((ours or frames)[0]).name.split(" ")[0]


def _entry(address: int, arguments: Sequence[Any]) -> str:
    for i, argument in enumerate(arguments):
        for array in argument.arrays() if isinstance(argument, AddressTable) else [argument]:
            if isinstance(array, np.ndarray) and 0 <= address - array.ctypes.data < array.nbytes:
                return f"entry {(address - array.ctypes.data) // array.itemsize} of argument {i}"
    return f"shared or other memory at {address:#x}"
