"""The shapes of the factors."""

from __future__ import annotations

import numpy as np
import pytest

from airnp.model.factorization import factor_shapes


@pytest.mark.parametrize(("depth", "rank"), [(1, 4), (2, 3), (3, 2), (5, 1)])
def test_factor_shapes_multiply_to_the_matrix(depth, rank):
    shapes = factor_shapes(6, 4, depth, rank)
    assert len(shapes) == depth
    product = np.linalg.multi_dot([np.eye(6), *(np.ones(shape) for shape in reversed(shapes)), np.eye(4)])
    assert product.shape == (6, 4)
