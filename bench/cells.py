"""Experiments made of cells: a method on a row from a seed, computed in worker processes, kept in files.

:mod:`bench.table1`, :mod:`bench.coverage` and :mod:`bench.pictures` are such experiments.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import multiprocessing
import os
import re
import signal
import statistics
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal

import numpy as np

import airnp
from airnp.results.atomic import write_atomically
from bench.paper_rows import Row
from bench.timing import POOLS

Record = dict[str, Any]
"""What the file of a cell holds: row, method, seed, settings, status, and what the method found."""


BINARY = {"rmse": airnp.metrics.rmse, "aupr": airnp.metrics.average_precision}
"""What is measured besides NMAE where entries are 0 or 1: NMAE alone flatters predicting 0 everywhere."""


@dataclass(frozen=True)
class Method:
    """One column of a table.

    Attributes
    ----------
    title : str
    run : callable
        ``run(problem, seed, **settings)`` returns the completed matrix and a dict of what else to keep.
    settings : mapping
        Keyword arguments of ``run``; part of the identity of the method's cells.
    column : str, optional
        The paper's column to compare with.
    rows : {"all", "images", "others"}
        The rows that the method is meant for.
    is_seeded : bool
        Whether the result depends on the seed.
    is_fit : bool
        Whether it is a run of :func:`airnp.fit`.
    """

    title: str
    run: Callable[..., tuple[Any, dict[str, Any]]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    column: str | None = None
    rows: Literal["all", "images", "others"] = "all"
    is_seeded: bool = True
    is_fit: bool = False

    def suits(self, row: Row) -> bool:
        return self.rows == "all" or row.is_image == (self.rows == "images")

    def seeds(self, row: Row, count: int) -> range:
        """Return the seeds to run: one if neither the mask nor the method depends on it."""
        return range(count if self.is_seeded or not row.has_fixed_mask else 1)


@dataclass(frozen=True)
class Task:
    """One cell to compute."""

    row: str
    method: str
    seed: int
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """Rows and methods by name. It is pickled for worker processes, so its functions must be importable."""

    rows: Mapping[str, Row]
    methods: Mapping[str, Method]

    def solve(self, task: Task) -> dict[str, Any]:
        """Return the NMAE and the seconds of one cell, and what else its method keeps."""
        row, method = self.rows[task.row], self.methods[task.method]
        problem = row.load(task.seed)
        if method.is_fit:
            _warm_up()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", airnp.EmptyLineWarning)
            start = time.perf_counter()
            X, kept = method.run(problem, task.seed, **task.settings)
            seconds = time.perf_counter() - start
        nmae = float(airnp.metrics.nmae(X, problem.truth, problem.mask))
        if not np.isfinite(nmae):
            raise ArithmeticError(f"the error on missing entries is {nmae}")
        measured = {"nmae": nmae}
        if row.is_binary:
            for name, measure in BINARY.items():
                measured[name] = float(measure(X, problem.truth, problem.mask))
        return {**measured, "seconds": round(seconds, 3), **kept}

    def source(self, method: str) -> str:
        """Return a hash of the code of airnp that can change the cells of a method."""
        return source_hash(self.methods[method].is_fit)

    def is_stale(self, record: Record) -> bool:
        """Return whether a finished cell was computed by another version of airnp's code."""
        return record["status"] == "done" and record["source"] != self.source(record["method"])


@cache
def _warm_up() -> None:
    """Load the compiled engine, so that no fit's time includes it."""
    values = np.arange(12.0, dtype=np.float32).reshape(3, 4)
    for regularizers in (None, [], [airnp.TotalVariation()]):
        engine = airnp.CPU(threads=1)
        airnp.fit(values, regularizers=regularizers, max_iter=2, stop=None, seed=0, engine=engine)


# --- files ---


