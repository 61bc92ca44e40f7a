"""Whether ``airnp.complete`` chooses well, knows how good it is, and takes no longer than it must.

    python -m bench.complete                  # the report half: some 60 small problems, about ten minutes
    python -m bench.complete --half tuning    # problems that settings may be chosen on
    python -m bench.complete --only picture   # those whose names contain a word
    python -m bench.complete --again          # compute the answers of ``complete`` anew
    python -m bench.complete --report         # only print the tables again

For each problem, ``complete`` is called once without options (but for the metric), and every model is fitted
by itself to all observed entries. The truth says which of them is best. Reported are

* the ratio of the errors of ``complete`` and of the best single model;
* z = (expected − true error) / standard error;
* the share of gaps within intervals of 90 %;
* the seconds of the call over those of one fit of the model, or the blend, that won.

Each problem is two files in ``OUT``, one for the single models and one for ``complete``; the next start
computes only the missing ones.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import airnp
from airnp.completing.models import MODELS, Task
from airnp.data.normalization import ColumnScaling
from bench.complete_problems import HALVES, SmallProblem, problems
from bench.speed import RESULTS
from bench.timing import markdown

FOLDER = RESULTS / "complete"
WORSE = 1.03
SLOW = 3.0
REASONS = ("MAR", "MNAR")
NOTHING = 1e-5
"""An error that does not count, of the range of the data."""


def main(argv: Sequence[str] | None = None) -> None:
    """Compute the missing problems, and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--half", choices=HALVES, default="report")
    parser.add_argument("--quick", action="store_true", help="the problems with two values only")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="in the problems' names")
    parser.add_argument("--seeds", type=int, default=1, help="draws of each problem (%(default)s)")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, default=FOLDER)
    parser.add_argument("--again", action="store_true", help="compute the answers of complete anew")
    parser.add_argument("--report", action="store_true", help="compute nothing")
    options = parser.parse_args(argv)
    if options.quick:
        options.only, options.out = ["binary"], options.out / "quick"
    found = []
    for seed in range(options.seeds):
        for name, make in problems(options.half, seed).items():
            if not any(word in name for word in options.only):
                continue
            stem = f"{options.half}-{seed}-{name.replace(' ', '_')}"
            files = [options.out / part / f"{stem}.json" for part in ("singles", "answers")]
            if not options.report:
                _compute(files[0], lambda make=make: singles(make(), options.threads), False)
                again = options.again and files[1].exists()
                _compute(files[1], lambda make=make: answer(make(), options.threads), again)
            if all(file.exists() for file in files):
                models, given = (json.loads(file.read_text()) for file in files)
                found.append({"name": name, "singles": models, **given})
    if found:
        print(report(found))


def _compute(file: Path, measure: Callable[[], dict[str, Any]], again: bool) -> None:
    if file.exists() and not again:
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    found = measure()
    file.write_text(json.dumps(found, indent=1))
    print(file.stem, end=" ", flush=True)


def error_of(problem: SmallProblem, matrix: Any) -> float:
    """Return the true error in the gaps, in the unit of ``Completion.expected``."""
    truth, gaps = problem.truth, ~problem.mask
    if problem.metric == "auc":
        from sklearn.metrics import roc_auc_score

        return 1 - float(roc_auc_score(truth[gaps], np.asarray(matrix, float)[gaps]))
    scale: Any = np.ptp(truth[problem.mask])
    if problem.kind == "table":
        scale = ColumnScaling.of(truth, problem.mask).scale
    errors = ((np.asarray(matrix, float) - truth) / scale)[gaps]
    return float(np.abs(errors).mean() if problem.metric == "mae" else (errors**2).mean() ** 0.5)


def singles(problem: SmallProblem, threads: int) -> dict[str, float]:
    """Return the true error of every model that is meant for the problem."""
    values = np.where(problem.mask, problem.truth, 0.0)
    scaling = ColumnScaling.of(values, problem.mask) if problem.kind == "table" else None
    if scaling is not None:
        values = scaling.standardised(values, problem.mask)
    task = Task(values, problem.mask, problem.kind, 0, threads)
    found = {}
    for model in MODELS:
        if model.suits(task):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                matrix = model.fit(task).matrix
            if scaling is not None:
                matrix = scaling.undone(matrix)
            if problem.kind == "binary" and problem.metric != "auc":
                matrix = (matrix > 0.5) * 1.0 if problem.metric == "mae" else np.clip(matrix, 0, 1)
            found[model.name] = error_of(problem, matrix)
    return found


