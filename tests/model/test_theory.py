"""The paper's theorems, tested on airnp's own gradients; docs/theory.md lists the outcomes.

The flows are those of :class:`airnp.Objective`. The theorems' statements are written out in NumPy.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import airnp
from airnp.commands.demo import scene
from tests.gradcheck import directional_derivative
from tests.model.paper import barbara, gradient, printed_gradient, problems, relative_difference

ROOT = Path(__file__).resolve().parents[2]


def laplacian(A):
    return np.diag(A.sum(axis=1)) - A


# --- Theorem 1: how the singular values move ---

DEPTHS = (2, 3, 4)
WEIGHTS = (0.05, 0.2)  # λ_r and λ_c: unlike each other, and unlike 1
Y = np.random.default_rng(0).random((5, 4))
MASK = airnp.masks.random(Y.shape, missing=0.3, seed=1)


def air_and_dmf(depth):
    """The objective with learned graphs over rows and columns, and the one without."""
    graphs = [
        airnp.AdaptiveLaplacian(axis, weight, "global")
        for axis, weight in zip(("rows", "columns"), WEIGHTS, strict=True)
    ]
    return [
        airnp.Objective(Y, MASK, regularizers=regularizers, depth=depth, fidelity=airnp.Squared("sum"))
        for regularizers in (graphs, [])
    ]


def gammas(objective, params, weights=WEIGHTS):
    """γ_k = λ_r u_kᵀ L_r u_k + λ_c v_kᵀ L_c v_k for every singular value."""
    U, _, Vt = np.linalg.svd(objective.matrix(params), full_matrices=False)
    L_r, L_c = map(laplacian, objective.adjacencies(params))
    return weights[0] * np.sum(U * (L_r @ U), axis=0) + weights[1] * np.sum(Vt.T * (L_c @ Vt.T), axis=0)


def fidelity_slopes(X):
    """⟨∇F, u_k v_kᵀ⟩ for every singular value, with ∇F = M ⊙ (X − Y)."""
    U, _, Vt = np.linalg.svd(X, full_matrices=False)
    return np.sum(U * ((MASK * (X - Y)) @ Vt.T), axis=0)


def stated_velocity(objective, params, gamma):
    """The right-hand side of Theorem 1."""
    X, depth = objective.matrix(params), objective.depth
    sigma = np.linalg.svd(X, compute_uv=False)
    pull = 2 * depth * sigma ** (3 - 2 / depth) * gamma(objective, params)
    return -depth * sigma ** (2 - 2 / depth) * fidelity_slopes(X) - pull


def flow_beside_the_stated_equation(objective, start, gamma=gammas):
    """Integrate ẇ = −∇loss and, beside it, the stated σ̇; return the parameters, σ(X) and the stated σ."""
    count = min(objective.shape)

    def velocity(t, state):
        params = objective.unpack(state[:-count])
        _, grads = objective.value_and_grad(params)
        return np.concatenate([-objective.pack(grads), stated_velocity(objective, params, gamma)])

    sigma = np.linalg.svd(objective.matrix(start), compute_uv=False)
    together = np.concatenate([objective.pack(start), sigma])
    times = np.linspace(0, 10, 6)
    solution = solve_ivp(velocity, (0, 10), together, method="DOP853", t_eval=times, rtol=1e-9, atol=1e-11)
    path = [objective.unpack(state[:-count]) for state in solution.y.T]
    actual = [np.linalg.svd(objective.matrix(params), compute_uv=False) for params in path]
    return path, np.array(actual), solution.y[-count:].T


def imbalance(factors):
    return max(np.abs(after.T @ after - W @ W.T).max() for W, after in pairwise(factors))


@pytest.mark.parametrize("depth", DEPTHS)
def test_singular_values_follow_theorem_1(depth):
    objective, _ = air_and_dmf(depth)
    start = objective.init(seed=0, init=airnp.Balanced(0.3, 0.3))
    path, actual, stated = flow_beside_the_stated_equation(objective, start)
    np.testing.assert_allclose(actual, stated, atol=1e-8)
    assert np.abs(actual[-1] - actual[0]).max() > 0.5  # they did move
    assert max(imbalance(params[:depth]) for params in path) < 1e-8


def test_without_lambda_in_gamma_the_equation_of_theorem_1_is_wrong():
    """As printed γ_k has no λ."""
    objective, _ = air_and_dmf(3)
    start = objective.init(seed=0, init=airnp.Balanced(0.3, 0.3))

    def without_lambda(objective, params):
        return gammas(objective, params, weights=(1.0, 1.0))

    _, actual, stated = flow_beside_the_stated_equation(objective, start, without_lambda)
    assert actual[-1, 0] == pytest.approx(2.3, abs=0.1)
    assert np.abs(actual - stated)[-1, 0] > 10


def test_theorem_1_needs_the_balanced_start():
    objective, _ = air_and_dmf(3)
    start = objective.init(seed=0, init=airnp.Gaussian(0.3, 0.3))
    assert imbalance(start[:3]) > 0.1
    _, actual, stated = flow_beside_the_stated_equation(objective, start)
    assert np.abs(actual - stated)[-1].max() > 0.05


def velocity_of_singular_values(objective, params):
    """u_kᵀ Ẋ v_k, with Ẋ from the gradients of the factors alone."""
    _, grads = objective.value_and_grad(params)
    downhill = [-grad for grad in grads[: objective.depth]]
    X_dot = directional_derivative(objective.matrix, params[: objective.depth], downhill, step=1e-3)
    U, _, Vt = np.linalg.svd(objective.matrix(params), full_matrices=False)
    return np.sum(U * (X_dot @ Vt.T), axis=0)


def order(sigma, values):
    """The slope of log |value| over log σ."""
    return np.polyfit(np.log(sigma), np.log(np.abs(values)), 1)[0]


@pytest.mark.parametrize("depth", DEPTHS)
def test_the_regulariser_acts_with_order_3_minus_2_over_l(depth):
    """One order above the fidelity's 2 − 2/L, each after division by its coefficient."""
    objective, plain = air_and_dmf(depth)
    params = objective.init(seed=0, init=airnp.Balanced(0.3, 0.3))
    X = objective.matrix(params)
    sigma = np.linalg.svd(X, compute_uv=False)
    by_fidelity = velocity_of_singular_values(plain, params[:depth])
    by_graphs = velocity_of_singular_values(objective, params) - by_fidelity
    assert order(sigma, by_fidelity / fidelity_slopes(X)) == pytest.approx(2 - 2 / depth, abs=1e-4)
    assert order(sigma, by_graphs / gammas(objective, params)) == pytest.approx(3 - 2 / depth, abs=1e-4)


