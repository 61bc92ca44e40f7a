"""The energy of a picture's patches as a regulariser: gradients, graphs, and what a fit does with it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import airnp
from airnp import AdaptiveLaplacian, Objective, PatchLaplacian, TotalVariation
from airnp.engines import reference
from airnp.engines.contract import NO_MEMORY
from airnp.regularizers.base import Contribution
from airnp.resemblance.patch_graph import GraphSettings, PatchGraph
from tests.gradcheck import check_coordinates, check_direction
from tests.strategies import Blur

pytestmark = pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")

SMALL = {"patch": 5, "neighbours": 3, "search": 3}


def data(*shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.random(shape), rng.random(shape) < 0.6


def texture(size=24, missing=0.5):
    """Rings, which are not of low rank, with pixels missing at random."""
    y, x = np.mgrid[:size, :size]
    return np.sin(0.9 * np.hypot(y, x)), airnp.masks.random((size, size), missing=missing, seed=0)


def term_of(Y, mask, **options):
    return Objective(Y, mask, regularizers=[PatchLaplacian(**options)], depth=1).terms[0]


def energy_and_gradient(term, x):
    """Return R and λ ∇R."""
    return term.accumulate(reference, x, np.zeros_like(x), Contribution())


def matrix_of(term, shape):
    """Return L′ by the gradients 2 L′ e at pictures e of one pixel, for a term of order 1 and weight 1."""
    units = np.eye(shape[0] * shape[1]).reshape(-1, *shape)
    return np.stack([energy_and_gradient(term, unit)[1].ravel() / 2 for unit in units])


# --- gradients ---


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("shape", [(6, 9), (9, 5), (2, 5, 6)])
def test_the_gradient_of_the_term_alone(order, shape):
    term = term_of(*data(*shape), weight=0.7, order=order, **SMALL)
    x = np.random.default_rng(1).standard_normal(shape)

    def value(arrays):
        return 0.7 * float(np.sum(energy_and_gradient(term, arrays[0])[0]))

    check_coordinates(value, [x], [energy_and_gradient(term, x)[1]])


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("shape", [(8, 11), (2, 9, 7)])
def test_the_gradient_beside_other_terms(order, shape, engine):
    patches = PatchLaplacian(0.3, order, **SMALL)
    regularizers = [AdaptiveLaplacian("rows", 0.2), patches, AdaptiveLaplacian("columns", 0.1)]
    regularizers.append(TotalVariation(0.1, "quadratic"))
    objective = Objective(*data(*shape), regularizers=regularizers, engine=engine)
    params = objective.init(0, airnp.Gaussian(0.3, 0.4))
    _, grads = objective.value_and_grad(params)
    rng = np.random.default_rng(2)
    for _ in range(3):
        check_direction(lambda point: objective.value_and_grad(point)[0], params, grads, rng)


# --- the graph ---


def test_the_graph_is_that_of_the_patches_of_a_whole_picture():
    Y, _ = data(8, 10)
    L = matrix_of(term_of(Y, np.ones(Y.shape, bool), weight=1, order=1, **SMALL), Y.shape)
    picture = ((Y - Y.min()) / (Y.max() - Y.min())).astype(np.float32)[np.newaxis]
    seen, how = np.ones(picture.shape, bool), GraphSettings(5, 3, 3, coupled=3)
    expected = PatchGraph.of(picture, seen, seen[0], how).laplacian()
    expected = np.stack([expected @ unit for unit in np.eye(80)])
    np.testing.assert_allclose(L, expected * 80 / np.trace(expected), atol=1e-6)


@pytest.mark.parametrize("shape", [(8, 10), (7, 6)])
def test_the_laplacian_of_pixels(shape):
    Y, mask = data(*shape)
    L = matrix_of(term_of(Y, mask, weight=1, order=1, **SMALL), shape)
    np.testing.assert_allclose(L, L.T, atol=1e-14)
    np.testing.assert_allclose(L.sum(axis=1), 0, atol=1e-14)
    assert np.linalg.eigvalsh(L).min() > -1e-12
    assert np.trace(L) == pytest.approx(L.shape[0])  # a mean degree of 1
    x = np.random.default_rng(3).standard_normal(shape)
    for order, expected in ((1, x.ravel() @ L @ x.ravel()), (2, ((L @ x.ravel()) ** 2).sum())):
        term = term_of(Y, mask, weight=1, order=order, **SMALL)
        assert energy_and_gradient(term, x)[0] == pytest.approx(expected, rel=1e-12)


def test_matching_again_finds_closer_patches_than_the_smooth_fill():
    """The truth has less energy in a graph that fits it better."""
    Y, mask = texture(missing=0.8)
    energies = [
        float(energy_and_gradient(term_of(Y, mask, weight=1, order=1, rounds=rounds), Y)[0])
        for rounds in (0, 2)
    ]
    assert energies[1] < 0.75 * energies[0]


def test_what_is_not_observed_does_not_matter():
    Y, mask = data(9, 8)
    others, x = np.where(mask, Y, 5.0), np.random.default_rng(4).standard_normal(Y.shape)
    expected = energy_and_gradient(term_of(Y, mask, **SMALL), x)[1]
    weighted = Objective(others, weights=mask.astype(float), regularizers=[PatchLaplacian(**SMALL)]).terms[0]
    for term in (term_of(others, mask, **SMALL), term_of(np.where(mask, Y, np.nan), None, **SMALL), weighted):
        np.testing.assert_array_equal(energy_and_gradient(term, x)[1], expected)


def test_the_unit_of_the_data_does_not_matter_to_the_graph():
    Y, mask = data(9, 8)
    x = np.random.default_rng(5).standard_normal(Y.shape)
    first, second = (energy_and_gradient(term_of(c * Y, mask, **SMALL), x)[0] for c in (1.0, 2.0**-20))
    assert first == second


def test_the_matrices_of_a_stack_have_a_graph_each():
    Y, mask = data(2, 3, 7, 8)
    x = np.random.default_rng(6).standard_normal(Y.shape)
    energy, gradient = energy_and_gradient(term_of(Y, mask, weight=1, **SMALL), x)
    assert energy.shape == (2, 3)
    for place in np.ndindex(2, 3):
        alone = energy_and_gradient(term_of(Y[place], mask[place], weight=1, **SMALL), x[place])
        assert energy[place] == pytest.approx(float(alone[0]), rel=1e-12)
        np.testing.assert_allclose(gradient[place], alone[1], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(
    "Y", [np.ones((6, 7)), np.ones((1, 5)), np.ones((1, 1)), np.arange(4.0).reshape(2, 2)]
)
def test_pictures_without_much_in_them_are_no_trouble(Y):
    for mask in (np.ones(Y.shape, bool), np.arange(Y.size).reshape(Y.shape) % 3 == 0):
        energy, gradient = energy_and_gradient(term_of(Y, mask), Y)
        assert np.isfinite(energy)
        assert np.isfinite(gradient).all()
        assert energy_and_gradient(term_of(Y, mask), np.ones(Y.shape))[0] == pytest.approx(0, abs=1e-12)


# --- fits ---


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "beside", [[], [AdaptiveLaplacian("rows", 1e-5), AdaptiveLaplacian("columns", 1e-5)]]
)
def test_a_texture_is_completed_better_than_without_it(order, beside):
    Y, mask = texture()
    settings = {"max_iter": 2500, "stop": None, "seed": 0}
    without = airnp.fit(Y, mask, regularizers=beside, **settings)
    found = airnp.fit(Y, mask, regularizers=[*beside, PatchLaplacian(order=order)], **settings)
    errors = [airnp.metrics.nmae(result.X, Y, mask) for result in (found, without)]
    assert errors[0] < 0.6 * errors[1]
    recorded = found.history["energy_patches"]
    assert recorded[-1] == pytest.approx(float(found.regularizers[-1].energy), rel=1e-2)


def test_a_larger_weight_ends_with_a_lower_energy():
    Y, mask = texture(16)
    ends = [
        float(
            airnp.fit(Y, mask, regularizers=[PatchLaplacian(weight)], max_iter=800, stop=None, seed=0)
            .regularizers[0]
            .energy
        )
        for weight in (0.0, 1e-3, 1e-1)
    ]
    assert ends[0] > ends[1] > ends[2]


def test_the_default_weight_follows_the_fidelity():
    Y, mask = data(6, 7)
    for fidelity, scale in ((airnp.Squared(), 2 / 42), (airnp.Squared("sum"), 1.0)):
        objective = Objective(
            Y, mask, regularizers=[PatchLaplacian(), PatchLaplacian(0.5)], fidelity=fidelity
        )
        assert [term.weight for term in objective.terms] == pytest.approx([scale, 0.5])


def test_held_out_entries_are_not_part_of_the_graph():
    """A fit that holds entries out sees none of them before it has chosen when to stop."""
    Y, mask = texture(16)
    graphs = []

    class Watched(PatchLaplacian):
        def bind(self, problem):
            graphs.append(int((problem.weights > 0).sum()))
            return super().bind(problem)

    rule = airnp.HeldOut(patience=100, every=50)
    airnp.fit(Y, mask, regularizers=[Watched(**SMALL)], max_iter=400, stop=rule, seed=0)
    assert graphs[0] < graphs[-1] == mask.sum()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_resumed_fit_is_that_which_was_not_interrupted(tmp_path, dtype):
    Y, mask = texture(16)
    regularizers = [
        PatchLaplacian(order=1, **SMALL),
        PatchLaplacian(1e-3, rounds=1),
        AdaptiveLaplacian("rows"),
    ]
    settings = {"regularizers": regularizers, "stop": None, "seed": 0, "dtype": dtype}
    whole = airnp.fit(Y, mask, max_iter=300, **settings)
    file = tmp_path / "run.npz"
    airnp.fit(Y, mask, max_iter=150, checkpoint=file, **settings)
    resumed = airnp.resume(file, max_iter=300)
    np.testing.assert_array_equal(resumed.X, whole.X)
    np.testing.assert_array_equal(resumed.history["energy_patches"], whole.history["energy_patches"])
    assert [item.description for item in resumed.regularizers] == list(map(repr, regularizers))


def test_its_iterations_are_not_replayed():
    """A tape of the engine's calls would leave out the products with the graph."""
    objective = Objective(*data(6, 7), regularizers=[PatchLaplacian(**SMALL)])
    assert not objective.is_plain


