"""Time of an iteration against PyTorch, JAX and the floor of its own matrix products, in one run.

    python -m bench.speed                 # peers, cases, growth, load, start; about 20 minutes
    python -m bench.speed --quick         # peers only, fewer repeats
    python -m bench.speed --sections peers growth --threads 1

Ratios are medians over interleaved rounds of one process; each number of threads has its own process, pinned
to as many processors. Before timing, every program must follow the same trajectory.

PyTorch and JAX are measured with two forms of the Dirichlet energy: tr(Zᵀ L Z) as printed in the paper, and
through the Gram matrix Z Zᵀ, which saves automatic differentiation half of the products of the graphs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.timing import in_pinned_process, interleaved, markdown

RESULTS = Path(__file__).parent / "results"
SECTIONS = ("peers", "cases", "growth", "load", "start")
METHODS = ("DMF", "RDMF", "AIR")


def check_trajectories(runners: dict, dtype: str, iterations: int = 30) -> None:
    """Run all programs from the same start and compare their losses; exit if they differ."""
    losses = {name: run(iterations) for name, run in runners.items()}
    reference = next(iter(losses.values()))
    tolerance = 2e-3 if dtype == "float32" else 1e-8
    for name, loss in losses.items():
        if not abs(loss - reference) <= tolerance * abs(reference):
            raise SystemExit(
                f"{name} follows another trajectory: loss {loss!r} against {reference!r} after {iterations}"
            )


def peer_runners(method: str, m: int, depth: int, dtype: str, threads: int) -> dict:
    """Return airnp and every installed peer, all from the same start."""
    import airnp
    from bench.peers.airnp_engine import runner
    from bench.peers.problem import make_problem

    problem = make_problem(method, m, depth, dtype)
    forms = {"trace": "", "gram": ", Gram"} if method == "AIR" else {"trace": ""}
    runners = {
        "airnp": runner(problem, airnp.CPU(threads)),
        "airnp reference": runner(problem, "reference"),
    }
    try:
        import torch

        from bench.peers import pytorch

        torch.set_num_threads(threads)
        for form, note in forms.items():
            runners["torch eager" + note] = pytorch.eager(problem, form)
            runners["torch.compile" + note] = pytorch.compiled(problem, form)
    except ImportError:
        print("PyTorch is not installed; pip install 'airnp[bench]' for the peers")
    try:
        import jax

        from bench.peers.jax_jit import jitted

        jax.config.update("jax_enable_x64", dtype == "float64")
        for form, note in forms.items():
            runners["jax.jit" + note] = jitted(problem, form)
    except ImportError:
        print("JAX is not installed; pip install 'airnp[bench]' for the peers")
    return runners


def peers(threads: int, quick: bool) -> list[dict]:
    """Time every method against every peer at the paper's size."""
    from bench.floor import floor

    rows = []
    for method in METHODS:
        runners = peer_runners(method, 240, 3, "float32", threads)
        check_trajectories(runners, "float32")
        graphs = (240, 240) if method == "AIR" else ()
        runners["floor"] = floor(240, 240, 3, "float32", graphs=graphs)
        timings = interleaved(runners, rounds=5 if quick else 11)
        row = {"section": "peers", "method": method, "m": 240, "threads": threads}
        row |= {name: timings.ratio(name, "airnp") for name in runners if name not in ("airnp", "floor")}
        row |= {"airnp/floor": timings.ratio("airnp", "floor"), "ms": timings.milliseconds("airnp")}
        row["all ms"] = {name: timings.milliseconds(name) for name in runners}
        rows.append(row)
        print(
            f"  {method}: " + ", ".join(f"{k} {v:.2f}" for k, v in row.items() if isinstance(v, float)),
            flush=True,
        )
    dmf_air = interleaved(
        {name: airnp_runner(name, 240, threads) for name in ("DMF", "AIR")}, rounds=5 if quick else 11
    )
    rows.append(
        {"section": "peers", "method": "AIR/DMF", "threads": threads, "ratio": dmf_air.ratio("AIR", "DMF")}
    )
    print(f"  AIR/DMF {rows[-1]['ratio']:.2f}", flush=True)
    return rows


def airnp_runner(method: str, m: int, threads: int):
    """Return airnp on one method."""
    import airnp
    from bench.peers.airnp_engine import runner
    from bench.peers.problem import make_problem

    return runner(make_problem(method, m, 3, "float32"), airnp.CPU(threads))


