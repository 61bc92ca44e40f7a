"""Importing airnp brings none of the optional libraries along."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import airnp

OPTIONAL = {"numba", "cupy", "torch", "pandas", "sklearn", "matplotlib", "networkx", "scipy", "PIL", "tqdm"}
OPTIONAL |= {"skimage"}
NOT_FOR_USERS = ("COV_", "COVERAGE", "PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for bytecode that all interpreters share, so that later imports are quick."""
    return tmp_path_factory.mktemp("bytecode")


def python(bytecode: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a new interpreter with a user's environment and the same airnp."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_FOR_USERS)}
    paths = os.pathsep.join(filter(None, [str(Path(airnp.__file__).parents[1]), kept.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": str(bytecode)},
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    "code",
    [
        "",
        "import numpy; Y = numpy.random.default_rng(0).random((6, 5)); Y[0, 0] = numpy.nan\n"
        "for data in (Y, Y.tolist()): airnp.fit(data, max_iter=2, engine='reference')",
    ],
    ids=["import", "reference fit"],
)
def test_no_optional_library_is_loaded(bytecode: Path, code: str) -> None:
    report = "print(airnp.__file__); print(*sys.modules)"
    where, modules = python(bytecode, "-c", f"import sys, airnp\n{code}\n{report}").stdout.splitlines()
    assert Path(where) == Path(airnp.__file__)
    loaded = {name.split(".")[0] for name in modules.split()}
    assert {"airnp", "numpy", "array_api_compat"} <= loaded
    assert not loaded & OPTIONAL


def test_no_module_hides_a_public_name() -> None:
    names = {module.name for module in pkgutil.iter_modules(airnp.__path__)}
    assert {"fitting", "optimizers"} <= names
    assert names & set(airnp.__all__) == {"masks", "metrics"}
