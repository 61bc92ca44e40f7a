"""The double of CuPy refuses and counts what it should, and computes what NumPy computes."""

from __future__ import annotations

import ctypes
import gc
import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any

import array_api_compat as compat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp._arrays import standard_namespace, to_numpy
from tests import namespaces as cases
from tests.conftest import Backend
from tests.cupy_double.cublas import CUBLASError
from tests.cupy_double.fixture import installed
from tests.cupy_double.streams import StreamOrderError

HOST = np.arange(12.0).reshape(3, 4)

SCALE = """
template <typename T>
__global__ void scale(const T* source, T* target, T factor, int size) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) target[i] = factor * source[i];
}
"""


@pytest.fixture
def cp(cupy_double):
    return cupy_double.cupy


def scaler(cp) -> Any:
    names = ["scale<float>", "scale<double>"]
    module = cp.RawModule(code=SCALE, options=("-std=c++17",), name_expressions=names)
    return module.get_function("scale<double>")


def scale(cp, source, target):
    scaler(cp)((1,), (32,), (source, target, np.float64(3), np.int32(12)))


# --- installation ---


def test_the_double_is_recognised_as_cupy(cupy_double):
    import cupy
    import cupyx.scipy.sparse

    assert cupy is cupy_double.cupy
    assert importlib.import_module("cupy.cuda.runtime") is cupy.cuda.runtime
    assert cupyx.scipy.sparse.csr_matrix is cupy_double.cupyx.scipy.sparse.csr_matrix
    array = cupy.asarray(HOST)
    assert compat.is_cupy_array(array)
    assert not compat.is_numpy_array(array)
    assert compat.is_writeable_array(array)
    xp = compat.array_namespace(array)
    assert xp is standard_namespace(cupy)
    assert xp.__name__ == "array_api_compat.cupy"
    assert compat.is_cupy_namespace(xp)
    assert compat.is_cupy_namespace(cupy)
    assert compat.device(array) == cupy.cuda.Device(0)
    moved = compat.to_device(array, cupy.cuda.Device(1))
    assert (array.device.id, moved.device.id) == (0, 1)
    np.testing.assert_array_equal(compat.to_device(moved, "cpu"), HOST)
    np.testing.assert_array_equal(to_numpy(moved), HOST)


def test_the_double_is_removed_completely():
    def traces() -> tuple[dict[str, Any], Any]:
        found = {name: item for name, item in sys.modules.items() if "cupy" in name and "tests." not in name}
        return found, vars(compat).get("cupy")

    before = traces()

    def interrupted():
        with installed() as double:
            arrays.append(double.cupy.zeros(3))
            assert compat.is_cupy_array(arrays[-1])
            raise KeyError

    arrays: list[Any] = []
    for _ in range(2):
        with pytest.raises(KeyError):
            interrupted()
        assert traces() == before
        assert not compat.is_cupy_array(arrays[-1])


def test_missing_parts_are_not_taken_from_the_real_package(cupy_double):
    for name in ("cupy.random", "cupy._core", "cupy_backends.cuda"):
        with pytest.raises(ImportError):
            importlib.import_module(name)
    with pytest.raises(NotImplementedError, match=r"cupy\.arccos is not modelled"):
        compat.array_namespace(cupy_double.cupy.zeros(1)).acos(1)


# --- refusals ---

