"""Shared by the tests of the benchmarks: Python in a process without a GPU, and the double of CuPy."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_python():
    """Return a function that runs Python in the root of the repository, where it finds no GPU."""

    def run(*words, cwd=ROOT, **environment):
        kept = {name: value for name, value in os.environ.items() if name != "AIRNP_REQUIRE_GPU"}
        environment = {**kept, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(ROOT), **environment}
        command = [sys.executable, *map(str, words)]
        return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture
def double(gpu: Any) -> Any:
    """The double of CuPy, under a name that ``bench.gpu`` does not have."""
    return gpu
