"""``airnp.fit_ratings`` from outside."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.sparse import coo_array

import airnp
from airnp import datasets
from airnp.data.entries import read_entries
from airnp.model.offsets import first_offsets
from airnp.ratings import Trials, chosen_shrinkage


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


def table(signal, noise, scale=1.0, seed=0):
    """Ratings of 80 users and 60 items, a fifth of them, and all that there could be."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(0, 1, (80, 1)) + rng.normal(0, 1, 60)
    truth += signal * rng.standard_normal((80, 2)) @ rng.standard_normal((2, 60))
    values = scale * (truth + noise * rng.standard_normal(truth.shape))
    where = np.nonzero(rng.random(truth.shape) < 0.2)
    return coo_array((values[where], where), shape=truth.shape), scale * truth


def trials(R, times=None):
    options = {"rank": 20, "max_iter": 200, "seed": 0, "engine": airnp.CPU(threads=1)}
    return Trials(R, None, times, options)


def test_of_noise_the_offsets_alone_are_left():
    R, truth = table(signal=0, noise=1)
    model = airnp.fit_ratings(R, rank=20, max_iter=200, seed=0, engine=airnp.CPU(threads=1))
    mean, rows, columns = first_offsets(read_entries(R), chosen_shrinkage(read_entries(R)))
    alone, found = (np.sqrt(np.mean((X - truth) ** 2)) for X in (mean + rows[:, None] + columns, model.X))
    assert found <= 1.001 * alone


def test_less_noise_needs_less_decay():
    clean, noisy = (trials(table(signal=1, noise=noise)[0]).choose() for noise in (0.02, 1.0))
    assert clean.decay * clean.spread < 0.5 * noisy.decay * noisy.spread


def test_where_who_rated_what_tells_nothing_the_mask_factor_is_left_out():
    found = trials(table(signal=1, noise=0.6)[0]).choose()
    assert found.mask_decay > 100 * found.decay


def test_settings_do_not_depend_on_the_unit_of_ratings():
    one, other = (trials(table(signal=1, noise=0.5, scale=scale)[0]).choose() for scale in (1, 8))
    np.testing.assert_allclose(one, other, rtol=1e-3)


def test_the_latest_ratings_are_held_out():
    """Ratings at random times: settings are judged by the latest fifth, in one turn."""
    R, _ = table(signal=1, noise=0.5)
    found = trials(R.tocsr(), np.arange(R.nnz))
    assert [int(held.sum()) for held in found._folds] == [round(0.2 * R.nnz)]
    assert np.flatnonzero(found._folds[0])[0] == round(0.8 * R.nnz)
    assert (len(found._others), len(trials(R)._folds), len(trials(R)._others)) == (0, 3, 2)


@pytest.mark.slow
def test_movielens_100k(data_directory):
    data = datasets.movielens_100k()
    rows, columns = np.nonzero(data.mask)
    R = coo_array((data.matrix[data.mask], (rows, columns)), shape=data.mask.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        result = airnp.fit_ratings(R, seed=0)
    error = result.predict(*np.nonzero(data.test_mask)) - data.matrix[data.test_mask]
    assert np.sqrt(np.mean(error**2)) <= 0.886