REFUSED: dict[str, tuple[Callable[[Any, Any], Any], type[Exception], str]] = {
    "array + numpy": (lambda cp, a: a + HOST, TypeError, "Unsupported type <class 'numpy.ndarray'>"),
    "numpy + array": (lambda cp, a: HOST + a, TypeError, "Unsupported type <class 'numpy.ndarray'>"),
    "array @ numpy": (lambda cp, a: a @ HOST.T, TypeError, "Unsupported type <class 'numpy.ndarray'>"),
    "numpy @ array": (lambda cp, a: HOST @ a.T, TypeError, "."),
    "numpy += array": (lambda cp, a: HOST.copy().__iadd__(a), TypeError, "Unsupported type"),
    "array += numpy": (lambda cp, a: a.__iadd__(HOST), TypeError, "Unsupported type"),
    "array < numpy": (lambda cp, a: a < HOST, TypeError, "Unsupported type"),
    "array * list": (lambda cp, a: a * [1.0], TypeError, "Unsupported type <class 'list'>"),
    "where": (lambda cp, a: cp.where(a > 0, a, HOST), TypeError, "Unsupported type"),
    "sum": (lambda cp, a: cp.sum(HOST), TypeError, "Unsupported type"),
    "exp": (lambda cp, a: cp.exp(HOST), TypeError, "Unsupported type"),
    "stack": (lambda cp, a: cp.stack([a, HOST]), TypeError, "Unsupported type"),
    "zeros_like": (lambda cp, a: cp.zeros_like(HOST), TypeError, "Unsupported type"),
    "a[numpy]": (lambda cp, a: a[np.array([0, 1])], TypeError, "Unsupported type"),
    "a[...] = numpy": (lambda cp, a: a.__setitem__(..., HOST), TypeError, "Unsupported type"),
    "np.asarray": (lambda cp, a: np.asarray(a), TypeError, r"Implicit conversion .* use `\.get\(\)`"),
    "np.array of arrays": (lambda cp, a: np.array([a, a]), TypeError, "Implicit conversion"),
    "np.tanh": (lambda cp, a: np.tanh(a), TypeError, "."),
    "np.add.reduce": (lambda cp, a: np.add.reduce(a), TypeError, "."),
    "np.median": (lambda cp, a: np.median(a), TypeError, "."),
    "np.add(out=numpy)": (lambda cp, a: np.add(a, 1, out=HOST.copy()), TypeError, "Unsupported type"),
    "bool of many": (lambda cp, a: bool(a), ValueError, "ambiguous"),
    "float of many": (lambda cp, a: float(a), TypeError, "size-1"),
    "object dtype": (lambda cp, a: cp.asarray(np.array([None])), ValueError, "Unsupported dtype object"),
    "hash": (lambda cp, a: hash(a), TypeError, "unhashable"),
    "range(array)": (lambda cp, a: range(cp.asarray(3)), TypeError, "integer"),
    "set list": (lambda cp, a: a.set([1.0]), TypeError, "Only numpy.ndarray"),
    "set another type": (
        lambda cp, a: a.set(HOST.astype(np.float32)),
        TypeError,
        "float32 array cannot be set",
    ),
    "set another shape": (lambda cp, a: a.set(HOST.T), ValueError, "Shape mismatch"),
    "set a part": (lambda cp, a: a[:, ::2].set(HOST[:, ::2]), RuntimeError, "non-contiguous"),
    "sparse of numpy": (
        lambda cp, a: sys.modules["cupyx.scipy.sparse"].csr_matrix((HOST, HOST, HOST), shape=(3, 4)),
        TypeError,
        "Unsupported type",
    ),
    "a Graph made by hand": (lambda cp, a: cp.cuda.Graph(), NotImplementedError, "stream capture"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses(name, cupy_double):
    action, error, message = REFUSED[name]
    array = cupy_double.cupy.asarray(HOST)
    with pytest.raises(error, match=message):
        action(cupy_double.cupy, array)
    np.testing.assert_array_equal(array.get(), HOST)


def test_numpy_scalars_and_functions_on_arrays(cp):
    array = cp.asarray(HOST)
    for found, expected in (
        (np.float64(2) * array, 2 * HOST),
        (array / np.float64(2), HOST / 2),
        (np.exp(array), np.exp(HOST)),
        (np.sum(array, axis=0), HOST.sum(axis=0)),
        (2**array, 2**HOST),
    ):
        assert isinstance(found, cp.ndarray)
        np.testing.assert_array_equal(found.get(), expected)


def test_views_share_memory_and_layouts_are_kept(cp, cupy_double):
    array = cp.asarray(HOST)
    before = cupy_double.counters.allocations
    entry, turned, row = array[1, 2], array.T, array[1]
    flat, diagonal, spread = array.reshape(-1), cp.diagonal(array), cp.broadcast_to(array, (2, 3, 4))
    assert cupy_double.counters.allocations == before
    assert (entry.shape, turned.shape, row.shape, diagonal.shape) == ((), (4, 3), (4,), (3,))
    array[1, 2] = 50.0
    assert [float(view) for view in (entry, turned[2, 1], row[2], flat[6], spread[1, 1, 2])] == [50.0] * 5
    assert row.data.ptr == array.data.ptr + 32
    assert not (turned + 1).flags.c_contiguous
    assert (turned @ array).flags.c_contiguous
    assert turned.astype("float64", order="C").flags.c_contiguous
    assert turned.reshape(-1).data.ptr != array.data.ptr
    array[array > 40] = -1
    assert float(entry) == -1
    np.testing.assert_array_equal(array[array < 0].get(), [-1])


def test_new_and_freed_memory_holds_nan(cp):
    array = cp.empty((5, 5))
    assert np.isnan(array.get()).all()
    array[...] = 1
    address = array.data.ptr
    del array
    gc.collect()
    assert np.isnan(ctypes.cast(address, ctypes.POINTER(ctypes.c_double))[0])


@pytest.mark.parametrize("offset", [-1, 24])
def test_a_write_beyond_an_allocation_is_found(offset):
    for freed in (False, True):
        with installed() as double:
            array = double.cupy.zeros(3)
            double.check_memory()
            ctypes.memset(array.data.ptr + offset, 0, 1)
            if freed:
                del array
                gc.collect()
            with pytest.raises(AssertionError, match="beyond an allocation of 24 bytes"):
                double.check_memory()


# --- devices ---


def test_arrays_of_another_device_are_refused(cp, cupy_double):
    here = cp.asarray(HOST)
    with cp.cuda.Device(1):
        there = cp.asarray(HOST)
        like = cp.zeros_like(here)  # CuPy allocates on the current device, whatever the model's
    assert (here.device.id, there.device.id, like.device.id) == (0, 1, 1)
    for action in (
        lambda: here + there,
        lambda: there + 1,
        lambda: there @ there.T,
        lambda: here.__setitem__(..., there),
        lambda: there.astype(np.float32),
        lambda: cp.sum(there),
        lambda: here[there > 0],
        lambda: cp.concatenate([here, there]),
        lambda: scale(cp, here, there),
    ):
        with pytest.raises(ValueError, match=r"resides \(1\) is different from the current device \(0\)"):
            action()
    np.testing.assert_array_equal(there.get(), HOST)  # a copy to the host is allowed from everywhere
    cupy_double.counters.reset()
    assert cp.asarray(there).device.id == 0
    assert cupy_double.counters.device_to_device == 1


def test_devices_and_streams(cp, cupy_double):
    runtime = cp.cuda.runtime
    assert runtime.getDeviceCount() == 2
    cupy_double.settings.devices = 3
    assert runtime.getDeviceCount() == 3
    with cp.cuda.Device(2) as device:
        assert (device.id, runtime.getDevice(), cp.cuda.Device().id, str(device)) == (
            2,
            2,
            2,
            "<CUDA Device 2>",
        )
        stream = cp.cuda.Stream(non_blocking=True)
        with stream:
            assert cp.cuda.get_current_stream() is stream
            assert cp.cuda.get_current_stream(0) is cp.cuda.Stream.null
    assert runtime.getDevice() == 0
    with pytest.raises(RuntimeError, match=r"created on \(2\) does not match with the current device \(0\)"):
        stream.__enter__()
    with pytest.raises(runtime.CUDARuntimeError, match="cudaErrorInvalidDevice"):
        cp.cuda.Device(3)
    properties = runtime.getDeviceProperties(0)
    assert (properties["major"], properties["minor"], properties["warpSize"]) == (8, 0, 32)


@pytest.mark.parametrize(("status", "name"), [(100, "NoDevice"), (35, "InsufficientDriver")])
def test_a_machine_without_a_device_or_driver(status, name, cp, cupy_double):
    cupy_double.settings.failure = status
    cupy_double.settings.driver_version = 0
    runtime = cp.cuda.runtime
    for action in (
        runtime.getDeviceCount,
        cp.cuda.Device,
        lambda: cp.cuda.Device(0),
        lambda: cp.zeros(3),
        lambda: cp.asarray(HOST),
        cp.cuda.get_current_stream,
        runtime.memGetInfo,
        lambda: scaler(cp),
        lambda: cp.cuda.Stream(non_blocking=True),
    ):
        with pytest.raises(runtime.CUDARuntimeError, match=f"cudaError{name}") as caught:
            action()
        assert caught.value.status == status
    assert runtime.driverGetVersion() == 0
    assert runtime.runtimeGetVersion() == 12090


def test_every_thread_has_its_own_device_and_stream(cp):
    seen = []
    with cp.cuda.Device(1), cp.cuda.Stream(non_blocking=True):

        def look():
            seen.append((cp.cuda.Device().id, cp.cuda.get_current_stream() is cp.cuda.Stream.null))
            with cp.cuda.Device(1):
                seen.append((cp.zeros(1).device.id, cp.cuda.get_current_stream() is cp.cuda.Stream.null))

        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen == [(0, True), (1, True)]


def test_memory_is_limited(cp, cupy_double):
    cupy_double.settings.memory = 10_240
    assert cp.cuda.runtime.memGetInfo() == (10_240, 10_240)
    kept = cp.zeros(100)
    assert cp.cuda.runtime.memGetInfo() == (10_240 - 1024, 10_240)
    message = r"^Out of memory allocating 9,728 bytes \(allocated so far: 1,024 bytes\)\.$"
    with pytest.raises(cp.cuda.memory.OutOfMemoryError, match=message):
        cp.zeros(1200)
    assert issubclass(cp.cuda.memory.OutOfMemoryError, MemoryError)
    with cp.cuda.Device(1):
        cp.zeros(1200)  # each device has its own
    del kept
    gc.collect()
    cp.zeros(1200)


def test_freed_memory_stays_with_the_stream_that_had_it(cp):
    pool, info = cp.get_default_memory_pool(), cp.cuda.runtime.memGetInfo
    free, _ = info()
    array = cp.zeros(1000)
    address = array.data.ptr
    del array
    assert (info()[0], pool.free_bytes(), pool.used_bytes()) == (free - 8192, 8192, 0)
    with cp.cuda.Stream(non_blocking=True):
        other = cp.zeros(1000)
    assert other.data.ptr != address
    assert cp.zeros(1000).data.ptr == address
    assert pool.total_bytes() == 2 * 8192
    del other
    pool.free_all_blocks()
    assert (info()[0], pool.total_bytes()) == (free, 0)


def test_deferred_work_is_done_when_somebody_waits(cp, cupy_double):
    cupy_double.settings.deferred = True
    array = cp.zeros(3)
    cp.cuda.get_current_stream().synchronize()
    with cp.cuda.Stream(non_blocking=True) as stream:
        array.fill(1)
        assert cupy_double.cupy.cuda.get_current_stream() is stream
        assert array._host.tolist() == [0, 0, 0]
        assert array.get().tolist() == [1, 1, 1]
        array.fill(2)
    assert cupy_double.pending() == 1
    stream.synchronize()
    assert cupy_double.pending() == 0
    assert array._host.tolist() == [2, 2, 2]


def test_streams_share_addresses_only_where_they_are_recycled(cp, cupy_double):
    first = cp.cuda.Stream(non_blocking=True).ptr
    assert cp.cuda.Stream(non_blocking=True).ptr != first
    cupy_double.settings.recycles_streams = True
    first = cp.cuda.Stream(non_blocking=True).ptr
    assert cp.cuda.Stream(non_blocking=True).ptr == first


# --- counts ---

COUNTED: dict[str, tuple[Callable[[Any, Any], Any], dict[str, int]]] = {
    "asarray(numpy)": (lambda cp, a: cp.asarray(HOST), {"allocations": 1, "host_to_device": 1}),
    "asarray(array)": (lambda cp, a: cp.asarray(a), {}),
    "empty": (lambda cp, a: cp.empty(3), {"allocations": 1}),
    "copy": (lambda cp, a: a.copy(), {"allocations": 1, "operations": 1}),
    "a + a": (lambda cp, a: a + a, {"allocations": 1, "operations": 1}),
    "a += a": (lambda cp, a: a.__iadd__(a), {"operations": 1}),
    "a[...] = a": (lambda cp, a: a.__setitem__(..., a), {"operations": 1}),
    "sum": (lambda cp, a: a.sum(), {"allocations": 1, "operations": 1}),
    "a @ a.T": (lambda cp, a: a @ a.T, {"allocations": 1, "products": 1}),
    "get": (lambda cp, a: a.get(), {"device_to_host": 1, "synchronisations": 1}),
    "set": (lambda cp, a: a.set(HOST), {"host_to_device": 1}),
    "float": (lambda cp, a: float(a[0, 0]), {"device_to_host": 1, "synchronisations": 1}),
    "int": (lambda cp, a: int(a[0, 0]), {"device_to_host": 1, "synchronisations": 1}),
    "bool": (lambda cp, a: bool(a[0, 0]), {"device_to_host": 1, "synchronisations": 1}),
    "item": (lambda cp, a: a[0, 0].item(), {"device_to_host": 1, "synchronisations": 1}),
    "repr": (lambda cp, a: repr(a), {"device_to_host": 1, "synchronisations": 1}),
    "a[mask]": (lambda cp, a: a[a > 3], {"allocations": 2, "operations": 2, "synchronisations": 1}),
    "stream": (lambda cp, a: cp.cuda.get_current_stream().synchronize(), {"synchronisations": 1}),
    "device": (lambda cp, a: cp.cuda.Device(0).synchronize(), {"synchronisations": 1}),
    "runtime": (lambda cp, a: cp.cuda.runtime.deviceSynchronize(), {"synchronisations": 1}),
    "kernel": (lambda cp, a: scale(cp, a, a), {"launches": 1}),
}


@pytest.mark.parametrize("name", COUNTED)
def test_counts(name, cupy_double):
    action, expected = COUNTED[name]
    array = cupy_double.cupy.asarray(HOST)
    cupy_double.counters.reset()
    action(cupy_double.cupy, array)
    found = {
        key: sum(value.values()) if isinstance(value, dict) else value for key, value in _counts(cupy_double)
    }
    assert {key: value for key, value in found.items() if value and key != "allocated_bytes"} == expected


def _counts(double) -> list[tuple[str, Any]]:
    return list(double.counters.snapshot().items())


def test_launches_and_operations_are_counted_by_name(cp, cupy_double):
    array, target = cp.asarray(HOST), cp.empty_like(cp.asarray(HOST))
    cupy_double.counters.reset()
    for _ in range(3):
        scale(cp, array, target)
    cp.exp(array - array)
    counters = cupy_double.counters
    assert counters.launches == {"scale<double>": 3}
    assert counters.operations == {"subtract": 1, "exp": 1}
    assert counters.allocated_bytes == 2 * 96
    counters.reset()
    assert not any(value for _, value in _counts(cupy_double))


# --- kernels ---


def test_a_kernel_runs_in_the_executor(cp):
    source, target = cp.asarray(HOST), cp.zeros((3, 4))
    scale(cp, source, target)
    np.testing.assert_array_equal(target.get(), 3 * HOST)


BAD_ARGUMENTS: dict[str, tuple[Callable[[Any, Any], tuple[Any, ...]], type[Exception], str]] = {
    "a NumPy array": (lambda cp, a: (HOST, a), TypeError, "Unsupported type <class 'numpy.ndarray'>"),
    "not contiguous": (lambda cp, a: (a.T, a), ValueError, "argument 0 is an array that is not C-contiguous"),
    "None": (lambda cp, a: (None, a), TypeError, "argument 0 is None"),
    "a list": (lambda cp, a: ([1.0], a), TypeError, "Unsupported type <class 'list'>"),
    "a Python int": (lambda cp, a: (a, a, np.float64(1), 12), TypeError, "argument 3"),
    "a 64-bit int": (lambda cp, a: (a, a, np.float64(1), np.int64(12)), TypeError, "argument 3"),
    "a 32-bit float": (lambda cp, a: (a, a, np.float32(1)), TypeError, "argument 2"),
    "too many": (lambda cp, a: (a, a, np.float64(1), np.int32(1), np.int32(1)), TypeError, "4 parameters"),
    "another type": (lambda cp, a: (a.astype(np.float32), a), TypeError, "argument 0"),
}


@pytest.mark.parametrize("name", BAD_ARGUMENTS)
def test_a_kernel_refuses(name, cp):
    make, error, message = BAD_ARGUMENTS[name]
    given_ = make(cp, cp.asarray(HOST))
    defaults = (None, None, np.float64(3), np.int32(12))
    with pytest.raises(error, match=message):
        scaler(cp)((1,), (32,), (*given_, *defaults[len(given_) :]))


@pytest.mark.parametrize(
    ("grid", "block", "error"),
    [
        ([1], (32,), TypeError),
        ((1,), 32, TypeError),
        ((1.0,), (32,), TypeError),
        ((0,), (32,), ValueError),
        ((1, 65536), (32,), ValueError),
        ((1,), (1025,), ValueError),
        ((1,), (32, 33), ValueError),
    ],
)
def test_invalid_grids_and_blocks_are_refused(grid, block, error, cp):
    array = cp.asarray(HOST)
    with pytest.raises(error):
        scaler(cp)(grid, block, (array, array, np.float64(3), np.int32(12)))


def test_arguments_of_a_module_are_checked(cp):
    with pytest.raises(TypeError, match="expected tuple, got list"):
        cp.RawModule(code=SCALE, options=["-std=c++17"])
    with pytest.raises(TypeError, match="code"):
        cp.RawModule()
    with pytest.raises(ValueError, match="name_expressions"):
        cp.RawModule(code=SCALE, name_expressions=["scale<float>"]).get_function("scale<double>")


# --- capture ---


def test_a_graph_repeats_what_was_captured(cp, cupy_double):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        source, target, product = cp.asarray(HOST), cp.zeros((3, 4)), cp.zeros((3, 3))
        cupy_double.counters.reset()
        stream.begin_capture()
        assert stream.is_capturing()
        scale(cp, source, target)
        source += 1.0
        _row_major_gram(cupy_double, target, product)
        graph = stream.end_capture()
        assert not stream.is_capturing()
        counters = cupy_double.counters
        assert (counters.captures, counters.launches, counters.operations, counters.products) == (
            1,
            {},
            {},
            0,
        )
        assert not target.get().any()
        graph.launch(stream)
        graph.launch()
        assert counters.graph_launches == 2
        assert counters.launches == {"scale<double>": 2}
        assert (counters.operations, counters.products, counters.allocations) == ({"add": 2}, 2, 0)
        expected = 3 * (HOST + 1)
        np.testing.assert_array_equal(target.get(), expected)
        np.testing.assert_allclose(product.get(), expected @ expected.T, rtol=1e-14)


def _row_major_gram(double, x, out):
    """Compute x xᵀ of a C-contiguous x, which cuBLAS sees as its transpose."""
    rows, columns = x.shape
    sizes = (rows, rows, columns)
    a, b, c = (x.data.ptr, columns, 0), (x.data.ptr, columns, 0), (out.data.ptr, rows, 0)
    double.gemm_strided_batched(0, 1, 0, *sizes, 1.0, *a, *b, 0.0, *c, 1, x.dtype)


IN_CAPTURE: dict[str, Callable[[Any, Any], Any]] = {
    "allocation": lambda cp, a: cp.empty(3),
    "arithmetic into a new array": lambda cp, a: a + a,
    "reduction": lambda cp, a: a.sum(),
    "copy from the host": lambda cp, a: cp.asarray(HOST),
    "set": lambda cp, a: a.set(HOST),
    "get": lambda cp, a: a.get(),
    "float": lambda cp, a: float(a[0, 0]),
    "bool": lambda cp, a: bool(a[0, 0]),
    "synchronize the stream": lambda cp, a: cp.cuda.get_current_stream().synchronize(),
    "synchronize the device": lambda cp, a: cp.cuda.Device(0).synchronize(),
    "synchronize by the runtime": lambda cp, a: cp.cuda.runtime.deviceSynchronize(),
}


@pytest.mark.parametrize("name", IN_CAPTURE)
def test_capture_refuses(name, cp):
    error = cp.cuda.runtime.CUDARuntimeError
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        array = cp.asarray(HOST)
        stream.begin_capture()
        with pytest.raises(error, match="cudaErrorStreamCaptureUnsupported"):
            IN_CAPTURE[name](cp, array)
        with pytest.raises(error, match="cudaErrorStreamCaptureInvalidated"):
            stream.end_capture()
        stream.begin_capture()  # the stream can be used again
        array *= 2.0
        stream.end_capture().launch()
        np.testing.assert_array_equal(array.get(), 2 * HOST)


def test_capture_refuses_cupys_own_products_and_graphs(cp):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        array = cp.asarray(HOST)
        stream.begin_capture()
        graph = stream.end_capture()
        stream.begin_capture()
        with pytest.raises(NotImplementedError, match="calling cuBLAS API during stream capture"):
            array @ array.T
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="cudaErrorStreamCaptureUnsupported"):
            graph.launch()


def test_only_a_current_non_blocking_stream_can_be_captured(cp):
    error = cp.cuda.runtime.CUDARuntimeError
    with pytest.raises(RuntimeError, match=r"cannot capture on the default \(legacy\) stream"):
        cp.cuda.get_current_stream().begin_capture()
    with cp.cuda.Stream() as blocking, pytest.raises(error, match="cudaErrorStreamCaptureImplicit"):
        blocking.begin_capture()
    stream = cp.cuda.Stream(non_blocking=True)
    with pytest.raises(RuntimeError, match="not the current one"):
        stream.begin_capture()
    with pytest.raises(error, match="cudaErrorIllegalState"):
        stream.end_capture()
    with stream:
        stream.begin_capture()
        with pytest.raises(error, match="cudaErrorIllegalState"):
            stream.begin_capture()


@pytest.mark.parametrize("kind", ["kernel", "arithmetic", "product"])
def test_a_graph_does_not_keep_its_arrays_alive(kind, cp, cupy_double):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        source, target = cp.asarray(HOST), cp.zeros((3, 4))
        product = cp.zeros((3, 3))
        stream.begin_capture()
        if kind == "kernel":
            scale(cp, source, target)
        elif kind == "arithmetic":
            target += source
        else:
            _row_major_gram(cupy_double, source, product)
        graph = stream.end_capture()
        graph.launch()
        del source
        gc.collect()
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="cudaErrorIllegalAddress"):
            graph.launch()