class ColumnSums:
    """Measurements that do not see what sums to zero in every column: F and its gradient vanish there."""

    def forward(self, X):
        return X.sum(axis=0)

    def adjoint(self, y):
        return np.ones((6, 1)) * y


def flow_under_a_graph_alone(graph, modes, sigma, depth, times):
    """Let modes of the graph (eigenvectors of its Laplacian) shrink; return σ(t) and what Theorem 1 gives.

    On such modes γ_k = λ·eigenvalue is constant and σ̇ = −2Lγσ^(3−2/L) has a solution in closed form.
    """
    weight, power = 0.01, 2 - 2 / depth
    eigenvalues, vectors = np.linalg.eigh(laplacian(graph))
    factor = np.diag(np.asarray(sigma) ** (1 / depth))
    start = [factor] * (depth - 1) + [vectors[:, modes] @ factor]
    objective = airnp.Objective(
        np.zeros(len(sigma)),
        operator=airnp.Operator(ColumnSums(), (6, len(sigma))),
        regularizers=[airnp.FixedLaplacian(graph, weight=weight)],
        depth=depth,
    )

    def velocity(t, state):
        return -objective.pack(objective.value_and_grad(objective.unpack(state))[1])

    solution = solve_ivp(
        velocity, (0, times[-1]), objective.pack(start), t_eval=times, method="DOP853", rtol=1e-10, atol=1e-12
    )
    matrices = [objective.matrix(objective.unpack(state)) for state in solution.y.T]
    # The modes are orthogonal, and stay so: each column of X is one of them.
    flowing = np.array([np.linalg.norm(X, axis=0) for X in matrices])
    gamma = weight * eigenvalues[modes]
    closed = (np.asarray(sigma) ** -power + 2 * depth * power * gamma * times[:, None]) ** (-1 / power)
    return flowing, closed


