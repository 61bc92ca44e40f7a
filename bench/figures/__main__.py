"""Compute and draw the paper's figures.

    python -m bench.figures                                 # all, about 25 minutes on one processor
    python -m bench.figures --quick                         # small and short, as a test of the program
    python -m bench.figures --only frozen training --jobs 1
    python -m bench.figures --redraw                        # draw existing runs, compute nothing

The data come from :mod:`airnp.datasets`. Every finished run is kept in ``<out>/runs``; the next start
computes only the runs that are missing or have other settings. Beside each ``NAME.png``, ``NAME.json`` names
the files that it was drawn from. ``bench/figures/captions.py`` describes the figures.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from bench.figures.captions import CAPTIONS
from bench.figures.curves import CURVES
from bench.figures.images import IMAGES
from bench.figures.produce import Store, compute_all, draw_all
from bench.figures.runs import FULL, QUICK
from bench.speed import RESULTS

_DRAWINGS = {drawing.name: drawing for drawing in (*CURVES, *IMAGES)}
FIGURES = {name: _DRAWINGS[name] for name in CAPTIONS}
"""All figures by name, in the order of the paper."""


def main(argv: list[str] | None = None) -> None:
    """Compute the missing runs and draw; exit with an error if a figure could not be drawn."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.figures",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a 4th of the size, a 10th of the iterations")
    parser.add_argument("--only", nargs="+", choices=list(FIGURES), metavar="NAME", help=", ".join(FIGURES))
    parser.add_argument("--out", type=Path, help="default: bench/results/figures, with --quick figures_quick")
    parser.add_argument("--redraw", action="store_true", help="compute nothing")
    parser.add_argument("--redo", action="store_true", help="compute again what other code of airnp computed")
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
