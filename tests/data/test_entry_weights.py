"""Weights of the entries of a sparse matrix: read in any format, carried along, refused when odd."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, lil_array

import airnp
from airnp.data.entries import read_entries
from tests.sparse_tables import weighted_table


@pytest.mark.parametrize("kind", [coo_array, csr_array, csc_array, lil_array])
def test_weights_in_any_format(kind):
    Y, W = weighted_table(np.random.default_rng(4), 7, 6)
    wanted = csr_array(W)
    wanted.sort_indices()
    for weights in (kind(W), wanted.toarray()):
        np.testing.assert_array_equal(read_entries(kind(Y), None, weights).weights, wanted.data)
    if kind is not lil_array:
        found = read_entries(kind(Y), np.float32, kind(W).data)
        np.testing.assert_array_equal(found.weights, wanted.data.astype("f4"))


def test_entries_carry_their_weights_along():
    Y, W = weighted_table(np.random.default_rng(5), 7, 6)
    entries = read_entries(Y, None, W)
    np.testing.assert_array_equal(entries.turned.weights, read_entries(Y.T, None, W.T).weights)
    kept, held = entries.split(np.arange(entries.nnz) % 3 == 0)
    np.testing.assert_array_equal(np.sort(np.concatenate([kept.weights, held.weights])), np.sort(W.data))
    np.testing.assert_array_equal(held.weights, entries.weights[::3])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda Y, W: W.data[1:], r"weights: expected a sparse matrix like Y, or one number for each of its"),
        (lambda Y, W: -W, "weights: expected finite numbers of at least 0"),
        (lambda Y, W: W.data * np.inf, "weights: expected finite numbers of at least 0"),
        (lambda Y, W: 0 * W.data, "weights: expected at least one above 0"),
        (lambda Y, W: csr_array(np.ones(Y.shape)), "weights: expected an entry wherever Y stores one and"),
        (lambda Y, W: csr_array((3, 3)), r"weights: expected the shape of Y, \(7, 6\), got \(3, 3\)"),
    ],
)
def test_odd_weights_are_refused(make, message):
    Y, W = weighted_table(np.random.default_rng(6), 7, 6)
    with pytest.raises(ValueError, match=message):
        airnp.fit_sparse(Y, weights=make(Y, W), rank=2)


def test_weights_that_are_no_numbers_or_have_no_order_are_refused():
    Y, W = weighted_table(np.random.default_rng(7), 7, 6)
    with pytest.raises(TypeError, match="weights: expected real numbers, got dtype complex"):
        airnp.fit_sparse(Y, weights=W.data * 1j, rank=2)
    with pytest.raises(ValueError, match=r"weights: a vector is in the order of Y.data, .* in lil format"):
        airnp.fit_sparse(lil_array(Y), weights=W.data, rank=2)
    twice = coo_array(([1.0, 2.0, 3.0], ([0, 0, 1], [0, 0, 1])), shape=(2, 2))
    with pytest.raises(ValueError, match="S: expected at most one entry for each place, got 3 entries at 2"):
        airnp.fit_sparse(twice, weights=[1, 1, 1], rank=1)