def write_file(path: Path, content: str | bytes) -> None:
    """Write a file atomically, and create its folder: if the process is killed, the old file remains."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode() if isinstance(content, str) else content
    write_atomically(path, lambda stream: stream.write(data))


class Cells:
    """The cells of one output folder, each a small JSON file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cells"

    def path(self, task: Task) -> Path:
        """Return the file of a cell. The same method with other settings has another file."""
        row = re.sub(r"[^a-z0-9]+", "-", task.row.lower()).strip("-")
        digest = _digest(json.dumps(dict(task.settings), sort_keys=True))
        return self.folder / f"{row}.{task.method}.seed{task.seed}.{digest}.json"

    def find(self, task: Task) -> Record | None:
        """Return the record of a cell, finished or failed; None if there is none."""
        path = self.path(task)
        return _read(path) if path.exists() else None

    def is_finished(self, task: Task) -> bool:
        record = self.find(task)
        return record is not None and record["status"] == "done"

    def all(self) -> Iterator[Record]:
        for path in sorted(self.folder.glob("*.json")):
            record = _read(path)
            if record is not None:
                yield record

    def drop(self, task: Task) -> None:
        self.path(task).unlink(missing_ok=True)

    def put(self, task: Task, outcome: Record) -> Record:
        """Write the outcome of a cell to its file; return the whole record."""
        record = {
            "row": task.row,
            "method": task.method,
            "seed": task.seed,
            "settings": dict(task.settings),
            "airnp": airnp.__version__,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            **outcome,
        }
        write_file(self.path(task), json.dumps(record) + "\n")
        return record

    def compute(self, task: Task, experiment: Experiment) -> Record:
        """Compute and keep a cell, unless another process has finished it. An error is kept, too."""
        if self.is_finished(task):
            return self.find(task) or {}
        source = experiment.source(task.method)
        try:
            outcome = {"status": "done", **experiment.solve(task)}
        except Exception as error:
            outcome = _failure(f"{type(error).__name__}: {error}")
        return self.put(task, {"source": source, **outcome})


def _failure(error: str) -> Record:
    return {"status": "failed", "error": error}


def _read(path: Path) -> Record | None:
    """Return a record, or None if the file holds none; such a cell is computed again."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and {"row", "method", "seed", "settings", "status"} <= record.keys():
            return record
    except (OSError, ValueError):
        pass
    print(f"{path.name}: no record of a cell, ignored", file=sys.stderr)
    return None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


# --- worker processes ---

# Spawned, not forked: libraries create their thread pools on import, and these do not survive a fork.
_SPAWN = multiprocessing.get_context("spawn")


def compute_all(
    tasks: Iterable[Task], experiment: Experiment, folder: Path, jobs: int
) -> Iterator[tuple[Task, Record]]:
    """Compute cells in ``jobs`` processes of one thread each; yield each task with its record.

    A process that dies fails its own cell only.
    """
    waiting = deque(tasks)
    workers: dict[Any, _Worker] = {}
    try:
        while waiting or workers:
            while waiting and len(workers) < jobs:
                worker = _Worker(experiment, folder)
                worker.begin(waiting.popleft())
                workers[worker.pipe] = worker
            for pipe in connection.wait(list(workers)):
                worker = workers[pipe]
                task, record = worker.result()
                if worker.is_dead or not waiting:
                    worker.end()
                    del workers[pipe]
                else:
                    worker.begin(waiting.popleft())
                yield task, record
    finally:
        for worker in workers.values():
            worker.end()


_WRITE_EVERY = 30.0
"""Seconds between two reports while cells are being computed."""


def compute_missing(
    tasks: Sequence[Task],
    experiment: Experiment,
    folder: Path,
    jobs: int,
    report: Callable[[], object] = lambda: None,
) -> int:
    """Compute the cells that are not finished; return how many failed.

    Each is printed when it is done, with the time left. ``report`` is called from time to time.
    """
    cells = Cells(folder)
    waiting = [task for task in tasks if not cells.is_finished(task)]
    print(f"{len(tasks) - len(waiting)} of {len(tasks)} cells are there", file=sys.stderr)
    clock = _Clock(waiting, jobs, list(cells.all()))
    failed, written = 0, time.monotonic()
    with closing(compute_all(waiting, experiment, folder, jobs)) as results:
        for count, (task, record) in enumerate(results, start=1):
            failed += record["status"] == "failed"
            clock.finish(task, record)
            place = f"[{count}/{len(waiting)}] {task.row} · {task.method} · seed {task.seed}"
            print(f"{place}: {_outcome(record)}{clock.remaining()}", file=sys.stderr, flush=True)
            if time.monotonic() - written > _WRITE_EVERY:
                report()
                written = time.monotonic()
    return failed


class _Clock:
    """Estimate the time of the remaining cells from similar cells."""

    def __init__(self, waiting: Sequence[Task], jobs: int, known: Sequence[Record]) -> None:
        self._waiting = list(waiting)
        self._jobs = jobs
        self._seconds: dict[tuple[str, ...], list[float]] = {}
        for record in known:
            self._add(record)

    def _add(self, record: Record) -> None:
        if record["status"] == "done":
            for key in ((), (record["method"],), (record["method"], record["row"])):
                self._seconds.setdefault(key, []).append(record["seconds"])

    def finish(self, task: Task, record: Record) -> None:
        self._waiting.remove(task)
        self._add(record)

    def remaining(self) -> str:
        if not self._waiting or not self._seconds:
            return ""
        minutes = sum(map(self._estimate, self._waiting)) / self._jobs / 60
        return f"; about {minutes:.0f} min left" if minutes >= 1 else ""

    def _estimate(self, task: Task) -> float:
        for key in ((task.method, task.row), (task.method,), ()):
            if key in self._seconds:
                return statistics.fmean(self._seconds[key])
        return 0.0


def _outcome(record: Record) -> str:
    if record["status"] == "failed":
        return f"failed: {record['error']}"
    return f"{record['nmae']:.4g} in {record['seconds']:.1f} s"


class _Worker:
    """A process, and the pipe to it."""

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.pipe, child_end = _SPAWN.Pipe()
        self.is_dead = False
        self._cells = Cells(folder)
        self._process = _SPAWN.Process(target=_work, args=(child_end, experiment, folder), daemon=True)
        with _single_threaded():
            self._process.start()
        child_end.close()

    def begin(self, task: Task) -> None:
        self._task = task
        # If the process has died already, ``result`` notices.
        with suppress(BrokenPipeError):
            self.pipe.send(task)

    def result(self) -> tuple[Task, Record]:
        """Return the finished cell; a failed one if the process died."""
        try:
            return self._task, self.pipe.recv()
        except (EOFError, ConnectionError):
            self.is_dead = True
            self._process.join()
            death = _failure(f"the process ended with code {self._process.exitcode}; out of memory?")
            return self._task, self._cells.put(self._task, death)

    def end(self) -> None:
        self._process.terminate()
        self._process.join()
        self.pipe.close()


@contextmanager
def _single_threaded() -> Iterator[None]:
    """Give processes that are started here one thread for BLAS and numba."""
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


def _work(pipe: Any, experiment: Experiment, folder: Path) -> None:
    """Compute the tasks that arrive until the pipe is closed."""
    # Ctrl-C reaches the whole process group, and a fit would answer it with an unfinished result.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    cells = Cells(folder)
    for method in experiment.methods:
        experiment.source(method)  # now, before someone edits what this process has just imported
    with suppress(EOFError, ConnectionError):
        while True:
            pipe.send(cells.compute(pipe.recv(), experiment))


def _exit_with_parent() -> None:
    """Exit when the parent process is gone."""
    connection.wait([multiprocessing.parent_process().sentinel])
    os._exit(1)


# --- the command line ---


def positive(text: str) -> int:
    """Return the number of an option of the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


