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
"""What is compared where ratings are scarce: the same model without and with graphs."""

SCARCE = ("offsets", *GRAPHS, "mask")
WHOLE = (
    *("dmf3", "nearest3", "dmf2", "nearest", "candidates", "given", "both"),
    *("l2", "l2_nearest", "l2_candidates", "l2_given"),
)
BATCHES = ("l2", "l2_quarter", "l2_sixteenth")
GIVEN_SPLIT = tuple(name for name in MODELS if name not in ("nearest3", "given", "both", *BATCHES[1:]))
SPLITS = (
    *("offsets", "dmf2", "l2", "mask"),
    *("cmfrec", "cmfrec_implicit", "surprise_svd", "surprise_svdpp", "lenskit"),
)
PLAN = {
    "movielens": GIVEN_SPLIT,
    "resplit": SPLITS,
    "batches": BATCHES,
    "movielens25": GRAPHS,
    "movielens10": SCARCE,
    **dict.fromkeys(("netflix20", "ion80", "gpcr80", "gpcr20"), WHOLE),
}
QUICK = {"movielens10": ("offsets", "l2", "l2_candidates"), "netflix20": ("dmf2", "candidates")}


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
    """Fit what is not there, seed by seed: models of a table are timed in turn."""
    failed = 0
    for table, names in plan.items():
        chosen = tuning.chosen_for(table)
        installed = [name for name in names if not MODELS[name].is_missing]
        for name in names:
            if name not in installed:
                print(f"{table} {name}: {MODELS[name].needs} is not installed", file=sys.stderr)
            elif name not in chosen:
                print(f"{table} {name}: no settings chosen, see --tune", file=sys.stderr)
                failed += 1
        for seed in range(seeds):
            for name in installed:
                model = MODELS[name]
                if name not in chosen or seed not in model.seeds(seeds, TABLES[table].has_draws):
                    continue
                print(f"{table} {name} seed {seed}", file=sys.stderr, flush=True)
                try:
                    cells.compute(table, name, model, chosen[name]["settings"], seed)
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
