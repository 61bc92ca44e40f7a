"""Rows and columns without any observed entry: filled by what the rest predicts."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

import airnp
from airnp import AdaptiveLaplacian, EmptyLineWarning, FixedLaplacian

rng = np.random.default_rng(0)
TRUTH = 5 + rng.random((30, 3)) @ rng.random((3, 20))
OBSERVED = rng.random(TRUTH.shape) < 0.7
OBSERVED[4] = OBSERVED[:, 7] = False
SETTINGS = {"max_iter": 2000, "stop": None, "seed": 0}

pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")


def dense(**settings):
    return airnp.fit(TRUTH, OBSERVED, **{**SETTINGS, **settings}).X


def sparse(**settings):
    return airnp.fit_sparse(csr_array(np.where(OBSERVED, TRUTH, 0)), 3, **{**SETTINGS, **settings}).X


@pytest.mark.parametrize("fit", [dense, sparse])
def test_an_empty_line_becomes_the_mean_of_the_others(fit):
    found = fit(regularizers=[])
    others = np.delete(TRUTH, 4, axis=0).mean(axis=0), np.delete(TRUTH, 7, axis=1).mean(axis=1)
    np.testing.assert_allclose(np.delete(found[4], 7), np.delete(others[0], 7), atol=0.1)
    np.testing.assert_allclose(np.delete(found[:, 7], 4), np.delete(others[1], 4), atol=0.2)
    assert abs(found[4, 7] - TRUTH.mean()) < 0.2


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_factors_multiply_to_the_matrix_with_filled_lines(depth):
    result = airnp.fit(np.stack([TRUTH, TRUTH[::-1]]), OBSERVED, regularizers=[], depth=depth, **SETTINGS)
    product = result.factors[0]
    for factor in result.factors[1:]:
        product = factor @ product
    np.testing.assert_allclose(result.normalization.undo(product), result.X, atol=1e-12)
    assert result.X[:, 4].min() > TRUTH.min()


@pytest.mark.parametrize("fit", [dense, sparse])
def test_a_graph_over_one_axis_fills_the_lines_of_that_axis_itself(fit):
    ring = csr_array(np.roll(np.eye(30), 1, axis=0) + np.roll(np.eye(30), -1, axis=0))
    found = fit(regularizers=[FixedLaplacian(ring, "rows", weight=0.01)])
    np.testing.assert_allclose(found[4], (found[3] + found[5]) / 2, atol=0.05)
    assert abs(found[0, 7] - np.delete(found[0], 7).mean()) < 1e-6


def test_a_learned_graph_of_no_weight_links_nothing():
    found = dense(regularizers=[AdaptiveLaplacian("rows", 0.0)])
    assert found[4].mean() > TRUTH.min() + 0.3


def test_equal_entries_with_empty_lines_are_completed():
    """A mask over a black logo, given the wrong way round."""
    picture, mask = np.zeros((30, 30)), np.zeros((30, 30), dtype=bool)
    mask[3:6, 3:9] = True
    with pytest.warns(EmptyLineWarning, match="is the mask inverted"):
        result = airnp.fit(picture, mask, max_iter=50, seed=0)
    assert np.abs(result.X).max() < 1e-3