def case_list() -> list[tuple[str, dict, dict]]:
    """Return the name, the arguments of the objective and those of its floor, for every kind of problem."""
    import numpy as np
    from scipy import sparse

    import airnp

    graph = np.eye(240, k=1) + np.eye(240, k=-1)
    adaptive = airnp.AdaptiveLaplacian
    both = {"graphs": (240, 240)}
    cases: list[tuple[str, dict, dict]] = [
        ("AIR float64", {"dtype": "float64"}, both),
        ("AIR 400x150", {"shape": (400, 150)}, {"graphs": (400, 150)}),
        ("AIR 150x400", {"shape": (150, 400)}, {"graphs": (150, 400)}),
        *((f"AIR depth {depth}", {"depth": depth}, both) for depth in (2, 4, 5)),
        *(
            (
                f"AIR {kind}",
                {"regularizers": [adaptive(a, adjacency=kind) for a in ("rows", "columns")]},
                both,
            )
            for kind in ("global", "product")
        ),
        ("TV l1", {"regularizers": [airnp.TotalVariation(1e-6)]}, {}),
        ("TV quadratic", {"regularizers": [airnp.TotalVariation(1e-6, "quadratic")]}, {}),
        (
            "fixed dense graph",
            {"regularizers": [airnp.FixedLaplacian(np.ones((240, 240)))]},
            {"fixed": (240,)},
        ),
        (
            "fixed sparse graphs",
            {"regularizers": [airnp.FixedLaplacian(sparse.csr_array(graph), a) for a in ("rows", "columns")]},
            {},
        ),
        ("AIR Huber", {"fidelity": airnp.Huber()}, both),
        ("AIR rank 40", {"rank": 40}, {**both, "rank": 40}),
        ("16 x AIR 240x240", {"batch": 16}, {**both, "batch": 16}),
        ("16 x AIR 100x100", {"batch": 16, "shape": (100, 100)}, {"graphs": (100, 100), "batch": 16}),
    ]
    return cases


def cases(threads: int, quick: bool) -> list[dict]:
    """Time every other kind of problem against the floor of its own products."""
    rows = []
    for name, options, floor_options in case_list():
        runners = case_runners(dict(options), dict(floor_options), threads)
        timings = interleaved(runners, rounds=5 if quick else 9)
        ratio = timings.ratio("airnp", "floor")
        rows.append({"section": "cases", "case": name, "threads": threads, "airnp/floor": ratio})
        print(f"  {name}: {ratio:.2f} x its floor", flush=True)
    return rows


def case_runners(options: dict, floor_options: dict, threads: int) -> dict:
    """Return airnp and the floor for one case."""
    import numpy as np

    import airnp
    from airnp.engines import select_engine
    from airnp.training.steps import Steps
    from bench.floor import floor

    (m, n), batch = options.pop("shape", (240, 240)), options.pop("batch", 1)
    dtype = options.pop("dtype", "float32")
    rng = np.random.default_rng(0)
    size = (m, n) if batch == 1 else (batch, m, n)
    values, mask = rng.random(size).astype(dtype), rng.random(size) < 0.7
    objective = airnp.Objective(values, mask, **options)
    engine = select_engine(airnp.CPU(threads), np)
    steps = Steps(objective, airnp.Adam(), objective.init(0), engine=engine)
    fixed = floor_options.pop("fixed", ())
    products = floor(m, n, objective.depth, dtype, **floor_options)
    if fixed:
        one = rng.random((m, m)).astype(dtype)
        out = np.empty((m, n), dtype)

        def run(iterations: int) -> None:
            products(iterations)
            for _ in range(iterations * len(fixed)):
                np.matmul(one, values, out=out)

        return {"airnp": steps.advance, "floor": run}
    return {"airnp": steps.advance, "floor": products}


def growth(threads: int, quick: bool) -> list[dict]:
    """Time an iteration of AIR from m = 100 to 2000 beside its floor."""
    from bench.floor import floor

    rows = []
    for m in (100, 240, 500, 1000) if quick else (100, 170, 240, 350, 500, 700, 1000, 1400, 2000):
        runners = {
            "airnp": airnp_runner("AIR", m, threads),
            "floor": floor(m, m, 3, "float32", graphs=(m, m)),
        }
        timings = interleaved(runners, rounds=5)
        row = {
            "section": "growth",
            "m": m,
            "threads": threads,
            "airnp/floor": timings.ratio("airnp", "floor"),
        }
        row |= {"ms": timings.milliseconds("airnp"), "floor ms": timings.milliseconds("floor")}
        rows.append(row)
        print(f"  m = {m}: {row['airnp/floor']:.2f} x the floor", flush=True)
    return rows


def load(threads: int, quick: bool) -> list[dict]:
    """Measure how much slower every program gets beside one busy process."""
    from bench.floor import floor

    runners = peer_runners("AIR", 240, 3, "float32", threads)
    runners["floor"] = floor(240, 240, 3, "float32", graphs=(240, 240))
    rounds = 5 if quick else 9
    alone = interleaved(runners, rounds=rounds)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        beside = interleaved(runners, rounds=rounds)
    finally:
        busy.kill()
        busy.wait()
    rows = []
    for name in runners:
        slowdown = beside.milliseconds(name) / alone.milliseconds(name)
        rows.append({"section": "load", "program": name, "threads": threads, "slowdown": slowdown})
        print(f"  {name}: {slowdown:.2f} x as long beside a busy core", flush=True)
    return rows


