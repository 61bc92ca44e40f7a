"""Every CUDA kernel through NVIDIA's own compiler, for every architecture, with CuPy's options.

NVRTC needs neither a GPU nor a driver. It says how many registers a kernel takes, and whether it spills.
"""

import importlib
import inspect
import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from airnp.engines.launching import OPTIONS, _choose_compiler, instances, module_source, source_names

ARCHITECTURES = (70, 75, 80, 90, 100, 120)
DTYPES = ("float32", "float64")
CUPY_OPTIONS = ("-ftz=true", "--device-as-default-execution-space")

# The most registers for each kernel, in float and in double, on any architecture. 64 leave room for four
# blocks of 256 threads on a multiprocessor, 80 for three, 128 for two.
REGISTERS = {
    "adam": (48, 64),
    "descend": (32, 32),
    "add_laplacian": (56, 64),
    "add_sparse_laplacian": (56, 64),
    "graph_statistics": (64, 128),
    "graph_step": (80, 128),
    "match_patches": (64, 64),
    "fill_groups": (64, 128),
    "record": (40, 40),
    "mirror": (40, 40),
    "split": (40, 40),
    "masked_residual": (48, 64),
    "add_scaled_lines": (40, 40),
    "add_variation": (64, 64),
    "edge_terms": (64, 128),
    "row_residuals": (64, 128),
    "entry_values": (56, 64),
    "factor_gram": (40, 40),
    "line_sums": (64, 64),
    "gap_sums": (64, 64),
    "join_pieces": (48, 64),
}


@dataclass(frozen=True)
class Compiled:
    """The result of NVRTC for one module, dtype and architecture."""

    log: str
    ptx: str
    kernels: dict[str, str]
    """The line of the log about resources for each template instance."""


def load_nvrtc():
    """Return CuPy's binding of NVRTC; a test that needs it fails without it."""
    try:
        _choose_compiler()
        nvrtc = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
        nvrtc.getVersion()
    except (ImportError, RuntimeError) as error:
        pytest.fail(
            f"NVRTC was not found ({error}); it comes with pip install 'airnp[cuda12x]' and needs no GPU"
        )
    return nvrtc


def compiled(nvrtc, architecture, dtype, module):
    """Compile all instances of a module."""
    program = nvrtc.createProgram(module_source(module), f"{module}.cu", [], [])
    names = instances(module, dtype)
    try:
        for name in names:
            nvrtc.addNameExpression(program, name)
        options = (f"--gpu-architecture=sm_{architecture}", *OPTIONS, "--ptxas-options=-v", *CUPY_OPTIONS)
        try:
            nvrtc.compileProgram(program, options)
        except nvrtc.NVRTCError:
            pytest.fail(f"{module}.cu for sm_{architecture}:\n{nvrtc.getProgramLog(program)}")
        log, ptx = nvrtc.getProgramLog(program), nvrtc.getPTX(program)
        lowered = {nvrtc.getLoweredName(program, name): name for name in names}
    finally:
        nvrtc.destroyProgram(program)
    entry = re.compile(r"Compiling entry function '(\w+)'.*?\n(.*?Used \d+ registers[^\n]*)", re.DOTALL)
    kernels = {lowered[found[1]]: found[2] for found in entry.finditer(log)}
    return Compiled(log, ptx.decode() if isinstance(ptx, bytes) else ptx, kernels)


def warnings(log):
    """Return the lines with warnings, except the one that sm_70 is old."""
    return [line for line in log.splitlines() if "warning" in line and "Architectures prior to" not in line]


@pytest.fixture(scope="module")
def all_compiled():
    nvrtc = load_nvrtc()
    cases = [
        (architecture, dtype, module)
        for architecture in ARCHITECTURES
        for dtype in DTYPES
        for module in source_names()
    ]
    # NVRTC releases the GIL while it compiles.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda case: compiled(nvrtc, *case), cases)
        return dict(zip(cases, results, strict=True))


@pytest.mark.parametrize("module", source_names())
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_kernels_compile_cleanly(all_compiled, architecture, dtype, module):
    result = all_compiled[architecture, dtype, module]
    assert sorted(result.kernels) == sorted(instances(module, dtype))
    assert not warnings(result.log)
    for name, resources in result.kernels.items():
        assert "0 bytes spill stores, 0 bytes spill loads" in resources, name
        registers = int(re.search(r"Used (\d+) registers", resources)[1])
        assert registers <= REGISTERS[name.split("<")[0]][DTYPES.index(dtype)], (name, registers)


@pytest.mark.parametrize("module", source_names())
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_float_kernels_have_no_double_arithmetic(all_compiled, architecture, module):
    float_ptx, double_ptx = (all_compiled[architecture, dtype, module].ptx for dtype in DTYPES)
    assert ".entry" in float_ptx
    assert ".f64" not in float_ptx
    assert ".f64" in double_ptx or module == "record"  # record only copies


def test_compiler_warnings_are_noticed():
    nvrtc = load_nvrtc()
    program = nvrtc.createProgram("__global__ void idle() { int unused; }", "idle.cu", [], [])
    nvrtc.compileProgram(program, ("--gpu-architecture=sm_80", *CUPY_OPTIONS))
    assert warnings(nvrtc.getProgramLog(program))


def test_the_options_are_those_of_cupy():
    load_nvrtc()
    source = inspect.getsource(importlib.import_module("cupy.cuda.compiler"))
    for option in CUPY_OPTIONS:
        assert f"'{option}'" in source


def test_without_nvrtc_the_tests_fail_and_name_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy_backends.cuda.libs.nvrtc", None)
    with pytest.raises(pytest.fail.Exception, match=r"NVRTC was not found .*airnp\[cuda12x\]"):
        load_nvrtc()
