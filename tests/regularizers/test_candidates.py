"""Candidate edges: which are kept when they are searched again, and how they are found."""

from __future__ import annotations

import numpy as np
import pytest

from airnp.regularizers.candidates import Exchange, edges_to, exact, nearest_rows


def test_edges_that_stay_keep_their_weight_and_new_ones_get_the_mean_of_their_row():
    old, new = (
        edges_to(np.array([[1, 2], [0, 2], [0, 1], [0, 1]])),
        edges_to(np.array([[1, 3], [0, 2], [0, 1], [1, 2]])),
    )
    values = np.arange(12.0)
    carried = Exchange(old, new).logits(values)
    np.testing.assert_allclose(carried, [0, 1, 0.5, 3, 4, 5, 6, 7, 8, 10, 10.5, 11])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_approximate_index_finds_most_of_the_nearest_rows(dtype, monkeypatch):
    pytest.importorskip("faiss", reason="faiss is not installed: pip install airnp[neighbors]")
    rng = np.random.default_rng(0)
    points = (
        rng.standard_normal((40, 8))[rng.integers(40, size=3000)] + 0.3 * rng.standard_normal((3000, 8))
    ).astype(dtype)
    right = exact(points, np.arange(3000), 10)
    monkeypatch.setattr("airnp.regularizers.candidates._EXACT_ROWS", 100)
    found, again = nearest_rows(points, 10), nearest_rows(points, 10, threads=2)
    np.testing.assert_array_equal(found, again)
    assert not (found == np.arange(3000)[:, None]).any()
    shared = np.mean([len(np.intersect1d(a, b)) for a, b in zip(found, right, strict=True)])
    assert shared > 9
