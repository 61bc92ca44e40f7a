"""``airnp.fit_ratings`` from outside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.sparse import coo_array

import airnp
from airnp import datasets


def test_ratings_in_one_call():
    rng = np.random.default_rng(1)
    truth = 3 + rng.standard_normal((60, 2)) @ rng.standard_normal((2, 50))
    stars = np.clip(np.rint(truth), 1, 5)
    rows, columns = np.nonzero(np.random.default_rng(2).random(stars.shape) < 0.4)
    R = coo_array((stars[rows, columns], (rows, columns)), shape=stars.shape)
    result = airnp.fit_ratings(R, seed=0)
    rest = np.ones(stars.shape, bool)
    rest[rows, columns] = False
    error = np.sqrt(np.mean((result.X - stars)[rest] ** 2))
    assert error < 0.8 * stars[rest].std()
    assert 1 <= result.X.min() <= result.X.max() <= 5
    with pytest.raises(TypeError, match="R: expected a sparse matrix"):
        airnp.fit_ratings(stars)
    twice = coo_array(([1.0, 5.0, 4.0], ([0, 0, 1], [0, 0, 1])), shape=(3, 3))
    with pytest.raises(ValueError, match=r"R: expected at most one entry .* got 3 entries at 2 places"):
        airnp.fit_ratings(twice)


@pytest.mark.slow
def test_movielens_100k(data_directory):
    data = datasets.movielens_100k()
    rows, columns = np.nonzero(data.mask)
    R = coo_array((data.matrix[data.mask], (rows, columns)), shape=data.mask.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        result = airnp.fit_ratings(R, seed=0)
    error = result.predict(*np.nonzero(data.test_mask)) - data.matrix[data.test_mask]
    assert np.sqrt(np.mean(error**2)) <= 0.888