COMPLETE = np.ones((6, 6)) - np.eye(6)
PATH = np.eye(6, k=1) + np.eye(6, k=-1)


@pytest.mark.parametrize("depth", DEPTHS)
def test_a_graph_alone_shrinks_singular_values_in_closed_form(depth):
    times = np.array([0.0, 1.0, 10.0, 100.0])
    for graph in (COMPLETE, PATH):
        flowing, closed = flow_under_a_graph_alone(graph, [1, 3, 5], [4.0, 2.0, 1.0], depth, times)
        np.testing.assert_allclose(flowing, closed, rtol=1e-7)


def test_the_higher_order_closes_the_gap_and_gamma_can_open_it():
    """With equal γ the larger singular value shrinks faster, so their ratio falls."""
    times = np.array([0.0, 10.0])
    evened, _ = flow_under_a_graph_alone(COMPLETE, [1, 5], [4.0, 1.0], 3, times)
    np.testing.assert_allclose(evened[1], [0.30, 0.27], atol=0.005)
    assert evened[1, 0] / evened[1, 1] == pytest.approx(1.12, abs=0.01)
    parted, _ = flow_under_a_graph_alone(PATH, [1, 5], [4.0, 1.0], 3, times)
    assert parted[1, 0] / parted[1, 1] == pytest.approx(5.92, abs=0.01)


def test_when_a_graph_opens_a_gap():
    """At first the ratio σ_1/σ_2 grows if γ_2/γ_1 > (σ_1/σ_2)^(2−2/L), which is 6.35 here."""
    roughness = np.linalg.eigvalsh(laplacian(PATH))
    ratios = roughness[2:] / roughness[1]
    np.testing.assert_allclose(ratios, [3.7, 7.5, 11.2, 13.9], atol=0.05)
    for mode, ratio in enumerate(ratios, start=2):
        flowing, _ = flow_under_a_graph_alone(PATH, [1, mode], [4.0, 1.0], 3, np.array([0.0, 0.01]))
        assert (flowing[1, 0] / flowing[1, 1] > 4) == (ratio > 4 ** (4 / 3))


# --- Theorem 2 and its corollary: where the graph goes when X stays ---

# Rows 0, 1, 2 are equal, and 3, 4. In the theorem's words m = 6 and s = 4: four pairs of equal rows.
GROUPS = np.array([0, 0, 0, 1, 1, 2])
EQUAL = GROUPS[:, None] == GROUPS
NODES = len(GROUPS)
ZEROS = int(EQUAL.sum())  # m + 2s = 14 entries at which C vanishes
GAMMA = 2 / ZEROS
TIMES = np.array([0.0, 1e4, 1e5, 1e6])


def unit_rows(groups, seed=0):
    """Positive rows of norm 1, as the theorem wants them, equal within a group."""
    drawn = np.random.default_rng(seed).random((max(groups) + 1, 5))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True))[groups]


Z = unit_rows(GROUPS)
DISTANCES = ((Z[:, None] - Z) ** 2).sum(axis=-1)


def graph_objective(Z, kind, weight=1.0):
    """An objective that is λR at X = Z, since the data is Z itself."""
    graph = airnp.AdaptiveLaplacian("rows", weight, kind)
    return airnp.Objective(Z, np.ones(Z.shape, dtype=bool), regularizers=[graph], depth=1)


