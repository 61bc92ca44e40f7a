"""Run the tests that should find one defect."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).resolve().parents[2]
_PATIENCE = 1800  # seconds until a kernel is taken for an endless one

# The tests that see the text of a module, by pytest's -k.
_TESTS = {
    "laplacian": "test_graph or pair or nodes",
    "residual": "residual or sums or deeper or walk or passes",
    "variation": "variation or sums or passes",
    "fixed_graph": "laplacian or sums or given_graph or passes",
    "adam": "adam or tensor or first_step or updates",
    "record": "record",
    "split": "split or updates",
    **dict.fromkeys(("sparse_edges", "sparse_entries", "sparse_gram", "sparse_lines"), "sparse"),
    **dict.fromkeys(("patch_matching", "patches"), "patch"),
}
_RULES = "house_rules"
_VALUES = {"sparse": "test_sparse_kernels.py", "patch": "test_patch_kernels.py"}  # others: test_kernels.py
_SAFETY = ("test_kernels_sanitized.py", "test_kernel_indices.py")
# Slower, so they run only if the others found nothing: NVIDIA's compiler, and whole fits.
LATE_FILES = ("test_nvrtc.py", "test_cuda_engine.py", "test_sparse_cuda.py")
_SIGNS = {"AssertionError": "wrong values", "KernelError": "CUDA rule broken", "Failed": "refused"}
_STATIC_SIGNS = {"reading": "house rule", "NVRTC": "compiler output"}


@dataclass(frozen=True)
class Verdict:
    """The test that found a defect (None if no test did), its mode, and the sign."""

    test: str | None = None
    mode: str = ""
    sign: str = ""


class NotAMutantError(ValueError):
    """The broken text does not compile, or the tests cannot run at all."""


def trial(module: str, text: str, folder: Path, *, late: bool = True) -> Verdict:
    """Return the verdict of a module's tests on this text.

    Parameters
    ----------
    module : str
        Name of the module.
    text : str
        Its text, shared headers included.
    folder : pathlib.Path
        An empty folder for the text and the report.
    late : bool
        Also run NVRTC and whole fits if the other tests pass.
    """
    (folder / f"{module}.cu").write_text(text, encoding="utf-8")
    files = (_VALUES.get(_TESTS[module], "test_kernels.py"), *_SAFETY, "test_kernel_sources.py")
    verdict = _run(folder, files, ["-k", f"{_TESTS[module]} or {_RULES}"])
    if verdict.test is None and late:
        verdict = _run(folder, LATE_FILES, [])
    return verdict


def _run(folder: Path, files: tuple[str, ...], options: list[str]) -> Verdict:
    command = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.mutants.plugin", *options]
    command += [str(_ROOT / "tests" / "engines" / name) for name in files]
    process = _processes().Process(target=_pytest, args=(command, folder))
    process.start()
    process.join(_PATIENCE)
    if process.is_alive():
        os.killpg(process.pid, signal.SIGKILL)
        process.join()
        return Verdict(_last(folder)["test"], "fast", "does not end")
    if process.exitcode == 0:
        return Verdict()
    last = _last(folder)
    if process.exitcode < 0:  # killed by a signal, most likely for an access outside our memory
        return Verdict(last["test"], last.get("mode", "fast"), "crash")
    if process.exitcode != 1 or last.get("error") in {None, "CompileError"}:
        raise NotAMutantError((folder / "output").read_text(encoding="utf-8", errors="replace"))
    return Verdict(last["test"], last["mode"], _sign(last))


@functools.cache
def _processes() -> Any:
    """Return a fork server that has already imported the slow packages."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "numpy", "scipy.sparse", "airnp", "array_api_strict"])
    return context


def _pytest(command: list[str], folder: Path) -> None:
    """Run pytest in this process, in a process group of its own."""
    os.setsid()
    os.chdir(_ROOT)
    os.environ["AIRNP_MUTANT"] = str(folder)
    with (folder / "output").open("w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    sys.exit(pytest.main(command))


def _last(folder: Path) -> dict[str, str]:
    """Return the last line of the report, with the file name of the test."""
    report = folder / "report.jsonl"
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else ['{"test": ""}']
    line = json.loads(lines[-1])
    return {**line, "test": line["test"].rpartition("tests/engines/")[2]}


def _sign(failure: dict[str, str]) -> str:
    if failure["error"] == "SanitizerError":
        return "race" if failure["mode"] == "tsan" else "sanitizer"
    if failure["mode"] in _STATIC_SIGNS and failure["error"] == "AssertionError":
        return _STATIC_SIGNS[failure["mode"]]
    if "tickets are not ready" in failure["message"]:
        return "tickets left over"
    if "of an array" in failure["message"] and "written" in failure["message"]:
        return "margin written"
    return _SIGNS.get(failure["error"], failure["error"])
