"""Cells side by side: single-threaded worker processes, which a crash or a kill cannot bring to a halt."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import connection
from pathlib import Path
from typing import Any

from bench.table1_cells import Cells, Record, failure, source_hash
from bench.table1_methods import Experiment, Task
from bench.timing import POOLS

# New interpreters: the libraries' pools of threads are made when they load, and do not survive a fork.
_SPAWN = multiprocessing.get_context("spawn")


def compute_all(
    tasks: Iterable[Task], experiment: Experiment, folder: Path, jobs: int
) -> Iterator[tuple[Task, Record]]:
    """Compute and keep cells in so many processes; yield each with its record when it is there."""
    waiting = deque(tasks)
    workers: dict[Any, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                worker = _Worker(experiment, folder)
                worker.begin(waiting.popleft())
                workers[worker.line] = worker
            for line in connection.wait(list(workers)):
                worker = workers[line]
                task, record = worker.finished()
                if worker.is_gone or not waiting:
                    worker.end()
                    del workers[line]
                else:
                    worker.begin(waiting.popleft())
                yield task, record
    finally:
        for worker in workers.values():
            worker.end()


class _Worker:
    """A process, and the line to it."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.line, far_end = _SPAWN.Pipe()
        self.is_gone = False
        self._cells = Cells(folder)
        self._process = _SPAWN.Process(target=_work, args=(far_end, experiment, folder), daemon=True)
        with _one_thread_each():
            self._process.start()
        far_end.close()

    def begin(self, task: Task) -> None:
        self._task = task
        # A process that died at once is found out when its answer is read.
        with suppress(BrokenPipeError):
            self.line.send(task)

    def finished(self) -> tuple[Task, Record]:
        """Return the cell that was computed; a process that died has failed at it."""
        try:
            return self._task, self.line.recv()
        except (EOFError, ConnectionError):
            self.is_gone = True
            self._process.join()
            died = failure(f"the process ended with code {self._process.exitcode}; out of memory?")
            return self._task, self._cells.put(self._task, died)

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.line.close()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Let processes that are started here have one thread for BLAS and numba."""
    before = {name: os.environ.get(name) for name in POOLS}
    os.environ.update(dict.fromkeys(POOLS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _work(line: Any, experiment: Experiment, folder: Path) -> None:
    """Compute what comes through the line, until nothing comes any more."""
    # An interrupt goes to the whole group of processes, and a fit would answer it with an unfinished result.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    cells = Cells(folder)
    for fits in (False, True):
        source_hash(fits)  # now, before someone edits what this process has just imported
    with suppress(EOFError, ConnectionError):
        while True:
            line.send(cells.compute(line.recv(), experiment))


def _end_with_parent() -> None:
    """Do not go on alone when the command was killed."""
    connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)
