"""``airnp bench``: list and run the benchmarks of a clone of the repository."""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from airnp.commands.base import INTERRUPTED, OK, Command, UsageError

DESCRIPTION = """\
Run one of the commands in bench/ with the words after its name, as python -m bench.NAME does. Without a name
list them, or with --quick run the short form of all that have one. Benchmarks are no part of an installed
airnp: start this in a clone of the repository. The exit code is that of the benchmark, or of the first that
failed.
"""

EXAMPLES = """\
  airnp bench
  airnp bench --quick
  airnp bench speed --quick
  airnp bench speed --help
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quick", action="store_true", help="run the short form of every benchmark")
    parser.add_argument("name", nargs="?", help="which one (all are listed)")
    parser.add_argument("words", nargs=argparse.REMAINDER, help="its own arguments")


def _run(options: argparse.Namespace) -> int:
    root = _clone()
    benchmarks = _benchmarks(root)
    if options.quick and options.name is None:
        return _run_all_quickly(root, benchmarks)
    if options.quick:
        raise UsageError(f"--quick without a name runs all; airnp bench {options.name} --quick runs this one")
    if options.name is None:
        width = max(map(len, benchmarks))
        for name, (question, _) in benchmarks.items():
            print(f"{name:<{width}}  {question}")
        return OK
    if options.name not in benchmarks:
        raise UsageError(f"there is no benchmark {options.name!r}; there are {', '.join(benchmarks)}")
    return _run_one(root, options.name, options.words)


def _run_all_quickly(root: Path, benchmarks: Mapping[str, tuple[str, bool]]) -> int:
    failed = OK
    for name in [name for name, (_, quick) in benchmarks.items() if quick]:
        print(f"\n=== {name} --quick: {benchmarks[name][0]}", flush=True)
        code = _run_one(root, name, ["--quick"])
        if code == INTERRUPTED:
            return code
        if code:
            print(f"=== {name} ended with exit code {code}", flush=True)
        failed = failed or code
    return failed


def _run_one(root: Path, name: str, words: Sequence[str]) -> int:
    # It runs in the user's folder, so that relative paths among its arguments are right.
    paths = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", f"bench.{name}", *words]
    return _wait(subprocess.Popen(command, env={**os.environ, "PYTHONPATH": paths}))


def _wait(process: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a process. It gets Ctrl-C itself, and may tidy up before it ends."""
    while True:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            continue
        return code if code >= 0 else 128 - code  # a shell's code for a process that a signal ended


def _clone() -> Path:
    """Return the root of the clone around the current folder, or of the one that airnp is imported from."""
    here = Path.cwd()
    for folder in (here, *here.parents, Path(__file__).resolve().parents[2]):
        if (folder / "bench" / "__init__.py").is_file() and (folder / "airnp" / "__init__.py").is_file():
            return folder
    raise UsageError(
        f"there is no clone of airnp around {here}; benchmarks are no part of an installed airnp, start this "
        "in a clone of its repository"
    )


def _benchmarks(root: Path) -> dict[str, tuple[str, bool]]:
    """Return for each benchmark the first line of its docstring, and whether it has a short form."""
    found = {}
    for path in sorted((root / "bench").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text and path.stem != "__main__":
            found[path.stem] = _first_line(text), _QUICK in text
    for path in sorted((root / "bench").glob("*/__main__.py")):
        question = _first_line((path.parent / "__init__.py").read_text(encoding="utf-8"))
        found[path.parent.name] = question, _QUICK in path.read_text(encoding="utf-8")
    return found


_QUICK = '"--quick"'
"""What the source of a benchmark with a short form holds."""


def _first_line(source: str) -> str:
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]


COMMAND = Command(_arguments, _run, EXAMPLES, DESCRIPTION)
