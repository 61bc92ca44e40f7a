"""Shared fixtures: array namespaces under test, one thread for BLAS, deterministic Hypothesis."""

from __future__ import annotations

import os
from pathlib import Path

# Before NumPy is imported: on small matrices a second BLAS thread costs more than it gives.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Before numba is: two processes that compile at the same time can mix up their entries in its index. So each
# of pytest-xdist's workers has a cache of its own, which its children share, and keeps it for the next run.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    caches = Path(os.environ.get("NUMBA_CACHE_DIR", Path(__file__).parent / "__pycache__"))
    if caches.name != worker:
        os.environ["NUMBA_CACHE_DIR"] = str(caches / worker)

import signal
from dataclasses import dataclass
from typing import Any

import array_api_strict
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from airnp.engines import _cpu_kernels
from tests.cupy_double.fixture import cupy_double, gpu  # noqa: F401

# A shell makes its background jobs deaf to Ctrl-C, and their children with them. Tests that send it to one
# must not depend on how pytest was started.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "airnp", derandomize=True, deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("airnp")


@dataclass(frozen=True)
class Backend:
    """One way of handing arrays to airnp."""

    name: str
    xp: Any
    device: Any = None

    def array(self, values: Any) -> Any:
        """Return ``values`` as this backend has them; NumPy's are read-only, to catch a mutated input."""
        host = np.asarray(values)
        if self.xp is np:
            copy = host.copy()
            copy.flags.writeable = False
            return copy
        return self.xp.asarray(host, device=self.device)


def _backends() -> list[Any]:
    strict = array_api_strict
    found = [
        pytest.param(Backend("numpy", np), id="numpy"),
        pytest.param(Backend("strict", strict), id="strict"),
        pytest.param(Backend("strict-device1", strict, strict.Device("device1")), id="strict-device1"),
    ]
    try:
        import torch
    except ImportError:
        skip = pytest.mark.skip(reason="PyTorch is not installed; .ci/run installs it")
        found.append(pytest.param(None, id="torch", marks=skip))
    else:
        found.append(pytest.param(Backend("torch", torch), id="torch"))
    return found


@pytest.fixture(params=_backends())
def backend(request: pytest.FixtureRequest) -> Backend:
    """An array namespace and device: read-only NumPy, array_api_strict on two devices, PyTorch."""
    return request.param


@pytest.fixture(scope="session", autouse=True)
def _nobody_says_that_it_compiles() -> None:
    """Keep the CPU engine's note out of what tests capture: who compiles first depends on their order."""
    _cpu_kernels._CompileNote._said = True


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how much was fuzzed, if that was the purpose of the run."""
    from tests.fuzzing import COUNTS, SECONDS

    if SECONDS and COUNTS:
        for name, (examples, refusals, seconds) in COUNTS.items():
            terminalreporter.write_line(f"{name}: {examples} examples, {refusals} refused, {seconds:.0f} s")
        total = [sum(column) for column in zip(*COUNTS.values(), strict=True)]
        terminalreporter.write_line("all: {} examples, {} refused, {:.0f} s".format(*total))


@pytest.fixture(scope="session")
def data_directory() -> Path:
    """The paper's data, where ``AIRNP_DATA`` says."""
    named = os.environ.get("AIRNP_DATA")
    if not named or not Path(named).is_dir():
        pytest.skip("AIRNP_DATA does not name a directory with the paper's data")
    return Path(named)
