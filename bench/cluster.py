"""The speed-up by more workers, the cost of an engine per problem, and the error at seams between tiles.

    python -m bench.cluster [--only workers seams] [--rounds 5] [--problems 12] [--pictures 6]

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
from airnp.images.tiles import Grid, ramps
from bench.speed import RESULTS
from bench.timing import POOLS, markdown

WORKERS = (1, 2)
SETTINGS: dict[str, Any] = {"stop": None, "seed": 0}
SIZE, ITERATIONS = 96, 800
TILE, OVERLAP = 64, 16
SEAMS = [(0.3, 5000), (0.5, 5000), (0.3, 1500), (0.5, 1500)]


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


def run_inpaint(client: Any, picture: np.ndarray, mask: np.ndarray, iterations: int) -> None:
    import dask
    import dask.array as da

    from airnp.dask import inpaint

    options = {**SETTINGS, "max_iter": iterations, "tile": SIZE, "overlap": 16}
    with dask.config.set(scheduler="sync" if client is None else client):
        inpaint(da.from_array(picture, chunks=SIZE), mask, **options).compute()


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
    picture = scene(3 * SIZE).astype(np.float32)
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
        pictures = {"alone": lambda: run_inpaint(None, picture, mask, ITERATIONS)}
        for workers, client in clients.items():
            pictures[f"Dask {workers}"] = lambda client=client: run_inpaint(client, picture, mask, ITERATIONS)
        tiles = time_rounds(pictures, rounds)
    rows = []
    for work, times in ((f"{count} fits", large), (f"a picture of {3 * SIZE}²", tiles)):
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
            f"{np.median(large['alone']) / count:.2f} s. Median of {rounds} rounds.",
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


def seam_errors(pictures: int, missing: float, iterations: int) -> tuple[float, float]:
    """Return the mean error of missing pixels where tiles overlap, and of the same pixels inside a tile.

    Every picture is filled twice, the second time with the tiles moved by half a tile. Pixels count that are
    at a border in one of the two and inside a tile in the other, and not near the picture's own edge.
    """
    import dask.array as da

    from airnp.dask import inpaint

    size, shift = 3 * TILE - 2 * OVERLAP, (TILE - OVERLAP) // 2
    single = np.zeros(size, dtype=bool)
    rows = Grid(size, size, TILE, OVERLAP).rows
    for span, weights in zip(rows, ramps(rows), strict=True):
        single[span] |= weights == 1
    middle = np.zeros((size, size), dtype=bool)
    middle[OVERLAP:-OVERLAP, OVERLAP:-OVERLAP] = True
    inside = middle & single[:, np.newaxis] & single
    at_border = middle & ~inside
    windows = [(slice(start, start + size),) * 2 for start in (0, shift)]
    totals = np.zeros(3)
    rng = np.random.default_rng(0)
    for seed in range(pictures):
        whole = scene(int(rng.integers(2 * size, 4 * size)))
        row, column = rng.integers(0, whole.shape[0] - size - shift, 2)
        truth = whole[row : row + size + shift, column : column + size + shift]
        mask = masks.random(truth.shape, missing=missing, seed=seed)
        options = {**SETTINGS, "seed": seed, "max_iter": iterations}
        errors, borders, insides = np.zeros((3, 2, *truth.shape))
        for place, window in enumerate(windows):
            lazy = inpaint(da.from_array(truth[window]), mask[window], tile=TILE, overlap=OVERLAP, **options)
            errors[place][window] = np.abs(lazy.compute() - truth[window])
            borders[place][window], insides[place][window] = at_border, inside
        for one, other in ((0, 1), (1, 0)):
            chosen = (borders[one] > 0) & (insides[other] > 0) & ~mask
            totals += errors[one][chosen].sum(), errors[other][chosen].sum(), chosen.sum()
    border, within, count = totals
    return float(border / count), float(within / count)


def seams(pictures: int) -> Iterator[str]:
    """Yield the table of errors at borders and inside, each time with one more row."""
    rows: list[list[object]] = []
    for missing, iterations in SEAMS:
        border, inside = seam_errors(pictures, missing, iterations)
        change = f"{100 * (border / inside - 1):+.1f} %"
        rows.append([f"{missing:.0%}", iterations, f"{border:.4f}", f"{inside:.4f}", change])
        yield (
            markdown(["missing", "iterations", "where tiles overlap", "inside", "difference"], rows)
            + f"\n\n`airnp.dask.inpaint`, {pictures} pictures, tiles of {TILE}, overlap {OVERLAP} (a "
            "quarter, the default): mean error of the same missing pixels, at a border between tiles and "
            "inside one. After 1500 iterations fits of this size are far from finished."
        )


def main(argv: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=["workers", "seams"], default=["workers", "seams"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--problems", type=int, default=12)
    parser.add_argument("--pictures", type=int, default=6)
    arguments = parser.parse_args(argv)
    os.environ.update(dict.fromkeys(POOLS, "1"))
    RESULTS.mkdir(parents=True, exist_ok=True)
    if "workers" in arguments.only:
        keep("workers", "Fleets and clusters", efficiency(arguments.problems, arguments.rounds))
    if "seams" in arguments.only:
        for table in seams(arguments.pictures):
            keep("seams", "Seams between tiles", table)


def keep(name: str, title: str, text: str) -> None:
    """Print and save."""
    page = f"# {title}\n\n`python -m bench.cluster --only {name}`\n\n{text}\n"
    (RESULTS / f"cluster_{name}.md").write_text(page)
    print(page, flush=True)


if __name__ == "__main__":
    main()
