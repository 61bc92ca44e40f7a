"""The graph of patches and its Laplacian against the sums that define them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from airnp.resemblance.patch_graph import GraphSettings, PatchGraph, near_gaps, sweeps
from tests.gradcheck import check_coordinates

SHAPE = (9, 12)
HOW = GraphSettings(patch=5, search=3, neighbours=4, coupled=3)


def picture(seed=0, channels=2):
    rng = np.random.default_rng(seed)
    observed = rng.random((channels, *SHAPE)) < 0.6
    return rng.random((channels, *SHAPE)).astype(np.float32), observed


def graph_of(X, observed, how=HOW, **options):
    return PatchGraph.of(X, observed, np.ones(SHAPE, bool), how, **options)


def edges(graph):
    """Yield centre, neighbour and weight of each edge."""
    side = 2 * graph.search + 1
    for y, x, k in zip(*np.nonzero(graph.offsets >= 0), strict=True):
        o = int(graph.offsets[y, x, k])
        yield (y, x), (y + o // side - graph.search, x + o % side - graph.search), graph.weights[y, x, k]


def distances(X, observed, how, y, x):
    """Return the distances of the patch around (y, x) to all others in its window, in float64."""
    margin = how.patch // 2
    frame = ((0, 0), (margin, margin), (margin, margin))
    padded = np.pad(X.astype(np.float64), frame, mode="reflect")
    trust = np.where(np.pad(observed, frame, mode="reflect"), 1.0, how.trust)

    def cut(array, place):
        return array[:, place[0] : place[0] + how.patch, place[1] : place[1] + how.patch]

    places = np.ndindex(*X.shape[1:])
    near = [p for p in places if max(abs(p[0] - y), abs(p[1] - x)) <= how.search and p != (y, x)]
    own, weight = cut(padded, (y, x)), cut(trust, (y, x))
    return {place: float((weight * (own - cut(padded, place)) ** 2).sum()) for place in near}


def laplacian_matrix(laplacian):
    n = laplacian.starts.size - 1
    return np.stack([laplacian @ unit for unit in np.eye(n)])


def brute_energy(graph, x, height=SHAPE[0], width=SHAPE[1], top=0, left=0):
    """½ Σ A_ij ‖z_i − z_j‖² over the middle parts of patches, within a window."""
    reach, total = graph.coupled // 2, 0.0
    for here, there, weight in edges(graph):
        for s in np.ndindex(2 * reach + 1, 2 * reach + 1):
            p, q = ((end[0] + s[0] - reach - top, end[1] + s[1] - reach - left) for end in (here, there))
            if all(0 <= y < height and 0 <= x < width for y, x in (p, q)):
                total += 0.5 * weight * (x[p] - x[q]) ** 2
    return total


def test_edges_go_to_the_nearest_patches_in_the_window():
    X, observed = picture()
    graph = graph_of(X, observed)
    found = {}
    for centre, other, _ in edges(graph):
        found.setdefault(centre, []).append(other)
    assert sorted(found) == list(np.ndindex(*SHAPE))
    for centre, others in found.items():
        apart = distances(X, observed, HOW, *centre)
        assert others == sorted(apart, key=apart.get)[: HOW.neighbours]


def test_weights_minimise_the_energy_beside_an_entropy():
    X, observed = picture(1)
    graph = graph_of(X, observed)
    rng = np.random.default_rng(0)
    for y, x in [(0, 0), (4, 6), (8, 11)]:
        D = np.sort(list(distances(X, observed, HOW, y, x).values()))[: HOW.neighbours]
        tau, P = D[HOW.neighbours // 2], graph.weights[y, x].astype(np.float64)

        def energy(weights, D=D, tau=tau):
            return weights @ D + tau * (weights @ np.log(weights))

        assert P.sum() == pytest.approx(1, abs=1e-6)
        slopes = D + tau * (np.log(P) + 1)  # equal at a minimum on the simplex
        np.testing.assert_allclose(slopes, slopes.mean(), rtol=1e-4)
        start = np.full(HOW.neighbours, 1 / HOW.neighbours)
        one = {"type": "eq", "fun": lambda weights: weights.sum() - 1}
        best = minimize(
            energy,
            start,
            bounds=[(1e-9, 1)] * len(D),
            constraints=one,
            method="SLSQP",
            options={"ftol": 1e-14},
        )
        np.testing.assert_allclose(P, best.x, atol=1e-4)
        for _ in range(20):
            other = P * np.exp(0.1 * rng.standard_normal(P.size))
            assert energy(other / other.sum()) > energy(P)


def test_with_live_weights_the_free_energy_has_the_gradient_of_fixed_ones():
    """The envelope theorem: at the minimum over P, a change of P changes nothing to first order."""
    rng = np.random.default_rng(2)
    Z, tau = rng.random((5, 3)), 0.3

    def parts(Z):
        D = ((Z[:, None] - Z[None]) ** 2).sum(axis=-1)
        P = np.exp(-D / tau) * ~np.eye(5, dtype=bool)
        return D, P / P.sum(axis=1, keepdims=True)

    def free_energy(arrays):
        D, P = parts(arrays[0])
        return 0.5 * float((P * D).sum() + tau * (P * np.log(P + np.eye(5))).sum())

    _, P = parts(Z)
    A = (P + P.T) / 2
    check_coordinates(free_energy, [Z], [2 * (np.diag(A.sum(axis=1)) - A) @ Z])


@pytest.mark.parametrize("coupled", [1, 3, 5])
def test_the_energy_of_pixels_is_that_of_patches(coupled):
    X, observed = picture(3)
    graph = graph_of(X, observed, GraphSettings(5, 3, 4, coupled))
    x = np.random.default_rng(4).standard_normal(SHAPE)
    found = x.ravel() @ (graph.laplacian() @ x.ravel())
    assert found == pytest.approx(brute_energy(graph, x), rel=1e-6)


def test_the_laplacian_of_a_window_has_the_edges_within_it():
    X, observed = picture(5)
    graph = graph_of(X, observed)
    x = np.random.default_rng(6).standard_normal((5, 7))
    found = x.ravel() @ (graph.laplacian(slice(3, 8), slice(2, 9)) @ x.ravel())
    assert found == pytest.approx(brute_energy(graph, x, 5, 7, 3, 2), rel=1e-6)


def test_the_laplacian_is_symmetric_semidefinite_and_blind_to_constants():
    laplacian = graph_of(*picture(7)).laplacian()
    L = laplacian_matrix(laplacian)
    np.testing.assert_allclose(L, L.T, atol=1e-6)
    np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-5)
    values = np.linalg.eigvalsh((L + L.T) / 2)
    assert values[0] > -1e-5
    assert values[1] > 1e-3  # the graph is connected here
    off = L[~np.eye(len(L), dtype=bool)]
    assert off.max() <= 0
    assert laplacian.mean_degree == pytest.approx(np.trace(L) / len(L), rel=1e-5)


@pytest.mark.parametrize("first_order", [None, 0.1, 1.0])
def test_conjugate_gradients_find_the_minimum_of_a_dense_solve(first_order):
    X, observed = picture(8)
    laplacian = graph_of(X, observed).laplacian()
    L = laplacian_matrix(laplacian)
    Q = L if first_order is None else L @ L + first_order * laplacian.mean_degree * L
    found = laplacian.minimise(X, observed, first_order, tolerance=1e-7)
    for before, after, seen in zip(X, found, observed, strict=True):
        known, gaps = seen.ravel(), ~seen.ravel()
        expected = np.linalg.solve(Q[gaps][:, gaps], -Q[gaps][:, known] @ before.ravel()[known])
        np.testing.assert_array_equal(after[seen], before[seen])
        np.testing.assert_allclose(after.ravel()[gaps], expected, atol=2e-4)


@pytest.mark.parametrize("channels", [3, 4, 5, 7])
@pytest.mark.parametrize("first_order", [None, 0.1])
def test_channels_with_the_same_gaps_are_solved_as_each_by_itself(channels, first_order):
    """Three channels share their loops, the rest of them go one by one."""
    X, observed = picture(11, channels)
    observed[:] = observed[0]
    laplacian = graph_of(X, observed).laplacian()
    together = laplacian.minimise(X, observed, first_order, tolerance=1e-6)
    for one, seen, found in zip(X, observed, together, strict=True):
        (alone,) = laplacian.minimise(one[None], seen[None], first_order, tolerance=1e-6)
        np.testing.assert_allclose(found, alone, atol=2e-4)


@given(st.integers(1, 9), st.integers(1, 30), st.floats(0.02, 0.9), st.integers(0, 12), st.integers(0, 999))
def test_sweeps_hold_all_wanted_entries_and_no_long_part_without(height, width, share, apart, seed):
    wanted = np.random.default_rng(seed).random((height, width)) < share
    held = np.zeros_like(wanted)
    for row, start, stop in sweeps(wanted, apart):
        part = wanted[row, start:stop]
        assert part[0]
        assert part[-1]
        assert np.diff(np.flatnonzero(part), prepend=0).max() <= apart + 1
        assert not held[row, start:stop].any()
        held[row, start:stop] = True
    assert held[wanted].all()


def test_wide_gaps_between_wanted_patches_do_not_change_them():
    """Parts of a strip that are far apart are compared by themselves."""
    rng = np.random.default_rng(12)
    X, observed = rng.random((1, 20, 200)).astype(np.float32), np.ones((1, 20, 200), bool)
    wanted = np.zeros((20, 200), bool)
    wanted[5:9, 3:6] = wanted[15:, 190:] = wanted[2, 100] = True
    assert len(sweeps(wanted)) > 3
    found, whole = (PatchGraph.of(X, observed, each, HOW) for each in (wanted, np.ones_like(wanted)))
    np.testing.assert_array_equal(found.offsets[wanted], whole.offsets[wanted])
    np.testing.assert_array_equal(found.weights[wanted], whole.weights[wanted])


def test_threads_do_not_change_the_graph():
    X, observed = picture(9)
    one, three = graph_of(X, observed), graph_of(X, observed, threads=3)
    np.testing.assert_array_equal(one.offsets, three.offsets)
    np.testing.assert_array_equal(one.weights, three.weights)


def test_only_wanted_patches_have_edges():
    X, observed = picture(10)
    wanted = near_gaps(np.arange(108).reshape(SHAPE) == 40, 2)
    assert wanted.sum() == 25
    graph = PatchGraph.of(X, observed, wanted, HOW)
    whole = graph_of(X, observed)
    np.testing.assert_array_equal(graph.offsets >= 0, np.repeat(wanted[..., None], HOW.neighbours, axis=2))
    np.testing.assert_array_equal(graph.weights[wanted], whole.weights[wanted])


def test_a_picture_of_a_few_pixels_has_fewer_neighbours():
    X = np.array([[[0.0, 1.0, 3.0]]], np.float32)
    graph = PatchGraph.of(X, np.ones(X.shape, bool), np.ones((1, 3), bool), GraphSettings(7, 10, 6))
    assert ((graph.offsets >= 0).sum(axis=2) == 2).all()
    np.testing.assert_allclose(graph.weights.sum(axis=2), 1, rtol=1e-6)
