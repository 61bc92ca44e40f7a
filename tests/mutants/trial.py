"""One defect against the tests that should find it."""

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
_PATIENCE = 180  # seconds until a kernel is taken for one that never ends

# The tests of each module, by pytest's -k: the others never see its text.
_HOUSE = "rules_of_the_house"
_TESTS = {
    "laplacian": f"test_graph or pair or nodes or {_HOUSE}",
    "residual": f"residual or sum or deeper or walk or passes or {_HOUSE}",
    "variation": f"variation or sums or passes or {_HOUSE}",
    "fixed_graph": f"dense_laplacian or sparse or sums or fixed_graphs or passes or {_HOUSE}",
    "adam": f"adam or tensor or first_step or updates or {_HOUSE}",
    "record": f"record or {_HOUSE}",
    **dict.fromkeys(("sparse_edges", "sparse_entries", "sparse_lines"), f"sparse_kernels or {_HOUSE}"),
}
_KERNEL_FILES = (
    "test_kernels.py", "test_kernels_sanitized.py", "test_kernel_indices.py", "test_kernel_sources.py",
)  # fmt: skip
_SPARSE_FILES = ("test_sparse_kernels.py", "test_kernel_sources.py")
# Dearer, so they are asked when the others found nothing: NVIDIA's compiler, and whole fits.
LATE_FILES = ("test_nvrtc.py", "test_cuda_engine.py", "test_sparse_cuda.py")
_SIGNS = {"AssertionError": "wrong values", "KernelError": "a rule of CUDA broken", "Failed": "refused"}
_STATIC_SIGNS = {"reading": "a rule for the text", "NVRTC": "what the compiler says"}


@dataclass(frozen=True)
class Verdict:
    """Which test found a defect, in which mode, and by what sign; ``test`` is None when none did."""

    test: str | None = None
    mode: str = ""
    sign: str = ""


class NotAMutantError(ValueError):
    """The broken text does not even compile, or the tests cannot run at all."""


def trial(module: str, text: str, folder: Path, *, late: bool = True) -> Verdict:
    """Return what the tests of a module say to this text of it.

    Parameters
    ----------
    module : str
        Name of the module.
    text : str
        Its text, shared part included.
    folder : pathlib.Path
        An empty folder for the text and the report.
    late : bool
        Ask NVRTC and the tests of whole fits, too.
    """
    (folder / f"{module}.cu").write_text(text, encoding="utf-8")
    files = _SPARSE_FILES if module.startswith("sparse_") else _KERNEL_FILES
    verdict = _run(folder, files, ["-k", _TESTS[module]])
    if verdict.test is None and late:
        verdict = _run(folder, LATE_FILES, [])
    return verdict


def _run(folder: Path, files: tuple[str, ...], options: list[str]) -> Verdict:
    command = ["-x", "-q", "--tb=short", "-p", "no:cacheprovider", "-p", "tests.mutants.plugin", *options]
    command += [str(_ROOT / "tests" / name) for name in files]
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
    if process.exitcode < 0:  # killed by a signal, most likely for an access to an address that is not ours
        return Verdict(last["test"], last.get("mode", "fast"), "crash")
    if process.exitcode != 1 or last.get("error") in {None, "CompileError"}:
        raise NotAMutantError((folder / "output").read_text(encoding="utf-8", errors="replace"))
    return Verdict(last["test"], last["mode"], _sign(last))


@functools.cache
def _processes() -> Any:
    """Return a server of processes that have loaded already what takes seconds to load."""
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "numpy", "scipy.sparse", "airnp", "array_api_strict"])
    return context


def _pytest(command: list[str], folder: Path) -> None:
    """Run pytest in this process, which is one of its own and has a group of its own."""
    os.setsid()
    os.chdir(_ROOT)
    os.environ["AIRNP_MUTANT"] = str(folder)
    with (folder / "output").open("w") as written:
        os.dup2(written.fileno(), 1)
        os.dup2(written.fileno(), 2)
    sys.exit(pytest.main(command))


def _last(folder: Path) -> dict[str, str]:
    """Return the last line of the report."""
    report = folder / "report.jsonl"
    lines = report.read_text(encoding="utf-8").splitlines() if report.exists() else ['{"test": ""}']
    line = json.loads(lines[-1])
    return {**line, "test": line["test"].rpartition("/")[2]}


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