def test_a_graph_belongs_to_its_device(cp):
    with cp.cuda.Device(1), cp.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture()
        graph = stream.end_capture()
        graph.launch()
    graph.launch(stream)
    with pytest.raises(cp.cuda.runtime.CUDARuntimeError, match="cudaErrorInvalidValue"):
        graph.launch()


# --- the order of streams ---


def test_unfinished_work_of_another_stream_is_refused(cp):
    stream, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    array, target = cp.asarray(HOST), cp.zeros((3, 4))
    with (
        stream,
        pytest.raises(StreamOrderError, match=r"stream .* that the null stream of device 0 may still"),
    ):
        scale(cp, array, target)
    cp.cuda.get_current_stream().synchronize()
    with stream:
        scale(cp, array, target)
        scale(cp, target, target)
    with pytest.raises(StreamOrderError):
        target.get()
    with other, pytest.raises(StreamOrderError):
        target += 1.0
    stream.synchronize()
    np.testing.assert_array_equal(target.get(), 9 * HOST)
    with stream:
        array + 1  # reads only: that may go on at the same time
    np.testing.assert_array_equal(array.get(), HOST)
    with pytest.raises(StreamOrderError):
        array += 1.0
    cp.cuda.Device(0).synchronize()
    array += 1.0


def test_graphs_are_checked_like_launches(cp, cupy_double):
    stream = cp.cuda.Stream(non_blocking=True)
    with stream:
        array = cp.asarray(HOST)
        stream.begin_capture()
        array += 1.0
        graph = stream.end_capture()
        graph.launch()
    with pytest.raises(StreamOrderError):
        array.get()
    with pytest.raises(StreamOrderError):
        graph.launch(cp.cuda.Stream.null)
    cupy_double.settings.check_streams = False
    np.testing.assert_array_equal(array.get(), HOST + 1)


