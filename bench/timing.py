"""Fair timing on a shared machine: interleaved repeats, medians of ratios within one round."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

Runner = Callable[[int], object]
"""Runs the given number of iterations."""

_REST = 0.1
"""Seconds without work before each measurement."""


@dataclass(frozen=True)
class Timings:
    """Seconds per iteration, or per call, of each runner, one column per round."""

    seconds: dict[str, np.ndarray]

    def milliseconds(self, name: str) -> float:
        """Return the median; absolute times mean little on a shared machine."""
        return float(np.median(self.seconds[name])) * 1e3

    def ratio(self, name: str, base: str) -> float:
        """Return the time of ``name`` over that of ``base``: the median of the ratios within a round."""
        return float(np.median(self.seconds[name] / self.seconds[base]))


def interleaved(runners: Mapping[str, Runner], *, rounds: int = 9, seconds: float = 0.25) -> Timings:
    """Time all runners in turn, each round in another order.

    Each runs for about ``seconds`` a round, after a rest, in which the spinning threads of the others fall
    asleep, and after some iterations that are not counted.
    """
    counts = {}
    for name, run in runners.items():
        run(2)
        start = time.perf_counter()
        run(2)
        counts[name] = max(2, int(seconds / max((time.perf_counter() - start) / 2, 1e-7)))
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = np.random.default_rng(0)
    names = list(runners)
    for _ in range(rounds):
        for position in order.permutation(len(names)):
            name = names[position]
            time.sleep(_REST)
            runners[name](max(2, counts[name] // 5))
            start = time.perf_counter()
            runners[name](counts[name])
            times[name].append((time.perf_counter() - start) / counts[name])
    return Timings({name: np.asarray(values) for name, values in times.items()})


def once_each(runners: Mapping[str, Callable[[], object]], *, rounds: int) -> Timings:
    """Time one call of every runner a round, each round in another order and each call after a rest.

    For calls that take long; the first of each should have been made before.
    """
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = np.random.default_rng(0)
    names = list(runners)
    for _ in range(rounds):
        for position in order.permutation(len(names)):
            time.sleep(_REST)
            start = time.perf_counter()
            runners[names[position]]()
            times[names[position]].append(time.perf_counter() - start)
    return Timings({name: np.asarray(values) for name, values in times.items()})


POOLS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def in_pinned_process(module: str, threads: int, *arguments: str) -> None:
    """Run ``python -m module arguments`` on ``threads`` processors from its start.

    Libraries create their thread pools on import, and a thread keeps the processors it was created with.
    """
    available = sorted(os.sched_getaffinity(0))
    if threads > len(available):
        raise SystemExit(f"--threads {threads}: only {len(available)} processors are available")
    subprocess.run(
        [sys.executable, "-m", module, *arguments],
        check=True,
        env={**os.environ, **dict.fromkeys(POOLS, str(threads))},
        preexec_fn=lambda: os.sched_setaffinity(0, available[:threads]),
    )


def markdown(header: list[str], rows: list[list[object]]) -> str:
    """Return a table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