def graph_flow(Z, kind):
    """V(t) and R(t) at TIMES, from V = 0.3 everywhere."""
    objective, k = graph_objective(Z, kind), Z.shape[0]

    def velocity(t, v):
        return -objective.value_and_grad([Z, v.reshape(k, k)])[1][1].ravel()

    solution = solve_ivp(
        velocity, (0, TIMES[-1]), np.full(k * k, 0.3), t_eval=TIMES, method="LSODA", rtol=1e-9, atol=1e-10
    )
    graphs = solution.y.T.reshape(-1, k, k)
    energies = np.array([objective.value_and_grad([Z, V])[0] for V in graphs])
    adjacencies = np.array([objective.adjacencies([Z, V])[0] for V in graphs])
    return graphs, energies, adjacencies


@cache
def flow_of(kind):
    return graph_flow(Z, kind)


def test_v_stays_symmetric_in_two_of_the_three_forms():
    asymmetry = {}
    for kind in ("global", "product", "row"):
        V = flow_of(kind)[0][-1]
        asymmetry[kind] = np.abs(V - V.T).max()
    assert asymmetry["global"] < 1e-9
    assert asymmetry["product"] < 1e-9
    # Rows are normalised one by one, so V_ij and V_ji move at different speeds. A is symmetric all the same.
    assert asymmetry["row"] > 1
    A = flow_of("row")[2][-1]
    np.testing.assert_array_equal(A, A.T)


def test_the_limit_is_the_stated_one_but_for_its_sign():
    stated = np.where(EQUAL, GAMMA, 0.0)
    np.fill_diagonal(stated, 0.0)
    np.fill_diagonal(stated, -stated.sum(axis=1))
    L = laplacian(flow_of("global")[2][-1])
    # A Laplacian has −A off its diagonal; L* as printed is its negative.
    np.testing.assert_allclose(L, -stated, atol=1e-4 * GAMMA)
    assert np.abs(L - stated).max() > GAMMA


def test_the_softmax_on_equal_rows_reaches_one_over_m_plus_2s():
    P = np.exp(flow_of("global")[0][-1])
    P /= P.sum()
    np.testing.assert_allclose(P[EQUAL], 1 / 14, rtol=1e-4)
    assert P[~EQUAL].max() < 1e-4


def test_row_by_row_the_limit_is_one_over_the_number_of_equal_rows():
    P = np.exp(flow_of("row")[0][-1])
    P /= P.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(P, EQUAL / EQUAL.sum(axis=1, keepdims=True), atol=1e-4)


def test_the_printed_parameterisation_has_no_limit():
    """Its A grows on equal rows like t^a, a = N/(4(m + 2s) + N), N being the number of unequal pairs."""
    A = flow_of("product")[2]
    others = NODES**2 - ZEROS
    growth = np.log10(A[3][EQUAL] / A[2][EQUAL])  # over a decade of t
    np.testing.assert_allclose(growth, others / (4 * ZEROS + others), rtol=0.02)
    assert A[3][EQUAL].min() > 10 * GAMMA
    assert A[3][~EQUAL].max() < 1e-5


def test_without_equal_rows_the_limit_is_the_trivial_one():
    _, _, adjacencies = graph_flow(unit_rows(np.arange(4)), "global")
    assert np.abs(laplacian(adjacencies[0])).max() == pytest.approx(3 / 8)
    assert np.abs(laplacian(adjacencies[-1])).max() < 1e-5
    np.testing.assert_allclose(np.diag(adjacencies[-1]), 2 / 4, rtol=1e-4)  # all weight in loops


ENERGY_TIMES_T = {
    "global": ZEROS * (1 - ZEROS / NODES**2),
    "row": float(sum(count * (NODES - count) / NODES for count in EQUAL.sum(axis=1))),
    "product": (NODES**2 - ZEROS) * ZEROS / (4 * ZEROS + NODES**2 - ZEROS),
}