def test_streams_wait_for_events(cp, cupy_double):
    stream, other = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    array = cp.asarray(HOST)
    cupy_double.counters.reset()
    stream.wait_event(cp.cuda.get_current_stream().record())
    with stream:
        array += 1.0
        event = cp.cuda.Event()
        event.record()
    other.wait_event(event)
    with other:
        array += 1.0  # after both, through the first
    with stream, pytest.raises(StreamOrderError):
        array += 1.0
    assert cupy_double.counters.synchronisations == 0
    other.record().synchronize()
    assert cupy_double.counters.synchronisations == 1
    np.testing.assert_array_equal(array.get(), HOST + 2)


@pytest.fixture
def branches(cp):
    """Two streams, the first of which is being captured, two arrays, and the runtime's error."""
    first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with first:
        arrays = cp.asarray(HOST), cp.asarray(HOST)
        first.begin_capture()
        yield first, second, arrays, cp.cuda.runtime.CUDARuntimeError


def test_a_capture_may_branch(cp, branches):
    """A node runs as soon as it may, and the latest first: what is not waited for is not there."""
    first, second, (array, other), _ = branches
    array += 1.0
    second.wait_event(first.record())
    assert second.is_capturing()
    array *= 2.0
    with second:
        other *= 3.0
    first.wait_event(second.record(cp.cuda.Event(disable_timing=True)))
    array += other
    graph = first.end_capture()
    assert not second.is_capturing()
    graph.launch()
    np.testing.assert_array_equal(array.get(), 2 * (HOST + 1) + 3 * HOST)


