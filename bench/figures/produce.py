"""From a list of figures to files: compute the missing runs, keep their outcomes, draw the figures."""

from __future__ import annotations

import io
import json
import multiprocessing
import platform
import sys
import time
import zipfile
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from bench.cells import source_hash, write_file
from bench.figures.compute import Outcome, compute
from bench.figures.runs import DEEP, FULL, Run, Scale
from bench.figures.style import Drawing, save

_PACKAGES = ("airnp", "numpy", "scipy", "numba", "matplotlib")


def say(message: str) -> None:
    """Report progress on stderr."""
    print(message, file=sys.stderr, flush=True)


def compute_all(
    drawings: Iterable[Drawing], scale: Scale, store: Store, jobs: int, threads: int, redo: bool = False
) -> None:
    """Compute every run that the figures need and that is missing, ``jobs`` at a time.

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
    # Runs that others need come first; the order of the rest does not matter.
    first = [run for run in missing if run in sources] + [run for run in sources if run not in missing]
    done = 0
    for wave in (first, [run for run in missing if run not in sources]):
        for run, seconds in _compute_wave(wave, store, jobs, threads):
            done += 1
            say(f"{done}/{len(missing)} {run.name}: {seconds:.1f} s")


def _compute_wave(wave: list[Run], store: Store, jobs: int, threads: int) -> Iterable[tuple[Run, float]]:
    """Yield every run with its seconds as soon as it is done and kept."""
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
            # After an error or an interrupt no other run begins.
            pool.shutdown(cancel_futures=True)


def make(run: Run, store: Store, threads: int) -> float:
    """Compute and keep one run; return its seconds."""
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
    """Return the versions of the packages that influence the numbers."""
    from importlib.metadata import version

    return {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}}


class Store:
    """A folder of ``.npz`` files, each with the settings that it was made with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, run: Run) -> Path:
        """Return the file of a run."""
        return self.folder / f"{run.name}.npz"

    def has(self, run: Run) -> bool:
        """Return whether the outcome is there and has exactly these settings."""
        try:
            # Opened here, because np.load does not close a broken file.
            with self.path(run).open("rb") as stream, np.load(stream) as file:
                return json.loads(str(file["settings"])) == run.settings()
        except (OSError, KeyError, ValueError, zipfile.BadZipFile):
            return False

    def is_of_this_code(self, run: Run) -> bool:
        """Return whether the code of airnp that can change the outcome is still the same."""
        with np.load(self.path(run)) as file:
            return "source" in file.files and str(file["source"]) == source_hash(run.method in DEEP)

    def save(self, run: Run, outcome: Outcome) -> None:
        """Write an outcome atomically."""
        buffer, source = io.BytesIO(), source_hash(run.method in DEEP)
        np.savez_compressed(buffer, settings=json.dumps(run.settings()), source=source, **outcome)
        write_file(self.path(run), buffer.getvalue())

    def load(self, run: Run) -> Outcome:
        """Return an outcome."""
        with np.load(self.path(run)) as file:
            return {name: file[name] for name in file.files if name not in ("settings", "source")}
