"""Recorded iterations of the CPU engine: the compiled calls of one, played again without the Python between.

An iteration works on the same arrays every time: parameters are updated in place, intermediates come from
a pool. All that changes from one iteration to the next are the few numbers of each optimiser step, which
kernels read from small arrays.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from airnp._arrays import Array
from airnp.engines._cpu_kernels import Kernel
from airnp.engines.contract import Begin, Step, Update, numbers


class Tape:
    """The calls of one iteration, and the arrays that hold the numbers of its optimiser steps."""

    def __init__(self, updates: Sequence[Update]) -> None:
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.values: Sequence[Array] = ()
        self.is_whole = True
        self._updates = updates
        self._settings: list[tuple[int, Array]] = []

    def note_settings(self, update: Update, settings: Array) -> None:
        """Remember which array holds the numbers of which update."""
        position = next(i for i, known in enumerate(self._updates) if known is update)
        self._settings.append((position, settings))

    def play(self, updates: Sequence[Update]) -> None:
        """Make the same iteration again, one step later."""
        for position, settings in self._settings:
            settings[:] = numbers(updates[position])
        for function, arguments in self.calls:
            function(*arguments)


class _Local(threading.local):
    tape: Tape | None = None


_local = _Local()


def call(function: Callable[..., Any], *arguments: Any) -> None:
    """Call a function, and note the call if an iteration is being recorded."""
    if _local.tape is not None:
        _local.tape.calls.append((function, arguments))
    function(*arguments)


def launch(kernel: Kernel, chunks: int, *arguments: Any) -> None:
    """Call a compiled kernel, its work cut into so many chunks."""
    call(kernel.build(chunks), *arguments, chunks)


def step_settings(update: Update, dtype: Any) -> Array:
    """Return the numbers of this step that its kernel wants, in an array that a tape fills anew each time."""
    settings = np.array(numbers(update), dtype)
    if _local.tape is not None:
        _local.tape.note_settings(update, settings)
    return settings


def spoil() -> None:
    """Mark the iteration being recorded as one that cannot be played again, because it made a copy."""
    if _local.tape is not None:
        _local.tape.is_whole = False


class Player:
    """Makes iterations: records the first one if that is allowed, and plays the record from then on.

    Attributes
    ----------
    is_recorded : bool
        Whether the next iteration is played.
    """

    def __init__(self, begin: Begin, step: Step, replayable: bool) -> None:
        self._begin, self._step, self._replayable = begin, step, replayable
        self._tape: Tape | None = None

    @property
    def is_recorded(self) -> bool:
        """Whether the next iteration is played."""
        return self._tape is not None

    def iterate(self) -> Sequence[Array]:
        """Make one iteration; return the scalars that it recorded, which the next one overwrites."""
        updates = self._begin()
        if self._tape is not None:
            self._tape.play(updates)
            return self._tape.values
        if not self._replayable:
            return self._step(updates)
        recorded = _local.tape = Tape(updates)
        try:
            recorded.values = self._step(updates)
        finally:
            _local.tape = None
        self._tape = recorded if recorded.is_whole else None
        return recorded.values
