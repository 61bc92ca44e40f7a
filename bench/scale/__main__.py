"""``python -m bench.scale``; see the package."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench.scale
from bench import measurements
from bench.scale.page import page, picture
from bench.speed import RESULTS

TARGET = 0.35
"""The error to reach on held-out entries, whose standard deviation is 0.8."""

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DENSE_SIZES = (1_000, 3_000, 10_000, 30_000)
ERROR_SIZES = (1_000, 10_000, 100_000)
DENSE_MEMORY = 7
"""Matrices of m×m that the dense form holds at once: V, its two moments, A, the Gram matrix, a copy of V."""


def cases(sections: Sequence[str], threads: int, *, quick: bool) -> list[tuple[str, str, dict[str, Any]]]:
    """Return section, kind and case of every measurement."""
    common = {"per_row": 20, "rank": 16, "neighbors": 16, "threads": threads}
    found: list[tuple[str, str, dict[str, Any]]] = []
    largest = 10_000 if quick else SIZES[-1]
    sized = [common | {"m": m, "n": m // 5} for m in SIZES if m <= largest]
    found += [("growth", "sparse", case) for case in sized]
    found += [("dense", "dense", case) for case in sized if case["m"] in DENSE_SIZES]
    fuller = {"per_row": 50, "target": TARGET}
    found += [("error", "sparse", case | fuller) for case in sized if case["m"] in ERROR_SIZES]
    for m, rounds, each in ((10_000, 7, 2), (100_000, 3, 1)):
        if m <= largest:
            wide = {"m": m, "n": m // 5, "rank": 32, "neighbors": 32, "rounds": rounds, "each": each}
            found.append(("peers", "peers", common | {"per_row": 100 if m < 10**5 else 50} | wide))
    if not quick:
        big = {"m": 138_000, "n": 27_000, "per_row": 146, "rank": 32, "neighbors": 32}
        found.append(("large", "sparse", common | big))
        found.append(("large peers", "peers", common | big | {"rounds": 3, "autograd": False}))
    return [case for case in found if case[0].split()[0] in sections]


def measure(folder: Path, kind: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return a measurement, or why there is none."""
    if kind == "dense" and not _dense_fits(case["m"]):
        return case | {"failed": f"needs {DENSE_MEMORY * 4 * case['m'] ** 2 / 2**30:.0f} GiB and more"}
    return measurements.measure(folder, "bench.scale.measure", kind, case, label=f"m{case['m']}")


def _dense_fits(m: int) -> bool:
    return DENSE_MEMORY * 4 * m**2 < 0.7 * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def main(argv: Sequence[str] | None = None) -> int:
    """Make the missing measurements; write the page and the picture."""
    arguments = _arguments(argv)
    folder = arguments.out / "quick" if arguments.quick else arguments.out
    wanted = cases(arguments.sections, arguments.threads, quick=arguments.quick)
    found = [(section, measure(folder, kind, case)) for section, kind, case in wanted]
    folder.mkdir(parents=True, exist_ok=True)
    text = page(found)
    (folder / "scale.md").write_text(text, encoding="utf-8")
    picture(found, folder / "scale.png")
    print(text)
    print(f"written to {folder}", file=sys.stderr)
    return 0


SECTIONS = ("growth", "dense", "error", "peers", "large")


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.scale",
        description=bench.scale.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS, default=SECTIONS)
    parser.add_argument("--threads", type=int, default=min(2, len(os.sched_getaffinity(0))))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "scale")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