@pytest.mark.parametrize(("kind", "constant"), [("global", 8.556), ("row", 8.0), ("product", 3.949)])
def test_the_energy_vanishes_like_one_over_t(kind, constant):
    """R·t settles at a number that depends on which rows are equal, not on how far apart the others are."""
    assert ENERGY_TIMES_T[kind] == pytest.approx(constant, abs=5e-4)
    for energies in (flow_of(kind)[1], graph_flow(unit_rows(GROUPS, seed=1), kind)[1]):
        off = np.abs(energies[1:] * TIMES[1:] / ENERGY_TIMES_T[kind] - 1)
        assert np.all(off[1:] < off[:-1] / 3)
        assert off[-1] < 0.01


def test_every_entry_of_the_graph_settles_like_one_over_t():
    A = flow_of("global")[2][-1]
    np.testing.assert_allclose((A * DISTANCES)[~EQUAL] * TIMES[-1], 2 * ZEROS / NODES**2, rtol=2e-3)


def test_equal_rows_do_not_settle_faster_than_others():
    """The weight that unequal pairs lose one by one reaches the equal ones as a sum."""
    graphs = flow_of("global")[2]
    off_diagonal = EQUAL & ~np.eye(NODES, dtype=bool)
    ratios = [np.abs(A - GAMMA)[off_diagonal].min() / A[~EQUAL].max() for A in graphs[2:]]
    assert ratios[1] == pytest.approx(ratios[0], rel=0.01)  # the same order in t
    assert ratios[1] == pytest.approx(1.23, abs=0.01)  # an equal pair beside the slowest of the others


def test_the_printed_exponential_bound_does_not_hold():
    """Corollary 1: R ≤ 2m(m − 1) exp(−Dt)/γ, with D the least 4 C/m² over unequal rows."""
    C = DISTANCES / 2  # for rows of norm 1
    rate = 4 * C[~EQUAL].min() / NODES**2
    bound = 2 * NODES * (NODES - 1) * np.exp(-rate * TIMES) / GAMMA
    energies = flow_of("global")[1]
    assert energies[0] <= bound[0]
    assert energies[1] == pytest.approx(8.9e-4, rel=0.01)
    assert bound[1] < 1e-57


def adam_on_the_graph(weight, iterations, every=2500):
    """Let Adam, as it comes, move V from 0.3 everywhere; return A and R at every so many iterations."""
    objective = graph_objective(Z, "global", weight)
    params, adam = [np.full((NODES, NODES), 0.3)], airnp.Adam()
    state = adam.init(params, ["graph"])
    adjacencies, energies = [], []
    for iteration in range(1, iterations + 1):
        value, grads = objective.value_and_grad([Z, *params])
        if iteration % every == 0:
            adjacencies.append(objective.adjacencies([Z, *params])[0])
            energies.append(value / weight)
        adam.step(params, grads[1:], state)
    return np.array(adjacencies), np.array(energies)


def test_under_adam_the_decay_is_exponential_at_a_rate_of_its_own():
    """log A falls at the same rate a for every unequal pair, whatever their distance.

    Adam moves V by rate·m/√v. For a gradient that shrinks like exp(−a·i), m ≈ g and
    v = g²(1 − β2)/(1 − β2 exp(2a)) ≈ g²/(1 − 2a/(1 − β2)). Unequal pairs go down at that speed and equal ones
    up, hence a = 2·rate·√(1 − 2a/(1 − β2)), which is (√20 − 4)·1e-3 for rate = 1 − β2 = 1e-3.
    """
    adjacencies, energies = adam_on_the_graph(1.0, 15_000)
    expected = (np.sqrt(20) - 4) * 1e-3
    assert np.log(energies[4] / energies[5]) / 2500 == pytest.approx(expected, rel=0.01)
    assert DISTANCES[~EQUAL].max() / DISTANCES[~EQUAL].min() == pytest.approx(1.8, abs=0.05)
    of_each = np.log(adjacencies[4] / adjacencies[5])[~EQUAL] / 2500
    np.testing.assert_allclose(of_each, expected, rtol=0.01)


