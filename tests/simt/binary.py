"""The C interface of a compiled module. It needs no NumPy: the sanitized child loads this file too."""

import ctypes
from collections.abc import Sequence

SLOT = 16  # bytes for each argument; entry.h has the same number


class Parameter(ctypes.Structure):
    """One parameter of a kernel, as entry.h describes it."""

    _fields_ = (("pointer", ctypes.c_char), ("kind", ctypes.c_char), ("bytes", ctypes.c_uint))

    def __str__(self) -> str:
        names = {b"f": "floating-point number", b"i": "integer", b"v": "anything", b"s": "structure"}
        value = names[self.kind] + (f" of {self.bytes} bytes" if self.bytes else "")
        return value if self.pointer == b"\0" else f"pointer to {value}"


class Entry(ctypes.Structure):
    """One kernel, as entry.h describes it."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("kernel", ctypes.c_void_p),
        ("call", ctypes.c_void_p),
        ("parameters", ctypes.POINTER(Parameter)),
        ("count", ctypes.c_uint),
        ("most_threads", ctypes.c_uint),
    )


class Binary:
    """A shared object with kernels, loaded into this process."""

    def __init__(self, path: str) -> None:
        # PyDLL keeps the GIL: the run time has one launch at a time.
        self._handle = ctypes.PyDLL(path)
        self._launch = self._handle.simt_launch
        self._launch.restype = ctypes.c_char_p
        self._entries: dict[str, Entry] = {}
        for entry in ctypes.cast(self._handle.simt_entries, ctypes.POINTER(Entry)):
            if entry.name is None:
                break
            self._entries[entry.name.decode()] = entry

    def signatures(self) -> dict[str, tuple[int, list[tuple[bytes, bytes, int]]]]:
        """Return, for each kernel, the most threads of a block and the fields of its parameters."""
        return {
            name: (
                entry.most_threads,
                [(p.pointer, p.kind, p.bytes) for p in entry.parameters[: entry.count]],
            )
            for name, entry in self._entries.items()
        }

    def launch(
        self, name: str, grid: Sequence[int], block: Sequence[int], memory: bytearray, order: int
    ) -> str | None:
        """Run a launch that was checked before; return what the kernel did wrong, if it did."""
        triple = ctypes.c_uint * 3
        values = (ctypes.c_char * len(memory)).from_buffer(memory)
        entry = ctypes.byref(self._entries[name])
        message = self._launch(entry, triple(*grid), triple(*block), values, ctypes.c_uint(order))
        return None if message is None else message.decode()
