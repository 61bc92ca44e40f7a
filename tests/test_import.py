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


REFERENCE_FIT = """
import numpy
Y = numpy.random.default_rng(0).random((6, 5))
Y[0, 0] = numpy.nan
for data in (Y, Y.tolist()):
    airnp.fit(data, max_iter=2, engine="reference")
"""


def loaded_after(bytecode: Path, code: str) -> set[str]:
    """Return the libraries that a new interpreter has loaded after ``import airnp`` and `code`."""
    report = "print(airnp.__file__); print(*sys.modules)"
    where, modules = python(bytecode, "-c", f"import sys, airnp\n{code}\n{report}").stdout.splitlines()
    assert Path(where) == Path(airnp.__file__)
    return {name.split(".")[0] for name in modules.split()}


def test_importing_airnp_loads_nothing_else(bytecode: Path) -> None:
    assert not loaded_after(bytecode, "") & (OPTIONAL | {"numpy", "array_api_compat"})


def test_a_fit_by_the_reference_loads_no_optional_library(bytecode: Path) -> None:
    loaded = loaded_after(bytecode, REFERENCE_FIT)
    assert {"airnp", "numpy", "array_api_compat"} <= loaded
    assert not loaded & OPTIONAL


def test_every_public_name_is_found_when_it_is_used(bytecode: Path) -> None:
    code = "from airnp import *; print(*(name for name in airnp.__all__ if name not in globals()))"
    assert python(bytecode, "-c", f"import airnp; {code}").stdout.split() == []
    assert set(airnp.__all__) | {"plot", "__version__"} <= set(dir(airnp))


@pytest.mark.parametrize("name", ["fitt", "_private", "__wrapped__"])
def test_a_name_that_is_not_there_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module 'airnp' has no attribute '{name}'"):
        getattr(airnp, name)


def test_no_module_hides_a_public_name() -> None:
    names = {module.name for module in pkgutil.iter_modules(airnp.__path__)}
    assert {"fitting", "optimizers"} <= names
    assert names & set(airnp.__all__) == {"masks", "metrics"}
