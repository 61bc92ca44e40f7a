"""Streams: in which order work is done, and capturing it into graphs."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.cupy_double.memory import Allocation
from tests.cupy_double.state import (
    CAPTURE_IMPLICIT,
    CAPTURE_INVALIDATED,
    CAPTURE_ISOLATION,
    CAPTURE_UNJOINED,
    CAPTURE_UNSUPPORTED,
    CAPTURED_EVENT,
    ILLEGAL_ADDRESS,
    ILLEGAL_STATE,
    INVALID_VALUE,
    CUDARuntimeError,
    capture_guard,
    machine,
    refuse_in_capture,
)


class StreamOrderError(RuntimeError):
    """Work would use memory that another stream has not finished with. CUDA itself would not notice."""


@dataclass(eq=False)
class Timeline:
    """What was submitted to one stream of one device, and how much of it the host has waited for."""

    name: str
    blocking: bool
    is_null: bool
    submitted: int = 0
    completed: int = 0
    awaited: dict[Timeline, int] = field(default_factory=dict)
    """How much of other streams it waits for, through events."""
    pending: list[Callable[[], None]] = field(default_factory=list)
    """Submitted, but not done yet."""

    def complete(self) -> None:
        """Do what is pending, and note that the host waited for everything so far."""
        while self.pending:
            self.pending.pop(0)()
        self.completed = self.submitted

    def waits_for(self, other: Timeline, number: int) -> bool:
        """Whether what comes here now is done after the work of that number on ``other``."""
        legacy = (self.is_null and other.blocking) or (other.is_null and self.blocking)
        return self is other or legacy or number <= max(other.completed, self.awaited.get(other, 0))


@dataclass(frozen=True)
class Work:
    """Something that a stream does; it keeps no array alive, as CUDA does not."""

    run: Callable[[], None]
    counted: Callable[[], None]
    reads: tuple[weakref.ref[Allocation], ...]
    writes: tuple[weakref.ref[Allocation], ...]

    def carry_out(self, timeline: Timeline) -> None:
        """Run it now on a stream, after checking that its memory exists and no other stream is using it."""
        reads, writes = ([_alive(ref) for ref in group] for group in (self.reads, self.writes))
        timeline.submitted += 1
        for allocation in reads:
            _check_order(timeline, allocation, write=False)
            allocation.last_reads[timeline] = timeline.submitted
        for allocation in writes:
            _check_order(timeline, allocation, write=True)
            allocation.last_write = (timeline, timeline.submitted)
        self.counted()
        if machine.settings.deferred and not timeline.is_null:
            timeline.pending.append(self.run)
        else:
            self.run()


@dataclass(eq=False)
class Capture:
    """What is being recorded, on one stream or on several that wait for each other."""

    origin: Stream
    nodes: list[Work] = field(default_factory=list)
    before: list[frozenset[int]] = field(default_factory=list)
    """For each node, all that must be done first."""
    fronts: dict[Stream, frozenset[int]] = field(default_factory=dict)
    """For each stream, all that the next node on it must follow."""
    is_invalid: bool = False

    def add(self, work: Work, stream: Stream) -> None:
        """Record some work at the end of a stream."""
        for reference in (*work.reads, *work.writes):
            _alive(reference)
        self.before.append(self.fronts[stream])
        self.fronts[stream] |= {len(self.nodes)}
        self.nodes.append(work)

    def join(self, stream: Stream, front: frozenset[int]) -> None:
        """Let a stream, which may come in by this, follow what has been recorded elsewhere."""
        stream._capture = self
        self.fronts[stream] = self.fronts.get(stream, frozenset()) | front

    def check_races(self) -> None:
        """Raise if two nodes that may run at the same time use the same memory, and one of them writes."""
        if not machine.settings.check_streams:
            return
        for number, work in enumerate(self.nodes):
            for other in set(range(number)) - self.before[number]:
                earlier = self.nodes[other]
                met = set(earlier.writes) & {*work.reads, *work.writes} or set(earlier.reads) & set(
                    work.writes
                )
                for allocation in map(_alive, met):
                    raise StreamOrderError(
                        f"nodes {other} and {number} of a graph may run at the same time, and both use "
                        f"memory of {allocation.size} bytes that one of them writes"
                    )

    def in_unlikely_order(self) -> list[Work]:
        """Return the work in an order that a device may choose: of what can be done, always the latest."""
        waiting, order = set(range(len(self.nodes))), []
        while waiting:
            ready = max(number for number in waiting if not self.before[number] & waiting)
            waiting.remove(ready)
            order.append(self.nodes[ready])
        return order


def _alive(reference: weakref.ref[Allocation]) -> Allocation:
    allocation = reference()
    if allocation is None:
        raise CUDARuntimeError(ILLEGAL_ADDRESS)
    return allocation


def _check_order(timeline: Timeline, allocation: Allocation, *, write: bool) -> None:
    if not machine.settings.check_streams:
        return
    before = [] if allocation.last_write is None else [allocation.last_write]
    if write:
        before += list(allocation.last_reads.items())
    for other, number in before:
        if not timeline.waits_for(other, number):
            raise StreamOrderError(
                f"{timeline.name} uses memory of {allocation.size} bytes that {other.name} may still "
                "be using; synchronise first"
            )


class Event:
    """A place in a stream that another stream can wait for."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False) -> None:
        machine.device()
        self._reached: dict[Timeline, int] = {}
        self._captured: tuple[Capture, frozenset[int]] | None = None

    def record(self, stream: Stream | None = None) -> None:
        """Mark the present end of a stream, by default of the current one."""
        source = current_stream() if stream is None else stream
        if source._capture is not None:
            self._captured = source._capture, source._capture.fronts[source]
            return
        self._captured = None
        timeline = source._timeline()
        self._reached = {**timeline.awaited, timeline: timeline.submitted}

    def synchronize(self) -> None:
        """Let the host wait for it."""
        if self._captured is not None:
            raise CUDARuntimeError(CAPTURED_EVENT)
        refuse_in_capture()
        machine.count("synchronisations")
        for timeline, number in self._reached.items():
            if number > timeline.completed:
                timeline.complete()


