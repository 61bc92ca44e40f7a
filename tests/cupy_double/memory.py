"""Device memory: allocations with guard zones around them."""

from __future__ import annotations

import threading
import weakref
from collections import defaultdict, deque
from typing import Any

import numpy as np

from tests.cupy_double.state import ILLEGAL_ADDRESS, CUDARuntimeError, machine, refuse_in_capture

_GUARD = 256
_ALIGNMENT = 256
_PATTERN = 0xA5
_POISON = 0xFF
"""Bytes of a NaN in every floating type."""

_ROUNDED_TO = 512
"""CuPy's memory pool hands out multiples of this."""

_QUARANTINE_BYTES = 64 * 2**20


class OutOfMemoryError(MemoryError):
    """What CuPy raises when a device has no memory left."""

    def __init__(self, size: int, total: int, limit: int = 0) -> None:
        tail = f", limit set to: {limit:,} bytes" if limit else ""
        super().__init__(
            f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{tail})."
        )


class Pool:
    """The memory of one device. What is freed stays in the arena of the stream that was current before.

    An arena gives a block to a request of just its size; CuPy also splits and merges blocks. All arenas are
    emptied when the device has no memory left.
    """

    def __init__(self, device: int) -> None:
        self.device = device
        self.used = self.cached = 0
        self._arenas: defaultdict[tuple[int, int], list[np.ndarray]] = defaultdict(list)
        self.live: weakref.WeakSet[Allocation] = weakref.WeakSet()
        self._quarantine: deque[np.ndarray] = deque()
        self._held = 0
        self._lock = threading.RLock()

    def reserve(self, size: int, stream: int) -> np.ndarray:
        """Return memory for ``size`` bytes and their guard zones, if possible from the arena of a stream."""
        rounded = rounded_size(size)
        with self._lock:
            arena = self._arenas[stream, size]
            if not arena and self.used + self.cached + rounded > machine.settings.memory:
                self.free_all()
                if self.used + rounded > machine.settings.memory:
                    raise OutOfMemoryError(rounded, self.used)
            self.used += rounded
            if arena:
                self.cached -= rounded
                return arena.pop()
        return np.full(size + 2 * _GUARD + _ALIGNMENT, _PATTERN, dtype=np.uint8)

    def release(self, size: int, stream: int, buffer: np.ndarray) -> None:
        """Take memory back, poisoned, into the arena of a stream."""
        with self._lock:
            self.used -= rounded_size(size)
            self.cached += rounded_size(size)
            self._arenas[stream, size].append(buffer)

    def free_all(self) -> None:
        """Give back what the arenas hold; keep some of it, so that a stale address reads NaN."""
        with self._lock:
            buffers = [buffer for arena in self._arenas.values() for buffer in arena]
            self._arenas.clear()
            self.cached = 0
            for buffer in buffers:
                self._hold(buffer)

    def _hold(self, buffer: np.ndarray) -> None:
        with self._lock:
            buffer[:] = _POISON
            self._quarantine.append(buffer)
            self._held += buffer.nbytes
            while self._held > _QUARANTINE_BYTES:
                self._held -= self._quarantine.popleft().nbytes

    def find(self, address: int, size: int) -> Allocation:
        """Return the live allocation that holds ``size`` bytes at ``address``."""
        for allocation in list(self.live):
            if allocation.address <= address and address + size <= allocation.address + allocation.size:
                return allocation
        raise CUDARuntimeError(ILLEGAL_ADDRESS)


def rounded_size(size: int) -> int:
    """Return the size of the block that CuPy takes for so many bytes."""
    return -(-size // _ROUNDED_TO) * _ROUNDED_TO


def pool_of(device: int) -> Pool:
    """Return the memory of a device."""
    with machine.lock:
        if device not in machine.pools:
            machine.pools[device] = Pool(device)
        pool: Pool = machine.pools[device]
        return pool


class Allocation:
    """Bytes on one device. Freed with the last array that uses them."""

    def __init__(self, size: int) -> None:
        self.device = machine.device()
        refuse_in_capture()
        self.size = size
        self._pool = pool_of(self.device)
        self._generation = machine.generation
        streams = machine.local.streams.get(self.device)
        self._stream = streams[-1].ptr if streams else 0
        self._buffer = self._pool.reserve(size, self._stream)
        self._start = _GUARD + -(self._buffer.ctypes.data + _GUARD) % _ALIGNMENT
        self.address = self._buffer.ctypes.data + self._start
        self.content = self._buffer[self._start : self._start + size]
        self.content[:] = _POISON
        self.last_write: Any = None
        self.last_reads: dict[Any, int] = {}
        self._pool.live.add(self)
        machine.count("allocations")
        machine.count("allocated_bytes", size)

    def check_guards(self) -> None:
        """Note if something was written before or after these bytes."""
        before, behind = self._buffer[: self._start], self._buffer[self._start + self.size :]
        if self._generation == machine.generation and not (
            np.all(before == _PATTERN) and np.all(behind == _PATTERN)
        ):
            machine.damage.append(f"something wrote beyond an allocation of {self.size} bytes")
            before[:], behind[:] = _PATTERN, _PATTERN

    def __del__(self) -> None:
        if hasattr(self, "_start"):
            self.check_guards()
            self.content[:] = _POISON
            self._pool.release(self.size, self._stream, self._buffer)


class MemoryPointer:
    """A place in an allocation."""

    def __init__(self, mem: Allocation, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.address + offset

    @property
    def device_id(self) -> int:
        """The device that the memory is on."""
        return self.mem.device


def check_all_guards() -> None:
    """Look at the guard zones of everything that is still allocated."""
    for pool in list(machine.pools.values()):
        for allocation in list(pool.live):
            allocation.check_guards()
