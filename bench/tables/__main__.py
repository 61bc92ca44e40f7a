"""``python -m bench.tables``; see the package."""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

from airnp.sklearn import AIRImputer
from bench.speed import RESULTS
from bench.tables import data, protocol, unlike
from bench.tables.gaps import MECHANISMS, make_gaps
from bench.tables.measure import OURS, codes, downstream, measure
from bench.tables.peers import ON_REQUEST, PEERS

RATES = (0.1, 0.3, 0.5)
UNLIKE = {"strange": unlike.STRANGE, "sealed": unlike.SEALED}
"""Halves of tables unlike the others."""

GAPS_OF_UNLIKE = (("MCAR", 0.5), ("MAR", 0.3), ("blocks", 0.3))

EVEN = 0.8, 0.97
"""How much of a column a 90 % interval should cover."""

NEAR = 1.01
"""Within this multiple of the lowest error counts as the lowest."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=__doc__)
    parser.add_argument("--half", choices=("tuning", "report", "all", *UNLIKE), default="all")
    parser.add_argument("--quick", action="store_true", help="one table, one draw of its gaps")
    parser.add_argument("--tables", nargs="+", help="only these")
    parser.add_argument("--masks", type=int, default=5)
    parser.add_argument(
        "--peers", nargs="*", default=[name for name in PEERS if name not in ON_REQUEST], choices=list(PEERS)
    )
    parser.add_argument(
        "--again", nargs="+", default=[], choices=[OURS, *PEERS], help="measure these anew, in all cells"
    )
    parser.add_argument("--threads", type=int, help="of airnp's imputer")
    parser.add_argument("--results", type=Path, default=RESULTS / "tables")
    parser.add_argument("--folder", type=Path, help="CSV files for the protocol of HyperImpute")
    parser.add_argument("--downstream", action="store_true", help="accuracy of a classifier behind imputers")
    parser.add_argument("--tall", action="store_true", help="time and memory at 100 000 × 50")
    parser.add_argument("--imputations", type=int, metavar="N", help="simulations of multiple imputation")
    options = parser.parse_args(arguments)
    if options.quick:
        options.tables, options.masks, options.results = ["iris"], 1, options.results / "quick"
    if options.folder is not None:
        records = protocol.run(options.folder, tuple(options.peers), MECHANISMS)
        print(protocol.table_of(records))
    elif options.tall:
        _tall(options.threads)
    elif options.imputations is not None:
        _imputations(options.imputations)
    else:
        names = options.tables or {"tuning": data.TUNING, "report": data.REPORT, **UNLIKE}.get(
            options.half, (*data.TUNING, *data.REPORT)
        )
        if options.downstream:
            _downstream(names, options.masks)
        else:
            records = list(_cells(names, options))
            print(summary(records))
    return 0


def _cells(names: Sequence[str], options: argparse.Namespace) -> Any:
    """Yield the records of all cells, from their files if they are there."""
    options.results.mkdir(parents=True, exist_ok=True)
    _warm_up()
    for name in names:
        dataset = data.load(name)
        is_unlike = any(name in names for names in UNLIKE.values())
        for mechanism, rate in GAPS_OF_UNLIKE if is_unlike else product(MECHANISMS, RATES):
            for seed in range(options.masks):
                path = options.results / f"{name}-{mechanism}-{rate}-{seed}.json"
                record = {"table": name, "mechanism": mechanism, "rate": rate, "seed": seed, "found": {}}
                if path.exists():
                    record = json.loads(path.read_text())
                methods = (OURS, *options.peers)
                wanted = [m for m in methods if m in options.again or m not in record["found"]]
                if wanted:
                    record["found"] |= measure(dataset, mechanism, rate, seed, wanted, options.threads)
                    path.write_text(json.dumps(record))
                    print(f"{name} {mechanism} {rate} {seed}: {_line(record['found'])}", flush=True)
                yield record


def _warm_up() -> None:
    """Compile before anything is timed."""
    rng = np.random.default_rng(0)
    table = np.exp(rng.standard_normal((80, 4)))
    AIRImputer(random_state=0).fit_transform(np.where(rng.random(table.shape) < 0.2, np.nan, table))


def _line(found: dict[str, dict[str, Any]]) -> str:
    parts = []
    for name, each in found.items():
        words = [f"{each[key]:.3f}" for key in ("nrmse", "error") if key in each]
        parts.append(f"{name} {'/'.join(words)} ({each['seconds']:.2f} s)")
    return ", ".join(parts)


def summary(records: list[dict[str, Any]]) -> str:
    """Return, for each table and all of them: ratios to the best other, wins, coverage, and times.

    Errors are means over masks, so that a cell is a table, a mechanism and a rate. ``time`` is the ratio of
    processor time to IterativeImputer's. ``columns`` is the range of coverage of columns, ``even`` the share
    of them that is covered as it should be, ``could`` that share if gaps were inside with probability 0.9.
    """
    lines = [
        f"{'table':14} {'ratio':>6} {'lowest':>7} {'time':>6} {'slowest':>7} {'cover':>6} "
        f"{'columns':>10} {'even':>5} {'could':>6}"
    ]
    tables = list(dict.fromkeys(record["table"] for record in records))
    for name in [*tables, "all"]:
        own = [record for record in records if name in (record["table"], "all")]
        cells: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for record in own:
            cells.setdefault((record["table"], record["mechanism"], record["rate"]), []).append(
                record["found"]
            )
        ratios, times = [], []
        for found in cells.values():
            for key in ("nrmse", "error"):
                means = {
                    method: np.mean([each[method][key] for each in found if key in each[method]] or [np.nan])
                    for method in found[0]
                }
                others = [value for method, value in means.items() if method != OURS and value > 0]
                if np.isfinite(means[OURS]) and others and means[OURS] > 0:
                    ratios.append(means[OURS] / min(others))
            if "iterative" in found[0]:
                ours, other = (np.mean([each[m]["work"] for each in found]) for m in (OURS, "iterative"))
                times.append(ours / other)
        cover = [record["found"][OURS]["cover"] for record in own if "cover" in record["found"][OURS]]
        inside, gaps = np.hstack([_covered(found) for found in cells.values()])
        columns = inside / gaps
        even = np.mean((columns >= EVEN[0]) & (columns <= EVEN[1])) if len(gaps) else np.nan
        low, high = np.ceil(EVEN[0] * gaps - 1e-9), np.floor(EVEN[1] * gaps + 1e-9)
        could = np.mean(binom.cdf(high, gaps, 0.9) - binom.cdf(low - 1, gaps, 0.9)) if len(gaps) else np.nan
        within = np.mean(np.array(ratios) <= NEAR) if ratios else np.nan
        extremes = f"{np.min(columns):.2f}–{np.max(columns):.2f}" if len(gaps) else "–"
        times = times or [np.nan]
        lines.append(
            f"{name:14} {_geometric(ratios):6.3f} {within:7.0%} {_geometric(times):6.2f} {max(times):7.2f} "
            f"{np.mean(cover) if cover else np.nan:6.3f} {extremes:>10} {even:5.0%} {could:6.1%}"
        )
    return "\n".join(lines)


def _covered(found: list[dict[str, Any]]) -> Any:
    """Return, over all masks, gaps inside intervals and gaps of the columns that have 50 or more, (2, k)."""
    counts = [each[OURS]["inside"] for each in found if "inside" in each[OURS]]
    inside, gaps = np.sum(counts, axis=0).T if counts else np.zeros((2, 0))
    return np.stack([inside, gaps])[:, gaps >= 50]


def _geometric(values: list[float]) -> float:
    return float(np.exp(np.mean(np.log(values)))) if values else float("nan")


def _downstream(names: Sequence[str], masks: int) -> None:
    methods = (OURS, "mean", "knn", "iterative")
    print("accuracy of a random forest behind an imputer, 30 % MCAR")
    for name in names:
        dataset = data.load(name)
        if dataset.target is None:
            continue
        observed = [make_gaps(codes(dataset.frame), 0.3, "MCAR", seed) for seed in range(masks)]
        found = {m: np.mean([downstream(dataset, o, k, m) for k, o in enumerate(observed)]) for m in methods}
        print(
            f"{name:14} " + ", ".join(f"{method} {value:.3f}" for method, value in found.items()), flush=True
        )


def _tall(threads: int | None) -> None:
    _warm_up()
    rng = np.random.default_rng(0)
    truth = rng.standard_normal((100_000, 10)) @ rng.standard_normal((10, 50))
    truth += 0.5 * rng.standard_normal(truth.shape)
    table = np.where(rng.random(truth.shape) < 0.3, np.nan, truth)
    gaps = np.isnan(table)
    for name in (OURS, "iterative"):
        started, worked = time.perf_counter(), time.process_time()
        filled = (
            AIRImputer(random_state=0, threads=threads).fit_transform(table)
            if name == OURS
            else PEERS[name](table, 0)
        )
        seconds, work = time.perf_counter() - started, time.process_time() - worked
        error = np.sqrt(((filled - truth)[gaps] ** 2).mean()) / truth.std()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{name}: {seconds:.1f} s ({work:.1f} s of processors), NRMSE {error:.4f}, "
            f"at most {memory:.2f} GiB",
            flush=True,
        )


def _imputations(simulations: int, n: int = 250, imputations: int = 10) -> None:
    """Print how often the 95 % interval of a planted coefficient covers it, after Rubin's rules."""
    from scipy.stats import t

    inside, estimates, errors = [], [], []
    for seed in range(simulations):
        rng = np.random.default_rng([77, seed])
        x = rng.multivariate_normal(np.zeros(3), [[1, 0.5, 0.3], [0.5, 1, 0.4], [0.3, 0.4, 1]], n)
        y = 1 + x @ [0.5, -0.7, 0.3] + 0.8 * rng.standard_normal(n)
        table = np.column_stack([x, y])
        table[rng.random(n) < 1 / (1 + np.exp(0.6 - x[:, 2])), 0] = np.nan
        table[rng.random(n) < 0.25, 3] = np.nan
        imputer = AIRImputer(sample_posterior=True, n_imputations=imputations, random_state=seed, threads=1)
        slopes, within = [], []
        for each in imputer.fit(table).imputations(table):
            inputs = np.column_stack([np.ones(n), each[:, :3]])
            gram = np.linalg.inv(inputs.T @ inputs)
            slope = gram @ inputs.T @ each[:, 3]
            left = each[:, 3] - inputs @ slope
            slopes.append(slope[1])
            within.append(left @ left / (n - 4) * gram[1, 1])
        between = (1 + 1 / imputations) * np.var(slopes, ddof=1)
        error = np.sqrt(np.mean(within) + between)
        freedom = (imputations - 1) * (1 + np.mean(within) / between) ** 2
        inside.append(abs(np.mean(slopes) - 0.5) < t.ppf(0.975, freedom) * error)
        estimates.append(np.mean(slopes))
        errors.append(error)
    bias = np.mean(estimates) - 0.5
    print(
        f"{simulations} simulations: the 95 % interval covers {np.mean(inside):.1%}; bias {bias:+.4f}, "
        f"spread {np.std(estimates):.4f}, standard error {np.mean(errors):.4f}"
    )


if __name__ == "__main__":
    sys.exit(main())
