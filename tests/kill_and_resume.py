"""Kill a fit again and again, resume it every time, and look at what is left; ``python -m`` this, see below.

    python -m tests.kill_and_resume FOLDER KILLS [sparse]

Prints JSON: how many kills there were, how many found a checkpoint, and everything that was not as it should
be. The children are forked, so that none of them has to load and compile anything.

A checkpoint is due when the last one was begun ``EVERY`` seconds ago, or the process began to iterate. It is
looked for after every portion of iterations, and the next portion begins only when the file is written. So
there is at most one portion that ended more than ``EVERY`` seconds after the time in the file, or after the
first portion of its process if that is later: the one whose checkpoint was being written when the process was
killed. This is what is checked; how long portions and writes take is the machine's affair.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import airnp
from tests.results.test_storage import assert_same as assert_same_dense
from tests.sparse_results import assert_same as assert_same_sparse

EVERY = 0.05
LONGEST = 0.25
"""Seconds that a child lives, at most."""

PORTION = 10
SPARSE = sys.argv[3:] == ["sparse"]


def sparse_problem() -> dict[str, Any]:
    """Return the arguments of a sparse fit: both phases, a graph that is searched again, batches, masks."""
    rng = np.random.default_rng(0)
    truth = rng.random((60, 3)) @ rng.random((3, 40)) + 0.1 * rng.standard_normal((60, 40))
    return {
        "Y": csr_array(np.where(rng.random(truth.shape) < 0.4, truth, 0)),
        "form": "sparse",
        "rank": 6,
        "seed": 1,
        "max_iter": 600,
        "record_every": PORTION,
        "stop": airnp.HeldOut(patience=100_000, every=25),
        "offsets": True,
        "mask_factor": "both",
        "batch_size": 200,
        "regularizers": [
            airnp.AdaptiveLaplacian("rows", 1e-3, neighbors=5, refresh=30),
            airnp.WeightDecay(1e-4, "sqrt"),
        ],
        "optimizer": airnp.Adam(1e-3, second_moment="matrix", schedule=airnp.ExponentialDecay(0.9, 1000)),
    }


def dense_problem() -> dict[str, Any]:
    """Return the arguments of the fit: both phases, learned graphs, and a decaying rate."""
    rng = np.random.default_rng(0)
    truth = rng.random((30, 3)) @ rng.random((3, 24)) + 0.1 * rng.standard_normal((30, 24))
    return {
        "Y": truth,
        "mask": rng.random(truth.shape) < 0.6,
        "seed": 1,
        "max_iter": 12_000,
        "record_every": PORTION,
        "stop": airnp.HeldOut(patience=100_000),
        "optimizer": airnp.Adam(1e-3, schedule=airnp.ExponentialDecay(0.9, 1000)),
    }


def problem() -> dict[str, Any]:
    """Return the arguments of the fit that the command line asks for."""
    return sparse_problem() if SPARSE else dense_problem()


def child(file: Path, log: int) -> None:
    """Fit, or go on with the fit that is in the file; write the time of every portion to ``log``."""

    def callback(iteration: int, state: Any) -> None:
        os.write(log, f"{time.time()!r}\n".encode())

    if file.exists():
        airnp.resume(file, callback=callback)
    else:
        airnp.fit(**problem(), checkpoint=file, checkpoint_every=EVERY, callback=callback)


def started(file: Path) -> tuple[int, int]:
    """Return the process number of a new child, and where to read the times of its portions."""
    reading, writing = os.pipe()
    number = os.fork()
    if number == 0:
        status = 1
        try:
            os.close(reading)
            child(file, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    return number, reading


def read_all(reading: int) -> list[float]:
    """Return the times of all portions that a child told before it ended."""
    with os.fdopen(reading, "rb") as stream:
        lines = stream.read().split(b"\n")[:-1]
    return [float(line) for line in lines]


def saved_at(file: Path) -> float:
    with np.load(file) as archive:
        return float(json.loads(str(archive["header"]))["run"]["saved_at"])


class Experiment:
    """Kills, and what was found after them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "run.npz"
        self.whole = airnp.fit(**problem())
        self.rng = np.random.default_rng(0)
        self.kills, self.found, self.finished = 0, 0, 0
        self.problems: list[str] = []

    def kill_once(self) -> None:
        """Start a child and kill it at a random moment, unless it has come to its end by then."""
        number, reading = started(self.file)
        time.sleep(self.rng.uniform(0, LONGEST))
        os.kill(number, signal.SIGKILL)
        _, status = os.waitpid(number, 0)
        times = read_all(reading)
        if os.WIFSIGNALED(status):
            self.kills += 1
        elif os.WEXITSTATUS(status) != 0:
            self.problems.append(f"a child ended with {os.WEXITSTATUS(status)}")
        self.look(times)
        if os.WIFEXITED(status):
            self.compare()

    def look(self, times: list[float]) -> None:
        """See that the file is whole and young, and that there is at most one leftover."""
        others = [path.name for path in self.file.parent.iterdir() if path != self.file]
        if len(others) > 1:
            self.problems.append(f"there are {others}")
        if self.file.exists():
            self.found += 1
            airnp.load(self.file)
            since = max([saved_at(self.file), *times[:1]])
            late = [moment for moment in times if moment >= since + EVERY]
            if len(late) > 1:
                self.problems.append(f"{len(late)} portions ended when the file should have been replaced")

    def compare(self) -> None:
        """See that the run has ended as it should, and make room for the next one."""
        try:
            (assert_same_sparse if SPARSE else assert_same_dense)(airnp.resume(self.file), self.whole)
        except AssertionError as error:
            self.problems.append(f"the resumed run ended otherwise: {error}")
        self.finished += 1
        self.file.unlink()

    def finish(self) -> None:
        """Let the last run come to its end."""
        number, reading = started(self.file)
        _ = read_all(reading)
        os.waitpid(number, 0)
        self.compare()


def main() -> None:
    """Kill as often as asked, then let the last run end."""
    experiment = Experiment(Path(sys.argv[1]))
    while experiment.kills < int(sys.argv[2]) and not experiment.problems:
        experiment.kill_once()
    if not experiment.problems:
        experiment.finish()
    names = ("kills", "found", "finished", "problems")
    sys.stdout.write(json.dumps({name: getattr(experiment, name) for name in names}))


if __name__ == "__main__":
    main()
