"""What the cells of table 1 say: means, who meets the paper, regret, time to the paper's number."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.paper_rows import Row
from bench.table1_cells import Record, source_hash
from bench.table1_methods import Experiment, Method

AIR, NEVER_STOPPED = "air", "air_full"
REGRET_GOAL = {"median": 0.02, "worst": 0.10}


def summarize(
    experiment: Experiment, records: Iterable[Record], rows: Sequence[str], methods: Sequence[str], seeds: int
) -> dict[str, Any]:
    """Return everything that the pages show, as plain numbers; it is what the JSON file holds."""
    cells = [record for record in records if record["row"] in rows and record["method"] in methods]
    cells.sort(key=lambda cell: (rows.index(cell["row"]), methods.index(cell["method"]), cell["seed"]))
    lines = [_line(experiment.rows[row], cells, experiment.methods, methods, seeds) for row in rows]
    regrets = [
        regret(cell, _of(done(cells), row=cell["row"], seed=cell["seed"], method=NEVER_STOPPED))
        for cell in _of(done(cells), method=AIR)
    ]
    return {
        "seeds": seeds,
        "methods": {name: experiment.methods[name].title for name in methods},
        "rows": lines,
        "verdicts": [_verdict(experiment.rows[row], cells, seeds) for row in rows] if AIR in methods else [],
        "regret": _regret_summary(regrets),
        "time_to_paper": [
            time_to(experiment.rows[cell["row"]].goal, cell) for cell in _of(done(cells), method=AIR)
        ],
        "failed": [
            {key: cell[key] for key in ("row", "method", "seed", "error")}
            for cell in cells
            if cell["status"] == "failed"
        ],
        "stale": dict(Counter(cell["method"] for cell in cells if is_stale(cell, experiment))),
        "cells": cells,
    }


def done(cells: Iterable[Record]) -> list[Record]:
    return [cell for cell in cells if cell["status"] == "done"]


def is_stale(cell: Record, experiment: Experiment) -> bool:
    """Return whether a finished cell was made by other code than there is now."""
    return cell["status"] == "done" and cell["source"] != source_hash(
        experiment.methods[cell["method"]].is_fit
    )


def spread(values: Sequence[float]) -> float | None:
    """Return the standard deviation of a sample; None for a single value."""
    return statistics.stdev(values) if len(values) > 1 else None


def _of(cells: Iterable[Record], **wanted: Any) -> list[Record]:
    return [cell for cell in cells if all(cell[key] == value for key, value in wanted.items())]


def _line(
    row: Row, cells: list[Record], methods: Mapping[str, Method], names: Sequence[str], seeds: int
) -> dict[str, Any]:
    entries = {
        name: _entry(row, methods[name], _of(cells, row=row.name, method=name), seeds)
        for name in names
        if name != NEVER_STOPPED and methods[name].suits(row)
    }
    means = {name: entry["mean"] for name, entry in entries.items() if entry["n"]}
    return {
        "row": row.name,
        "goal": row.goal,
        "goal_of": row.best_printed,
        "best": min(means, key=means.__getitem__, default=None),
        "entries": entries,
    }


def _entry(row: Row, method: Method, cells: list[Record], seeds: int) -> dict[str, Any]:
    values = [cell["nmae"] for cell in done(cells)]
    printed = row.printed.get(method.column) if method.column else None
    mean = statistics.fmean(values) if values else None
    return {
        "mean": mean,
        "spread": spread(values),
        "n": len(values),
        "wanted": len(method.seeds(row, seeds)),
        "failed": len(cells) - len(values),
        "printed": printed,
        "ratio": mean / printed if mean is not None and printed else None,
        "seconds": statistics.median(cell["seconds"] for cell in done(cells)) if values else None,
    }


def _verdict(row: Row, cells: list[Record], seeds: int) -> dict[str, Any]:
    """Return whether AIR is at least as good as the paper's best, over seeds and by how much."""
    values = [cell["nmae"] for cell in _of(done(cells), row=row.name, method=AIR)]
    mean = statistics.fmean(values) if values else None
    return {
        "row": row.name,
        "goal": row.goal,
        "goal_of": row.best_printed,
        "mean": mean,
        "met": None if mean is None else mean <= row.goal,
        "below_percent": None if mean is None else 100 * (1 - mean / row.goal),
        "seeds_met": sum(value <= row.goal for value in values),
        "n": len(values),
        "wanted": seeds,
    }


def regret(cell: Record, never_stopped: Sequence[Record]) -> dict[str, Any]:
    """Return by which share the returned NMAE is above the lowest that could have been returned.

    Parameters
    ----------
    cell : Record
        A run of AIR that decided itself when to stop.
    never_stopped : sequence of Record
        Runs of the same row and seed that did not stop, if there are any. Its own trajectory counts, too.
    """
    lowest = min(nmae for run in (cell, *never_stopped) for _, nmae in run["trajectory"])
    return {
        "row": cell["row"],
        "seed": cell["seed"],
        "returned": cell["nmae"],
        "lowest": lowest,
        "regret": (cell["nmae"] - lowest) / lowest,
        "against": "own and never stopped" if never_stopped else "own",
    }


def _regret_summary(regrets: list[dict[str, Any]]) -> dict[str, Any]:
    values = [item["regret"] for item in regrets]
    return {
        "goal": REGRET_GOAL,
        "median": statistics.median(values) if values else None,
        "worst": max(values, default=None),
        "own_only": sum(item["against"] == "own" for item in regrets),
        "cells": regrets,
    }


def time_to(goal: float, cell: Record) -> dict[str, Any]:
    """Return when a run first reached a number: after which iteration, and seconds in proportion to it.

    The answer of a run may be better than all of its records; then it was there at the end.
    """
    reached = [iteration for iteration, nmae in cell["trajectory"] if nmae <= goal]
    if not reached and cell["nmae"] <= goal:
        reached = [cell["n_iter"]]
    iteration = min(reached, default=None)
    return {
        "row": cell["row"],
        "seed": cell["seed"],
        "goal": goal,
        "iteration": iteration,
        "seconds": None if iteration is None else cell["seconds"] * iteration / cell["n_iter"],
        "n_iter": cell["n_iter"],
        "best_iter": cell["best_iter"],
        "stop_reason": cell["stop_reason"],
        "total_seconds": cell["seconds"],
    }
