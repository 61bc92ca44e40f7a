"""Values of the CUDA kernels of patches, run on the CPU, against NumPy in float64.

As ``test_kernels.py`` does for the dense form: shapes, grids, thread orders, and equal bits in every order.
"""

import numpy as np
import pytest

from airnp.resemblance.patches import VALUE_ONE, WEIGHT_ONE
from tests.engines import kernel_launches as launches
from tests.engines.kernel_checks import ORDERS
from tests.engines.kernel_launches import Machine, fenced
from tests.engines.patch_kernel_checks import Picture, check_filling, check_matching, round_of

DTYPES = [np.float32, np.float64]
# shape, frame, rate of gaps, and what the rounds differ in
PICTURES = {
    "grey": ((1, 1, 13, 15), 0, 0.3, {}),
    "few gaps": ((1, 1, 14, 11), 0, 0.03, {"patch": 4, "stride": 1}),
    "colour": ((1, 3, 11, 9), 0, 0.5, {"neighbours": 41, "answers": 41}),
    "video": ((3, 1, 12, 10), 1, 0.7, {"patch": 4, "answers": 13}),
    "last frame of colours": ((2, 3, 9, 10), 1, 0.4, {"search": 2, "neighbours": 128}),
    "one pixel": ((1, 1, 6, 7), 0, 0.5, {"patch": 1, "stride": 2, "neighbours": 9}),
    "whole picture": ((1, 2, 5, 5), 0, 0.5, {"patch": 5, "neighbours": 3}),
    "nothing known": ((1, 1, 9, 9), 0, 1.0, {}),
    "wide search": ((1, 1, 24, 25), 0, 0.4, {"patch": 2, "stride": 11, "search": 30, "neighbours": 128}),
}


def case_of(name, dtype, seed=0):
    shape, frame, rate, options = PICTURES[name]
    return {
        "dtype": dtype,
        "shape": shape,
        "frame": frame,
        "rate": rate,
        "seed": seed,
        "how": round_of(**options),
    }


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", [Machine(), Machine("fma", 7, 2)], ids=["fast", "fma"])
def test_matching(name, dtype, machine):
    check_matching(machine, **case_of(name, dtype))


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("machine", [Machine(), Machine("fma", 7, 2)], ids=["fast", "fma"])
def test_filling(name, dtype, machine):
    *_, sides = check_filling(machine, **case_of(name, dtype))
    if name in ("grey", "colour"):
        assert {"precision", "covariance"} <= sides


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_largest_patches_and_groups(dtype):
    how = round_of(patch=8, stride=8, search=5, neighbours=128, answers=9)
    case = {"dtype": dtype, "shape": (1, 3, 17, 17), "frame": 0, "rate": 0.5, "seed": 3, "how": how}
    _, found = check_matching(Machine(), levels=64, **case)
    assert found.max() > 99
    *_, sides = check_filling(Machine(), **case)
    assert {"precision", "covariance"} <= sides


def test_matching_starts_anywhere():
    case = case_of("grey", np.float32)
    every, count = check_matching(Machine(), **case)
    places, found = check_matching(Machine(), first=7, **case)
    np.testing.assert_array_equal(places, every[7:])
    np.testing.assert_array_equal(found, count[7:])


@pytest.mark.parametrize("levels", [1, 2])
def test_equal_distances_count_by_number(levels):
    # On one level all distances are 0, and the first candidates of the window are the nearest.
    case = case_of("video", np.float32)
    check_matching(Machine(order=2), levels=levels, **case)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["colour", "video"])
def test_bits_do_not_depend_on_the_order_of_threads_and_blocks(name, dtype):
    case = case_of(name, dtype)
    for check in (check_matching, check_filling):
        results = [
            check(Machine(order=order, most_blocks=blocks), **case)[:3]
            for order, blocks in [*zip(ORDERS, [2048] * len(ORDERS), strict=True), (0, 1), (7, 3)]
        ]
        for result in results[1:]:
            for one, other in zip(results[0], result, strict=True):
                np.testing.assert_array_equal(one, other)


def filled(of):
    """Return the sums of fill_groups on the nearest patches."""
    machine = Machine()
    matched = launches.match_launch(of.x, of.known, of.rows, of.columns, of.frame, of.how, machine)
    matched.run(machine)
    found = matched["places"], matched["found"]
    launch = launches.fill_launch(of.x, of.u, of.known, *found, of.frame, of.how, machine)
    launch.run(machine)
    return launch["values"], launch["weights"], launch["counts"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_flat_picture_stays_flat(dtype):
    # All patches are the same, so the covariance is noise alone and the mean is the answer.
    of = Picture(**case_of("colour", dtype))
    of.x[...] = 0.375
    of.u[...] = 0
    values, weights, counts = filled(of)
    told = counts > 0
    np.testing.assert_allclose(values[told] / VALUE_ONE / weights[told], 0.375, rtol=1e-7)
    assert (weights >= counts * 0.99 * WEIGHT_ONE).all()


@pytest.mark.parametrize(("level", "limit"), [(100, 8), (-100, -8)])
def test_values_are_kept_within_limits(level, limit):
    of = Picture(**case_of("grey", np.float32))
    of.x[...] = level
    values, weights, counts = filled(of)
    told = counts > 0
    np.testing.assert_array_equal(values[told] / VALUE_ONE / weights[told], limit)


def test_sums_are_added_to():
    of = Picture(**case_of("grey", np.float32))
    places, found = of.random_groups()
    launch = launches.fill_launch(of.x, of.u, of.known, places, found, 0, of.how, Machine())
    launch.run(Machine())
    once = [launch[name].copy() for name in ("values", "weights", "counts")]
    launch.run(Machine())
    for name, before in zip(("values", "weights", "counts"), once, strict=True):
        np.testing.assert_array_equal(launch[name], 2 * before)


def test_a_weight_is_that_of_the_variance():
    # One patch, of two pixels, one of them observed: by hand.
    how = round_of(patch=1, neighbours=2, answers=1, ridge=0.0, noise=0.25, softening=0.5)
    x = fenced([[[[0.5, 1.5]]]], np.float64)
    u, known = fenced(np.zeros((1, 1, 1, 2))), fenced([[[0, 1]]], np.int32)
    places, found = fenced([[0, 1]]), fenced([2], np.int32)
    launch = launches.fill_launch(x, u, known, places, found, 0, how, Machine())
    launch.run(Machine())
    # Mean 1, variance 1/4 + 1/4: the weight is a half, and one more unit is added.
    weight = WEIGHT_ONE / 2 + 1
    assert launch["weights"].ravel().tolist() == [weight, 0]
    assert launch["values"].ravel().tolist() == [weight * VALUE_ONE, 0]
    assert launch["counts"].ravel().tolist() == [1, 0]
