"""The paper's table of computing times: 10 000 iterations of DMF, RDMF and AIR, extrapolated from fewer.

    python -m bench.table2 [--quick] [--threads 2]

The paper measured on a Tesla V100, this command measures on the processors of this machine. Only the ratios
RDMF/DMF and AIR/DMF can be compared across machines.
"""

from __future__ import annotations

import argparse
import json
import os

from bench.speed import RESULTS
from bench.timing import in_pinned_process, interleaved, markdown

PAPER = {  # seconds for 10 000 iterations on a V100: DMF, RDMF, AIR
    (100, 2): (31.55, 44.24, 59.53),
    (100, 3): (33.93, 46.81, 61.53),
    (100, 4): (36.52, 49.16, 61.59),
    (170, 2): (35.15, 47.67, 65.81),
    (170, 3): (37.97, 51.47, 67.97),
    (170, 4): (41.38, 55.11, 70.86),
    (240, 2): (43.57, 53.36, 82.21),
    (240, 3): (46.50, 59.89, 83.32),
    (240, 4): (52.24, 61.89, 88.34),
}
METHODS = ("DMF", "RDMF", "AIR")


def main(argv: list[str] | None = None) -> None:
    """Measure all nine settings; print and save the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer repeats")
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if not arguments.measure:
        quick = ["--quick"] if arguments.quick else []
        in_pinned_process(
            "bench.table2", arguments.threads, "--measure", "--threads", str(arguments.threads), *quick
        )
        return

    import airnp
    from bench.peers.airnp_engine import runner
    from bench.peers.problem import make_problem

    rows, engine = [], airnp.CPU(arguments.threads)
    for (m, depth), paper in PAPER.items():
        runners = {method: runner(make_problem(method, m, depth, "float32"), engine) for method in METHODS}
        timings = interleaved(runners, rounds=3 if arguments.quick else 9)
        seconds = {method: 10 * timings.milliseconds(method) for method in METHODS}
        ratios = {method: timings.ratio(method, "DMF") for method in ("RDMF", "AIR")}
        rows.append({"m": m, "L": depth, "seconds": seconds, "ratios": ratios, "paper": paper})
        print(f"m = {m}, L = {depth}: " + ", ".join(f"{k} {v:.1f} s" for k, v in seconds.items()), flush=True)
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "table2.json").write_text(json.dumps({"threads": arguments.threads, "rows": rows}, indent=1))
    header = ["m", "L", *METHODS, "RDMF/DMF", "AIR/DMF"]
    table = markdown(
        [*header, "paper: DMF, RDMF, AIR", "paper: RDMF/DMF", "paper: AIR/DMF"],
        [
            [
                row["m"],
                row["L"],
                *(f"{row['seconds'][method]:.1f}" for method in METHODS),
                *(f"{row['ratios'][method]:.2f}" for method in ("RDMF", "AIR")),
                ", ".join(f"{value:.1f}" for value in row["paper"]),
                f"{row['paper'][1] / row['paper'][0]:.2f}",
                f"{row['paper'][2] / row['paper'][0]:.2f}",
            ]
            for row in rows
        ],
    )
    title = f"Seconds for 10 000 iterations, {arguments.threads} threads, float32 (paper: Tesla V100)"
    (RESULTS / "table2.md").write_text(f"{title}\n\n{table}\n")
    print(f"\n{title}\n\n{table}")


if __name__ == "__main__":
    main()
