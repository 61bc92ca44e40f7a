"""Importing airnp is quick and brings none of the optional libraries along."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import airnp

OPTIONAL = {"numba", "cupy", "torch", "pandas", "sklearn", "matplotlib", "networkx", "scipy", "PIL", "tqdm"}
OPTIONAL |= {"skimage"}
LIMIT = 0.3
NOT_FOR_USERS = ("COV_", "COVERAGE", "PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for bytecode, so that the second import of airnp is quick wherever the tests run."""
    return tmp_path_factory.mktemp("bytecode")


def python(bytecode: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a fresh interpreter, as a user has it, that finds the same airnp as this one."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(NOT_FOR_USERS)}
    paths = os.pathsep.join(filter(None, [str(Path(airnp.__file__).parents[1]), kept.get("PYTHONPATH")]))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**kept, "PYTHONPATH": paths, "PYTHONPYCACHEPREFIX": str(bytecode)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )


def test_import_brings_no_optional_library(bytecode: Path) -> None:
    code = "import sys, airnp; print(airnp.__file__); print(*sorted(sys.modules))"
    where, modules = python(bytecode, "-c", code).stdout.splitlines()
    assert Path(where) == Path(airnp.__file__)
    loaded = {name.split(".")[0] for name in modules.split()}
    assert {"airnp", "numpy", "array_api_compat"} <= loaded
    assert not loaded & OPTIONAL


def test_a_reference_fit_of_numpy_arrays_brings_none_either(bytecode: Path) -> None:
    code = (
        "import sys, numpy, airnp; Y = numpy.random.default_rng(0).random((6, 5)); Y[0, 0] = numpy.nan\n"
        "for data in (Y, Y.tolist()): airnp.fit(data, max_iter=2, engine='reference')\n"
        "print(*sys.modules)"
    )
    loaded = {name.split(".")[0] for name in python(bytecode, "-c", code).stdout.split()}
    assert "airnp" in loaded
    assert not loaded & OPTIONAL


def test_import_takes_less_than_three_tenths_of_a_second(bytecode: Path) -> None:
    code = (
        "import time; wall, cpu = time.perf_counter(), time.process_time(); import airnp; "
        "print(time.perf_counter() - wall, time.process_time() - cpu)"
    )
    python(bytecode, "-c", code)  # compiles
    runs = []
    for _ in range(6):
        runs.append([float(seconds) for seconds in python(bytecode, "-c", code).stdout.split()])
        if runs[-1][0] < LIMIT:
            return
    # Where other programs took the cores all the time, the processor's own time decides.
    if min(cpu for _, cpu in runs) >= LIMIT:
        lines = python(bytecode, "-X", "importtime", "-c", "import airnp").stderr.splitlines()
        timed = [line.removeprefix("import time:").split("|") for line in lines[1:]]
        slowest = sorted(timed, key=lambda row: -int(row[0]))[:15]
        table = "\n".join(f"{int(own):8d} {int(total):8d} us {name.strip()}" for own, total, name in slowest)
        pytest.fail(f"import airnp took (wall, processor) {runs} s\n   alone     with\n{table}")
