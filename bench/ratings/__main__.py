"""``python -m bench.ratings``; see the package."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import bench.ratings
from bench.ratings import data, fits, used
from bench.ratings.fits import Cells
from bench.ratings.page import page
from bench.speed import RESULTS

GRAPHS = ("dmf2", "nearest", "candidates", "l2", "l2_nearest", "l2_candidates", "l2_given")
"""Models with and without graphs, to compare where ratings are scarce."""

PARTS = ("offsets", "cmfrec", "cmfrec_implicit", "surprise_svd", "surprise_svdpp", "mask")
"""Models and programs to compare on parts of MovieLens."""

WHOLE = (
    *("dmf3", "nearest3", "dmf2", "nearest", "candidates", "given", "both"),
    *("l2", "l2_nearest", "l2_candidates", "l2_given"),
)
BATCHES = ("l2", "l2_quarter", "l2_sixteenth")
GIVEN_SPLIT = tuple(name for name in fits.MODELS if name not in ("nearest3", "given", "both", *BATCHES[1:]))
SPLITS = (
    *("offsets", "dmf2", "l2", "mask"),
    *("cmfrec", "cmfrec_implicit", "surprise_svd", "surprise_svdpp", "lenskit"),
)
PLAN = {
    "movielens": GIVEN_SPLIT,
    "resplit": SPLITS,
    "batches": BATCHES,
    "movielens50": PARTS,
    "movielens25": (*GRAPHS, *PARTS),
    "movielens10": (*GRAPHS, *PARTS),
    **dict.fromkeys(("netflix20", "ion80", "gpcr80", "gpcr20"), WHOLE),
}
QUICK = {"movielens10": ("offsets", "l2", "l2_candidates"), "netflix20": ("dmf2", "candidates")}


def main(argv: Sequence[str] | None = None) -> int:
    """Tune, or compute the missing fits and write the page; return 1 if some failed."""
    arguments = _arguments(argv)
    folder = arguments.out / "quick" if arguments.quick else arguments.out
    plan = {
        table: [name for name in names if arguments.models is None or name in arguments.models]
        for table, names in (QUICK if arguments.quick else PLAN).items()
        if arguments.data is None or table in arguments.data
    }
    warnings.filterwarnings("ignore", message=".*no observed entry.*")
    has_used = not arguments.quick and arguments.models is None
    has_used = has_used and (arguments.data is None or used.TABLE in arguments.data)
    if arguments.tune:
        if has_used and used.is_missing():
            print("used: implicit is not installed", flush=True)
        elif has_used:
            used.tune()
        return _tune(plan)
    cells, failed = Cells(folder), 0
    if not arguments.report_only:
        failed = _compute(plan, cells, 1 if arguments.quick else arguments.seeds)
    text = page(plan, cells, arguments.seeds)
    if has_used and not arguments.report_only:
        text += f"\n{used.page(arguments.seeds)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "ratings.md").write_text(text, encoding="utf-8")
    print(text)
    print(f"written to {folder / 'ratings.md'}", file=sys.stderr)
    return 1 if failed else 0


def _tune(plan: dict[str, list[str]]) -> int:
    for table, names in plan.items():
        for name in names if table not in fits.SETTINGS_OF else ():
            model = fits.MODELS[name]
            if model.is_missing:
                print(f"{table} {name}: {model.needs} is not installed", flush=True)
                continue
            found = fits.tune(model, table)
            fits.keep(table, name, found)
            print(f"{table} {name}: {found['validation_rmse']:.4f} {found['settings']}", flush=True)
    return 0


def _compute(plan: dict[str, list[str]], cells: Cells, seeds: int) -> int:
    """Compute the missing fits seed by seed, so that the models of a table are timed in turn."""
    failed = 0
    for table, names in plan.items():
        chosen, ready = fits.chosen_for(table), {}
        for name in names:
            if fits.MODELS[name].is_missing:
                print(f"{table} {name}: {fits.MODELS[name].needs} is not installed", file=sys.stderr)
            elif name not in chosen:
                print(f"{table} {name}: no settings chosen, see --tune", file=sys.stderr)
                failed += 1
            else:
                ready[name] = fits.MODELS[name]
        for seed in range(seeds):
            for name, model in ready.items():
                if seed not in model.seeds(seeds, data.TABLES[table].has_draws):
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
    parser.add_argument("--data", nargs="+", choices=(*data.TABLES, used.TABLE), help="default: all")
    parser.add_argument("--models", nargs="+", choices=fits.MODELS, help="default: all")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tune", action="store_true", help="choose settings, compute nothing else")
    parser.add_argument("--report-only", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS / "ratings")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
