"""The speed-up by more workers, and the cost of an engine per problem.

    python -m bench.cluster [--rounds 5] [--problems 12]

Efficiency is the time of one process, fitting one problem after another, over the workers' time times their
number; all ways are measured in turn in every round, with warm workers. Every fit has one thread. "No engine"
is the limit of the machine: each process gets its share of the problems at once, without any distribution.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from typing import Any

import numpy as np

import airnp
from airnp import masks
from airnp.commands.demo import scene
from bench.speed import RESULTS
from bench.timing import POOLS, markdown

WORKERS = (1, 2)
SETTINGS: dict[str, Any] = {"stop": None, "seed": 0}
SIZE, ITERATIONS = 96, 800
SIDE, TILE = 384, 128


def problems(count: int, size: int = SIZE) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return ``count`` pictures with gaps."""
    whole = scene(2 * size).astype(np.float32)
    starts = np.random.default_rng(0).integers(0, size, (count, 2))
    return [
        (whole[row : row + size, column : column + size], masks.random((size, size), missing=0.3, seed=place))
        for place, (row, column) in enumerate(starts)
    ]


# --- engines ---


@contextmanager
def pool(workers: int) -> Iterator[Executor]:
    """Open a process pool."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as executor:
        yield executor


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Open a Dask cluster on this machine; each worker is a process with one thread."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as made,
        distributed.Client(made, set_as_default=False) as client,
    ):
        yield client


def run_fleet(executor: Executor, fleet: list[Any], **settings: Any) -> None:
    for outcome in airnp.fit_many(fleet, executor=executor, threads=1, **SETTINGS, **settings):
        outcome.unwrap()


def run_alone(fleet: list[Any], **settings: Any) -> None:
    for Y, mask in fleet:
        airnp.fit(Y, mask, engine=airnp.CPU(threads=1), **SETTINGS, **settings)


def run_shares(executor: Executor, workers: int, fleet: list[Any], **settings: Any) -> None:
    """Give each process its share at once."""
    for share in [executor.submit(run_alone, fleet[place::workers], **settings) for place in range(workers)]:
        share.result()


def run_inpaint(client: Any, picture: np.ndarray, mask: np.ndarray) -> None:
    import dask
    import dask.array as da

    from airnp.dask import inpaint

    with dask.config.set(scheduler="sync" if client is None else client):
        inpaint(da.from_array(picture, chunks=TILE), mask, tile=TILE).compute()


def run_whole(picture: np.ndarray, mask: np.ndarray) -> None:
    airnp.inpaint(picture, mask, threads=1)


# --- measurements ---


def time_rounds(runners: dict[str, Callable[[], None]], rounds: int) -> dict[str, np.ndarray]:
    """Return seconds of each runner per round; every round has another order."""
    for run in runners.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in runners}
    order = np.random.default_rng(0)
    names = list(runners)
    for _ in range(rounds):
        for place in order.permutation(len(names)):
            start = time.perf_counter()
            runners[names[place]]()
            times[names[place]].append(time.perf_counter() - start)
    return {name: np.asarray(values) for name, values in times.items()}


def efficiency(count: int, rounds: int) -> str:
    """Time fleets and one large picture alone, in a process pool and on a cluster, with 1 and 2 workers."""
    fleet, tiny = problems(count), problems(50, size=8)
    picture = scene(SIDE).astype(np.float32)
    mask = masks.random(picture.shape, missing=0.3, seed=0)
    with ExitStack() as stack:
        pools = {workers: stack.enter_context(pool(workers)) for workers in WORKERS}
        clients = {workers: stack.enter_context(cluster(workers)) for workers in WORKERS}
        executors = {("process pool", workers): pools[workers] for workers in WORKERS}
        executors |= {("Dask", workers): clients[workers].get_executor() for workers in WORKERS}

        def fleets(given: list[Any], iterations: int) -> dict[str, Callable[[], None]]:
            ways: dict[str, Callable[[], None]] = {"alone": lambda: run_alone(given, max_iter=iterations)}
            for workers, executor in pools.items():
                ways[f"no engine {workers}"] = lambda executor=executor, workers=workers: run_shares(
                    executor, workers, given, max_iter=iterations
                )
            for (name, workers), executor in executors.items():
                ways[f"{name} {workers}"] = lambda executor=executor: run_fleet(
                    executor, given, max_iter=iterations
                )
            return ways

        large = time_rounds(fleets(fleet, ITERATIONS), rounds)
        small = time_rounds(fleets(tiny, 1), rounds)
        pictures: dict[str, Callable[[], None]] = {
            "alone": lambda: run_whole(picture, mask),
            "Dask, no worker 1": lambda: run_inpaint(None, picture, mask),
        }
        for workers, client in clients.items():
            pictures[f"Dask {workers}"] = lambda client=client: run_inpaint(client, picture, mask)
        tiles = time_rounds(pictures, rounds)
    rows = []
    for work, times in ((f"{count} fits", large), (f"a picture of {SIDE}²", tiles)):
        for name in list(times)[1:]:
            engine, workers = name.rsplit(" ", 1)
            speed = np.median(times["alone"] / times[name])
            rows.append([work, engine, workers, f"{speed:.2f}", f"{100 * speed / int(workers):.0f} %"])
    costs = [
        [name.rsplit(" ", 1)[0], f"{1e3 * np.median(small[name] - small['alone']) / len(tiny):.1f} ms"]
        for name in small
        if name.endswith(" 1")
    ]
    return "\n\n".join(
        [
            markdown(["work", "engine", "workers", "times as fast as alone", "efficiency"], rows),
            f"Each fit: {SIZE}×{SIZE}, {ITERATIONS} iterations, float32, AIR, one thread; alone it takes "
            f"{np.median(large['alone']) / count:.2f} s. The picture: 30 % missing, tiles of {TILE}; alone "
            f"is `airnp.inpaint`, one thread, {np.median(tiles['alone']):.1f} s. Median of {rounds} rounds.",
            "What an engine adds to a problem, beside its fit (of 8×8 numbers, one worker):",
            markdown(["engine", "per problem"], costs),
            f"To start two worker processes of `fit_many`'s own: {start_seconds():.1f} s.",
        ]
    )


def start_seconds() -> float:
    """Return seconds to start two workers, give each a tiny problem and end them."""
    start = time.perf_counter()
    for outcome in airnp.fit_many(problems(2, size=8), workers=2, threads=1, max_iter=1, **SETTINGS):
        outcome.unwrap()
    return time.perf_counter() - start


def main(argv: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=12)
    arguments = parser.parse_args(argv)
    os.environ.update(dict.fromkeys(POOLS, "1"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    table = efficiency(arguments.problems, arguments.rounds)
    page = f"# Fleets and clusters\n\n`python -m bench.cluster`\n\n{table}\n"
    (RESULTS / "cluster_workers.md").write_text(page)
    print(page, flush=True)


if __name__ == "__main__":
    main()
