"""The error that ``airnp.complete`` expects beside the true one, and its choice beside the defaults.

    python -m bench.complete                          # all rows of the paper, one seed: about half an hour
    python -m bench.complete --rows "IC 20%" --seeds 3
    python -m bench.complete --small --seeds 20       # problems of 48×48 without data, a second or two each
    python -m bench.complete --report-only            # only print the table again

For each row and seed: the NMAE that ``airnp.complete(Y, mask)`` expects, the true one, z = (expected − true)
/ standard error, and the true NMAE of ``airnp.fit`` with its defaults and the same seed. The truth serves
this comparison only. In a clone, with ``pip install -e ".[data]"``; the data come from :mod:`airnp.datasets`.

Each row and seed is one file in ``OUT``; the next start computes only the missing ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import airnp
from airnp.commands.demo import scene
from bench.paper_rows import ROWS, Problem, Row
from bench.speed import RESULTS
from bench.timing import markdown

FOLDER = RESULTS / "complete"


def _picture(holes: bool, seed: int) -> Problem:
    rng = np.random.default_rng([seed, 5])
    truth = scene(56)[4:52, 4:52].astype(np.float32)
    truth = np.roll(truth, tuple(rng.integers(0, 48, 2)), axis=(0, 1))
    mask = airnp.masks.random(truth.shape, 0.3, seed=seed)
    if holes:
        mask[:] = True
        for top, left in rng.integers(0, 42, (5, 2)):
            mask[top : top + 6, left : left + 6] = False
    return Problem(truth, mask)


def _table(seed: int) -> Problem:
    rng = np.random.default_rng([seed, 6])
    truth = rng.random((48, 4)) @ rng.random((4, 40)) + 0.1 * rng.standard_normal((48, 40))
    return Problem(truth.astype(np.float32), airnp.masks.random(truth.shape, 0.3, seed=seed))


SMALL = {
    "small picture 30%": Row("small picture 30%", partial(_picture, False), {}),
    "small picture holes": Row("small picture holes", partial(_picture, True), {}),
    "small table 30%": Row("small table 30%", _table, {}),
}
ALL = {**ROWS, **SMALL}


def main(argv: Sequence[str] | None = None) -> None:
    """Compute the missing rows and seeds, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=tuple(ALL), default=tuple(ROWS), metavar="ROW")
    parser.add_argument("--small", action="store_true", help="small problems instead of the paper's rows")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds (%(default)s)")
    parser.add_argument("--first-seed", type=int, default=0, help="the first of them (%(default)s)")
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--max-iter", type=int, default=40_000)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--report-only", action="store_true")
    arguments = parser.parse_args(argv)
    names = tuple(SMALL) if arguments.small else arguments.rows
    arguments.out.mkdir(parents=True, exist_ok=True)
    if not arguments.report_only:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            for name in names:
                file = arguments.out / f"{name.replace(' ', '_').replace('%', '')}-{seed}.json"
                if not file.exists():
                    found = measure(ALL[name], seed, arguments.threads, arguments.max_iter)
                    file.write_text(json.dumps(found, indent=1))
                    print(f"{name}, seed {seed}: {found['seconds']:.0f} s", flush=True)
    print(report([json.loads(file.read_text()) for file in sorted(arguments.out.glob("*.json"))]))


def measure(row: Row, seed: int, threads: int | None = None, max_iter: int = 40_000) -> dict[str, Any]:
    """Return the estimates of one call of ``airnp.complete``, and the true errors."""
    problem = row.load(seed)
    started = time.perf_counter()
    completion = airnp.complete(problem.observed, problem.mask, metric="mae", seed=seed, threads=threads)
    seconds = time.perf_counter() - started
    single = {score.model: score.error for score in completion.ranking if np.isfinite(score.error)}
    default = problem.fit(seed, max_iter=max_iter)
    scale = float(np.ptp(problem.truth) / np.ptp(problem.truth[problem.mask]))
    true, of_default = (
        float(airnp.metrics.nmae(matrix, problem.truth, problem.mask)) * scale
        for matrix in (completion.X, default.X)
    )
    return {
        "row": row.name,
        "seed": seed,
        "kind": completion.kind,
        "model": completion.model,
        "expected": completion.expected,
        "standard_error": completion.standard_error,
        "true": true,
        "z": (completion.expected - true) / completion.standard_error,
        "default": of_default,
        "scores": single,
        "seconds": seconds,
    }


def report(found: list[dict[str, Any]]) -> str:
    """Return the table and its summary."""
    places = {name: place for place, name in enumerate(ALL)}
    ordered = sorted(found, key=lambda each: (places[each["row"]], each["seed"]))
    head = ["row", "seed", "expected", "true", "z", "`fit`", "choice / `fit`", "model", "s"]
    lines = [
        [
            each["row"],
            str(each["seed"]),
            f"{each['expected']:.5f} ± {each['standard_error']:.5f}",
            f"{each['true']:.5f}",
            f"{each['z']:+.1f}",
            f"{each['default']:.5f}",
            "same" if each["true"] == each["default"] else f"{each['true'] / each['default']:.3f}",
            each["model"],
            f"{each['seconds']:.1f}",
        ]
        for each in ordered
    ]
    text = markdown(head, lines)
    if not found:
        return text
    scores = [each["z"] for each in found]
    beyond = sum(abs(score) > 2 for score in scores)
    ratios = [each["true"] / each["default"] for each in found]
    return (
        f"{text}\n\nz: mean {statistics.fmean(scores):+.2f}, root mean square "
        f"{statistics.fmean(score**2 for score in scores) ** 0.5:.2f}, beyond ±2 in {beyond} of "
        f"{len(found)}. Choice against `fit`: better in {sum(ratio < 1 for ratio in ratios)}, same in "
        f"{sum(ratio == 1 for ratio in ratios)}, worse in {sum(ratio > 1 for ratio in ratios)}; geometric "
        f"mean of the ratio {statistics.geometric_mean(ratios):.3f}."
    )


if __name__ == "__main__":
    main()
