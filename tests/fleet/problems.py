"""Small problems for fleets, and callbacks that run in workers; importable there by name."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np

import airnp

QUICK = {"max_iter": 30, "stop": None, "seed": 3}


def tables(count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    found = [rng.random((9, 2)) @ rng.random((2, 7)) for _ in range(count)]
    for table in found:
        table[rng.random(table.shape) < 0.2] = np.nan
    return found


def same(outcome: airnp.Outcome, Y: np.ndarray, mask: np.ndarray | None = None, **settings: object) -> bool:
    """Whether an outcome is bit for bit what ``airnp.fit`` gives."""
    alone = airnp.fit(Y, mask, **{"engine": airnp.CPU(threads=1), **QUICK, **settings})
    return outcome.unwrap().X.tobytes() == alone.X.tobytes()


def wait_to_be_killed(pipe: Path, iteration: int, state: object) -> None:
    """Write the number of this process into a named pipe, once, and wait for a signal that ends it."""
    try:
        pipe.with_suffix(".once").touch(exist_ok=False)
    except FileExistsError:
        return
    pipe.write_text(str(os.getpid()))
    while True:
        signal.pause()


def kill_itself(iteration: int, state: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class UnpicklableError(Exception):
    """An error that no other process can rebuild from its pickle."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} and {second}")


def raise_unpicklable(iteration: int, state: object) -> None:
    raise UnpicklableError(1, 2)


class ThreadCounter(os.PathLike):
    """A checkpoint path that notes, when a fit asks for it, how many threads its process may use."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __fspath__(self) -> str:
        import numba
        from threadpoolctl import threadpool_info

        counts = [pool["num_threads"] for pool in threadpool_info()]
        self.path.with_suffix(".threads").write_text(f"{max(counts)} {numba.config.NUMBA_NUM_THREADS}")
        return str(self.path)