# --- the version of the code ---

_PACKAGE = Path(airnp.__file__).parent
_FITTING = ("fitting.py", "baselines/factorizations.py")
_PROBLEMS = ("datasets", "masks", "metrics.py")


def source_hash(fits: bool) -> str:
    """Return a hash of the code of :func:`airnp.fit`, or of that of all other methods."""
    return code_hash(_FITTING) if fits else code_hash(["baselines"], imports=False)


def code_hash(names: Iterable[str], *, imports: bool = True) -> str:
    """Return a hash of the code of airnp that can change a cell; comments and docstrings do not count.

    It is cached, so it describes the code that this process has imported.

    Parameters
    ----------
    names : iterable of str
        Files and folders of the package. Those that make problems and measure errors are added.
    imports : bool
        Whether everything that these import counts, too.
    """
    return _code_hash(tuple(names), imports)


@cache
def _code_hash(names: tuple[str, ...], imports: bool) -> str:
    chosen = _sources(_PROBLEMS) | (_with_imports(_sources(names)) if imports else _sources(names))
    named = {path.relative_to(_PACKAGE).as_posix(): path for path in chosen}
    return _digest("\n".join(f"{name} {_code(named[name])}" for name in sorted(named)))


def _sources(names: Iterable[str]) -> set[Path]:
    """Return the named files of the package, and all files of the named folders."""
    paths = [_PACKAGE / name for name in names]
    return {file for path in paths for file in [path, *path.rglob("*.py")] if file.is_file()}


def _with_imports(paths: Iterable[Path]) -> set[Path]:
    """Return these files and all files of the package that they import, directly or indirectly."""
    found: set[Path] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imports(path)
    return found


def _imports(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "airnp":
            folder = _PACKAGE.joinpath(*str(node.module).split(".")[1:])
            candidates = [folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names)]
            if folder != _PACKAGE:  # the package's own __init__ loads everything
                candidates.append(folder / "__init__.py")
            yield from filter(Path.is_file, candidates)


def _code(path: Path) -> str:
    """Return the syntax tree of a file without docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)
