"""One measurement in its own process: ``python -m bench.scale.measure KIND '{"m": …}'`` prints JSON."""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import airnp
from airnp.engines import select_engine
from airnp.training.steps import Steps
from bench.scale.problem import engine, for_torch, planted, prepare

Case = dict[str, Any]
WARM_UP = 2


def peak_megabytes() -> float:
    """Return the peak memory of this process."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        return int(fields["VmHWM"].split()[0]) / 1024
    except (OSError, KeyError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


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
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = np.random.default_rng(0)
    for _ in range(case["rounds"]):
        for place in order.permutation(len(runners)):
            name = list(runners)[place]
            time.sleep(0.1)  # threads of the others fall asleep
            begin = time.perf_counter()
            runners[name](case.get("each", 1))
            times[name].append((time.perf_counter() - begin) / case.get("each", 1))
    ratios = {
        name: statistics.median(np.divide(found, times["airnp"]).tolist()) for name, found in times.items()
    }
    return {
        "nnz": int(table.matrix.nnz),
        "seconds": {name: statistics.median(found) for name, found in times.items()},
        "ratios": ratios,
    }


KINDS: dict[str, Callable[[Case], Case]] = {"sparse": sparse, "dense": dense, "peers": peers}


def main(argv: list[str]) -> None:
    """Measure and print."""
    kind, text = argv
    print(json.dumps(KINDS[kind](json.loads(text))))


if __name__ == "__main__":
    main(sys.argv[1:])