def test_where_gradients_are_below_its_epsilon_adam_is_gradient_descent_again():
    """λ = 5e-5 is the default weight at 240×240. A step is then rate·λ/ε = 5 units of the flow's time."""
    _, energies = adam_on_the_graph(5e-5, 20_000)
    units = 1e-3 * 5e-5 / 1e-8 * 2500
    assert (1 / energies[-1] - 1 / energies[-2]) / units == pytest.approx(1 / 8.556, rel=0.1)


# --- Where the text and the truth differ ---


def test_how_far_proposition_b1_is_from_the_gradient():
    off = [relative_difference(printed_gradient(V, Z), gradient("global", V, Z)) for V, Z in problems()]
    assert min(off) == pytest.approx(1.48, abs=0.005)
    assert max(off) == pytest.approx(4.07, abs=0.005)


@pytest.mark.parametrize("kind", ["row", "global", "product"])
def test_the_printed_double_sum_is_twice_the_energy(kind):
    """tr(ZᵀLZ) = ½ Σ A‖z_i − z_j‖². With L for A, as in the corollary's proof, the sign is wrong as well."""
    V = np.random.default_rng(1).standard_normal((NODES, NODES))
    objective = graph_objective(Z, kind)
    energy, _ = objective.value_and_grad([Z, V])
    (A,) = objective.adjacencies([Z, V])
    assert energy == pytest.approx(np.trace(Z.T @ laplacian(A) @ Z), rel=1e-12)
    assert np.sum(A * DISTANCES) == pytest.approx(2 * energy, rel=1e-12)
    assert np.sum(laplacian(A) * DISTANCES) == pytest.approx(-2 * energy, rel=1e-12)


def printed_nmae(X, truth, mask):
    return np.sum((X - truth)[~mask] ** 2) / ((~mask).sum() * (truth.max() - truth.min()))


def test_the_printed_nmae_has_a_unit():
    """255 grey values in place of [0, 1] multiply it by 255; an error in shares of the range stays."""
    rng = np.random.default_rng(0)
    truth, mask = rng.random((20, 20)), rng.random((20, 20)) < 0.7
    X = truth + 0.1 * rng.standard_normal(truth.shape)
    grey = (255 * X, 255 * truth, mask)
    assert airnp.metrics.nmae(*grey) == pytest.approx(airnp.metrics.nmae(X, truth, mask), rel=1e-12)
    assert printed_nmae(*grey) == pytest.approx(255 * printed_nmae(X, truth, mask), rel=1e-12)


def both_graphs(weight, kind):
    return [airnp.AdaptiveLaplacian(axis, weight, kind) for axis in ("rows", "columns")]


@cache
def fit_of_a_noisy_picture(method):
    """Complete a noisy 32×32 picture, 30 % missing; return the history, with the error in the gaps."""
    truth = scene(32)
    noisy = truth + 0.05 * np.random.default_rng(0).standard_normal(truth.shape)
    mask = airnp.masks.random(truth.shape, missing=0.3, seed=0)
    printed_weight = np.ptp(noisy[mask]) / truth.size
    settings = {
        "air": {"regularizers": both_graphs(2.88 / truth.size, "row")},
        "dmf": {"regularizers": []},
        "air as printed": {
            "regularizers": both_graphs(printed_weight, "global"),
            "fidelity": airnp.Squared("sum"),
        },
    }[method]
    result = airnp.fit(
        noisy,
        mask,
        max_iter=10_000,
        stop=None,
        optimizer=airnp.Adam(),
        init=airnp.Gaussian(3.8e-3, 3.8e-3),
        seed=0,
        record=airnp.Record(100, truth),
        **settings,
    )
    return result.history


