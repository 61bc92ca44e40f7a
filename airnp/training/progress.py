"""Progress bars, and interrupts that wait until an outcome is stored."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, Self

import numpy as np

from airnp.training.recorder import FitState


class _Bar:
    """A tqdm bar; does nothing unless ``shown``."""

    def __init__(self, total: int | None, unit: str, shown: bool) -> None:
        self._bar: Any = None
        if shown:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, unit=unit, dynamic_ncols=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()


class ProgressBar(_Bar):
    """A bar over iterations that shows the loss and the energies."""

    def __init__(self, total: int, shown: bool) -> None:
        super().__init__(total, "it", shown)

    def show(self, state: FitState) -> None:
        """Move the bar to this state; a stack shows its means."""
        if self._bar is None:
            return
        numbers = {"loss": state.loss, **state.energies}
        text = {
            name.removeprefix("energy_"): f"{float(np.mean(value)):.3g}" for name, value in numbers.items()
        }
        self._bar.set_postfix(text, refresh=False)
        self._bar.update(state.iteration - self._bar.n)


class CountBar(_Bar):
    """A bar that counts finished things."""

    def advance(self, **numbers: int) -> None:
        """Count one, and show these numbers beside."""
        if self._bar is not None:
            if numbers:
                self._bar.set_postfix(numbers, refresh=False)
            self._bar.update()


class ShareBar(_Bar):
    """A bar over the share of some work that is done, with the time left."""

    def __init__(self, total: float, shown: bool) -> None:
        super().__init__(100, "%", shown)
        self._unit = 100 / total if total > 0 else 0.0
        self._done = 0.0

    def advance(self, label: str, cost: float) -> None:
        """Count work of some cost, and name what is being done."""
        self._done = min(100.0, self._done + cost * self._unit)
        if self._bar is not None:
            self._bar.set_description(label, refresh=False)
            self._bar.update(int(self._done) - self._bar.n)


@contextmanager
def held_back() -> Iterator[None]:
    """Let an interrupt wait until the block is done.

    Python delivers Ctrl-C to the main thread alone; in any other one there is nothing to hold back.

    Examples
    --------
    >>> done = []
    >>> try:
    ...     with held_back():
    ...         signal.raise_signal(signal.SIGINT)
    ...         done.append("all of it")
    ... except KeyboardInterrupt:
    ...     done.append("interrupted")
    >>> done
    ['all of it', 'interrupted']
    """
    usual = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(usual):
        yield
        return
    waiting: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: waiting.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
        if waiting:
            usual(*waiting[-1])