def answer(problem: SmallProblem, threads: int) -> dict[str, Any]:
    """Return what one call of ``airnp.complete`` says, and how true it is."""
    mask = None if problem.kind in ("table", "ratings") else problem.mask
    metric = problem.metric if problem.kind == "binary" else None
    started = time.perf_counter()
    found = airnp.complete(problem.given, mask, metric=metric, threads=threads)
    seconds = time.perf_counter() - started
    lower, upper = (np.asarray(end, float) for end in found.interval(0.9))
    inside = ((lower <= problem.truth) & (problem.truth <= upper))[~problem.mask]
    true = error_of(problem, np.asarray(found.X, float))
    one_fit = {score.model: score.seconds for score in found.ranking if score.model in found.weights}
    return {
        "kind": found.kind,
        "model": found.model,
        "expected": found.expected,
        "standard_error": found.standard_error,
        "true": true,
        "z": (found.expected - true) / (found.standard_error + NOTHING),
        "covered": float(inside.mean()),
        "seconds": seconds,
        "winner_seconds": sum(one_fit.values()),
        "notes": {score.model: [score.error, score.seconds, score.note] for score in found.ranking},
    }


def report(found: list[dict[str, Any]]) -> str:
    """Return a table of all problems and a summary."""
    rows: list[list[object]] = []
    for each in found:
        best = min(each["singles"], key=each["singles"].__getitem__)
        each["ratio"] = _ratio(each["true"], each["singles"][best])
        each["times"] = each["seconds"] / each["winner_seconds"]
        rows.append(
            [
                each["name"],
                f"{each['true']:.5f}",
                f"{each['ratio']:.3f}",
                best,
                each["model"],
                f"{each['expected']:.5f} ± {each['standard_error']:.5f}",
                f"{each['z']:+.1f}",
                f"{each['covered']:.0%}",
                f"{each['seconds']:.1f}",
                f"{each['times']:.1f}",
            ]
        )
    head = ["problem", "error", "over best", "best single", "answer", "expected", "z", "90 %", "s", "× fit"]
    return f"{markdown(head, rows)}\n\n{summary(found)}"


def _ratio(error: float, best: float) -> float:
    """Return the ratio of two errors, 1 if both are nothing beside the range of the data."""
    return max(error, NOTHING) / max(best, NOTHING)


def summary(found: list[dict[str, Any]]) -> str:
    """Return a line for each kind of data, and one for all."""
    kinds = dict.fromkeys(each["name"].split()[0] for each in found)
    parts = {kind: [each for each in found if each["name"].split()[0] == kind] for kind in kinds}
    # Held-out entries cannot tell what entries are like that are missing for a reason.
    by_chance = [each for each in found if not each["name"].endswith(REASONS)]
    rows: list[list[object]] = []
    for name, part in {**parts, "all": found, "all but MAR and MNAR": by_chance}.items():
        ratios, times = ([each[key] for each in part] for key in ("ratio", "times"))
        rows.append(
            [
                name,
                len(part),
                f"{statistics.geometric_mean(ratios):.3f}",
                f"{sum(ratio > WORSE for ratio in ratios)}",
                f"{max(ratios):.2f}",
                f"{statistics.fmean(each['z'] for each in part):+.2f}",
                f"{statistics.fmean(each['z'] ** 2 for each in part) ** 0.5:.2f}",
                sum(abs(each["z"]) > 2 for each in part),
                f"{statistics.fmean(each['covered'] for each in part):.0%}",
                f"{statistics.median(each['seconds'] for each in part):.1f}",
                f"{statistics.median(times):.1f}",
                f"{sum(time > SLOW for time in times)}",
            ]
        )
    head = ["", "problems", "mean ratio", f"> {WORSE}", "highest", "mean z", "rms z", "beyond ±2"]
    return markdown([*head, "90 % covers", "median s", "median × winner", f"> {SLOW:g} ×"], rows)


if __name__ == "__main__":
    main()
