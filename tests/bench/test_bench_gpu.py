"""The GPU benchmark, its roofline and the GPU tests, on a machine without a GPU.

Some of the GPU tests and the examples of docs/gpu.md run on the double of CuPy.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from airnp.engines import cuda
from bench import gpu as bench_gpu
from bench import roofline
from bench.gpu import BASE, FIT, Case
from tests.engines import test_gpu

ROOT = Path(__file__).resolve().parents[2]
PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/engines/test_gpu.py")
PAGE = (ROOT / "docs" / "gpu.md").read_text(encoding="utf-8")


def run_python(*words, cwd=ROOT, **environment):
    """Run Python where it finds no GPU."""
    hidden = {"CUDA_VISIBLE_DEVICES": "", "AIRNP_REQUIRE_GPU": "", "PYTHONPATH": str(ROOT)}
    options = {"cwd": cwd, "env": {**os.environ, **hidden, **environment}, "text": True}
    return subprocess.run([sys.executable, *map(str, words)], capture_output=True, **options)


# --- tests/engines/test_gpu.py without a device ---


@pytest.mark.parametrize(
    ("required", "code", "summary", "reason"),
    [("", 0, "1 skipped", "no usable CUDA device: "), ("1", 1, "1 error", "AIRNP_REQUIRE_GPU=1, but ")],
)
def test_without_a_device_the_gpu_tests_skip_or_fail(required, code, summary, reason):
    done = run_python(*PYTEST, "-m", "gpu", "-k", "info", AIRNP_REQUIRE_GPU=required)
    assert done.returncode == code, done.stdout + done.stderr
    assert summary in done.stdout
    assert reason in done.stdout
    assert "passed" not in done.stdout


def test_every_gpu_test_has_the_marker_and_asks_for_cupy():
    assert test_gpu.pytestmark.name == "gpu"
    done = run_python(*PYTEST, "--setup-plan")
    found = re.findall(r"^\s+tests/engines/test_gpu\.py::.*$", done.stdout, flags=re.MULTILINE)
    assert len(found) > 100
    assert all(re.search(r"\(fixtures used: .*\bcupy\b", line) for line in found)


def test_the_gpu_tests_can_pass_and_fail(gpu, monkeypatch):
    """They notice a factor of two in a weight."""
    xp, terms = gpu.cupy, cuda.laplacian_terms
    test_gpu.assert_same(*test_gpu.both(xp, (33, 31), regularizers=test_gpu.learned("row"), max_iter=5))
    test_gpu.test_odd_shapes_follow_the_specification(xp, "product", (1, 40))
    test_gpu.test_info_names_the_device(xp)
    with monkeypatch.context() as patch:
        patch.setattr(test_gpu, "data", partial(test_gpu.data, (12, 9)))
        test_gpu.test_two_devices_at_once(xp)
    monkeypatch.setattr(
        cuda, "laplacian_terms", lambda *a, weight, **more: terms(*a, weight=2 * weight, **more)
    )
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        test_gpu.test_odd_shapes_follow_the_specification(xp, "row", (31, 32))


def test_cupy_has_what_the_gpu_tests_and_the_benchmark_use():
    """Besides what the engine uses, which test_cupy_names.py checks."""
    cupy = importlib.import_module("cupy")
    pool = type(cupy.get_default_memory_pool())
    for owner, names in (
        (pool, ("used_bytes", "total_bytes", "free_all_blocks", "set_limit")),
        (cupy.cuda, ("Event", "Graph", "get_elapsed_time")),
        (cupy.cuda.Event, ("record", "synchronize")),
        (cupy.cuda.Device, ("compute_capability", "pci_bus_id")),
        (cupy.RawKernel, ("attributes",)),
    ):
        assert not [name for name in names if not hasattr(owner, name)], owner


# --- bench/gpu.py ---


def test_without_a_gpu_the_cpu_half_is_measured_and_the_rest_is_named(tmp_path):
    """Started as a file from another folder; it starts itself again as a module."""
    words = (ROOT / "bench" / "gpu.py", "--quick", "--sizes", 24, "--output", tmp_path)
    done = run_python(*words, cwd=tmp_path, PYTHONPATH="")
    assert done.returncode == 0, done.stderr
    text, found = (tmp_path / "gpu.md").read_text(), json.loads((tmp_path / "gpu.json").read_text())
    assert text.strip() in done.stdout
    assert "says nothing about GPUs" in text
    assert found["device"] is None
    assert any("a CUDA device for airnp" in item and item in text for item in found["missing"])
    (row,) = found["rows"]
    assert (row["m"], row["ratios"]["airnp"]) == (24, 1)
    assert row["ratios"]["airnp reference"] > 0


def test_with_a_gpu_the_device_is_measured(gpu, monkeypatch, tmp_path):
    """The whole program on the double, which has neither timed events nor a memory pool."""
    machine = bench_gpu.Machine("Pretended V100", "0000:00:00.0", tf32=False, with_torch=False, missing=())
    for name, function in {
        "look_around": lambda: machine,
        "device_state": lambda bus: {"pstate": "P0"},
        "cupy_seconds": bench_gpu.wall_seconds,
        "free_memory": lambda: None,
        "compile_seconds": dict,
        "FEW": 3,
    }.items():
        monkeypatch.setattr(bench_gpu, name, function)
    save, saved = bench_gpu.save, []
    monkeypatch.setattr(
        bench_gpu, "save", lambda found, place: (save(found, place), saved.append(json.dumps(found["rows"])))
    )
    words = ["--quick", "--sizes", "12", "--sections", "sizes", "precision", "--output", str(tmp_path)]
    bench_gpu.main(words)
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert [(row["section"], row["precision"]) for row in found["rows"]] == [
        ("sizes", "float32"),
        ("precision", "float32"),
        ("precision", "float64"),  # there are no TF32 units
    ]
    for row in found["rows"]:
        assert row["state"] == {"pstate": "P0"}
        assert set(row["ms"]) == {BASE, FIT, "airnp CPU"}
        assert row["ratios"]["airnp CPU"] == pytest.approx(row["ms"]["airnp CPU"] / row["ms"][BASE])
    assert [len(json.loads(line)) for line in saved] == [1, 2, 3, 3]
    text = (tmp_path / "gpu.md").read_text()
    assert "Device: Pretended V100" in text
    assert "roofline ms" in text


def test_cases_cover_sizes_depths_stacks_and_precisions():
    cases = bench_gpu.case_list(bench_gpu.SECTIONS, None, quick=False)
    assert {case.m for case in cases if case.section == "sizes"} >= {100, 240, 1000, 8000}
    assert {case.depth for case in cases} == {2, 3, 4}
    assert {case.batch for case in cases} == {1, 4, 16, 64, 256}
    assert {case.precision for case in cases} == {"float32", "float64", "tf32", "tf32x3"}
    assert {case.m for case in bench_gpu.case_list(bench_gpu.SECTIONS, [50], quick=True)} == {50}


def test_the_report_has_a_line_for_each_case():
    times = {240: {BASE: 0.05, "torch eager": 1.0}, 8000: {"airnp CPU": 7000.0}}
    notes = {240: {}, 8000: {BASE: "out of memory", "torch eager": "failed: no"}}
    rows = [{**asdict(Case("sizes", m)), "base": BASE, "ms": times[m], "notes": notes[m]} for m in times]
    for row in rows:
        bench_gpu.add_ratios(row)
    machine = {"device": "NVIDIA A100-SXM4-80GB", "state": {"power.limit": "400.00 W"}}
    text = bench_gpu.report({**machine, "missing": ["nvidia-smi"], "rows": rows})
    for part in (
        *("A100", "power.limit 400.00 W", "- nvidia-smi"),
        "|  | 240 | 3 | 1 | float32 | 0.05 | 20.00 | – | 0.0192 |",
        "|  | 8000 | 3 | 1 | float32 | out of memory | failed: no | 7000 ms | ",
    ):
        assert part in text


def test_nvidia_smi_is_read():
    line = "NVIDIA A100-SXM4-80GB, 550.54.15, P0, 400.00 W, 62.15 W, 1410 MHz, 1410 MHz, 1593 MHz, 31\n"
    state = bench_gpu.parse_state(line)
    assert (state["name"], state["temperature.gpu"]) == ("NVIDIA A100-SXM4-80GB", "31")
    assert state["power.limit"] == "400.00 W"
    with pytest.raises(ValueError):
        bench_gpu.parse_state("No devices were found")


def constant(loss, error=None):
    def make(problem):
        if error is not None:
            raise error
        return bench_gpu.Program(lambda iterations: loss, lambda run, iterations: 1e-3 * iterations)

    return make


def test_a_row_has_times_or_the_reasons_for_missing_ones():
    measure = partial(bench_gpu.measure, Case("sizes", 8), rounds=2, seconds=0.01)
    makers = {
        BASE: constant(1.0),
        "torch eager": constant(0.0, RuntimeError("CUDA out of memory. Tried to allocate")),
        "torch.compile": constant(0.0, RuntimeError("no compiler\nand more")),
        "airnp CPU": constant(1.001),
    }
    row = measure(makers)
    assert row["ms"] == {BASE: pytest.approx(1), "airnp CPU": pytest.approx(1)}
    assert row["notes"] == {"torch eager": "out of memory", "torch.compile": "failed: no compiler"}
    with pytest.raises(RuntimeError, match="cuBLAS"):  # an error of airnp is never hidden
        measure({BASE: constant(0, RuntimeError("cuBLAS"))})
    for loss in (1.01, np.nan):  # the others are still measured
        row = measure({BASE: constant(1.0), "torch eager": constant(loss), "airnp CPU": constant(1.0)})
        assert list(row["ms"]) == [BASE, "airnp CPU"]
        assert row["notes"] == {"torch eager": f"another trajectory: loss {loss} against 1.0"}


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("program", ["device", "fit", "torch"])
def test_programs_follow_one_trajectory(gpu, program, batch):
    case = Case("stacks", 20, batch=batch, precision="float64")
    problem = bench_gpu.make_stack(case)
    if program == "torch":
        pytest.importorskip("torch", reason="PyTorch is not installed; .ci/run installs it")
        other = bench_gpu.torch_program(case, problem, "eager", device="cpu")
    else:
        make = bench_gpu.fit_program if program == "fit" else bench_gpu.airnp_program
        other = make(case, problem, gpu.cupy, bench_gpu.wall_seconds)
    ours = bench_gpu.airnp_program(case, problem, np, bench_gpu.wall_seconds)
    bench_gpu.check_loss(other.run(12), ours.run(12), case.precision)
    with pytest.raises(bench_gpu.MismatchError):
        bench_gpu.check_loss(other.run(1), ours.run(12), case.precision)


# --- bench/roofline.py and docs/gpu.md ---


def test_the_estimate_counts_the_launches_of_an_iteration():
    """Seven launches and ten products, as test_cuda_engine.py counts them; each array of a kernel once."""
    rows = roofline.work(64, 64, 3)
    assert sum(row.launches for row in rows if row.is_product) == 10
    assert sum(row.launches for row in rows if not row.is_product) == 7
    entries = 64 * 64
    numbers = {row.name: row.numbers / entries for row in rows}
    assert numbers["graph_statistics"] == 4
    assert numbers["graph_step"] == pytest.approx(2 * (7.5 + 1 / 16), rel=2e-3)
    assert numbers["adam"] == 21
    assert sum(row.flops for row in rows if row.is_product) == 20 * 64**3
    assert sum(row.launches for row in roofline.work(64, 64, 2)) == 14
    paths = {depth: sum(row.depth for row in roofline.work(64, 64, depth)) for depth in (2, 3, 4)}
    assert paths == {2: 10, 3: 12, 4: 14}


def test_the_estimate_counts_the_launches_of_a_sparse_iteration():
    """One launch for entries, columns and steps, three for each of two graphs, five products per graph."""
    of = roofline.Ratings(entries=1000, m=60, n=40, rank=8, neighbours=4)
    rows = {row.name: row for row in roofline.sparse_work(of)}
    launches = {"row_residuals": 1, "line_sums": 1, "edge_terms": 2, "gap_sums": 2, "factor_gram": 2}
    launches |= {"products with r × r": 10, "adam": 1}
    assert {name: row.launches for name, row in rows.items()} == launches
    assert rows["row_residuals"].numbers == 1000 * 12 + 60 * 20
    assert rows["adam"].numbers == 7 * (100 * 8 + 100 * 5)


def test_bandwidth_arithmetic_and_launches_bound_the_time():
    device = roofline.Device("some", bandwidth=1000, float32=10, float64=5, tf32=40)
    streaming = roofline.Work("copy", 1, numbers=1e9, flops=1, formula="")
    product = roofline.Work("product", 1, numbers=1, flops=1e13, formula="", is_product=True)
    assert streaming.seconds(device) == pytest.approx(4e-3)
    assert streaming.seconds(device, "float64") == pytest.approx(8e-3)
    assert [product.seconds(device, p) for p in ("float32", "float64", "tf32")] == [1, 2, 0.25]
    assert product.busy(device) == pytest.approx(1 + 1e-6 * roofline.PRODUCT_US)
    assert roofline.Work("nothing", 3, 0, 0, "").busy(device) == pytest.approx(3e-6 * roofline.NODE_US)
    v100 = roofline.find("Tesla V100-SXM2-32GB")
    small, large = (roofline.estimate(v100, m) for m in (100, 4000))
    assert small.roofline < small.graph < small.line < small.single < roofline.PAPER_MS
    assert large.roofline == pytest.approx(large.graph, rel=1e-3)
    a100 = roofline.work(240, 240, 3)[0]  # as measured elsewhere: 6 to 9 µs for a product
    assert 6e-6 < a100.busy(roofline.find("A100")) / a100.launches < 9e-6
    assert roofline.find("NVIDIA GeForce RTX 3060") is None


def test_the_page_has_the_tables_of_the_estimate(capsys):
    roofline.main([])
    printed = capsys.readouterr().out.strip().split("\n\n")
    assert len(printed) == 6
    for table in printed:
        assert table in PAGE, f"docs/gpu.md lacks this table of python -m bench.roofline:\n{table}"
    for number in (roofline.HOST_US, roofline.GRAPH_US, roofline.NODE_US):
        assert f"{number:g} µs" in PAGE
    kernels = ("graph_statistics", "graph_step", "masked_residual", "adam")
    counts = (roofline.STATISTICS, roofline.STEP, roofline.RESIDUAL, roofline.ADAM)
    for kernel, count in zip(kernels, counts, strict=True):
        assert re.search(rf"{count:g} in\s+`{kernel}`", PAGE)


def test_the_examples_of_the_page_run_on_the_double(gpu):
    blocks = re.findall(r"^```py\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 3
    names = {}
    for block in blocks:
        exec(compile(block, "docs/gpu.md", "exec"), names)
