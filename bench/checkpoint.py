"""The cost of checkpoints: the time to write one, and the time to keep a state for it.

    python -m bench.checkpoint [--size 1000] [--threads 1] [--every 30]

AIR in float32 with the automatic stop, so that the file holds the best iterate, too. The time of writing
includes the result so far, the state, and the sync to disk. The file is in the folder of temporary files, or
in ``--folder``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

import airnp
from airnp.engines import select_engine
from airnp.training.loop import Loop
from airnp.training.steps import Steps
from bench.timing import in_pinned_process, interleaved

PORTION = 10
"""Iterations between two records, after which a state is kept."""


def problem(m: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((m, m)).astype("float32"), rng.random((m, m)) < 0.7


def seconds_of_a_write(m: int, threads: int, folder: Path, writes: int = 7) -> tuple[float, int]:
    """Return the median time of a checkpoint, and the bytes of the file."""
    file, seconds, save = folder / "run.npz", [], Loop._save

    def timed(self: Loop, checkpoint: object) -> None:
        start = time.perf_counter()
        save(self, checkpoint)
        seconds.append(time.perf_counter() - start)

    Loop._save = timed
    try:
        airnp.fit(
            *problem(m),
            stop=airnp.HeldOut(every=5),
            max_iter=5 * writes,
            seed=0,
            engine=airnp.CPU(threads),
            record=5,
            checkpoint=airnp.Checkpoint(file, every=0),
        )
    finally:
        Loop._save = save
    return float(np.median(seconds[1:])), file.stat().st_size


def runners(m: int, threads: int) -> dict:
    """Return the same steps with and without copies of the optimiser's state."""
    found, engine = {}, select_engine(airnp.CPU(threads), np)
    for name, resumable in (("without", False), ("with", True)):
        objective = airnp.Objective(*problem(m))
        steps = Steps(objective, airnp.Adam(), objective.init(0), engine=engine, resumable=resumable)

        def portions(count: int, steps: Steps = steps) -> None:
            for _ in range(count):
                steps.advance(PORTION)

        found[name] = portions
    return found


def main(argv: list[str] | None = None) -> None:
    """Measure in a pinned process and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--every", type=float, default=30.0)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    m, threads, every = options.size, options.threads, options.every
    if not options.inside:
        folder = [] if options.folder is None else ["--folder", str(options.folder)]
        arguments = ["--size", str(m), "--threads", str(threads), "--every", str(every), *folder]
        in_pinned_process("bench.checkpoint", threads, *arguments, "--inside")
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        seconds, size = seconds_of_a_write(m, threads, Path(folder))
    ratio = interleaved(runners(m, threads), rounds=5, seconds=1.0).ratio("with", "without")
    print(f"{m}x{m}, float32, {threads} threads")
    print(f"a checkpoint: {seconds:.2f} s, {size / 2**20:.0f} MiB")
    print(f"one every {every:g} s: {seconds / every:.1%} of the time")
    print(f"keeping a state after every {PORTION} iterations: {ratio - 1:.1%} of the time")


if __name__ == "__main__":
    main()
