"""Kill a fit again and again, resume it every time, and compare the end with a run that was left alone.

    python -m tests.training.kill_and_resume FOLDER KILLS dense|sparse

Prints JSON: how many kills there were, how many runs came to their end, and everything that was not as it
should be. The children are forked, so that none of them has to load and compile anything.

A child saves after every portion of iterations. It reports through a pipe when it begins to write a
checkpoint and when the file is there; the parent kills it after a random number of reports. Nothing depends
on how long anything takes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import airnp
from airnp.training import checkpoints
from tests.equality import assert_same

MOST_REPORTS = 16
"""Reports of a child before it is killed, at most: two for each checkpoint."""


def start_sparse(**options: Any) -> airnp.SparseFitResult:
    """Make a sparse fit: both phases, a graph whose candidates are searched again, batches, masks."""
    rng = np.random.default_rng(0)
    truth = rng.random((60, 3)) @ rng.random((3, 40)) + 0.1 * rng.standard_normal((60, 40))
    return airnp.fit_sparse(
        csr_array(np.where(rng.random(truth.shape) < 0.4, truth, 0)),
        rank=6,
        seed=1,
        max_iter=400,
        stop=airnp.HeldOut(patience=100_000, every=25),
        offsets=True,
        mask_factor="both",
        batch_size=200,
        regularizers=[
            airnp.AdaptiveLaplacian("rows", 1e-3, candidates=airnp.Nearest(5, refresh=30)),
            airnp.WeightDecay(1e-4, "sqrt"),
        ],
        optimizer=airnp.Adam(1e-3, second_moment="matrix", schedule=airnp.ExponentialDecay(0.9, 1000)),
        **options,
    )


def start_dense(**options: Any) -> airnp.FitResult:
    """Make a dense fit: both phases, learned graphs, and a rate that decays."""
    rng = np.random.default_rng(0)
    truth = rng.random((30, 3)) @ rng.random((3, 24)) + 0.1 * rng.standard_normal((30, 24))
    return airnp.fit(
        truth,
        rng.random(truth.shape) < 0.6,
        seed=1,
        max_iter=400,
        stop=airnp.HeldOut(patience=100_000),
        optimizer=airnp.Adam(1e-3, schedule=airnp.ExponentialDecay(0.9, 1000)),
        **options,
    )


class Experiment:
    """Kill the children of one run, and note what was found after them."""

    def __init__(self, file: Path, form: str) -> None:
        self._file = file
        self._start = {"dense": start_dense, "sparse": start_sparse}[form]
        self._whole = self._start()
        self._rng = np.random.default_rng(0)
        self.kills, self.finished = 0, 0
        self.problems: list[str] = []

    def kill_once(self) -> None:
        """Start a child, kill it after some of its reports, and look at its file; or see the run end."""
        number, reading = self._fork()
        wanted = int(self._rng.integers(1, MOST_REPORTS + 1))
        with os.fdopen(reading, "rb") as stream:
            reports = list(islice(stream, wanted))
            if len(reports) == wanted:
                os.kill(number, signal.SIGKILL)
            reports += stream.read().splitlines(keepends=True)
        _, status = os.waitpid(number, 0)
        self.kills += os.WIFSIGNALED(status)
        if not os.WIFSIGNALED(status) and os.WEXITSTATUS(status) != 0:
            self.problems.append(f"a child ended with {os.WEXITSTATUS(status)}")
        self._look([int(line.split()[1]) for line in reports if line.startswith(b"written")])
        if os.WIFEXITED(status):
            self.finish()

    def finish(self) -> None:
        """Let the run end, compare its result, and make room for the next one."""
        try:
            ended = airnp.resume(self._file, checkpoint=None) if self._file.exists() else self._start()
            assert_same(ended, self._whole)
        except AssertionError as error:
            self.problems.append(f"the resumed run ended otherwise: {error}")
        self.finished += 1
        self._file.unlink(missing_ok=True)

    def _fork(self) -> tuple[int, int]:
        """Return the process number of a new child, and where to read its reports."""
        reading, writing = os.pipe()
        number = os.fork()
        if number == 0:
            status = 1
            try:
                os.close(reading)
                self._fit(writing)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        return number, reading

    def _fit(self, reports: int) -> None:
        """Start the fit, or go on with the one in the file; report every checkpoint."""
        write = checkpoints.write_archive

        def reporting(path: Any, header: Any, arrays: Any) -> None:
            os.write(reports, f"begun {header['n_iter']}\n".encode())
            write(path, header, arrays)
            os.write(reports, f"written {header['n_iter']}\n".encode())

        checkpoints.write_archive = reporting
        if self._file.exists():
            airnp.resume(self._file)
        else:
            self._start(checkpoint=airnp.Checkpoint(self._file, every=0))

    def _look(self, written: list[int]) -> None:
        """See that the file is whole, no older than the last report, and that at most one leftover exists."""
        others = [path.name for path in self._file.parent.iterdir() if path != self._file]
        if len(others) > 1:
            self.problems.append(f"there are {others}")
        found = airnp.load(self._file).n_iter if self._file.exists() else 0
        if found < max(written, default=0):
            self.problems.append(f"the file has iteration {found}, {written[-1]} was written")


def main() -> None:
    """Kill as often as asked, then let the last run end."""
    folder, kills, form = sys.argv[1:]
    experiment = Experiment(Path(folder) / "run.npz", form)
    while experiment.kills < int(kills) and not experiment.problems:
        experiment.kill_once()
    experiment.finish()
    names = ("kills", "finished", "problems")
    sys.stdout.write(json.dumps({name: getattr(experiment, name) for name in names}))


if __name__ == "__main__":
    main()
