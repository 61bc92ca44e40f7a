"""The finished cells of table 1: one small JSON file each, whole or not there at all."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import airnp
from bench.table1_methods import Experiment, Task

Record = dict[str, Any]

_PACKAGE = Path(airnp.__file__).parent
_FITTING = ("fitting.py", "baselines/factorizations.py")
_PROBLEMS = ("datasets", "masks", "metrics.py")


def write_whole(path: Path, text: str) -> None:
    """Write a file that others find either as it was or complete, whenever this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The same name every time: what a kill leaves behind is overwritten by the next attempt.
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


class Cells:
    """The cells of one output folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "cells"

    def path(self, task: Task) -> Path:
        """Return where a cell is kept. Other settings of the same method are another cell."""
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

    def put(self, task: Task, found: Record) -> Record:
        """Keep what was found for a cell; return the whole record."""
        record = {
            "row": task.row,
            "method": task.method,
            "seed": task.seed,
            "settings": dict(task.settings),
            "airnp": airnp.__version__,
            "ended": datetime.now(UTC).isoformat(timespec="seconds"),
            **found,
        }
        write_whole(self.path(task), json.dumps(record) + "\n")
        return record

    def compute(self, task: Task, experiment: Experiment) -> Record:
        """Compute and keep a cell, unless someone has in the meantime; an error is kept as its result."""
        if self.is_finished(task):
            return self.find(task) or {}
        source = source_hash(experiment.methods[task.method].is_fit)
        try:
            found = {"status": "done", **experiment.solve(task)}
        except Exception as error:
            found = failure(error)
        return self.put(task, {"source": source, **found})


def failure(error: Exception | str) -> Record:
    """Return what to keep of a cell that could not be computed."""
    text = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
    return {"status": "failed", "error": text}


@cache
def source_hash(fits: bool) -> str:
    """Return a fingerprint of the code of airnp that can move a cell: comments and docstrings cannot.

    Of the code as it was when this process first asked, which is what it has imported.

    Parameters
    ----------
    fits : bool
        For a run of :func:`airnp.fit`, or for another method.
    """
    chosen = _sources(_PROBLEMS) | (_needed_by(_sources(_FITTING)) if fits else _sources(["baselines"]))
    named = {path.relative_to(_PACKAGE).as_posix(): path for path in chosen}
    return _digest("\n".join(f"{name} {_code(named[name])}" for name in sorted(named)))


def _sources(names: Iterable[str]) -> set[Path]:
    """Return files of the package, and all files of its folders."""
    paths = [_PACKAGE / name for name in names]
    return {file for path in paths for file in [path, *path.rglob("*.py")] if file.is_file()}


def _needed_by(paths: Iterable[Path]) -> set[Path]:
    """Return these files and all of the package that they import, directly or through others."""
    found: set[Path] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += _imported(path)
    return found


def _imported(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "airnp":
            folder = _PACKAGE.joinpath(*str(node.module).split(".")[1:])
            candidates = [folder.with_suffix(".py"), *(folder / f"{alias.name}.py" for alias in node.names)]
            if folder != _PACKAGE:  # the package's own opening imports everything
                candidates.append(folder / "__init__.py")
            yield from filter(Path.is_file, candidates)


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.dump(tree)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _read(path: Path) -> Record | None:
    """Return a record, or None for a file that is none: such a cell is computed again."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(record, dict) and {"row", "method", "seed", "settings", "status"} <= record.keys():
            return record
    except (OSError, ValueError):
        pass
    print(f"{path.name}: no record of a cell, ignored", file=sys.stderr)
    return None
