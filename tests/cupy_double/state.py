"""The state of the simulated machine: settings, counters, devices, and errors of the driver."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

GIB = 2**30


@dataclass
class Counters:
    """What was carried out since the last reset; a graph's nodes count when it is launched."""

    launches: Counter[str] = field(default_factory=Counter)
    """Launches of the project's own kernels, by name."""
    operations: Counter[str] = field(default_factory=Counter)
    """Launches of CuPy's own kernels (array arithmetic), by function."""
    products: int = 0
    """Matrix products of the library."""
    allocations: int = 0
    allocated_bytes: int = 0
    host_to_device: int = 0
    device_to_host: int = 0
    device_to_device: int = 0
    synchronisations: int = 0
    captures: int = 0
    graph_launches: int = 0

    def reset(self) -> None:
        """Start to count from zero."""
        for item in fields(self):
            setattr(self, item.name, Counter() if item.name in ("launches", "operations") else 0)

    def snapshot(self) -> dict[str, Any]:
        """Return all counts, to be compared later."""
        return {
            item.name: getattr(self, item.name).copy()
            if isinstance(getattr(self, item.name), Counter)
            else getattr(self, item.name)
            for item in fields(self)
        }


@dataclass
class Settings:
    """What a test may change before it starts."""

    devices: int = 2
    memory: int = 4 * GIB
    """Bytes that each device has."""
    driver_version: int = 12090
    runtime_version: int = 12090
    failure: int | None = None
    """Status that every call of the runtime ends with: 100 for no device, 35 for too old a driver."""
    compute_capability: tuple[int, int] = (8, 0)
    double_ratio: int = 2
    """How many times faster the device computes in float32 than in float64."""
    executor_mode: str = "fast"
    deferred: bool = False
    """Whether streams other than the null stream do their work only when somebody waits for it."""
    recycles_streams: bool = False
    """Whether a new stream may have the address of one that is gone."""
    check_streams: bool = True
    """Whether to refuse work that races with another stream's."""


class _Local(threading.local):
    """Current device and streams, which every thread has for itself."""

    def __init__(self) -> None:
        self.generation = -1
        self.device = 0
        self.streams: dict[int, list[Any]] = {}


class Machine:
    """The simulated machine; there is one, reset for every test."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.counters = Counters()
        self.settings = Settings()
        self.generation = 0
        self.pools: dict[int, Any] = {}
        self.timelines: dict[tuple[int, int], Any] = {}
        self.free_streams: list[int] = []
        self.damage: list[str] = []
        """Errors that were found where no exception could be raised."""
        self._local = _Local()

    def renew(self) -> None:
        """Forget everything: nothing is allocated, counted or current."""
        with self.lock:
            self.generation += 1
            self.counters.reset()
            self.settings = Settings()
            self.pools, self.timelines, self.damage, self.free_streams = {}, {}, [], []

    @property
    def local(self) -> _Local:
        """This thread's current device and streams."""
        if self._local.generation != self.generation:
            self._local.generation = self.generation
            self._local.device, self._local.streams = 0, {}
        return self._local

    def device(self) -> int:
        """Return the current device; raise as the runtime does where there is none."""
        self.check()
        return self.local.device

    def check(self) -> None:
        """Raise if the runtime cannot be used at all."""
        if self.settings.failure is not None:
            raise CUDARuntimeError(self.settings.failure)

    def count(self, name: str, by: int = 1) -> None:
        """Add to one of the counters."""
        with self.lock:
            setattr(self.counters, name, getattr(self.counters, name) + by)

    def count_named(self, group: str, name: str) -> None:
        """Add to one of the counters that count by name."""
        with self.lock:
            getattr(self.counters, group)[name] += 1


machine = Machine()

_MESSAGES = {
    1: "cudaErrorInvalidValue: invalid argument",
    35: "cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    100: "cudaErrorNoDevice: no CUDA-capable device is detected",
    101: "cudaErrorInvalidDevice: invalid device ordinal",
    401: "cudaErrorIllegalState: the operation cannot be performed in the present state",
    700: "cudaErrorIllegalAddress: an illegal memory access was encountered",
    900: "cudaErrorStreamCaptureUnsupported: operation not permitted when stream is capturing",
    901: "cudaErrorStreamCaptureInvalidated: operation failed due to a previous error during capture",
    904: "cudaErrorStreamCaptureUnjoined: capturing stream has unjoined work",
    905: "cudaErrorStreamCaptureIsolation: dependency created on uncaptured work in another stream",
    907: "cudaErrorCapturedEvent: operation not permitted on an event last recorded in a capturing stream",
    906: "cudaErrorStreamCaptureImplicit: operation would make the legacy stream depend on a capturing "
    "blocking stream",
}

NO_DEVICE, INSUFFICIENT_DRIVER, INVALID_DEVICE = 100, 35, 101
INVALID_VALUE, ILLEGAL_STATE, ILLEGAL_ADDRESS = 1, 401, 700
CAPTURE_UNSUPPORTED, CAPTURE_INVALIDATED, CAPTURE_IMPLICIT = 900, 901, 906
CAPTURE_UNJOINED, CAPTURE_ISOLATION, CAPTURED_EVENT = 904, 905, 907
STATUSES = tuple(_MESSAGES)


class CUDARuntimeError(RuntimeError):
    """What CuPy raises for a status of the CUDA runtime that is not success."""

    def __init__(self, status: int) -> None:
        self.status = status
        super().__init__(_MESSAGES[status])


class Device:
    """A device; as a context manager it is the current one of this thread."""

    def __init__(self, device: Any = None) -> None:
        self.id = machine.device() if device is None else int(device)
        machine.check()
        if not 0 <= self.id < machine.settings.devices:
            raise CUDARuntimeError(INVALID_DEVICE)
        self._before: list[int] = []

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, Device) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as CuPy's

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def __enter__(self) -> Device:
        self._before.append(machine.device())
        machine.local.device = self.id
        return self

    def __exit__(self, *args: object) -> None:
        machine.local.device = self._before.pop()

    def use(self) -> None:
        """Make this device the current one of this thread."""
        machine.local.device = self.id

    def synchronize(self) -> None:
        """Wait for everything on this device."""
        synchronize_device(self.id)

    @property
    def compute_capability(self) -> str:
        """As ``"80"``."""
        return "{}{}".format(*machine.settings.compute_capability)

    @property
    def attributes(self) -> dict[str, int]:
        """Properties as numbers, by the names of the runtime without their prefix."""
        machine.check()
        return {"SingleToDoublePrecisionPerfRatio": machine.settings.double_ratio}

    @property
    def mem_info(self) -> tuple[int, int]:
        """Free and total bytes."""
        with self:
            return memory_info()


def synchronize_device(device: int) -> None:
    """Wait for every stream of a device, unless one of them is being captured."""
    refuse_in_capture()
    machine.count("synchronisations")
    for (place, _), timeline in list(machine.timelines.items()):
        if place == device:
            timeline.complete()


def memory_info() -> tuple[int, int]:
    """Return the free and the total bytes of the current device; what CuPy's pool keeps is not free."""
    device = machine.device()
    total = machine.settings.memory
    pool = machine.pools.get(device)
    return total - (0 if pool is None else pool.used + pool.cached), total


capture_guard: list[Callable[[], None]] = []
"""Filled by ``streams``, which knows about captures, for the modules that it imports."""


def refuse_in_capture() -> None:
    """Raise if the current stream is being captured: CUDA forbids what the caller is about to do."""
    for guard in capture_guard:
        guard()