@pytest.mark.parametrize("action", ["write", "read"])
def test_branches_that_race_are_refused(cp, branches, action):
    first, second, (array, other), _ = branches
    second.wait_event(first.record())
    array += 1.0
    with second:
        if action == "write":
            array *= 3.0
        else:
            other += array
    first.wait_event(second.record())
    with pytest.raises(StreamOrderError, match="nodes 0 and 1 of a graph may run at the same time"):
        first.end_capture()


def test_what_a_branching_capture_must_not_do(cp, branches):
    first, second, (array, _), error = branches
    marked = first.record()
    with pytest.raises(error, match="cudaErrorCapturedEvent"):
        marked.synchronize()
    second.wait_event(marked)
    with second, pytest.raises(error, match="cudaErrorIllegalState"):
        second.end_capture()
    with second:
        array += 1.0
    with pytest.raises(error, match="cudaErrorStreamCaptureUnjoined"):
        first.end_capture()
    with pytest.raises(error, match="cudaErrorStreamCaptureIsolation"):
        second.wait_event(marked)  # of a capture that has ended
    outside = second.record()
    first.begin_capture()
    with pytest.raises(error, match="cudaErrorStreamCaptureIsolation"):
        first.wait_event(outside)


def test_the_null_stream_waits_for_blocking_streams(cp):
    array = cp.asarray(HOST)
    with cp.cuda.Stream():
        array += 1.0
    np.testing.assert_array_equal(array.get(), HOST + 1)