def test_the_engines_agree():
    Y, mask = data(8, 9)
    found = []
    for engine in ("reference", "cpu"):
        objective = Objective(Y, mask, regularizers=[PatchLaplacian(0.3, **SMALL)], engine=engine)
        params = objective.init(0, airnp.Gaussian(0.2, 0.5))
        evaluation = objective.evaluate(params, memory=NO_MEMORY)
        found.append([*evaluation.energies, *evaluation.factor_grads])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-14)


# --- what is refused ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 3}, "order: expected 1 or 2, got 3"),
        ({"order": 0}, "order: expected at least 1, got 0"),
        ({"patch": 4}, "patch: expected an odd number, got 4"),
        ({"patch": 1}, "patch: expected at least 3, got 1"),
        ({"neighbours": 0}, "neighbours: expected at least 1, got 0"),
        ({"search": 0}, "search: expected at least 1, got 0"),
        ({"search": 91}, "search: expected at most 90, got 91"),
        ({"rounds": -1}, "rounds: expected at least 0, got -1"),
        ({"weight": -1.0}, "weight: expected a finite number of at least 0"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        PatchLaplacian(**options)


def test_settings_of_the_wrong_type_are_refused():
    with pytest.raises(TypeError, match=r"order: expected a whole number, got 1\.0"):
        PatchLaplacian(order=1.0)
    with pytest.raises(TypeError, match="weight: expected a number, got str"):
        PatchLaplacian("2")


def test_an_operator_and_a_sparse_fit_are_refused():
    with pytest.raises(ValueError, match="PatchLaplacian takes its graph from observed entries"):
        Objective(np.ones((3, 3)), operator=Blur(), regularizers=[PatchLaplacian()])
    with pytest.raises(ValueError, match=r"fit_sparse has .*, got PatchLaplacian\(None, order=2"):
        airnp.fit_sparse(sparse.csr_array(np.eye(5)), rank=2, regularizers=[PatchLaplacian()])
