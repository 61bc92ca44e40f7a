"""How good the automatic stop is where nobody tuned it: regret, spread over seeds, and iterations.

    python -m bench.stopping                      # everything; can be stopped and resumed
    python -m bench.stopping --half report        # only problems that no setting was chosen on
    python -m bench.stopping --rows "coffee patches" "binary 30%" --seeds 2
    python -m bench.stopping --report-only        # only print the table again

In a clone, with ``pip install -e ".[data]"``. The problems are the paper's eleven rows, pictures of
scikit-image at 120×120 under text, in patches and at random, and synthetic tables of 100×80. One half was
looked at when the rule was made ("tuning"), the other was not ("report"). Each problem has one mask; a seed
moves the start of the fit and the entries that it holds out. A cell is ``airnp.fit`` with its defaults, as
in :mod:`bench.table1`; the first ``--full`` seeds also have a run of 20 000 iterations without a stop.

Regret is how far the NMAE of the answer is above the lowest of the whole trajectory, of both runs if there
are two. Spread is the worst NMAE of a problem's seeds over the best. Each cell is one file in ``OUT/cells``;
the next start computes only the missing ones. They do not expire when airnp changes: ``--redo`` deletes those
of other code first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import paper_rows
from bench.cells import Cells, Experiment, Record, Task, compute_missing, positive, processors, write_file
from bench.paper_rows import Problem, Row
from bench.pictures import problems as pictures
from bench.speed import RESULTS
from bench.table1 import METHODS
from bench.table1_page import AIR, NEVER_STOPPED, REGRET_GOAL, regret
from bench.timing import markdown

SIDE = 120
MASKS = ("text", "patches", "50%")
SHAPE = (100, 80)
MISSING = ("30%", "70%")
SPREAD_GOAL = 1.3


@dataclass(frozen=True)
class Case(Row):
    """A problem, and whether the rule may depend on it."""

    half: str = ""


def _paper(name: str, seed: int) -> Problem:
    return paper_rows.load(name, 0)


def _picture(name: str, mask: str, seed: int) -> Problem:
    from skimage.transform import resize

    truth = resize(pictures.picture(name, "240"), (SIDE, SIDE), anti_aliasing=True).astype(np.float32)
    return Problem(truth, pictures.draw_mask(mask, truth.shape, [0, pictures.PICTURES.index(name)]))


def _table(name: str, missing: str, seed: int) -> Problem:
    rng = np.random.default_rng([11, sorted(TABLES).index(name)])
    truth = TABLES[name](*SHAPE, rng).astype(np.float32)
    return Problem(truth, paper_rows.draw_mask(missing, truth.shape, 11))


def _of_rank(rank: int, noise: float, m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    truth = rng.standard_normal((m, rank)) @ rng.standard_normal((rank, n)) / np.sqrt(rank)
    return truth + noise * rng.standard_normal((m, n))


def _positive(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    return rng.random((m, 6)) @ rng.random((6, n)) + 0.05 * rng.standard_normal((m, n))


def _clusters(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    rows, columns = rng.integers(0, 6, m), rng.integers(0, 5, n)
    return rng.random((6, 5))[rows][:, columns] + 0.08 * rng.standard_normal((m, n))


def _smooth(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    u, v = rng.random((m, 1)), rng.random(n)
    return np.sin(6 * u + 3 * v) + np.exp(-4 * (u - v) ** 2) + 0.05 * rng.standard_normal((m, n))


def _ratings(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    return np.clip(np.rint(3 + _of_rank(4, 0.0, m, n, rng)), 1, 5)


def _binary(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    rows, columns = rng.random((m, 3)) ** 3, rng.random((3, n)) ** 3
    return (rng.random((m, n)) < np.clip(rows @ columns, 0, 1)).astype(float)


def _communities(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    share = np.where(rng.random((6, 5)) < 0.25, 0.8, 0.03)
    rows, columns = rng.integers(0, 6, m), rng.integers(0, 5, n)
    return (rng.random((m, n)) < share[rows][:, columns]).astype(float)


def _walks(m: int, n: int, rng: np.random.Generator) -> np.ndarray:
    walks = np.cumsum(rng.standard_normal((m, 4)), axis=0)
    return walks @ rng.standard_normal((4, n)) + rng.standard_normal((m, n))


TABLES: dict[str, Callable[[int, int, np.random.Generator], np.ndarray]] = {
    "rank 5": partial(_of_rank, 5, 0.0),
    "rank 5 and noise": partial(_of_rank, 5, 0.1),
    "rank 12": partial(_of_rank, 12, 0.0),
    "rank 3 and noise": partial(_of_rank, 3, 0.3),
    "positive": _positive,
    "clusters": _clusters,
    "smooth": _smooth,
    "ratings": _ratings,
    "binary": _binary,
    "communities": _communities,
    "walks": _walks,
}
TUNED = {"Barbara", "Syn-Netflix", "IC", "coins", *pictures.TUNING} | (
    set(TABLES) - {"rank 3 and noise", "communities", "walks"}
)
"""What was looked at while the rule was made."""


def _case(kind: str, mask: str, load: Callable[[int], Problem]) -> Case:
    return Case(f"{kind} {mask}", load, {}, half="tuning" if kind in TUNED else "report")


CASES = {
    case.name: case
    for case in (
        *(_case(*name.rsplit(" ", 1), partial(_paper, name)) for name in paper_rows.ROWS),
        *(_case(name, mask, partial(_picture, name, mask)) for name in pictures.PICTURES for mask in MASKS),
        *(_case(name, share, partial(_table, name, share)) for name in TABLES for share in MISSING),
    )
}
EXPERIMENT = Experiment(CASES, {name: METHODS[name] for name in (AIR, NEVER_STOPPED)})


def main(argv: Sequence[str] | None = None, experiment: Experiment = EXPERIMENT) -> int:
    """Compute the missing cells and print the table; return 1 if cells failed, 130 after an interrupt."""
    arguments = _arguments(argv, experiment)
    rows = arguments.rows or [
        name for name, case in experiment.rows.items() if arguments.half in (None, case.half)
    ]
    counts = {AIR: arguments.seeds, NEVER_STOPPED: min(arguments.full, arguments.seeds)}
    tasks = [
        Task(row, method, seed, experiment.methods[method].settings)
        for seed in range(arguments.seeds)
        for row in rows
        for method, count in counts.items()
        if seed < count
    ]
    cells, failed = Cells(arguments.out), 0
    for task in tasks if arguments.redo else ():
        record = cells.find(task)
        if record is not None and experiment.is_stale(record):
            cells.drop(task)
    try:
        if not arguments.report_only:
            failed = compute_missing(tasks, experiment, arguments.out, arguments.jobs)
    except KeyboardInterrupt:
        print("interrupted; the next start goes on from here", file=sys.stderr)
        return 130
    finally:
        found = [cells.find(task) for task in tasks if cells.is_finished(task)]
        text = report(experiment, [record for record in found if record is not None])
        write_file(arguments.out / "stopping.md", text + "\n")
        print(text)
    return 1 if failed else 0


def summary(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return regrets, errors and iterations of each problem, from the cells of its seeds."""
    runs = [record for record in records if record["method"] == AIR]
    full = [record for record in records if record["method"] == NEVER_STOPPED]
    found = []
    for row in dict.fromkeys(run["row"] for run in runs):
        own = [run for run in runs if run["row"] == row]
        errors = [run["nmae"] for run in own]
        regrets = [
            regret(run, [each for each in full if (each["row"], each["seed"]) == (row, run["seed"])])[
                "regret"
            ]
            for run in own
        ]
        iterations = [run["n_iter"] for run in own]
        found.append({"row": row, "nmae": errors, "regret": regrets, "n_iter": iterations})
    return found


