"""``python -m bench.ratings``; see the package."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import bench.ratings
from bench.ratings import tuning
from bench.ratings.cells import Cells
from bench.ratings.data import TABLES
from bench.ratings.models import ABLATION
from bench.ratings.page import page
from bench.ratings.peers import PEERS
from bench.speed import RESULTS

MODELS = ABLATION | PEERS
GRAPHS = ("dmf2", "nearest", "candidates", "l2", "l2_nearest", "l2_candidates", "l2_given")
"""What is compared where ratings are scarce, and on other data: the same model without and with graphs."""

SPLITS = ("offsets", "dmf2", "l2", "mask", "cmfrec", "cmfrec_implicit", "surprise_svd", "surprise_svdpp")
PLAN = {name: {"movielens": tuple(MODELS), "resplit": SPLITS}.get(name, GRAPHS) for name in TABLES}
QUICK = {"movielens10": ("offsets", "l2", "l2_candidates", "soft_impute")}


def main(argv: Sequence[str] | None = None) -> int:
    """Tune or compute what is asked for and not there yet, and write the page; return 1 if some failed."""
    arguments = _arguments(argv)
    folder = arguments.out / "quick" if arguments.quick else arguments.out
    plan = {
        table: [name for name in names if arguments.models is None or name in arguments.models]
        for table, names in (QUICK if arguments.quick else PLAN).items()
        if arguments.data is None or table in arguments.data
    }
    warnings.filterwarnings("ignore", message=".*no observed entry.*")
    if arguments.tune:
        return _tune(plan)
    failed = (
        0
        if arguments.report_only
        else _compute(plan, Cells(folder), 1 if arguments.quick else arguments.seeds)
    )
    text = page(plan, Cells(folder), arguments.seeds)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ratings.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {folder / 'ratings.md'}", file=sys.stderr)
    return 1 if failed else 0


def _tune(plan: dict[str, list[str]]) -> int:
    for table, names in plan.items():
        for name in names if table not in tuning.TAKEN_OVER else ():
            if MODELS[name].is_missing:
                print(f"{table} {name}: {MODELS[name].needs} is not installed", flush=True)
                continue
            found = tuning.tune(name, MODELS[name], table)
            tuning.keep(table, name, found)
            print(f"{table} {name}: {found['validation_rmse']:.4f} {found['settings']}", flush=True)
    return 0


def _compute(plan: dict[str, list[str]], cells: Cells, seeds: int) -> int:
    failed = 0
    for table, names in plan.items():
        chosen = tuning.chosen_for(table)
        for name in names:
            model = MODELS[name]
            if model.is_missing:
                print(f"{table} {name}: {model.needs} is not installed", file=sys.stderr)
                continue
            if name not in chosen:
                print(f"{table} {name}: no settings chosen, see --tune", file=sys.stderr)
                failed += 1
                continue
            settings = chosen[name]["settings"]
            draws = table != "movielens"  # then another seed is another table, too
            for seed in range(seeds if model.has_seed or draws else 1):
                print(f"{table} {name} seed {seed}", file=sys.stderr, flush=True)
                try:
                    cells.compute(table, name, model, settings, seed)
                except Exception as error:
                    failed += 1
                    print(f"  failed: {type(error).__name__}: {error}", file=sys.stderr)
    return failed


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.ratings",
        description=bench.ratings.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", nargs="+", choices=TABLES, help="default: all")
    parser.add_argument("--models", nargs="+", choices=MODELS, help="default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tune", action="store_true", help="choose settings, compute nothing else")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "ratings")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