# --- products ---


def _thrice(highest):
    return st.tuples(*[st.integers(0, highest)] * 3)


@given(
    sizes=st.tuples(*[st.integers(1, 5)] * 4),
    trans=st.tuples(st.integers(0, 1), st.integers(0, 1)),
    padding=_thrice(2),
    gaps=_thrice(3),
    one_matrix_for_all=st.booleans(),
    factors=st.tuples(st.sampled_from([1.0, -0.5]), st.sampled_from([0.0, 1.0, 2.0])),
    dtype=st.sampled_from([np.float32, np.float64]),
    seed=st.integers(0, 99),
)
def test_products_equal_numpy(sizes, trans, padding, gaps, one_matrix_for_all, factors, dtype, seed):
    (m, n, k, batch), (alpha, beta), rng = sizes, factors, np.random.default_rng(seed)
    shapes = [(k, m) if trans[0] else (m, k), (n, k) if trans[1] else (k, n), (m, n)]
    leading = [rows + extra for (rows, _), extra in zip(shapes, padding, strict=True)]
    strides = [ld * columns + gap for ld, (_, columns), gap in zip(leading, shapes, gaps, strict=True)]
    if one_matrix_for_all:
        strides[0] = 0
    buffers, views = [], []
    for shape, ld, stride in zip(shapes, leading, strides, strict=True):
        buffer = rng.integers(-4, 5, size=(batch - 1) * stride + ld * shape[1]).astype(dtype)
        steps = np.array([stride, 1, ld]) * buffer.itemsize
        buffers.append(buffer)
        views.append(np.lib.stride_tricks.as_strided(buffer, (batch, *shape), steps))
    with installed() as double:
        arrays = [double.cupy.asarray(buffer) for buffer in buffers]
        a, b, c = ((x.data.ptr, ld, stride) for x, ld, stride in zip(arrays, leading, strides, strict=True))
        double.counters.reset()
        double.gemm_strided_batched(0, *trans, m, n, k, alpha, *a, *b, beta, *c, batch, dtype)
        assert double.counters.products == 1
        found = [array.get() for array in arrays]
    left, right = (view.swapaxes(1, 2) if turn else view for view, turn in zip(views, trans, strict=False))
    views[2][...] = alpha * left @ right + beta * views[2]  # in place: the padding stays as it was
    for got, want in zip(found, buffers, strict=True):
        np.testing.assert_array_equal(got, want)


