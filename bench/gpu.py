"""Time of an iteration of AIR on a GPU, against the CPU engine and against PyTorch on the same device.

    python -m bench.gpu                   # matrices of several sizes; python bench/gpu.py does the same
    python -m bench.gpu --all             # also other depths, precisions and stacks
    python -m bench.gpu --quick           # a few sizes, fewer repeats
    python -m bench.gpu --sections stacks precision --sizes 240 1000

Times are medians over rounds after a warm-up, by CUDA events on the device and by the clock on the CPU.
Programs run one after the other, because large matrices do not all fit into memory at once; before it is
timed, each must follow the trajectory of the first; one that does not has a note in place of a time. The
bare loop of iterations comes first; "airnp.fit" is the whole call, with its looks at the ring, checks and
copies, less the time for fewer iterations. Results are saved after each row. PyTorch computes the energy
through the Gram matrix, which saves automatic differentiation half of the products of the graphs.

Without a usable GPU it measures the CPU half at a few sizes, and names what is missing.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # python bench/gpu.py
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (sys.path[0], os.environ.get("PYTHONPATH"))))

from bench import roofline
from bench.speed import RESULTS, check_trajectories, peer_runners
from bench.timing import in_pinned_process, interleaved, markdown

SECTIONS = ("sizes", "depths", "precision", "stacks")
SIZES = (100, 240, 500, 1000, 2000, 4000, 8000)
TOLERANCES = {"float32": 2e-3, "float64": 1e-8, "tf32": 5e-2, "tf32x3": 2e-3}
BASE = "airnp CUDA"
FIT = "airnp.fit"
FEW = 101
"""Iterations of a fit whose time is subtracted from that of a longer one: the first, and one portion."""

QUERIES = (
    *("name", "driver_version", "pstate", "power.limit", "power.draw"),
    *("clocks.sm", "clocks.max.sm", "clocks.mem", "temperature.gpu"),
)


@dataclass(frozen=True)
class Case:
    """One problem: a stack of m×m matrices, the number of factors, and the precision of products."""

    section: str
    m: int
    depth: int = 3
    batch: int = 1
    precision: str = "float32"

    @property
    def dtype(self) -> str:
        """Of the arrays."""
        return "float64" if self.precision == "float64" else "float32"

    def __str__(self) -> str:
        stack = f", stack of {self.batch}" if self.batch > 1 else ""
        return f"{self.m}×{self.m}, L = {self.depth}, {self.precision}{stack}"


def case_list(sections: Sequence[str], sizes: Sequence[int] | None, quick: bool) -> list[Case]:
    """Return the cases to measure; ``sizes`` replaces each section's own."""
    few = sizes or ((240, 1000) if quick else (240, 1000, 4000))
    batches = (1, 16) if quick else (1, 4, 16, 64, 256)
    return [
        case
        for section in sections
        for case in {
            "sizes": [Case("sizes", m) for m in sizes or ((100, 240, 1000) if quick else SIZES)],
            "depths": [Case("depths", m, depth) for m in few for depth in (2, 3, 4)],
            "precision": [Case("precision", m, precision=name) for m in few for name in TOLERANCES],
            "stacks": [Case("stacks", m, batch=batch) for m in sizes or (100, 240) for batch in batches],
        }[section]
    ]


# --- programs ---

Runner = Callable[[int], float]
"""Runs iterations and returns the last loss, summed over the stack."""


@dataclass(frozen=True)
class Program:
    """A way to run iterations, and its clock: ``seconds(run, iterations)``."""

    run: Runner
    seconds: Callable[[Runner, int], float]


def wall_seconds(run: Runner, iterations: int) -> float:
    """Return seconds of wall-clock time."""
    start = time.perf_counter()
    run(iterations)
    return time.perf_counter() - start


def cupy_seconds(run: Runner, iterations: int) -> float:
    """Return seconds between two CUDA events; airnp waits for its own stream before the second one."""
    import cupy

    start, end = cupy.cuda.Event(), cupy.cuda.Event()
    start.record()
    run(iterations)
    end.record()
    end.synchronize()
    return float(cupy.cuda.get_elapsed_time(start, end)) / 1e3


