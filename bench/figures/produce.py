"""From a list of figures to files: compute what is missing, draw what is there."""

from __future__ import annotations

import json
import multiprocessing
import platform
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from threadpoolctl import threadpool_limits

from bench.figures.compute import compute
from bench.figures.drawing import Drawing
from bench.figures.runs import Run
from bench.figures.scale import FULL, Scale
from bench.figures.store import Store
from bench.figures.style import save

_PACKAGES = ("airnp", "numpy", "scipy", "numba", "matplotlib")


def say(message: str) -> None:
    """Report progress where it does not mix with results."""
    print(message, file=sys.stderr, flush=True)


def compute_all(
    drawings: Iterable[Drawing], scale: Scale, store: Store, jobs: int, threads: int, redo: bool = False
) -> None:
    """Make every run that the figures need and that is not there yet, some at a time.

    With ``redo`` also those that other code of airnp made.
    """
    needed = dict.fromkeys(run for drawing in drawings for run in drawing.runs(scale))
    present = {run: store.is_of_this_code(run) for run in needed if store.has(run)}
    old = [run for run, is_new in present.items() if not is_new]
    missing = [run for run in needed if run not in present or (redo and run in old)]
    if old and not redo:
        say(f"{len(old)} of them were made by other code of airnp; --redo makes them again")
    say(f"{len(needed)} runs, {len(needed) - len(missing)} of them are there")
    sources = {run.source for run in missing if run.source is not None and not store.has(run.source)}
    # What others build on comes first; nothing else depends on an order.
    first = [run for run in missing if run in sources] + [run for run in sources if run not in missing]
    done = 0
    for wave in (first, [run for run in missing if run not in sources]):
        for run, seconds in _finished(wave, store, jobs, threads):
            done += 1
            say(f"{done}/{len(missing)} {run.name}: {seconds:.1f} s")


def _finished(wave: list[Run], store: Store, jobs: int, threads: int) -> Iterable[tuple[Run, float]]:
    """Yield every run with its seconds, as soon as it is done and kept."""
    if jobs == 1 or len(wave) < 2:
        for run in wave:
            yield run, make(run, store, threads)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        tasks = {pool.submit(make, run, store, threads): run for run in wave}
        try:
            for task in as_completed(tasks):
                yield tasks[task], task.result()
        finally:
            # After an error or an interrupt nothing new is begun; what was kept stays.
            pool.shutdown(cancel_futures=True)


def make(run: Run, store: Store, threads: int) -> float:
    """Compute one run, keep what came out, and return how many seconds it took."""
    start = time.perf_counter()
    with threadpool_limits(threads):
        outcome = compute(run, store.load, threads)
    store.save(run, outcome)
    return time.perf_counter() - start


def draw_all(
    drawings: Iterable[Drawing], scale: Scale, store: Store, folder: Path, threads: int
) -> list[str]:
    """Draw every figure whose runs are all there; return the names of the others."""
    undrawn = []
    for drawing in drawings:
        runs = drawing.runs(scale)
        missing = [run.name for run in runs if not store.has(run)]
        if missing:
            say(f"{drawing.name}: {len(missing)} runs are missing, such as {missing[0]}")
            undrawn.append(drawing.name)
            continue
        save(drawing.draw(store.load, scale), folder / f"{drawing.name}.png")
        about = {
            "figure": drawing.name,
            "quick": scale != FULL,
            "threads": threads,
            "versions": versions(),
            "runs_of_other_code": [run.name for run in runs if not store.is_of_this_code(run)],
            "runs": {str(store.path(run).relative_to(folder)): run.settings() for run in runs},
        }
        (folder / f"{drawing.name}.json").write_text(json.dumps(about, indent=1) + "\n")
        say(f"wrote {folder / drawing.name}.png")
    return undrawn


def versions() -> dict[str, str]:
    """Return what the numbers may depend on."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}