def start(threads: int, quick: bool) -> list[dict]:
    """Measure how long a new process takes to import airnp and to make a first small fit."""
    code = (
        "import time; start = time.perf_counter(); import airnp; imported = time.perf_counter();"
        "import numpy as np;"
        "airnp.fit(np.eye(30) + 1, max_iter=3, stop=None, seed=0);"
        "print(imported - start, time.perf_counter() - imported)"
    )
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        for process in ("first fit, compiling", "first fit, from the cache"):
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                check=True,
                env={**os.environ, "NUMBA_CACHE_DIR": cache},
            )
            imported, fitted = map(float, done.stdout.split())
            rows.append({"section": "start", "process": process, "threads": threads, "seconds": fitted})
            print(f"  import airnp {imported:.2f} s, {process} {fitted:.2f} s", flush=True)
    rows.append({"section": "start", "process": "import airnp", "threads": threads, "seconds": imported})
    return rows


def report(rows: list[dict]) -> str:
    """Return all rows as Markdown tables."""
    parts = []
    programs = ["torch eager", "torch.compile", "jax.jit"]
    names = ["airnp reference", *programs, *(f"{name}, Gram" for name in programs)]
    table = [
        [
            row["method"],
            row["threads"],
            *(f"{row[n]:.2f}" if n in row else "–" for n in names),
            f"{row['airnp/floor']:.2f}",
        ]
        for row in rows
        if row["section"] == "peers" and "airnp/floor" in row
    ]
    if table:
        header = ["240×240, L = 3, float32", "threads", *(f"{n} / airnp" for n in names), "airnp / floor"]
        parts.append(markdown(header, table))
        ratios = [row for row in rows if row.get("method") == "AIR/DMF"]
        parts.append("\n".join(f"AIR/DMF at {row['threads']} threads: {row['ratio']:.2f}" for row in ratios))
    values = {"load": "slowdown", "start": "seconds"}
    for section, column in (("cases", "case"), ("growth", "m"), ("load", "program"), ("start", "process")):
        found = [row for row in rows if row["section"] == section]
        if found:
            value = values.get(section, "airnp/floor")
            body = [[row[column], row["threads"], f"{row[value]:.2f}"] for row in found]
            parts.append(markdown([column, "threads", value], body))
    return "\n\n".join(parts)


def plot(rows: list[dict], path: Path) -> None:
    """Draw time against m with the floor beside it."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for threads, colour in zip(
        sorted({row["threads"] for row in rows}), ("tab:blue", "tab:orange"), strict=False
    ):
        found = [row for row in rows if row["threads"] == threads]
        sizes = [row["m"] for row in found]
        axes.loglog(
            sizes, [row["ms"] for row in found], "o-", color=colour, label=f"airnp, {threads} thread(s)"
        )
        axes.loglog(
            sizes, [row["floor ms"] for row in found], "--", color=colour, label="nine products alone"
        )
    axes.set(xlabel="m (matrix of m×m, three factors, float32)", ylabel="ms per iteration of AIR")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def measure(threads: int, sections: list[str], quick: bool, output: Path) -> None:
    """Measure in this process, which is already pinned, and write the rows."""
    rows = []
    for section in sections:
        print(f"{section}, {threads} thread(s)", flush=True)
        rows += globals()[section](threads, quick)
    output.write_text(json.dumps(rows))


def main(argv: list[str] | None = None) -> None:
    """Measure each number of threads in its own process; print, save and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="fewer repeats; peers only unless --sections is given"
    )
    parser.add_argument("--sections", nargs="+", choices=SECTIONS)
    parser.add_argument("--threads", nargs="+", type=int, default=sorted({1, min(2, os.cpu_count() or 1)}))
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    sections = arguments.sections or (["peers"] if arguments.quick else list(SECTIONS))
    if arguments.measure is not None:
        measure(arguments.threads[0], sections, arguments.quick, arguments.measure)
        return
    arguments.output.mkdir(parents=True, exist_ok=True)
    rows = []
    for threads in arguments.threads:
        part = arguments.output / f"speed-{threads}.json"
        quick = ["--quick"] if arguments.quick else []
        chosen = ["--measure", str(part), "--threads", str(threads), "--sections", *sections]
        in_pinned_process("bench.speed", threads, *chosen, *quick)
        rows += json.loads(part.read_text())
        part.unlink()
    found = {"python": platform.python_version(), "processor": platform.processor(), "rows": rows}
    (arguments.output / "speed.json").write_text(json.dumps(found, indent=1))
    (arguments.output / "speed.md").write_text(report(rows) + "\n")
    grown = [row for row in rows if row["section"] == "growth"]
    if grown:
        plot(grown, arguments.output / "speed.png")
    print("\n" + report(rows) + f"\n\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