def report(experiment: Experiment, records: Sequence[Record]) -> str:
    """Return the table of all problems, and what each half comes to beside the goals."""
    found = summary(records)
    head = ["", "half", "seeds", "NMAE", "median regret", "worst", "spread", "iterations"]
    lines = [
        [
            each["row"],
            experiment.rows[each["row"]].half,
            str(len(each["nmae"])),
            f"{statistics.fmean(each['nmae']):.5f}",
            f"{statistics.median(each['regret']):.1%}",
            f"{max(each['regret']):.1%}",
            f"{max(each['nmae']) / min(each['nmae']):.3f}",
            f"{statistics.fmean(each['n_iter']):.0f}",
        ]
        for each in found
    ]
    sentences = []
    for half in ("tuning", "report"):
        chosen = [each for each in found if experiment.rows[each["row"]].half == half]
        if chosen:
            sentences.append(f"{half}: {_overall(chosen)}")
    return "\n\n".join([markdown(head, lines), *sentences])


def _overall(found: Sequence[dict[str, Any]]) -> str:
    regrets = [value for each in found for value in each["regret"]]
    spreads = [max(each["nmae"]) / min(each["nmae"]) for each in found]
    iterations = [value for each in found for value in each["n_iter"]]
    above = sum(value > REGRET_GOAL["worst"] for value in regrets)
    return (
        f"{len(regrets)} fits of {len(found)} problems, regret {statistics.median(regrets):.2%} in the "
        f"median (goal {REGRET_GOAL['median']:.0%}), {max(regrets):.1%} at worst (goal "
        f"{REGRET_GOAL['worst']:.0%}; {above} fits above), spread {max(spreads):.2f} at worst (goal "
        f"{SPREAD_GOAL}), {statistics.fmean(iterations):.0f} iterations on average."
    )


def _arguments(argv: Sequence[str] | None, experiment: Experiment) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="+", choices=list(experiment.rows), metavar="ROW")
    parser.add_argument("--half", choices=("tuning", "report"))
    parser.add_argument("--seeds", type=positive, default=5, help="how many, from 0 on (%(default)s)")
    parser.add_argument("--full", type=int, default=1, help="seeds with a run that never stops (%(default)s)")
    parser.add_argument("--jobs", type=positive, default=processors(), help="processes (default: all cores)")
    parser.add_argument("--out", type=Path, default=RESULTS / "stopping")
    parser.add_argument("--redo", action="store_true", help="delete cells of other code first")
    parser.add_argument("--report-only", action="store_true", help="compute nothing, print the table again")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
