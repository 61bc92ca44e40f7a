"""Measurements of time and memory: each in a pinned process of its own, kept as a file.

A benchmark has a module with functions of a case, its kinds of measurements, and runs :func:`main` in it. The
parent process calls :func:`measure`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.cells import write_file
from bench.timing import POOLS

Case = dict[str, Any]


def measure(folder: Path, module: str, kind: str, case: Case, *, label: str) -> Case:
    """Return a measurement, or why it failed; make it in a pinned process if it is missing.

    Parameters
    ----------
    folder : Path
    module : str
        Run as ``python -m module kind case``; it prints what it found as JSON.
    kind : str
    case : dict
        Of JSON's types, with the number of ``threads``.
    label : str
        Tells the files of different cases apart for people.
    """
    digest = hashlib.sha256(json.dumps([kind, case], sort_keys=True).encode()).hexdigest()[:10]
    path = folder / f"{kind}.{label}.{digest}.json"
    if path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    print(f"{kind} {case}", file=sys.stderr, flush=True)
    processors = sorted(os.sched_getaffinity(0))[: case["threads"]]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, kind, json.dumps(case)],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env={**os.environ, **dict.fromkeys(POOLS, str(case["threads"]))},
        preexec_fn=lambda: os.sched_setaffinity(0, processors),
    )
    if done.returncode:
        return case | {"failed": f"ended with code {done.returncode}"}
    found = case | json.loads(done.stdout.splitlines()[-1])
    write_file(path, json.dumps(found))
    return found


def finished(folder: Path) -> Iterator[tuple[str, Case]]:
    """Return the kind and the outcome of every measurement in a folder."""
    for path in sorted(folder.glob("*.json")):
        yield path.name.partition(".")[0], json.loads(path.read_text(encoding="utf-8"))


def main(kinds: Mapping[str, Callable[[Case], Case]], argv: list[str]) -> None:
    """Measure and print, in the process of :func:`measure`."""
    kind, text = argv
    print(json.dumps(kinds[kind](json.loads(text))))


def peak_megabytes() -> float:
    """Return the peak memory of this process."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        return int(fields["VmHWM"].split()[0]) / 1024
    except (OSError, KeyError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