def test_the_printed_lambda_does_nothing():
    """Without the right λ AIR ends where plain factorisation does."""
    ends = {name: fit_of_a_noisy_picture(name)["nmae"][-1] for name in ("air", "dmf", "air as printed")}
    assert ends["dmf"] == pytest.approx(0.152, abs=0.01)
    assert ends["air as printed"] == pytest.approx(ends["dmf"], rel=0.02)
    assert ends["air"] < 0.6 * ends["dmf"]


def test_the_printed_lambda_is_smaller_than_the_default_by_orders_of_magnitude():
    """Both relative to the fidelity's scale s, for data in [0, 1]."""
    Y = np.linspace(0, 1, 240 * 240).reshape(240, 240)
    (term,) = airnp.Objective(
        Y, regularizers=[airnp.AdaptiveLaplacian()], fidelity=airnp.Squared("sum")
    ).terms
    assert term.weight / (np.ptp(Y) / Y.size) == pytest.approx(83_000, rel=0.01)


def test_air_over_fits_without_early_stopping():
    """More slowly than plain factorisation, but its energies vanish, and nothing holds it back."""
    history, plain = fit_of_a_noisy_picture("air"), fit_of_a_noisy_picture("dmf")["nmae"]
    error, energy = history["nmae"], history["energy_rows"]
    assert error.min() == pytest.approx(0.070, abs=0.003)
    assert error[-1] == pytest.approx(0.081, abs=0.003)
    assert history["iteration"][np.argmin(error)] == pytest.approx(5200, abs=500)
    assert energy[-1] == pytest.approx(0.02 * energy.max(), rel=0.2)
    assert plain.min() == pytest.approx(0.063, abs=0.003)
    assert plain[-1] == pytest.approx(0.152, abs=0.01)


@pytest.fixture(scope="module")
def barbara_for_20000(data_directory):
    """A fit of Barbara, 30 % missing, with the authors' λ, for twice as long as the paper's pictures show."""
    truth, mask = barbara(data_directory, "random")
    graphs = both_graphs(1e-4, "row")
    result = airnp.fit(
        truth, mask, regularizers=graphs, max_iter=20_000, stop=None, seed=0, record=airnp.Record(100, truth)
    )
    return truth, mask, result


@pytest.mark.slow
def test_barbara_is_over_fitted_in_the_end(barbara_for_20000):
    _, _, result = barbara_for_20000
    error = dict(zip(result.history["iteration"], result.history["nmae"], strict=True))
    assert error[10_000] == pytest.approx(0.0464, abs=0.0010)
    assert error[20_000] == pytest.approx(0.0542, abs=0.0015)


@pytest.mark.slow
def test_the_energies_of_barbara_never_reach_the_printed_threshold(barbara_for_20000):
    """δ = mn/1000 = 57.6 is to be compared with a change of the energy; the energy itself is at most 21."""
    _, _, result = barbara_for_20000
    for name in ("energy_rows", "energy_columns"):
        assert result.history[name].max() == pytest.approx(21, abs=1.5)


@pytest.mark.slow
def test_the_printed_nmae_of_barbara_is_far_from_the_printed_table(barbara_for_20000):
    truth, mask, result = barbara_for_20000
    assert airnp.metrics.nmae(result.X, truth, mask) == pytest.approx(0.0542, abs=0.0015)
    assert printed_nmae(result.X, truth, mask) == pytest.approx(0.0060, abs=0.0005)


# --- The page ---


def functions_in(file):
    (path,) = (ROOT / "tests").rglob(file)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_the_page_names_every_test_of_this_file_and_no_test_that_is_not_there():
    page = (ROOT / "docs" / "theory.md").read_text(encoding="utf-8")
    named = re.findall(r"(test_\w+\.py)::(test_\w+)", page)
    for file, name in named:
        assert name in functions_in(file), f"docs/theory.md names {file}::{name}"
    here = {name for name in functions_in("test_theory.py") if name.startswith("test_")}
    on_the_page = {name for file, name in named if file == "test_theory.py"}
    assert here - on_the_page == {"test_the_page_names_every_test_of_this_file_and_no_test_that_is_not_there"}
