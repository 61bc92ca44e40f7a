"""The shipped CUDA text: it is found, and it computes Adam when run serially on the CPU.

g++ compiles the unmodified text against a shim that turns a launch into two loops. That is enough for a
kernel without barriers and shared memory; it says nothing about races, nor about a real device.
"""

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from airnp.engines import kernel_sources

SHIM = """
#include <math.h>
#define __global__ static
struct Index { unsigned x; };
static Index threadIdx, blockIdx, blockDim, gridDim;
#include "adam.cu"
template <typename... P, typename... A>
static void launch(void (*kernel)(P...), unsigned grid, unsigned block, A... arguments) {
    gridDim.x = grid, blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) kernel(arguments...);
}
#define EXPORT(T)  \\
    extern "C" void adam_##T(unsigned grid, unsigned block, T* p, T* m, T* v, const T* g, long long n,  \\
                             T b1, T c1, T b2, T c2, T rate, T root, T eps) {  \\
        launch(adam<T>, grid, block, p, m, v, g, n, b1, c1, b2, c2, rate, root, eps);  \\
    }
EXPORT(float)
EXPORT(double)
"""

BETA1, BETA2, RATE, EPS = 0.9, 0.999, 1e-3, 1e-8


def build(folder):
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.fail("g++ was not found; the CUDA sources run through it here (see '## Test' in README.md)")
    (folder / "adam.cu").write_text(kernel_sources.read("adam"), encoding="utf-8")
    (folder / "shim.cpp").write_text(SHIM, encoding="utf-8")
    # Without contraction the CPU rounds every operation, as NumPy does: the comparison can be bit for bit.
    # -Wdouble-promotion finds arithmetic in double inside the float kernel.
    flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC"]
    warnings = ["-Wall", "-Wextra", "-Wconversion", "-Wdouble-promotion", "-Werror"]
    command = [compiler, *flags, *warnings, "shim.cpp", "-o", "adam.so"]
    made = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return ctypes.CDLL(str(folder / "adam.so"))


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kernels"))


def scalars(step):
    """Return the kernel's scalar arguments at `step` = 1, 2, …, in double."""
    root = np.sqrt(1 - BETA2**step)
    return BETA1, 1 - BETA1, BETA2, 1 - BETA2, RATE / (1 - BETA1**step), root, EPS


def run(library, arrays, size, step, grid, block):
    dtype = arrays[0].dtype
    name, real = ("adam_float", ctypes.c_float) if dtype == np.float32 else ("adam_double", ctypes.c_double)
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    values = [real(value) for value in scalars(step)]
    getattr(library, name)(
        ctypes.c_uint(grid), ctypes.c_uint(block), *pointers, ctypes.c_longlong(size), *values
    )


def expected(p, m, v, g, step):
    """The specification, in the arrays' own precision and the kernel's order of operations."""
    b1, c1, b2, c2, rate, root, eps = (p.dtype.type(value) for value in scalars(step))
    m = b1 * m + c1 * g
    v = b2 * v + c2 * g * g
    return p - rate * m / (np.sqrt(v) / root + eps), m, v


def state(size, dtype, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    p, m, g = (rng.standard_normal(size).astype(dtype) for _ in range(3))
    v = np.square(rng.standard_normal(size)).astype(dtype)
    return [p, m, v, (g * scale).astype(dtype)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [0, 1, 31, 32, 33, 997, 4096])
@pytest.mark.parametrize(("grid", "block"), [(1, 1), (1, 32), (3, 64), (7, 96), (200, 32)])
def test_adam_equals_numpy_bit_for_bit(library, dtype, size, grid, block):
    guard = 5  # entries past the end that no thread may touch
    arrays = state(size + guard, dtype)
    before = [array.copy() for array in arrays]
    run(library, arrays, size, 3, grid, block)
    wanted = expected(*(array[:size] for array in before), 3)
    for got, want in zip(arrays, wanted, strict=False):
        np.testing.assert_array_equal(got[:size], want)
    for got, was in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(got[size:], was[size:])
    np.testing.assert_array_equal(arrays[3], before[3])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_first_step_does_not_shrink_for_tiny_gradients(library, dtype):
    # At |g| = 5e-7 with ε outside the bias correction the step is rate / (1 + ε/|g|) = 0.98 rate;
    # inside it would be 0.61 rate.
    p, m, v = (np.zeros(10, dtype) for _ in range(3))
    g = np.full(10, 5e-7, dtype)
    run(library, [p, m, v, g], 10, 1, 1, 1)
    np.testing.assert_allclose(p, -RATE / (1 + EPS / 5e-7), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float32, 2e-6), (np.float64, 1e-13)])
def test_adam_follows_torch(library, dtype, tolerance):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    size, steps = 61, 50
    p, m, v = state(size, dtype)[0], np.zeros(size, dtype), np.zeros(size, dtype)
    parameter = torch.tensor(p.copy(), requires_grad=True)
    optimizer = torch.optim.Adam([parameter], lr=RATE, betas=(BETA1, BETA2), eps=EPS)
    for step in range(1, steps + 1):
        g = state(size, dtype, scale=10.0 ** -(step % 8), seed=step)[3]
        parameter.grad = torch.tensor(g)
        optimizer.step()
        run(library, [p, m, v, g], size, step, 2, 16)
    np.testing.assert_allclose(p, parameter.detach().numpy(), rtol=tolerance, atol=tolerance)


def test_names_are_the_files_of_the_checkout():
    folder = Path(__file__).resolve().parents[1] / "kernels"
    assert kernel_sources.names() == tuple(sorted(path.stem for path in folder.glob("*.cu")))
    for name in kernel_sources.names():
        assert kernel_sources.read(name) == (folder / f"{name}.cu").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["nothing", "", "adam.cu", "../pyproject"])
def test_an_unknown_name_lists_the_valid_ones(name):
    with pytest.raises(ValueError, match=r"unknown kernel .*'adam'"):
        kernel_sources.read(name)


def test_a_wheel_carries_the_sources_inside_the_package(monkeypatch, tmp_path):
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "shipped.cu").write_text("// inside", encoding="utf-8")
    monkeypatch.setattr(kernel_sources, "files", lambda package: tmp_path)
    assert kernel_sources.names() == ("shipped",)
    assert kernel_sources.read("shipped") == "// inside"


def test_an_installation_without_sources_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(kernel_sources, "files", lambda package: tmp_path)
    monkeypatch.setattr(kernel_sources, "__file__", str(tmp_path / "airnp" / "engines" / "kernel_sources.py"))
    with pytest.raises(FileNotFoundError, match="no kernels folder"):
        kernel_sources.names()


def test_a_missing_compiler_is_a_failure_and_not_a_skip(monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(pytest.fail.Exception, match=r"g\+\+ was not found"):
        build(tmp_path)
