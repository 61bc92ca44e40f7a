"""Compute and draw the paper's figures.

    python -m bench.figures                                 # all, about 25 minutes on one processor
    python -m bench.figures --quick                         # small and short: shows only that all works
    python -m bench.figures --only frozen training --jobs 1
    python -m bench.figures --redraw                        # from what is there, without computing

The data come from :mod:`airnp.datasets`. Every run is kept in ``<out>/runs`` when it is done; started again,
the command computes only what is not there yet, or was made with other settings. Beside each ``NAME.png``
lies a ``NAME.json`` with the files that it was drawn from. ``bench/figures/captions.py`` says what they show.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench.figures.catalogue import FIGURES
from bench.figures.produce import compute_all, draw_all
from bench.figures.scale import FULL, QUICK
from bench.figures.store import Store

RESULTS = Path(__file__).parents[1] / "results"


def main(argv: list[str] | None = None) -> None:
    """Compute what is missing, then draw; fail if something could not be drawn."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a 4th of the size, a 10th of the iterations")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, help="default: bench/results/figures, with --quick figures_quick")
    parser.add_argument("--redraw", action="store_true", help="compute nothing")
    parser.add_argument("--redo", action="store_true", help="also what other code of airnp has computed")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at a time")
    parser.add_argument("--threads", type=int, default=1, help="of each run")
    arguments = parser.parse_args(argv)
    scale = QUICK if arguments.quick else FULL
    folder = arguments.out or RESULTS / ("figures_quick" if arguments.quick else "figures")
    drawings = [FIGURES[name] for name in arguments.only or FIGURES]
    store = Store(folder / "runs")
    if not arguments.redraw:
        compute_all(drawings, scale, store, arguments.jobs, arguments.threads, arguments.redo)
    undrawn = draw_all(drawings, scale, store, folder, arguments.threads)
    if undrawn:
        sys.exit(f"not drawn, as not all of their runs are there: {', '.join(undrawn)}")


if __name__ == "__main__":
    main()
