"""The rules of the house: in which order packages import each other, and names and sizes of modules."""

from __future__ import annotations

import ast
import inspect
from collections import Counter
from pathlib import Path

import pytest

import airnp

ROOT = Path(airnp.__file__).resolve().parent

LAYERS = [
    ["_arrays", "_checks", "_devices"],
    ["metrics"],
    ["data"],
    ["engines"],
    ["resemblance"],
    ["optimizers"],
    ["regularizers"],
    ["model"],
    ["results"],
    ["training"],
    ["fitting"],
    ["fleet"],
    ["tables", "ratings", "implicit", "images"],
    ["masks"],
    ["plot", "baselines", "datasets", "sklearn", "dask"],
    ["completing"],
    ["_public"],
    ["commands"],
    ["__init__", "__main__"],
]
"""From the ground up: a module imports from its own package and from layers above it in this list only.

Packages of one layer do not import each other.
"""

LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}
MODULES = sorted(ROOT.rglob("*.py"))


def package_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_modules(path: Path) -> set[str]:
    """Return all modules of airnp that a file imports: lazily and for type checking, too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "airnp":
            names = [node.module] if node.module != "airnp" else [f"airnp.{a.name}" for a in node.names]
            found.update(names)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names if alias.name.split(".")[0] == "airnp")
    return found


def imported_packages(path: Path) -> set[str]:
    parts = [name.split(".") for name in imported_modules(path)]
    # `import airnp` and `from airnp import fit` are the public names, made by __init__.
    return {part[1] if len(part) > 1 and part[1] in LEVELS else "__init__" for part in parts}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_in_one_direction(path):
    own = package_of(path)
    assert own in LEVELS, f"{own} has no layer: add it to the list, and to docs/architecture.md"
    others = imported_packages(path) - {own}
    if own in ("commands", "__main__"):
        others.discard("__init__")  # the commands use airnp as its users do
    wrong = {name for name in others if LEVELS[name] >= LEVELS[own]}
    assert not wrong, f"{path.relative_to(ROOT)} imports from {wrong}, which {own} must not know"


@pytest.mark.parametrize(
    "package", ["model", "regularizers", "optimizers", "results", "training", "resemblance"]
)
def test_mathematics_does_not_know_the_backends(package):
    for path in MODULES:
        if package_of(path) == package:
            text = path.read_text(encoding="utf-8")
            words = ("numba", "cupy")
            found = [name for name in words if f"import {name}" in text or f"from {name}" in text]
            assert not found, f"{path.relative_to(ROOT)} imports {found}"


def test_no_file_name_stands_in_more_than_two_packages():
    names = Counter(path.name for path in MODULES if path.name not in ("__init__.py", "__main__.py"))
    assert [name for name, count in names.items() if count > 2] == []
    assert sum(count > 1 for count in names.values()) <= 8


def test_modules_are_worth_a_file():
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in MODULES
        if not path.stem.startswith("__")
    }
    small = [name for name, lines in sizes.items() if lines < 60]
    assert len(MODULES) <= 160
    assert len(small) <= 12, small


def test_fit_has_at_most_24_parameters():
    assert len(inspect.signature(airnp.fit).parameters) <= 24


def test_no_type_is_ignored_because_of_the_two_forms():
    ignored = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in MODULES
        for line in path.read_text(encoding="utf-8").splitlines()
        if "type: ignore" in line
    ]
    assert len(ignored) <= 2, ignored  # of SciPy's and scikit-learn's missing types