def torch_seconds(run: Runner, iterations: int) -> float:
    """Return seconds between two CUDA events of PyTorch's stream."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run(iterations)
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def make_stack(case: Case) -> Any:
    """Return the problem of a case: the picture of bench.peers; in a stack each has its own noise."""
    from bench.peers.problem import make_problem

    problem = make_problem("AIR", case.m, case.depth, case.dtype)
    if case.batch == 1:
        return problem
    rng = np.random.default_rng(1)
    noise = 0.02 * rng.standard_normal((case.batch, case.m, case.m), dtype=np.float32).astype(case.dtype)
    mask = np.broadcast_to(problem.mask, noise.shape).copy()
    params = [np.broadcast_to(param, (case.batch, *param.shape)).copy() for param in problem.params]
    return replace(problem, values=np.where(mask, problem.values + noise, 0), mask=mask, params=params)


def engine_of(case: Case) -> Any:
    """Return the engine of airnp on the device."""
    import airnp

    return airnp.CUDA(case.precision if "tf32" in case.precision else None)


def airnp_program(case: Case, problem: Any, xp: Any, seconds: Callable[[Runner, int], float]) -> Program:
    """Return airnp as ``airnp.fit`` runs it: on CuPy's device or, for NumPy, on the CPU."""
    from bench.peers.airnp_engine import runner

    engine = engine_of(case) if xp is not np else "auto"
    return Program(runner(problem, engine, xp), seconds)


def fit_program(case: Case, problem: Any, xp: Any, seconds: Callable[[Runner, int], float]) -> Program:
    """Return :func:`airnp.fit` itself on CuPy's device; a time is that of more iterations less that of few.

    What a fit does once, such as capturing its graph, is in both and cancels out.
    """
    import airnp
    from bench.peers.problem import LEARNING_RATE, regularizers

    terms = regularizers(problem.method, *problem.values.shape[-2:])

    def run(iterations: int) -> float:
        result = airnp.fit(
            problem.values,
            problem.mask,
            xp=xp,
            regularizers=terms,
            depth=case.depth,
            optimizer=airnp.Adam(LEARNING_RATE),
            init=problem.params,
            normalize=False,
            max_iter=iterations,
            stop=None,
            engine=engine_of(case),
        )
        return float(np.sum(result.history["loss"][-1]))

    def longer(run: Runner, iterations: int) -> float:
        return max(seconds(run, FEW + iterations) - seconds(run, FEW), 1e-9)

    return Program(run, longer)


@cache
def _stack_model() -> type:
    """Return the peers' model for stacks, with the energy in Gram form."""
    import torch

    from bench.peers.pytorch import ENERGIES, Model

    class StackModel(Model):
        def __init__(self, problem: Any) -> None:
            super().__init__(problem, ENERGIES["gram"])
            m, n = problem.values.shape[-2:]
            self.scale = 1.0 / (m * n)

        def forward(self) -> torch.Tensor:
            x = self.matrix()
            loss = self.scale * (self.mask * (x - self.values)).square().sum()
            for z, v in ((x, self.params[self.depth]), (x.mT, self.params[self.depth + 1])):
                p = torch.softmax(v, dim=-1)
                a = (p + p.mT) / 2
                degrees = (a.sum(dim=-1) * z.square().sum(dim=-1)).sum()
                loss = loss + self.weight * (degrees - (a * (z @ z.mT)).sum())
            return loss

    return StackModel


def torch_program(case: Case, problem: Any, mode: str, device: str = "cuda") -> Program:
    """Return PyTorch on a device: ``"eager"``, ``"compile"``, ``"reduce-overhead"`` or ``"graph"``."""
    import torch

    from bench.peers.problem import LEARNING_RATE

    torch.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    model = _stack_model()(problem).to(device)
    graphed = mode == "graph"
    optimizer = torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, fused=mode != "eager", capturable=graphed
    )
    seconds = wall_seconds if device == "cpu" else torch_seconds
    if graphed:
        return Program(_captured(model, optimizer), seconds)
    compiled = {
        "eager": lambda: model,
        "compile": lambda: torch.compile(model),
        "reduce-overhead": lambda: torch.compile(model, mode="reduce-overhead"),
    }[mode]()

    def run(iterations: int) -> float:
        for _ in range(iterations):
            if mode == "reduce-overhead":
                torch.compiler.cudagraph_mark_step_begin()
            optimizer.zero_grad(set_to_none=True)
            loss = compiled()
            loss.backward()
            optimizer.step()
        return float(loss.detach())

    return Program(run, seconds)


def _captured(model: Any, optimizer: Any) -> Runner:
    """Return a runner that replays one CUDA graph of forward, backward and step, from the model's start."""
    import torch

    def step() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = model()
        loss.backward()
        optimizer.step()
        return loss

    begin = [param.detach().clone() for param in model.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):  # PyTorch needs a few iterations on another stream before the capture
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.no_grad():  # back to the start, in place
        for param, value in zip(model.parameters(), begin, strict=True):
            param.copy_(value)
        for state in optimizer.state.values():
            for value in state.values():
                value.zero_()
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = step()

    def run(iterations: int) -> float:
        for _ in range(iterations):
            graph.replay()
        return float(loss.detach())

    return run


