"""The SIMT executor: the right mode catches each planted defect, and correct kernels pass in all modes.

The kernels are in ``tests/simt/defects.cu``, one text for all tests, so that each mode compiles once.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests import simt

TEXT = (Path(__file__).parents[1] / "simt" / "defects.cu").read_text(encoding="utf-8")
MODES = ("fast", "fma", "asan", "tsan")
ORDERS = (0, 1, 2, 3)
N = 64
X = np.arange(N, dtype=np.float32)


@dataclass(frozen=True)
class Defect:
    """A kernel of defects.cu, the mode that must catch it, and words of its message."""

    kernel: str
    mode: str
    error: type[Exception]
    words: str
    grid: int = 1
    block: int = N
    counter: bool = False

    def launch(self, right, mode, order=0):
        name = f"{self.kernel}<{'true' if right else 'false'}>"
        out = np.full(N, np.nan, np.float32)
        counter = (np.zeros(1, np.uint32),) if self.counter else ()
        args = (X, out, *counter, np.int32(N))
        return simt.Launch(TEXT, name, (self.grid,), (self.block,), args, mode, order, name_expressions=NAMES)


SANITIZER, KERNEL = simt.SanitizerError, simt.KernelError
RACE, HEAP = "data race", "heap-buffer-overflow|insufficient space"
DEFECTS = (
    Defect("missing_barrier", "tsan", SANITIZER, RACE),
    Defect("missing_second_barrier", "tsan", SANITIZER, RACE),
    Defect("shuffle_as_fence", "tsan", SANITIZER, RACE),
    Defect("block_race", "tsan", SANITIZER, RACE, grid=2, block=32),
    Defect("reads_other_block", "tsan", SANITIZER, RACE, grid=2, block=32),
    Defect("plain_counter", "tsan", SANITIZER, RACE, grid=2, block=32, counter=True),
    Defect("plain_look_at_counter", "tsan", SANITIZER, RACE, grid=2, block=32, counter=True),
    Defect("early_return", "fast", KERNEL, "returned"),
    Defect("divergent_barrier", "fast", KERNEL, "divergent __syncthreads"),
    Defect("barrier_in_one_branch", "fast", KERNEL, "deadlock|divergent"),
    Defect("absent_lane", "fast", KERNEL, "returned"),
    Defect("lane_outside_mask", "fast", KERNEL, "divergent|not in the mask"),
    Defect("global_write_past_end", "asan", SANITIZER, HEAP, grid=3, block=32),
    Defect("global_read_past_end", "asan", SANITIZER, HEAP, grid=3, block=32),
    Defect("shared_write_past_end", "asan", SANITIZER, "global-buffer-overflow|insufficient space"),
    Defect("shared_read_past_end", "asan", SANITIZER, "global-buffer-overflow|insufficient space"),
    Defect("shared_row_past_end", "asan", SANITIZER, "index .. out of bounds for type 'float \\[33\\]'"),
    Defect("index_overflow", "asan", SANITIZER, "signed integer overflow"),
    Defect("misaligned_vector", "asan", SANITIZER, "misaligned address", block=16),
)
UNINITIALISED = Defect("uninitialised_shared", "fast", KERNEL, "")  # not an error: NaN in the result

RIGHT_LAST_BLOCKS = ("EVERY_THREAD_FENCES", "ONE_THREAD_FENCES")
WRONG_LAST_BLOCKS = ("NO_FENCE", "LATE_FENCE", "EARLY_FENCE", "NO_BARRIER", "PLAIN_TICKET", "NO_TICKET")

NAMES = (
    *(f"{d.kernel}<{right}>" for d in (*DEFECTS, UNINITIALISED) for right in ("false", "true")),
    *(f"last_block<{how}>" for how in RIGHT_LAST_BLOCKS + WRONG_LAST_BLOCKS),
    *("shuffles<int>", "shuffles<double>", "votes", "atomics", "contraction"),
    *("arithmetic<float>", "arithmetic<double>"),
)


def module(mode="fast"):
    return simt.RawModule(code=TEXT, options=("-std=c++17",), name_expressions=NAMES, mode=mode)


def ids(items):
    return [item.kernel for item in items]


# ---- defects


@pytest.mark.parametrize("defect", DEFECTS, ids=ids(DEFECTS))
@pytest.mark.parametrize("order", ORDERS)
def test_a_planted_defect_is_caught_in_every_order(defect, order):
    with pytest.raises(defect.error, match=defect.words):
        simt.sanitized_many([defect.launch(False, defect.mode, order)])


@pytest.mark.parametrize("mode", MODES)
def test_correct_twins_pass_in_every_mode_and_order(mode):
    twins = [(defect, order) for defect in (*DEFECTS, UNINITIALISED) for order in ORDERS]
    results = simt.sanitized_many([defect.launch(True, mode, order) for defect, order in twins])
    for (defect, order), (x, out, *counter) in zip(twins, results, strict=True):
        np.testing.assert_array_equal(out, X[::-1], err_msg=f"{defect.kernel}, order {order}")
        np.testing.assert_array_equal(x, X)
        assert all(int(count[0]) == N for count in counter)


def test_uninitialised_shared_memory_is_nan():
    for mode in MODES:
        _, out = simt.sanitized_many([UNINITIALISED.launch(False, mode)])[0]
        assert list(np.flatnonzero(np.isnan(out))) == [N - 1 - 5]


def test_the_fast_mode_misses_some_defects():
    """These defects give the right result in the fast mode, which is why the other modes exist."""
    kernels = ("block_race", "plain_counter", "index_overflow")
    missed = [defect.launch(False, "fast") for defect in DEFECTS if defect.kernel in kernels]
    assert len(missed) == len(kernels)
    for _, out, *_ in simt.sanitized_many(missed):
        assert np.array_equal(out, X[::-1])


def last_block(how, mode, order, blocks=5, threads=64):
    size = blocks * threads
    x = np.ones(size, np.float32)
    args = (x, np.zeros(size, np.float32), np.zeros(1, np.float32), np.zeros(1, np.uint32), np.int32(size))
    name = f"last_block<{how}>"
    return simt.Launch(TEXT, name, (blocks,), (threads,), args, mode, order, name_expressions=NAMES)


@pytest.mark.parametrize("how", RIGHT_LAST_BLOCKS)
@pytest.mark.parametrize("mode", MODES)
def test_the_last_block_may_read_what_all_blocks_wrote(how, mode):
    for _, _, total, ticket in simt.sanitized_many([last_block(how, mode, order) for order in ORDERS]):
        assert (total[0], ticket[0]) == (320, 0)


@pytest.mark.parametrize("how", WRONG_LAST_BLOCKS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_last_block_without_its_fence_ticket_or_barrier_is_a_race(how, order):
    with pytest.raises(simt.SanitizerError, match=RACE):
        simt.sanitized_many([last_block(how, "tsan", order)])


def test_dependence_on_the_order_of_blocks_shows_in_the_result():
    results = simt.sanitized_many([last_block("NO_TICKET", "fast", order) for order in (0, 1)])
    assert [total[0] for _, _, total, _ in results] == [320, 64]


def test_dependence_on_the_order_of_threads_shows_in_the_result():
    defect = DEFECTS[0]
    results = simt.sanitized_many([defect.launch(False, "fast", order) for order in (0, 1)])
    assert not np.array_equal(results[0][1], results[1][1], equal_nan=True)


def test_a_race_is_reported_with_lines_and_entries():
    kernel = module("tsan").get_function("block_race<false>")
    with pytest.raises(simt.SanitizerError) as caught:
        kernel((2,), (32,), (X, np.zeros(N, np.float32), np.int32(N)))
    lines = [i for i, line in enumerate(TEXT.splitlines(), 1) if "out[0] = x[n - 1];" in line]
    assert f"a write at kernel.cu:{lines[0]}" in caught.value.report
    assert "entry 0 of argument 1" in caught.value.report
    assert "block (1, 0, 0), thread (0, 0, 0)" in caught.value.report


def test_lanes_that_the_block_does_not_have():
    args = (np.zeros(48), np.zeros(192), np.int32(1), np.int32(32))
    with pytest.raises(simt.KernelError, match="lanes that the block does not have"):
        module().get_function("shuffles<double>")((1,), (48,), args)


def test_a_failed_launch_leaves_the_module_usable():
    launches = [
        DEFECTS[0].launch(True, "fast"),
        DEFECTS[8].launch(False, "fast"),
        DEFECTS[0].launch(True, "fast"),
    ]
    first, error, second = simt.sanitized_many(launches, errors="return")
    assert isinstance(error, simt.KernelError)
    assert np.array_equal(first[1], second[1])


# ---- language features


@pytest.mark.parametrize("width", [32, 16, 4])
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_shuffles_follow_the_cuda_manual(width, dtype):
    x = np.arange(64).astype(dtype)
    lane = np.arange(64) % 32
    first = lane - lane % width
    for argument in (0, 1, 3, 16, 31):
        out = np.zeros((4, 64), dtype)
        kernel = module().get_function("shuffles<int>" if dtype == np.int32 else "shuffles<double>")
        kernel((1,), (64,), (x, out, np.int32(argument), np.int32(width)))
        up, down, other = lane - argument, lane + argument, lane ^ argument
        sources = (
            first + argument % width,
            np.where(up >= first, up, lane),
            np.where(down < first + width, down, lane),
            np.where(other < first + width, other, lane),
        )
        np.testing.assert_array_equal(out, [x[np.arange(64) // 32 * 32 + source] for source in sources])


@pytest.mark.parametrize("positive", [0, 5, 64])
def test_votes(positive):
    x = (np.arange(64) < positive).astype(np.int32)
    out = np.zeros((6, 64), np.int32)
    module().get_function("votes")((1,), (64,), (x, out))
    for warp in (slice(0, 32), slice(32, 64)):
        bits = sum(1 << i for i, vote in enumerate(x[warp]) if vote)
        assert set(out[0, warp].view(np.uint32)) == {bits}
        assert set(out[1, warp]) == {int(x[warp].any())}
        assert set(out[2, warp]) == {int(x[warp].all())}
    assert [set(row) for row in out[3:]] == [{positive}, {int(positive > 0)}, {int(positive == 64)}]


@pytest.mark.parametrize("mode", MODES)
def test_integer_atomics(mode):
    signed, numbers, wide = np.zeros(3, np.int32), np.zeros(7, np.uint32), np.zeros(2, np.uint64)
    numbers[4], numbers[6] = 7, 100
    kernel = module(mode).get_function("atomics")
    kernel((1,), (64,), (signed, numbers, wide))
    assert signed.tolist() == [-2016, 63, -63]
    assert numbers.tolist() == [128, 4, 6, 2**32 - 1, 8, 6, 36]
    assert wide.tolist() == [64 << 32, 63 << 32]


@pytest.mark.parametrize(("name", "dtype"), [("float", np.float32), ("double", np.float64)])
def test_arithmetic_has_the_meaning_of_cuda(name, dtype):
    x, out = np.array([4, 0.5, np.nan], dtype), np.zeros(7, dtype)
    module().get_function(f"arithmetic<{name}>")((1,), (1,), (x, out))
    np.testing.assert_allclose(out, [4, 0.5, 0.5, 6 + np.exp(dtype(0.5)), 1, 5, 3.5], rtol=1e-6)


def test_contraction_only_in_the_fma_mode_and_never_in_the_rounded_functions():
    a = np.float32(1 + 2**-12)
    x = np.array([a, a, a * a], np.float32)
    exact = np.float32(np.float64(a) * np.float64(a) - np.float64(x[2]))
    assert exact != 0
    for mode, expected in (("fast", 0), ("asan", 0), ("tsan", 0), ("fma", exact)):
        out = np.full(2, np.nan, np.float32)
        module(mode).get_function("contraction")((1,), (1,), (x, out))
        assert out.tolist() == [expected, 0], mode


@pytest.mark.parametrize("order", ORDERS)
def test_every_thread_of_every_block_runs_once(order):
    grid, block = (3, 2, 2), (5, 3, 2)
    out = np.zeros(12 * 30, np.int64)
    kernel = module().get_function("positions")
    kernel.order = order
    kernel(grid, block, (out,))
    np.testing.assert_array_equal(out.reshape(12, 30), 1000 * np.arange(12)[:, None] + np.arange(30))


def test_the_order_of_blocks_is_permuted():
    seen = []
    kernel = module().get_function("order_of_blocks")
    for kernel.order in (0, 1, 2, 2, 3):
        out = np.zeros(20, np.int32)
        kernel((20,), (1,), (out, np.zeros(1, np.int32)))
        assert sorted(out) == list(range(20))
        seen.append(out.tolist())
    assert seen[0] == list(range(20))
    assert seen[1] == seen[0][::-1]
    assert seen[2] == seen[3]
    assert len({tuple(order) for order in seen}) == 4


# ---- arguments and launches


class OnDevice:
    """The attributes of a device array that the executor reads."""

    def __init__(self, array):
        self.array, self.dtype, self.flags = array, array.dtype, array.flags
        self.data = self
        self.ptr = array.ctypes.data


@pytest.mark.parametrize("mode", MODES)
def test_a_table_of_addresses(mode):
    a, b = np.arange(5.0), np.arange(40.0)
    args = (simt.AddressTable([a, 5, b, 40]), np.int32(2), 2.0)
    result = simt.sanitized(TEXT, "through_a_table", (2,), (32,), args, mode=mode, name_expressions=NAMES)
    np.testing.assert_array_equal(a, np.arange(5.0))
    np.testing.assert_array_equal(result[0], 2 * np.arange(5.0))
    np.testing.assert_array_equal(result[1], 2 * np.arange(40.0))
    module(mode).get_function("through_a_table")((2,), (32,), args)
    np.testing.assert_array_equal(b, 2 * np.arange(40.0))


def test_an_address_table_with_a_wrong_size_is_out_of_bounds():
    args = (simt.AddressTable([np.arange(5.0), 6]), np.int32(1), 2.0)
    with pytest.raises(simt.SanitizerError, match=r"heap-buffer-overflow|insufficient space"):
        simt.sanitized(TEXT, "through_a_table", (1,), (32,), args, name_expressions=NAMES)


@pytest.mark.parametrize("mode", MODES)
def test_null_pointers_and_python_scalars(mode):
    kernel = module(mode).get_function("optional")
    out = np.zeros(4, np.int8)
    kernel((1,), (32,), (None, True, out, 4))  # a Python int is an int64, a Python bool a bool
    assert out.tolist() == [-1] * 4
    kernel((1,), (32,), (X, False, out, np.int64(4)))
    assert out.tolist() == [0, 1, 2, 3]


def test_device_arrays_are_passed_by_their_pointers():
    x, out = OnDevice(X.copy()), OnDevice(np.zeros(4, np.int8))
    kernel = module().get_function("optional")
    kernel((1,), (32,), (x, np.bool_(True), out, 4))
    assert out.array.tolist() == [0, -1, -2, -3]
    kernel((1,), (32,), (x.ptr, np.bool_(False), out.data, 4))
    assert out.array.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("mode", MODES)
def test_an_array_that_is_passed_twice_stays_one_array(mode):
    x = np.arange(5.0)
    args = (simt.AddressTable([x, 5, x[:], 5]), np.int32(2), 2.0)
    first, second = simt.sanitized(
        TEXT, "through_a_table", (1,), (32,), args, mode=mode, name_expressions=NAMES
    )
    np.testing.assert_array_equal(first, 4 * np.arange(5.0))
    np.testing.assert_array_equal(second, first)
    args = (simt.AddressTable([x, 5, x[1:], 4]), np.int32(2), 2.0)
    with pytest.raises(simt.ArgumentError, match="overlap"):
        simt.sanitized(TEXT, "through_a_table", (1,), (32,), args, mode=mode, name_expressions=NAMES)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param((X, X.copy(), N), "int64 has 8 bytes", id="a Python int for an int"),
        pytest.param((X, X.copy(), np.int16(N)), "int16 has 2 bytes", id="too narrow"),
        pytest.param((X, X.copy(), np.float32(N)), "another kind", id="a float for an int"),
        pytest.param((X, X.copy()), "3 parameters and got 2", id="too few"),
        pytest.param((X, X.copy(), np.int32(N), np.int32(N)), "3 parameters and got 4", id="too many"),
        pytest.param((X.astype(np.float64), X.copy(), np.int32(N)), "float64", id="wrong dtype"),
        pytest.param((X, np.zeros((N, 2), np.float32)[:, 0], np.int32(N)), "contiguous", id="strided"),
        pytest.param(
            (X, OnDevice(np.zeros((2, N), np.float32).T), np.int32(N)), "contiguous", id="transposed"
        ),
        pytest.param((X, read_only(X.copy()), np.int32(N)), "read-only", id="read-only"),
        pytest.param((X, np.int32(0), np.int32(N)), "not an address", id="a number for a pointer"),
        pytest.param((X, X.copy(), X), "not a number", id="an array for a number"),
        pytest.param((X, [1.0], np.int32(N)), "neither an array", id="a list"),
        pytest.param((X, simt.AddressTable([X]), np.int32(N)), "64-bit words", id="a table for floats"),
    ],
)
@pytest.mark.parametrize("mode", ["fast", "asan"])
def test_arguments_that_do_not_fit_are_refused(args, words, mode):
    with pytest.raises(simt.ArgumentError, match=words):
        module(mode).get_function("missing_barrier<true>")((1,), (N,), args)


@pytest.mark.parametrize("block", [(1025,), (32, 33), (1, 1, 65), (0,), (-1,), 32, (), (1, 1, 1, 1)], ids=str)
def test_illegal_blocks_are_refused(block):
    with pytest.raises(simt.LaunchError):
        module().get_function("positions")((1,), block, (np.zeros(1, np.int64),))


@pytest.mark.parametrize(
    "grid", [(1, 65536), (1, 1, 65536), (2**31,), (0,), (-1,), 1, (), (1, 1, 1, 1)], ids=str
)
def test_illegal_grids_are_refused(grid):
    with pytest.raises(simt.LaunchError):
        module().get_function("positions")(grid, (32,), (np.zeros(1, np.int64),))


def test_more_threads_than_the_launch_bounds_are_refused():
    launch = last_block(RIGHT_LAST_BLOCKS[0], "fast", 0, threads=96)
    with pytest.raises(simt.LaunchError, match="the kernel allows 64"):
        simt.sanitized_many([launch])


def test_dynamic_shared_memory_is_refused():
    with pytest.raises(simt.LaunchError, match="dynamic shared memory"):
        module().get_function("positions")((1,), (32,), (np.zeros(32, np.int64),), shared_mem=64)


# ---- compiling


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("extern \"C\" __global__ void k() { extern __shared__ float s[]; }", "dynamic shared memory"),
        ("#include <cuda.h>\nextern \"C\" __global__ void k() {}", "#include"),
        ("extern \"C\" __global__ void k(float* x) { atomicAdd(x, 1.0f); }", "atomicAdd"),
        ("extern \"C\" __global__ void k(long long* x) { atomicAdd(x, 1ll); }", "atomicAdd"),
        ("extern \"C\" __global__ void k(int* x) { x[0] = unknown; }", "kernel.cu:1.*unknown"),
        ("// extern \"C\" __global__ void k() {}", "no extern"),
    ],
)  # fmt: skip
def test_texts_that_are_refused(text, words):
    with pytest.raises(simt.CompileError, match=words):
        simt.RawModule(text)


def test_unknown_names_modes_and_options_are_refused():
    with pytest.raises(ValueError, match="no kernel 'votes<int>'"):
        module().get_function("votes<int>")
    with pytest.raises(ValueError, match="unknown mode 'quick'"):
        simt.RawModule(TEXT, mode="quick")
    with pytest.raises(ValueError, match="use_fast_math"):
        simt.RawModule(TEXT, options=("--use_fast_math",))


def test_two_processes_build_the_same_text_once(tmp_path):
    code = 'extern "C" __global__ void fill(int* out) { out[threadIdx.x] = SEVEN; }'
    script = (
        "import numpy, tests.simt as simt\n"
        f"kernel = simt.RawModule({code!r}, options=('-DSEVEN=7',)).get_function('fill')\n"
        "out = numpy.zeros(32, numpy.int32)\n"
        "kernel((1,), (32,), (out,))\n"
        "assert set(out) == {7}\n"
    )
    environment = {**os.environ, "AIRNP_SIMT_CACHE": str(tmp_path / "cache")}
    root = Path(__file__).parents[2]
    both = [subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=root) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    made = sorted(path.name for path in (tmp_path / "cache").iterdir() if path.is_dir())
    assert len(made) == 2, made  # the run time and the kernel
    assert all(re.fullmatch("[0-9a-f]{32}", name) for name in made)
