"""Rounds of patches on a CUDA device, end to end, on a strict double of CuPy whose kernels run on the CPU.

The kernels have tests of their own in ``tests/engines/test_patch_kernels.py``; what only a real device can
show is in ``tests/engines/test_gpu.py``.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from airnp.resemblance import cuda_patches, patches
from airnp.resemblance.patches import VALUE_ONE, Round, reference_places

HOW = Round(patch=4, stride=3, search=4, neighbours=40, answers=10)
# frames, channels, height, width; frame; rate of gaps; side of a patch
PICTURES = {
    "grey": ((1, 1, 15, 17), 0, 0.4, 4),
    "mostly missing": ((1, 1, 14, 13), 0, 0.8, 4),
    "colour": ((1, 3, 12, 11), 0, 0.5, 3),
    "video": ((3, 1, 11, 12), 1, 0.5, 4),
    "video in colour": ((3, 3, 10, 9), 2, 0.6, 3),
    "as large as a patch": ((1, 1, 4, 9), 0, 0.5, 4),
}


def picture(shape, rate, dtype=np.float32, seed=0):
    """Return a filled picture, the variances of its filled pixels, and where it is observed."""
    rng = np.random.default_rng(seed)
    f, c, y, x = np.indices(shape)
    X = 0.5 + 0.3 * np.sin(x / 3 + c + f / 5) * np.cos(y / 4 - c) + 0.02 * rng.standard_normal(shape)
    M = rng.random(shape) >= rate
    return X.astype(dtype), np.where(M, 0, 2e-3 * rng.random(shape)).astype(dtype), M


def places(shape, how):
    return [reference_places(length, how.patch, how.stride) for length in shape[2:]]


def on_device(gpu, *arrays):
    return [gpu.cupy.asarray(array) for array in arrays]


def parts(sums):
    """Return the three sums on the host."""
    return [part if isinstance(part, np.ndarray) else part.get() for part in vars(sums).values()]


def assert_close(got, want, tolerance):
    (values, weights, counts), (own_values, own_weights, own_counts) = parts(got), parts(want)
    np.testing.assert_array_equal(counts, own_counts)
    told = counts > 0
    assert told.any()
    np.testing.assert_allclose(weights[told], own_weights[told], rtol=1e3 * tolerance)
    means = values[told] / weights[told] / VALUE_ONE, own_values[told] / own_weights[told] / VALUE_ONE
    np.testing.assert_allclose(*means, atol=tolerance)
    assert not values[~told].any()


@pytest.mark.parametrize("name", PICTURES)
def test_the_answer_is_that_of_the_cpu(gpu, name):
    shape, frame, rate, side = PICTURES[name]
    how = replace(HOW, patch=side)
    arrays, where = picture(shape, rate), places(shape, how)
    got = patches.collect(*on_device(gpu, *arrays), frame, *where, how)
    for part in vars(got).values():
        assert isinstance(part, gpu.cupy.ndarray)
        assert part.dtype == np.int64
    assert_close(got, patches.collect(*arrays, frame, *where, how), 2e-6)


@pytest.mark.parametrize("name", PICTURES)
def test_in_float64_the_answer_is_the_formula(gpu, name):
    shape, frame, rate, side = PICTURES[name]
    how = replace(HOW, patch=side)
    arrays, where = picture(shape, rate, np.float64), places(shape, how)
    got = patches.collect(*on_device(gpu, *arrays), frame, *where, how)
    assert_close(got, patches.collect_by_formula(*arrays, frame, *where, how), 1e-8)


def test_portions_give_the_same_bits(gpu, monkeypatch):
    shape, frame, rate, _ = PICTURES["video"]
    arrays, where = on_device(gpu, *picture(shape, rate)), places(shape, HOW)
    whole = parts(patches.collect(*arrays, frame, *where, HOW))
    monkeypatch.setattr(cuda_patches, "_GROUPS", 5)
    monkeypatch.setattr(cuda_patches, "_SPACE", 20_000)
    gpu.counters.reset()
    for one, other in zip(whole, parts(patches.collect(*arrays, frame, *where, HOW)), strict=True):
        np.testing.assert_array_equal(one, other)
    portions = -(-len(where[0]) * len(where[1]) // 5)
    assert gpu.counters.launches == {"match_patches<float>": portions, "fill_groups<float>": portions}


def test_the_host_waits_for_nothing(gpu):
    shape, frame, rate, _ = PICTURES["video"]
    arrays, where = on_device(gpu, *picture(shape, rate)), places(shape, HOW)
    gpu.counters.reset()
    sums = patches.collect(*arrays, frame, *where, HOW)
    patches.apply(sums, arrays[0][frame], arrays[1][frame], ~arrays[2][frame], HOW)
    assert gpu.counters.synchronisations == gpu.counters.device_to_host == 0
    assert gpu.counters.host_to_device == 2  # where reference patches begin


def test_a_second_device_and_views(gpu):
    shape, frame, rate, _ = PICTURES["video"]
    arrays, where = picture(shape, rate), places(shape, HOW)
    want = parts(patches.collect(*on_device(gpu, *arrays), frame, *where, HOW))
    with gpu.cupy.cuda.Device(1):
        there = [array.swapaxes(2, 3) for array in on_device(gpu, *(a.swapaxes(2, 3) for a in arrays))]
    got = patches.collect(*there, frame, *where, HOW)
    assert got.values.device.id == 1
    for one, other in zip(parts(got), want, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("empty", [0, 1])
def test_without_reference_patches_the_sums_are_zero(gpu, empty):
    shape, frame, rate, _ = PICTURES["colour"]
    where = places(shape, HOW)
    where[empty] = where[empty][:0]
    sums = patches.collect(*on_device(gpu, *picture(shape, rate)), frame, *where, HOW)
    assert not any(part.any() for part in parts(sums))
    assert sums.values.shape == shape[1:]


@pytest.mark.parametrize("step", [1.0, 1.4])
def test_rounds_are_those_of_the_cpu(gpu, step):
    # Three rounds: matches, groups and fill depend on the rounds before.
    shape, frame, rate, _ = PICTURES["video"]
    X, U, M = picture(shape, rate)
    how, where = replace(HOW, step=step), places(shape, HOW)
    device = on_device(gpu, X, U, M)
    host = [X.copy(), U.copy(), M]
    for x, u, m in (device, host):
        for _ in range(3):
            sums = patches.collect(x, u, m, frame, *where, how)
            x[frame], u[frame] = patches.apply(sums, x[frame], u[frame], ~m[frame], how)
    assert device[0].dtype == device[1].dtype == np.float32
    np.testing.assert_allclose(device[0].get(), host[0], atol=5e-6)
    np.testing.assert_allclose(device[1].get(), host[1], atol=1e-7)
    np.testing.assert_array_equal(host[0][M], X[M])
    assert np.abs(host[0] - X).max() > 1e-2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patch": 9}, r"patch: .* at most 192 entries, got 243, 9x9 pixels of 3 channels"),
        ({"neighbours": 129}, r"neighbours: .* expected 1 to 128, got 129"),
        ({"neighbours": 0}, r"neighbours: .* expected 1 to 128, got 0"),
        ({"frame": 1}, r"frame: expected 0 to 0, got 1"),
        ({"rows": np.array([0, 9])}, r"rows: expected places from 0 to 8, .*, got 0 to 9"),
        ({"columns": np.array([-1, 3])}, r"columns: expected places from 0 to 7, .*, got -1 to 3"),
    ],
)
def test_what_the_kernels_have_no_room_for_is_an_error(gpu, options, message):
    shape, frame, rate, _ = PICTURES["colour"]
    where = dict(zip(("rows", "columns"), places(shape, HOW), strict=True)) | {"frame": frame}
    how = replace(HOW, **{name: value for name, value in options.items() if name not in where})
    where |= {name: value for name, value in options.items() if name in where}
    with pytest.raises(ValueError, match=message):
        patches.collect(*on_device(gpu, *picture(shape, rate)), **where, how=how)


def test_arrays_of_other_types_and_shapes_are_errors(gpu):
    shape, frame, rate, _ = PICTURES["grey"]
    X, U, M = on_device(gpu, *picture(shape, rate))
    where = places(shape, HOW)
    with pytest.raises(TypeError, match="X: expected float32 or float64, got float16"):
        patches.collect(X.astype(np.float16), U, M, frame, *where, HOW)
    with pytest.raises(TypeError, match="fill_groups: u: expected dtype float32, got float64"):
        patches.collect(X, U.astype(np.float64), M, frame, *where, HOW)
    for name, arrays in (("U", (X, U[..., :-1], M)), ("M", (X, U, M[0]))):
        with pytest.raises(ValueError, match=f"{name}: expected the shape of X"):
            patches.collect(*arrays, frame, *where, HOW)