def _gemm(double, **changes):
    cp = double.cupy
    a, b, c = cp.zeros((2, 3, 3)), cp.ones((2, 3, 3)), cp.empty((2, 3, 3))
    options: dict[str, Any] = {"handle": 0, "transa": 0, "transb": 0, "alpha": 1.0, "beta": 0.0}
    options |= {"m": 3, "n": 3, "k": 3, "batch": 2, "dtype": np.float64}
    options |= {"A": a.data.ptr, "lda": 3, "strideA": 9, "B": b.data.ptr, "ldb": 3, "strideB": 9}
    options |= {"C": c.data.ptr, "ldc": 3, "strideC": 9}
    for name, change in changes.items():
        options[name] = change(options[name]) if callable(change) else change
    double.gemm_strided_batched(**options)
    assert not c.get().any()


BAD_PRODUCTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "a null pointer": ({"A": 0}, RuntimeError, "cudaErrorIllegalAddress"),
    "one entry too far": ({"B": lambda address: address + 8}, RuntimeError, "cudaErrorIllegalAddress"),
    "too many problems": ({"batch": 3}, RuntimeError, "cudaErrorIllegalAddress"),
    "too large a stride": ({"strideA": 10}, RuntimeError, "cudaErrorIllegalAddress"),
    "wider numbers": ({"ldc": 4}, RuntimeError, "cudaErrorIllegalAddress"),
    "misaligned": ({"A": lambda address: address + 4}, CUBLASError, "aligned"),
    "a leading dimension too small": ({"lda": 2}, CUBLASError, "leading dimension of A is 2"),
    "results that overlap": ({"strideC": 8}, CUBLASError, "overlap"),
    "a negative size": ({"m": -1}, CUBLASError, "m = -1"),
    "an unknown transposition": ({"transb": "T"}, CUBLASError, "transb"),
    "integers": ({"dtype": "int32"}, CUBLASError, "NOT_SUPPORTED"),
}


