"""Structure of the code in numbers: modules, import cycles, and calls from file to file during a fit.

    python -m bench.rooms

A room is a file of airnp. A change of room is a Python call whose code is in another file of airnp than the
nearest caller of airnp. Changes per iteration are medians over iterations late in a fit, when the engine
replays what it prepared in the first ones; they are counted as differences between fits that are one
iteration longer. A package is a direct child of ``airnp/``, a folder or a module.
"""

from __future__ import annotations

import ast
import inspect
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import airnp
from bench.timing import markdown

PACKAGE = Path(airnp.__file__).parent
TESTS = PACKAGE.parent / "tests"
SMALL = 60
LATE = range(60, 81)
"""Iterations between which changes of room are counted."""

SETTINGS = {"rank": 3, "stop": None, "seed": 0, "engine": airnp.CPU(threads=1), "record": 10**6}


def main() -> None:
    """Print the table."""
    modules = {path: _lines(path) for path in PACKAGE.rglob("*.py") if not path.stem.startswith("__")}
    names = Counter(path.name for path in modules)
    dense, sparse = map(_changes_per_iteration, ("dense", "sparse"))
    cycle = packages_in_cycles(package_imports())
    small = sum(lines < SMALL for lines in modules.values())
    lines = [sum(map(_lines, folder.rglob("*.py"))) for folder in (PACKAGE, TESTS)]
    twice, thrice = (sum(count > most for count in names.values()) for most in (1, 2))
    rows: list[list[object]] = [
        [f"modules; below {SMALL} lines (without __init__ and __main__)", f"{len(modules)}; {small}"],
        ["lines in airnp / tests", f"{lines[0]} / {lines[1]}"],
        ["packages in an import cycle", f"{len(cycle)}: {', '.join(sorted(cycle))}" if cycle else "0"],
        ["file names that occur more than once / more than twice", f"{twice} / {thrice}"],
        ["changes of room per replayed iteration, dense / sparse", f"{dense:g} / {sparse:g}"],
        ["changes of room in a fit of two iterations", count_changes(lambda: _fit(2, "dense"))],
        ["parameters of fit", len(inspect.signature(airnp.fit).parameters)],
    ]
    print(markdown(["what", "how many"], rows))


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


# --- imports ---


def package_imports() -> dict[str, set[str]]:
    """Return the packages that each package imports, also inside functions and for type checking."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        package = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        if not package.startswith("__"):
            found.setdefault(package, set()).update(_imports(path))
    return {package: (imported & found.keys()) - {package} for package, imported in found.items()}


def _imports(path: Path) -> Iterator[str]:
    """Yield what stands after ``airnp`` in every import, for ``from airnp import name`` the name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            words = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = ["airnp", *path.relative_to(PACKAGE).parts[: -node.level]] if node.level else []
            module = [*folder, *(node.module.split(".") if node.module else [])]
            words = [[*module, alias.name] for alias in node.names]
        else:
            continue
        yield from (word[1] for word in words if word[0] == "airnp" and len(word) > 1)


def packages_in_cycles(imports: dict[str, set[str]]) -> set[str]:
    """Return the packages that import themselves through others.

    Examples
    --------
    >>> sorted(packages_in_cycles({"a": {"b"}, "b": {"a", "c"}, "c": set()}))
    ['a', 'b']
    """

    def reachable(package: str) -> set[str]:
        found: set[str] = set()
        waiting = list(imports[package])
        while waiting:
            if (other := waiting.pop()) not in found:
                found.add(other)
                waiting += imports[other]
        return found

    return {package for package in imports if package in reachable(package)}


# --- changes of room ---


def _fit(iterations: int, form: str) -> None:
    values = np.random.default_rng(0).random((12, 10))
    if form == "sparse":
        airnp.fit_sparse(csr_array(np.where(values < 0.7, values, 0)), max_iter=iterations, **SETTINGS)
    else:
        airnp.fit(np.where(values < 0.7, values, np.nan), max_iter=iterations, **SETTINGS)


def _changes_per_iteration(form: str) -> float:
    _fit(2, form)  # compiles, and imports lazily
    totals = [count_changes(lambda count=count: _fit(count, form)) for count in LATE]
    return statistics.median(np.diff(totals).tolist())


def count_changes(call: Callable[[], Any]) -> int:
    """Return the changes of room during a call in this thread."""
    root, changes = f"{PACKAGE}/", 0

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal changes
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(root):
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(root):
                caller = caller.f_back
            changes += caller is not None and caller.f_code.co_filename != file

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return changes


if __name__ == "__main__":
    main()
