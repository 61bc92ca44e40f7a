"""One measurement in its own process: ``python -m bench.scale.measure KIND '{"m": …}'`` prints JSON."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

import airnp
from airnp.engines import select_engine
from airnp.training.steps import Steps
from bench.measurements import Case, main, peak_megabytes
from bench.scale.problem import engine, for_torch, planted, prepare
from bench.timing import once_each

WARM_UP = 2


def time_calls(step: Callable[[], Any], *, least: int, seconds: float) -> list[float]:
    """Return the seconds of each of at least ``least`` calls, and of up to 50 until ``seconds`` pass."""
    for _ in range(WARM_UP):
        step()
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) < least or (time.perf_counter() - begin < seconds and len(times) < 50):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return times


def sparse(case: Case) -> Case:
    """Time an iteration of the sparse form and, if the case has a target error, the way to it."""
    table = planted(case["m"], case["n"], case["per_row"])
    prepared = prepare(table.matrix, case["rank"], case["neighbors"], case["threads"])
    run, _ = engine(prepared)
    times = time_calls(lambda: run(1), least=5, seconds=case.get("seconds", 2.5))
    found = {
        "nnz": int(table.matrix.nnz),
        "seconds": statistics.median(times),
        "fastest": min(times),
        "search": prepared.search,
        "megabytes": peak_megabytes(),
    }
    return found | (_to_error(case, table, prepared) if "target" in case else {})


def _to_error(case: Case, table: Any, prepared: Any) -> Case:
    """Start again and iterate until the held-out error is below ``target``; evaluation is not timed."""
    run, steps = engine(prepared)
    spent, error = 0.0, np.inf
    while error > case["target"] and spent < case.get("limit", 120.0) and steps.iteration < 2000:
        start = time.perf_counter()
        run(5)
        spent += time.perf_counter() - start
        predicted = prepared.objective.predict(steps.params, table.rows, table.columns)
        error = float(np.sqrt(np.mean((predicted - table.values) ** 2)))
    reached = error <= case["target"]
    return {"reached": reached, "error": error, "iterations": steps.iteration, "to_error": spent}


def dense(case: Case) -> Case:
    """Time an iteration of the dense form on the same table, with X and two complete graphs."""
    table = planted(case["m"], case["n"], case["per_row"])
    mask = np.zeros(table.matrix.shape, bool)
    mask[table.matrix.nonzero()] = True
    graphs = [airnp.AdaptiveLaplacian(axis, weight=1e-3 / table.matrix.nnz) for axis in ("rows", "columns")]
    values = table.matrix.toarray()
    objective = airnp.Objective(values, mask, regularizers=graphs, depth=2, rank=case["rank"])
    choice = select_engine(airnp.CPU(case["threads"]), np)
    steps = Steps(objective, airnp.Adam(1e-2), objective.init(0), engine=choice)
    times = time_calls(lambda: steps.advance(1), least=3, seconds=case.get("seconds", 2.5))
    return {
        "nnz": int(table.matrix.nnz),
        "seconds": statistics.median(times),
        "megabytes": peak_megabytes(),
    }


def peers(case: Case) -> Case:
    """Time airnp and both forms of PyTorch, interleaved, from the same start; their losses must agree."""
    import torch

    from bench.peers.torch_sparse import gathered, sparse_products

    torch.set_num_threads(case["threads"])
    table = planted(case["m"], case["n"], case["per_row"])
    prepared = prepare(table.matrix, case["rank"], case["neighbors"], case["threads"])
    start = for_torch(prepared)
    runners = {"airnp": engine(prepared)[0], "torch.sparse, closed form": sparse_products(start)}
    if case.get("autograd", True):
        runners["torch autograd, gathered rows"] = gathered(start)
    losses = {name: run(WARM_UP + 1) for name, run in runners.items()}
    for name, loss in losses.items():
        if not abs(loss - losses["airnp"]) <= 1e-3 * losses["airnp"]:
            raise SystemExit(f"{name} follows another trajectory: {losses}")
    each = case.get("each", 1)
    timings = once_each({name: partial(run, each) for name, run in runners.items()}, rounds=case["rounds"])
    return {
        "nnz": int(table.matrix.nnz),
        "seconds": {name: timings.milliseconds(name) / 1e3 / each for name in runners},
        "ratios": {name: timings.ratio(name, "airnp") for name in runners},
    }


KINDS: dict[str, Callable[[Case], Case]] = {"sparse": sparse, "dense": dense, "peers": peers}


if __name__ == "__main__":
    main(KINDS, sys.argv[1:])