_handles = itertools.count(0x1000)
_known: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()


class Stream:
    """A stream; as a context manager it is the current one of its device in this thread."""

    null: Stream

    def __init__(
        self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None
    ) -> None:
        if ptds or priority is not None:
            raise NotImplementedError("the double has neither per-thread streams nor priorities")
        self.ptr = 0 if null else machine.free_streams.pop() if machine.free_streams else next(_handles)
        self._generation = machine.generation
        self.device_id = -1 if null else machine.device()
        self._non_blocking = non_blocking
        self._capture: Capture | None = None
        _known[self.ptr] = self

    def __del__(self) -> None:
        if hasattr(self, "_capture") and self.ptr and self._generation == machine.generation:
            key = (self.device_id, self.ptr)
            if key in machine.timelines and not machine.timelines[key].pending:
                del machine.timelines[key]
            if machine.settings.recycles_streams:
                machine.free_streams.append(self.ptr)

    @property
    def is_non_blocking(self) -> bool:
        """Whether it runs beside the null stream without waiting for it."""
        return self._non_blocking

    def _timeline(self) -> Timeline:
        """Return what this stream has done on its device."""
        device = machine.device() if self.device_id == -1 else self.device_id
        key = (device, self.ptr)
        with machine.lock:
            if key not in machine.timelines:
                name = "the null stream" if self.ptr == 0 else f"stream {self.ptr:#x}"
                blocking = self.ptr == 0 or not self._non_blocking
                machine.timelines[key] = Timeline(f"{name} of device {device}", blocking, self.ptr == 0)
            timeline: Timeline = machine.timelines[key]
            return timeline

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    def __hash__(self) -> int:
        return self.ptr

    def _check_device(self) -> int:
        device = machine.device()
        if self.device_id not in (-1, device):
            raise RuntimeError(
                f"The device that the stream is created on ({self.device_id}) does not match with the "
                f"current device ({device})"
            )
        return device

    def __enter__(self) -> Stream:
        _stack(self._check_device()).append(self)
        return self

    def __exit__(self, *args: object) -> None:
        device = machine.device() if self.device_id == -1 else self.device_id
        _stack(device).pop()

    def use(self) -> Stream:
        """Make this the current stream of its device."""
        _stack(self._check_device())[-1] = self
        return self

    def synchronize(self) -> None:
        """Wait for everything on this stream."""
        machine.check()
        if self._capture is not None:
            self._refuse()
        machine.count("synchronisations")
        self._timeline().complete()

    def record(self, event: Event | None = None) -> Event:
        """Mark the present end of this stream."""
        marked = Event() if event is None else event
        marked.record(self)
        return marked

    def wait_event(self, event: Event) -> None:
        """Do everything from now on after an event, without the host's waiting."""
        if event._captured is not None:
            capture, front = event._captured
            if self._capture not in (None, capture) or capture.origin._capture is not capture:
                raise CUDARuntimeError(CAPTURE_ISOLATION)
            capture.join(self, front)
            return
        if self._capture is not None:
            self._capture.is_invalid = True
            raise CUDARuntimeError(CAPTURE_ISOLATION)
        awaited = self._timeline().awaited
        for timeline, number in event._reached.items():
            awaited[timeline] = max(awaited.get(timeline, 0), number)

    def is_capturing(self) -> bool:
        """Whether work is being recorded and not done."""
        return self._capture is not None

    def begin_capture(self, mode: int | None = None) -> None:
        """Record from now on instead of doing."""
        if self.ptr == 0:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if self._capture is not None:
            raise CUDARuntimeError(ILLEGAL_STATE)
        if not self._non_blocking:
            # CUDA would fail as soon as anything ran on the null stream.
            raise CUDARuntimeError(CAPTURE_IMPLICIT)
        if current_stream() is not self:
            raise RuntimeError(
                "the stream to capture is not the current one, so that nothing would be captured; "
                "write `with stream:` around it"
            )
        self._capture = Capture(self)
        self._capture.join(self, frozenset())

    def end_capture(self) -> Graph:
        """Return the recorded graph."""
        if self._capture is None or self._capture.origin is not self:
            raise CUDARuntimeError(ILLEGAL_STATE)
        capture = self._capture
        for stream in capture.fronts:
            stream._capture = None
        if capture.is_invalid:
            raise CUDARuntimeError(CAPTURE_INVALIDATED)
        if any(front - capture.fronts[self] for front in capture.fronts.values()):
            raise CUDARuntimeError(CAPTURE_UNJOINED)
        capture.check_races()
        machine.count("captures")
        return Graph._of(capture, self.device_id)

    def _refuse(self) -> None:
        """Spoil the capture and raise, as CUDA does when something is not allowed in one."""
        assert self._capture is not None
        self._capture.is_invalid = True
        raise CUDARuntimeError(CAPTURE_UNSUPPORTED)

    def _submit(self, work: Work) -> None:
        """Do or record some work."""
        with machine.lock:
            if self._capture is None:
                work.carry_out(self._timeline())
            else:
                self._capture.add(work, self)