@pytest.mark.parametrize("name", BAD_PRODUCTS)
def test_products_refuse(name, cupy_double):
    _gemm(cupy_double)
    changes, error, message = BAD_PRODUCTS[name]
    with pytest.raises(error, match=message):
        _gemm(cupy_double, **changes)


def test_products_refuse_freed_foreign_and_overlapping_memory(cp, cupy_double):
    array = cp.ones((3, 3, 3))  # of a size that no other array has, whose memory it would become
    with pytest.raises(CUBLASError, match="A and C overlap"):
        _gemm(cupy_double, A=array.data.ptr, C=array.data.ptr)
    _gemm(cupy_double, A=array.data.ptr, alpha=0.0)
    with cp.cuda.Device(1), pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        _gemm(cupy_double, A=array.data.ptr)
    address = array.data.ptr
    del array
    gc.collect()
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        _gemm(cupy_double, A=address)
    with pytest.raises(RuntimeError, match="cudaErrorIllegalAddress"):
        _gemm(cupy_double, A=HOST.ctypes.data)


# --- sparse matrices ---


def test_sparse_matrices_hold_three_arrays(cupy_double):
    from scipy.sparse import csr_array

    cp, sparse = cupy_double.cupy, cupy_double.cupyx.scipy.sparse
    host = csr_array(np.where(HOST % 3 == 1, HOST, 0))
    parts = tuple(cp.asarray(part) for part in (host.data, host.indices, host.indptr))
    for matrix in (sparse.csr_matrix(parts, shape=(3, 4)), sparse.csr_matrix(host)):
        assert (matrix.shape, matrix.nnz, matrix.dtype) == ((3, 4), 4, np.float64)
        assert {part.dtype for part in (matrix.indices, matrix.indptr)} == {np.dtype(np.int32)}
        np.testing.assert_array_equal(matrix.get().toarray(), host.toarray())
    with pytest.raises(ValueError, match="do not fit together"):
        sparse.csr_matrix(parts, shape=(4, 4))


# --- fits of airnp ---


class _OnCurrentDevice(Backend):
    """Arrays of the double on whatever device is current."""

    def array(self, values) -> Any:
        return self.xp.asarray(np.asarray(values))


@pytest.mark.parametrize("name", cases.ALL)
def test_fits_equal_those_of_numpy(name, cupy_double):
    backend = _OnCurrentDevice("cupy", cupy_double.cupy)
    expected = cases.numpy_fit(name)
    with cupy_double.cupy.cuda.Device(1):
        result = cases.fitted(*cases.ALL[name](backend))
        cases.assert_lives(result, backend)
        assert result.X.device.id == 1
        cases.assert_same(result, expected)


def test_fit_moves_numpy_data_to_the_double(cupy_double, tmp_path):
    path = tmp_path / "result.npz"
    options = {"max_iter": 20, "seed": 5, "engine": "reference", "record": airnp.Record(truth=cases.Y)}
    result = airnp.fit(cases.Y, cases.MASK, xp=cupy_double.cupy, checkpoint=path, **options)
    expected = airnp.fit(cases.Y, cases.MASK, **options)
    assert compat.is_cupy_array(result.X)
    np.testing.assert_allclose(result.X.get(), expected.X, rtol=0, atol=1e-11)
    np.testing.assert_allclose(result.history["nmae"], expected.history["nmae"], rtol=1e-9)
    np.testing.assert_array_equal(airnp.load(path).X, result.X.get())


def test_costs_of_the_reference_engine_are_counted(cupy_double):
    """The counters show the costs per iteration that CUDA graphs avoid."""

    def counted(iterations) -> dict[str, Any]:
        cupy_double.counters.reset()
        options = {"stop": None, "max_iter": iterations, "record": 10, "seed": 5, "engine": "reference"}
        airnp.fit(cases.Y, cases.MASK, xp=cupy_double.cupy, **options)
        return cupy_double.counters.snapshot()

    few, many = counted(10), counted(20)
    assert many["products"] - few["products"] == 10 * 10
    assert many["allocations"] - few["allocations"] > 10 * 50
    assert many["host_to_device"] == few["host_to_device"]
    assert not many["launches"]
