"""Statistics of the cells: our error over that of the best other method, coverage, and what is missing."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from bench.cells import Record
from bench.measurements import Case
from bench.pictures import problems
from bench.pictures.methods import FAST, OURS, Pictures
from bench.pictures.problems import MASKS, kind

Line = dict[str, Any]
"""The means over seeds of one problem: ``errors``, ``psnr`` and ``ssim`` by method, and facts of ours."""

GROUPS = (("report", "240"), ("report", "own"), ("tuning", "240"), ("tuning", "own"))
KINDS = ("random", "text", "scratches", "patches")


def summarize(
    experiment: Pictures, records: Iterable[Record], times: Iterable[tuple[str, Case]] = ()
) -> dict[str, Any]:
    """Return all numbers of the page; this is the content of the JSON file.

    Parameters
    ----------
    experiment : Pictures
    records : iterable of Record
        Cells; those of other settings or methods are left out.
    times : iterable of (kind, outcome)
        Measurements of time and memory.
    """
    cells = [
        record
        for record in records
        if record["row"] in experiment.rows
        and record["method"] in experiment.methods
        and record["settings"] == dict(experiment.methods[record["method"]].settings)
    ]
    finished = [cell for cell in cells if cell["status"] == "done"]
    by_row: dict[str, list[Record]] = {}
    for cell in finished:
        by_row.setdefault(cell["row"], []).append(cell)
    measured = list(times)
    fillers = experiment.methods
    others = {name for name, filler in fillers.items() if not (filler.is_ours or filler.on_request)}
    slow = {name for name, filler in fillers.items() if filler.on_request and not filler.is_ours}
    rows = experiment.rows.items()
    lines = [_line(case, by_row[name], others, slow) for name, case in rows if name in by_row]
    groups = {f"{half} {size}": _group(lines, half, size) for half, size in GROUPS}
    return {
        "methods": [name for name in experiment.methods if any(name in line["errors"] for line in lines)],
        "paper": [line for line in lines if line["half"] == "paper"],
        "groups": {name: group for name, group in groups.items() if group["lines"]},
        "failed": [
            {key: cell[key] for key in ("row", "method", "seed", "error")}
            for cell in cells
            if cell["status"] == "failed"
        ],
        "stale": dict(Counter(cell["method"] for cell in finished if experiment.is_stale(cell))),
        "times": {
            kind: [outcome for name, outcome in measured if name == kind]
            for kind in ("ratios", "growth", "compile")
        },
    }


def _line(case: problems.Case, cells: Sequence[Record], others: set[str], slow: set[str]) -> Line:
    """Return the means of a problem, and our error over the lowest of the others.

    Methods that run on request exist for some problems only, so they are compared apart.
    """
    by_method: dict[str, list[Record]] = {}
    for cell in cells:
        by_method.setdefault(cell["method"], []).append(cell)

    def means(key: str) -> dict[str, float]:
        return {
            name: statistics.fmean(cell[key] for cell in found)
            for name, found in by_method.items()
            if key in found[0]
        }

    line = {
        "row": case.name,
        **{key: getattr(case, key) for key in ("half", "size", "picture", "mask")},
        "kind": kind(case.mask),
        "seeds": {name: len(found) for name, found in by_method.items()},
        "errors": means("nmae"),
        "psnr": means("psnr"),
        "ssim": means("ssim"),
    }
    errors = line["errors"]
    if OURS not in by_method or not others & errors.keys():
        return line
    own, best = errors[OURS], min(others & errors.keys(), key=errors.__getitem__)
    facts = {"best_other": best, "ratio": own / errors[best]}
    if slow & errors.keys():
        facts["slow_ratio"] = own / min(errors[name] for name in slow & errors.keys())
    for key in ("coverage", "expected", "mae"):
        facts[key] = means(key).get(OURS)
    if FAST in by_method:
        facts["fast_ratio"] = errors[FAST] / own
    return line | facts


def _group(lines: Sequence[Line], half: str, size: str) -> dict[str, Any]:
    """Return the statistics of the pictures of a half at one size."""
    chosen = [line for line in lines if (line["half"], line["size"]) == (half, size)]
    compared = [line for line in chosen if "ratio" in line]
    kinds = {name: [line for line in compared if line["kind"] == name] for name in KINDS}
    return {
        "half": half,
        "size": size,
        "lines": chosen,
        "compared": len(compared),
        "kinds": {name: _statistics(found) for name, found in kinds.items() if found},
        "masks": {
            mask: _statistics(found)
            for mask in MASKS
            if (found := [line for line in compared if line["mask"] == mask])
        },
        "all": _statistics(compared) if compared else None,
    }


def _statistics(lines: Sequence[Line]) -> dict[str, Any]:
    ratios = [line["ratio"] for line in lines]
    covered = [line["coverage"] for line in lines if line["coverage"] is not None]
    fast, slow = ([line[key] for line in lines if key in line] for key in ("fast_ratio", "slow_ratio"))
    expected = [line["expected"] / line["mae"] for line in lines if line["expected"] is not None]
    return {
        "n": len(lines),
        "ratio": geometric_mean(ratios),
        "lowest": sum(ratio <= 1 for ratio in ratios) / len(ratios),
        "worst": max(ratios),
        "worst_at": max(lines, key=lambda line: line["ratio"])["row"],
        "coverage": statistics.fmean(covered) if covered else None,
        "least_coverage": min(covered, default=None),
        "most_coverage": max(covered, default=None),
        "fast_ratio": geometric_mean(fast) if fast else None,
        "slow_ratio": geometric_mean(slow) if slow else None,
        "slow_lowest": sum(ratio <= 1 for ratio in slow) / len(slow) if slow else None,
        "slow_n": len(slow),
        "expected_ratio": geometric_mean(expected) if expected else None,
        "expected_spread": float(np.std(np.log(expected))) if expected else None,
    }


def geometric_mean(values: Sequence[float]) -> float:
    """Return the geometric mean of positive numbers.

    Examples
    --------
    >>> geometric_mean([0.5, 2.0])
    1.0
    """
    return float(np.exp(np.mean(np.log(values))))