def _stack(device: int) -> list[Any]:
    return machine.local.streams.setdefault(device, [Stream.null])


def stream_at(address: int) -> Stream:
    """Return the stream of the current device that has an address now."""
    stream = _known[address]
    stream._check_device()
    return stream


def current_stream(device_id: int = -1) -> Stream:
    """Return the current stream of a device, by default of the current one."""
    stream: Stream = _stack(machine.device() if device_id == -1 else device_id)[-1]
    return stream


def get_current_stream(device_id: int = -1) -> Stream:
    """As ``cupy.cuda.get_current_stream``."""
    return current_stream(device_id)


class Graph:
    """Work that was captured; launching it does all of it, each node after those that it must follow."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        raise NotImplementedError(
            "currently this class cannot be initiated by the user and must be created via stream capture"
        )

    @classmethod
    def _of(cls, capture: Capture, device: int) -> Graph:
        graph = cls.__new__(cls)
        graph._works, graph._device = capture.in_unlikely_order(), device
        return graph

    def launch(self, stream: Stream | None = None) -> None:
        """Run the captured work on a stream, by default the current one."""
        target = current_stream() if stream is None else stream
        if target.is_capturing():
            target._refuse()
        if self._device != (machine.device() if target.device_id == -1 else target.device_id):
            raise CUDARuntimeError(INVALID_VALUE)
        machine.count("graph_launches")
        with machine.lock:
            for work in self._works:
                work.carry_out(target._timeline())


def _guard() -> None:
    stream = current_stream()
    if stream.is_capturing():
        stream._refuse()


Stream.null = Stream(null=True)
capture_guard.append(_guard)


def submit(
    run: Callable[[], None],
    counted: Callable[[], None],
    *,
    reads: Sequence[Allocation] = (),
    writes: Sequence[Allocation] = (),
    stream: Stream | None = None,
) -> None:
    """Do some work on a stream, by default the current one, or record it there."""
    work = Work(run, counted, tuple(map(weakref.ref, reads)), tuple(map(weakref.ref, writes)))
    (current_stream() if stream is None else stream)._submit(work)