TORCH = {
    "torch eager": "eager",
    "torch.compile": "compile",
    "torch.compile, its CUDA graphs": "reduce-overhead",
    "torch CUDA graph by hand": "graph",
}


def builders(case: Case, with_torch: bool, cpu_limit: int) -> dict[str, Callable[[Any], Program]]:
    """Return a function that makes each program from a problem; airnp on the device comes first."""
    import cupy

    found: dict[str, Callable[[Any], Program]] = {
        BASE: lambda problem: airnp_program(case, problem, cupy, cupy_seconds),
        FIT: lambda problem: fit_program(case, problem, cupy, cupy_seconds),
    }
    if case.batch * case.m**2 <= cpu_limit**2:
        found["airnp CPU"] = lambda problem: airnp_program(case, problem, np, wall_seconds)
    if with_torch:
        for name, mode in TORCH.items():
            found[name] = partial(torch_program, case, mode=mode)
    return found


# --- measuring ---


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class MismatchError(Exception):
    """A program follows another trajectory than the first one; the other programs can still be measured."""


def check_loss(loss: float, expected: float, precision: str) -> None:
    """Raise if a program follows another trajectory."""
    if not abs(loss - expected) <= TOLERANCES[precision] * abs(expected):
        raise MismatchError(f"another trajectory: loss {loss!r} against {expected!r}")


