"""Small matrices in registers against NumPy: products of tiles, inverse corners, bits, sparse rows."""

import numpy as np
import pytest
from numba import njit

from airnp.engines import _tiles as tiles
from airnp.engines._patch_kernels import inverse, nearest
from airnp.engines._tiles import LANES, PADDING, ROWS


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("count", [0, 1, 7])
@pytest.mark.parametrize("eliminates", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_tile_of_a_product(transposed, eliminates, count):
    tile = tiles.eliminate if eliminates else tiles.product
    A, B, C = random(8, 8), random(8, 24, seed=1), random(ROWS, 20, seed=2)
    left = A[:count, 3 : 3 + ROWS].T if not transposed else A[3 : 3 + ROWS, :count]
    expected = left @ B[:count, 5 : 5 + LANES]
    expected = C[:, 2 : 2 + LANES] - expected if eliminates else expected
    start, step, row = (3, 8, 1) if not transposed else (3 * 8, 1, 8)

    @njit
    def run(C, A, B):
        tile(C, 2, 20, A, start, step, row, B, 5, 24, count)

    found = C.copy()
    run(found.ravel(), A.ravel(), B.ravel())
    np.testing.assert_allclose(found[:, 2 : 2 + LANES], expected, atol=1e-5)
    np.testing.assert_array_equal(found[:, :2], C[:, :2])
    np.testing.assert_array_equal(found[:, 2 + LANES :], C[:, 2 + LANES :])


def test_tiles_of_matrices_side_by_side():
    A, B = random(5, ROWS, LANES), random(5, LANES, seed=1)

    @njit
    def run(C, A, B):
        tiles.product_of_lanes(C, 0, LANES, A, 0, ROWS * LANES, LANES, B, 0, LANES, 5)

    C = np.empty((ROWS, LANES), np.float32)
    run(C.ravel(), A.ravel(), B.ravel())
    np.testing.assert_allclose(C, np.einsum("krl,kl->rl", A, B), atol=1e-5)


def test_inverse_corners():
    root = random(LANES, ROWS, 9)
    corners = root @ root.swapaxes(1, 2)

    @njit
    def run(one, many, T, all_T):
        tiles.corner_inverse(one, 0, ROWS, 1, T, 0)
        tiles.corner_inverse_of_lanes(many, 0, ROWS * LANES, LANES, all_T, 0)

    T, all_T = np.empty((ROWS, ROWS), np.float32), np.empty((ROWS, ROWS, LANES), np.float32)
    side_by_side = np.ascontiguousarray(np.moveaxis(corners, 0, -1))
    run(corners[3].ravel(), side_by_side.ravel(), T.ravel(), all_T.ravel())
    factors = np.linalg.cholesky(corners).swapaxes(1, 2)
    np.testing.assert_allclose(T, np.linalg.inv(factors[3]), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(np.moveaxis(all_T, -1, 0), np.linalg.inv(factors), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("n", [4, 12, 36, 64])
def test_the_inverse_of_a_covariance(n):
    line = n + PADDING
    root = random(n, 2 * n)
    C = np.zeros((n, line), np.float32)
    C[:, :n] = root @ root.T / n
    U, W, P = (np.zeros_like(C) for _ in range(3))

    @njit
    def run(C, U, T, W, P):
        inverse(C, n, U, T, W, P)

    run(C.ravel(), U.ravel(), np.empty(ROWS * n, np.float32), W.ravel(), P.ravel())
    upper = np.triu_indices(n)
    np.testing.assert_allclose(P[:, :n][upper], np.linalg.inv(C[:, :n])[upper], rtol=1e-2, atol=1e-3)


def test_bits_of_what_is_below():
    values, limits = random(40), random(40, seed=1)
    limits[10] = values[5]

    @njit
    def run(values, limits):
        bits, found = tiles.below(values, 2, limits, 7), []
        while bits:
            found.append(tiles.lowest_bit(bits))
            bits &= bits - 1
        return found

    np.testing.assert_array_equal(
        run(values, limits), np.flatnonzero(values[2 : 2 + LANES] < limits[7 : 7 + LANES])
    )


@pytest.mark.parametrize("count", [0, 1, 6, 9])
def test_sparse_rows_of_four_columns(count):
    x, total, before = random(20, 4), random(4, seed=1), random(20, 4, seed=2)
    columns, entries = np.random.default_rng(3).integers(0, 20, 12).astype(np.int32), random(12, seed=4)
    some = slice(2, 2 + count)

    @njit
    def run(sums, x, columns, entries, total, after):
        tiles.weighted_sum(sums, x, columns, entries, 2, count)
        tiles.add_weighted(total, after, columns, entries, 2, count)

    sums, after = np.empty(4, np.float32), before.copy()
    run(sums, x.ravel(), columns, entries, total, after.ravel())
    np.testing.assert_allclose(sums, entries[some] @ x[columns[some]], atol=1e-5)
    expected = before.copy()
    np.add.at(expected, columns[some], entries[some, None] * total)
    np.testing.assert_allclose(after, expected, atol=1e-5)


@pytest.mark.parametrize("count", [1, 5, 30, 50])
def test_the_nearest_are_in_order_of_place_and_of_equal_ones_the_first(count):
    distances = np.random.default_rng(0).integers(0, 8, 50).astype(np.float32)
    distances[::7] = np.inf

    @njit
    def run(bits, places):
        nearest(bits, count, places)

    places = np.empty(count, np.int64)
    run(distances.view(np.int32), places)
    np.testing.assert_array_equal(places, np.sort(np.argsort(distances, kind="stable")[:count]))
