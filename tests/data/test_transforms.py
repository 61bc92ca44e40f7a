"""Every linear map with an adjoint passes the dot test, and one that does not is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse.linalg import aslinearoperator

import airnp
from airnp import AdaptiveLaplacian, Blocks
from airnp.data.linearmaps import Columns, FlatOperator, Rows
from tests.strategies import Blur, RowMixing, divisors, seeds

sizes = st.integers(1, 8)


def assert_adjoint(transform, X_shape, rng):
    X = rng.standard_normal(X_shape)
    image = transform.forward(X)
    Z = rng.standard_normal(image.shape)
    back = transform.adjoint(Z)
    assert back.shape == X.shape
    assert np.sum(image * Z) == pytest.approx(np.sum(X * back), rel=1e-10, abs=1e-10)


@given(st.sampled_from([(), (3,), (2, 2)]), sizes, sizes, st.data(), seeds)
def test_dot_test_of_our_transforms(batch, m, n, data, seed):
    rng = np.random.default_rng(seed)
    h, w = data.draw(st.sampled_from(divisors(m))), data.draw(st.sampled_from(divisors(n)))
    for transform in (Rows(), Columns(), Blocks(h, w, shape=(m, n))):
        assert_adjoint(transform, (*batch, m, n), rng)


@given(st.integers(2, 6), st.integers(2, 6), seeds)
def test_dot_test_of_operators(m, n, seed):
    rng = np.random.default_rng(seed)
    assert_adjoint(FlatOperator(aslinearoperator(rng.standard_normal((5, m * n))), (m, n)), (m, n), rng)
    assert_adjoint(Blur(), (m, n), rng)
    assert_adjoint(RowMixing(rng.standard_normal((3, m))), (m, n), rng)


def test_blocks_read_left_to_right_and_top_to_bottom():
    X = np.arange(24).reshape(4, 6)
    Z = Blocks(2, 3).forward(X)
    assert Z.shape == (4, 6)
    for row, (i, j) in zip(Z, [(0, 0), (0, 3), (2, 0), (2, 3)], strict=True):
        np.testing.assert_array_equal(row, X[i : i + 2, j : j + 3].ravel())


def test_blocks_of_one_row_are_the_rows():
    X = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(Blocks(1, 4).forward(X), X)


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "2"])
def test_blocks_refuse_odd_sizes(size):
    with pytest.raises(ValueError, match="height: expected a whole number of at least 1"):
        Blocks(size, 2)


def test_blocks_that_do_not_tile_are_refused():
    with pytest.raises(ValueError, match="blocks of 2x3 do not tile a matrix of 4x7"):
        airnp.Objective(np.ones((4, 7)), regularizers=[AdaptiveLaplacian(Blocks(2, 3))])


def test_blocks_without_a_shape_have_no_adjoint():
    with pytest.raises(ValueError, match="shape: Blocks needs the matrix's shape"):
        Blocks(2, 2).adjoint(np.ones((2, 4)))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("adjoint", lambda result, _: 2 * result, "adjoint is not the adjoint of forward"),
        ("adjoint", lambda result, _: result[:, :-1], "adjoint must return the shape that forward takes"),
        ("forward", lambda result, _: result + 1, "not linear|not the adjoint"),
        ("forward", lambda _, X: X * X, "not linear|not the adjoint"),
    ],
    ids=["wrong adjoint", "wrong shape", "affine", "square"],
)
@pytest.mark.parametrize("where", ["axis", "operator"])
def test_a_map_that_is_not_linear_or_not_adjoint_is_refused(name, change, message, where):
    broken = RowMixing(np.random.default_rng(0).standard_normal((4, 4)))
    right = getattr(broken, name)
    setattr(broken, name, lambda argument: change(right(argument), argument))
    options = (
        {"regularizers": [AdaptiveLaplacian(broken)]}
        if where == "axis"
        else {"operator": airnp.Operator(broken, (4, 5))}
    )
    with pytest.raises(ValueError, match=f"{where}: .*({message})"):
        airnp.Objective(np.ones((4, 5)), **options)


def test_a_user_transform_learns_a_graph_over_its_own_nodes():
    mixing = np.random.default_rng(0).standard_normal((3, 4))
    result = airnp.fit(
        np.arange(20.0).reshape(4, 5),
        regularizers=[AdaptiveLaplacian(RowMixing(mixing))],
        max_iter=20,
        stop=None,
        seed=0,
    )
    assert result.regularizers[0].adjacency.shape == (3, 3)
    assert result.regularizers[0].name == "rowmixing"


@pytest.mark.parametrize(
    ("axis", "error", "message"),
    [
        ("row", ValueError, "axis: expected one of 'rows', 'columns' or a transform, got 'row'"),
        (3, TypeError, "axis: expected 'rows', 'columns', .* got int"),
        (None, TypeError, "axis: expected 'rows', 'columns', .* got NoneType"),
    ],
)
def test_an_unknown_axis_lists_the_valid_ones(axis, error, message):
    with pytest.raises(error, match=message):
        AdaptiveLaplacian(axis)