def time_rounds(program: Program, rounds: int, seconds: float) -> list[float]:
    """Return seconds per iteration for each round of about ``seconds``, after a warm-up."""
    program.run(3)
    once = program.seconds(program.run, 3) / 3
    count = min(max(int(seconds / max(once, 1e-7)), 3), 5000)
    found = []
    for _ in range(rounds):
        program.run(max(2, count // 5))
        found.append(program.seconds(program.run, count) / count)
    return found


def measure(
    case: Case, makers: dict[str, Callable[[Any], Program]], *, rounds: int, seconds: float
) -> dict[str, Any]:
    """Return the row of a case: milliseconds of each program, or the reason why there are none."""
    problem = make_stack(case)
    steps = 30 if case.batch * case.m**2 <= 500**2 else 5
    row: dict[str, Any] = {**asdict(case), "base": next(iter(makers)), "ms": {}, "spread": {}, "notes": {}}
    expected: float | None = None
    for name, make in makers.items():
        try:
            program = make(problem)
            loss = program.run(steps)
            expected = loss if expected is None else expected
            check_loss(loss, expected, case.precision)
            times = time_rounds(program, rounds, seconds)
        except MismatchError as error:
            row["notes"][name] = str(error)
        except (MemoryError, RuntimeError) as error:
            is_memory = isinstance(error, MemoryError) or "out of memory" in str(error)
            if name.startswith("airnp") and not is_memory:
                raise
            row["notes"][name] = "out of memory" if is_memory else f"failed: {first_line(error)}"
        else:
            row["ms"][name] = 1e3 * float(np.median(times))
            row["spread"][name] = float(max(times) / min(times))
        program = None
        free_memory()
    add_ratios(row)
    return row


def add_ratios(row: dict[str, Any]) -> None:
    """Add the time of each program over that of the first."""
    base = row["ms"].get(row["base"])
    row["ratios"] = {} if base is None else {name: ms / base for name, ms in row["ms"].items()}


def free_memory() -> None:
    """Free the memory of a program, and what PyTorch compiled for it."""
    gc.collect()
    if "cupy" in sys.modules:
        with suppress(RuntimeError):  # CuPy without a device holds nothing
            sys.modules["cupy"].get_default_memory_pool().free_all_blocks()
    if "torch" in sys.modules:
        torch = sys.modules["torch"]
        torch.compiler.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def cpu_half(sizes: Sequence[int], quick: bool, part: Path) -> list[dict[str, Any]]:
    """Return the rows of the CPU, measured in another process, so that thread pools do not collide."""
    from airnp.engines.threads import available_threads

    words = ["--measure", str(part), "--sizes", *map(str, sizes), *(["--quick"] if quick else [])]
    in_pinned_process("bench.gpu", available_threads(), *words)
    rows: list[dict[str, Any]] = json.loads(part.read_text())
    part.unlink()
    return rows


def measure_cpu(m: int, quick: bool) -> dict[str, Any]:
    """Return the row of one size on the CPU: airnp against the installed peers."""
    from airnp.engines.threads import available_threads

    runners = peer_runners("AIR", m, 3, "float32", available_threads())
    if quick:  # compiling takes longer than all the rest
        runners = {name: run for name, run in runners.items() if "torch.compile" not in name}
    check_trajectories(runners, "float32")
    timings = interleaved(runners, rounds=3 if quick else 7, seconds=0.05 if quick else 0.25)
    return {
        **asdict(Case("cpu", m)),
        "base": "airnp",
        "ms": {name: timings.milliseconds(name) for name in runners},
        "ratios": {name: timings.ratio(name, "airnp") for name in runners},
        "notes": {},
    }


# --- the machine ---


def parse_state(text: str) -> dict[str, str]:
    """Return the fields of ``nvidia-smi --query-gpu --format=csv,noheader`` for one device."""
    return dict(zip(QUERIES, (part.strip() for part in text.strip().split(",")), strict=True))


def device_state(bus: str) -> dict[str, str]:
    """Return the current name, power and clocks of a device by its PCI address; empty without nvidia-smi."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    command = [program, f"--id={bus}", f"--query-gpu={','.join(QUERIES)}", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return parse_state(done.stdout) if done.returncode == 0 else {}


@dataclass(frozen=True)
class Machine:
    """The device and the programs that can be measured, and what is missing."""

    device: str | None
    bus: str
    tf32: bool
    with_torch: bool
    missing: tuple[str, ...]


def look_around() -> Machine:
    """Find the device, PyTorch with CUDA, and nvidia-smi."""
    from airnp._devices import check_device, describe

    missing = []
    device, bus, tf32 = None, "", False
    try:
        check_device()
    except (ImportError, RuntimeError):
        missing.append(f"a CUDA device for airnp (CuPy {describe()})")
    else:
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"]
        device = name.decode() if isinstance(name, bytes) else str(name)
        bus = cupy.cuda.Device(0).pci_bus_id
        tf32 = int(cupy.cuda.Device(0).compute_capability) >= 80
        if not tf32:
            missing.append(f"TF32 units on {device}")
    try:
        import torch
    except ImportError:
        with_torch = False
        missing.append(
            "PyTorch (pip install 'airnp[bench,cuda12x]' or 'airnp[bench,cuda13x]', as CuPy's own CUDA)"
        )
    else:
        with_torch = torch.cuda.is_available()
        if not with_torch:
            missing.append(f"a CUDA device for PyTorch (PyTorch {torch.__version__})")
    if shutil.which("nvidia-smi") is None:
        missing.append("nvidia-smi, for power and clocks")
    return Machine(device, bus, tf32, with_torch, tuple(missing))


# --- the report ---


def report(found: dict[str, Any]) -> str:
    """Return the report in Markdown: the machine, what is missing, one table for each section."""
    parts = [f"Device: {found['device'] or 'none; this is the CPU half, and says nothing about GPUs'}"]
    if found["state"]:
        parts.append(", ".join(f"{name} {value}" for name, value in found["state"].items()))
    if found["missing"]:
        parts.append("Missing here:\n" + "\n".join(f"- {item}" for item in found["missing"]))
    rows = found["rows"]
    parts += [
        section_table([row for row in rows if row["section"] == section], found["device"])
        for section in dict.fromkeys(row["section"] for row in rows)
    ]
    return "\n\n".join(parts)


def section_table(rows: Sequence[dict[str, Any]], device: str | None) -> str:
    """Return one table: milliseconds of the first program, and the ratios of the others to it."""
    base = rows[0]["base"]
    others = dict.fromkeys(name for row in rows for name in (*row["ms"], *row["notes"]) if name != base)
    model = roofline.find(device or "")
    header = [rows[0]["section"], "m", "L", "stack", "precision", f"{base}, ms"]
    header += [f"{name} / {base}" for name in others] + (["roofline ms"] if model else [])
    body: list[list[object]] = []
    for row in rows:
        notes = row["notes"]
        own = f"{row['ms'][base]:.4g}" if base in row["ms"] else notes.get(base, "–")
        line = ["", row["m"], row["depth"], row["batch"], row["precision"], own]
        for name in others:
            ratio = row["ratios"].get(name)
            alone = f"{row['ms'][name]:.4g} ms" if name in row["ms"] else notes.get(name, "–")
            line.append(alone if ratio is None else f"{ratio:.2f}")
        if model:
            bound = roofline.estimate(model, row["m"], row["depth"], row["batch"], row["precision"])
            line.append(f"{bound.roofline:.3g}")
        body.append(line)
    return markdown(header, body)


def plot(rows: Sequence[dict[str, Any]], title: str, path: Path) -> bool:
    """Draw milliseconds against m for each program; return whether matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        return False

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name in dict.fromkeys(name for row in rows for name in row["ms"]):
        having = [row for row in rows if name in row["ms"]]
        axes.loglog([row["m"] for row in having], [row["ms"][name] for row in having], "o-", label=name)
    axes.set(xlabel="m (m×m, three factors, float32)", ylabel="ms per iteration of AIR", title=title)
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return True


def save(found: dict[str, Any], output: Path) -> None:
    """Write what was found so far, so that a run that is cut short leaves its rows."""
    (output / "gpu.json").write_text(json.dumps(found, indent=1))


def compile_seconds() -> dict[str, float]:
    """Return seconds that NVRTC takes for all float32 instances of each file that AIR uses, on any machine.

    For sm_80, whatever the device; empty without NVRTC.
    """
    from airnp.engines.launching import OPTIONS, instances, module_source

    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError):
        return {}
    options = ("--gpu-architecture=sm_80", *OPTIONS, "-ftz=true", "--device-as-default-execution-space")
    found = {}
    for name in ("laplacian", "residual", "adam", "record"):
        program = nvrtc.createProgram(module_source(name), f"{name}.cu", [], [])
        for instance in instances(name, "float32"):
            nvrtc.addNameExpression(program, instance)
        start = time.perf_counter()
        nvrtc.compileProgram(program, options)
        found[f"{name}.cu"] = time.perf_counter() - start
        nvrtc.destroyProgram(program)
    return found


def show(row: dict[str, Any]) -> None:
    """Print a row."""
    times = [f"{name} {ms:.4g} ms" for name, ms in row["ms"].items()]
    notes = [f"{name} {note}" for name, note in row["notes"].items()]
    case = Case(*(row[name] for name in ("section", "m", "depth", "batch", "precision")))
    print(f"  {case}: " + ", ".join(times + notes), flush=True)


def main(argv: list[str] | None = None) -> None:
    """Look for a device and measure; print, save and plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repeats")
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--sections", nargs="+", choices=SECTIONS, default=["sizes"], help="default: sizes")
    chosen.add_argument("--all", dest="sections", action="store_const", const=SECTIONS, help="all sections")
    parser.add_argument("--sizes", nargs="+", type=int, help="values of m, in place of each section's own")
    parser.add_argument(
        "--cpu-limit", type=int, default=2000, help="largest m for the CPU engine (%(default)s)"
    )
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    quick, output = arguments.quick, arguments.output
    if arguments.measure is not None:
        rows = []
        for m in arguments.sizes:
            rows.append(measure_cpu(m, quick))
            show(rows[-1])
        arguments.measure.write_text(json.dumps(rows))
        return
    output.mkdir(parents=True, exist_ok=True)
    machine = look_around()
    for item in machine.missing:
        print(f"missing: {item}", flush=True)
    for name, seconds in compile_seconds().items():
        print(f"NVRTC compiles {name} in {seconds:.1f} s, once: CuPy caches it on disk", flush=True)
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "processor": platform.processor(),
        "device": machine.device,
        "state": device_state(machine.bus) if machine.device else {},
        "missing": list(machine.missing),
    }
    if machine.device is None:
        print("no GPU: the CPU half only, which says nothing about GPUs", flush=True)
        sizes = arguments.sizes or ((100, 240) if quick else (100, 240, 500))
        rows = cpu_half(sizes, quick, output / "gpu-cpu.json")
    else:
        print(f"{machine.device}: {found['state']}", flush=True)
        print("results are tested by: python -m pytest tests/engines/test_gpu.py", flush=True)
        rows = []
        for case in case_list(arguments.sections, arguments.sizes, quick):
            if "tf32" in case.precision and not machine.tf32:
                continue
            makers = builders(case, machine.with_torch, arguments.cpu_limit)
            row = measure(case, makers, rounds=3 if quick else 7, seconds=0.1 if quick else 0.5)
            rows.append({**row, "state": device_state(machine.bus)})
            show(row)
            save({**found, "rows": rows}, output)
    found["rows"] = rows
    save(found, output)
    (output / "gpu.md").write_text(report(found) + "\n")
    grown = [row for row in rows if row["section"] in ("sizes", "cpu")]
    if grown and not plot(grown, machine.device or "CPU only", output / "gpu.png"):
        print("no plot: matplotlib is not installed")
    print(f"\n{report(found)}\n\nwritten to {output}")


if __name__ == "__main__":
    main()
