"""Rows that a fit has never seen: the closed form, the choice of the noise level, and how well it does."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse

import airnp
from airnp import AdaptiveLaplacian, FixedLaplacian, TotalVariation, datasets
from airnp.results.newrows import _GRAPH_STRENGTH, RowModel, _choose_level, _graph_kernel, _Level
from tests.strategies import Blur, symmetric_graph


def root_mean_square(errors: np.ndarray) -> float:
    return float(np.sqrt(np.mean(errors**2)))


def low_rank(rng, rows, columns, rank=3, noise=0.0):
    """Rows of some rank around a mean that is not zero, with noise."""
    truth = rng.standard_normal((rows, rank)) @ rng.standard_normal((rank, columns))
    return truth + 2 * rng.standard_normal(columns) + noise * rng.standard_normal((rows, columns))


class Problem:
    """A row space of dimension 3 in seven columns, a column graph, and all levels."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.mean = rng.standard_normal(7)
        self.basis = rng.standard_normal((7, 3))  # d = basis a, a ~ N(0, I)
        graph = symmetric_graph(rng, 7)
        self.laplacian = np.diag(graph.sum(axis=1)) - graph
        self.strength, self.total, self.share = 4.0, 0.3, 0.6
        kernel = np.linalg.inv(np.eye(7) + self.strength * self.laplacian)
        level = _Level(self.total, self.share)
        covariance, noise = level.split(self.basis @ self.basis.T, kernel)
        self.model = RowModel(self.mean, covariance, noise, offset=0.0, scale=1.0)
        self.row = rng.standard_normal(7)

    def minimised(self, observed: np.ndarray) -> np.ndarray:
        """The estimate by descent on the objective that the module's docstring states."""
        noise, remainder = (1 - self.share) * self.total, self.share * self.total

        def estimate(unknown):
            return self.mean + self.basis @ unknown[:3] + unknown[3:]

        def objective(unknown):
            residual = (self.row - estimate(unknown))[observed]
            e = unknown[3:]
            graph = e @ e + self.strength * e @ self.laplacian @ e
            return residual @ residual / noise + unknown[:3] @ unknown[:3] + graph / remainder

        found = scipy.optimize.minimize(objective, np.zeros(10), method="BFGS", options={"gtol": 1e-7})
        return estimate(found.x)


# --- the closed form ---


@pytest.mark.parametrize("count", range(8))
def test_the_closed_form_minimises_the_objective_it_is_derived_from(count):
    problem = Problem(seed=count)
    observed = np.random.default_rng(count).permutation(7) < count
    expected = problem.minimised(observed)
    everywhere = problem.model.complete(problem.row[None], observed[None], keep_observed=False)[0]
    np.testing.assert_allclose(everywhere, expected, atol=2e-5)
    kept = problem.model.complete(problem.row[None], observed[None])[0]
    np.testing.assert_allclose(kept[~observed], expected[~observed], atol=2e-5)
    np.testing.assert_array_equal(kept[observed], problem.row[observed])


def test_all_rows_at_once_are_each_row_alone_whatever_its_pattern():
    rng = np.random.default_rng(0)
    model = Problem(seed=1).model
    rows = rng.standard_normal((60, 7))
    observed = rng.random((60, 7)) < rng.random((60, 1))
    observed[::3] = observed[0]  # patterns that come again
    completed = model.complete(rows, observed)
    for row, seen, answer in zip(rows, observed, completed, strict=True):
        system = model.covariance[np.ix_(seen, seen)] + model.noise * np.eye(seen.sum())
        pull = np.linalg.solve(system, (row - model.mean)[seen])
        expected = model.mean + model.covariance[:, seen] @ pull
        np.testing.assert_allclose(answer, np.where(seen, row, expected), rtol=1e-9)


def test_an_empty_row_is_the_mean_and_a_full_one_stays_to_the_bit():
    problem = Problem(seed=2)
    model = RowModel(problem.mean, problem.model.covariance, problem.model.noise, offset=0.1, scale=3.0)
    rows = np.stack([problem.row, problem.row])
    empty, full = model.complete(rows, np.array([[False] * 7, [True] * 7]))
    np.testing.assert_allclose(empty, 0.1 + 3.0 * problem.mean)
    np.testing.assert_array_equal(full, problem.row)


def test_what_is_not_observed_is_not_read_and_nothing_is_changed():
    problem = Problem(seed=3)
    # In these units the largest numbers overflow.
    model = RowModel(problem.mean, problem.model.covariance, problem.model.noise, offset=0.0, scale=0.5)
    observed = np.array([[True, False, True, True, False, True, True]])
    answers = []
    for filler in (0.0, np.nan, np.inf, 1.7e308):
        rows = np.where(observed, problem.row, filler)
        rows.flags.writeable = False
        answers.append(model.complete(rows, observed))
    for answer in answers[1:]:
        np.testing.assert_array_equal(answer, answers[0])


def test_a_model_comes_back_from_a_pickle():
    problem = Problem(seed=4)
    observed = np.arange(7)[None] > 1
    before = problem.model.complete(problem.row[None], observed)
    copy = pickle.loads(pickle.dumps(problem.model))
    np.testing.assert_array_equal(copy.complete(problem.row[None], observed), before)


# --- what is learned from a fit ---


def fitted(Y, mask, **options):
    return airnp.fit(Y, mask, **{"max_iter": 300, "stop": None, "seed": 0, **options})


def test_mean_and_covariance_are_those_of_the_completed_rows_that_have_entries():
    rng = np.random.default_rng(5)
    Y = low_rank(rng, 40, 6)
    mask = rng.random(Y.shape) < 0.7
    mask[3] = False
    with pytest.warns(airnp.EmptyLineWarning):
        result = fitted(Y, mask, regularizers=[])
    model = RowModel.from_result(result)
    rows = np.delete(result.completed(), 3, axis=0)
    np.testing.assert_allclose(model.offset + model.scale * model.mean, rows.mean(axis=0))
    np.testing.assert_allclose(model.scale**2 * model.covariance, np.cov(rows.T, bias=True), atol=1e-9)


def test_units_do_not_matter():
    rng = np.random.default_rng(6)
    Y, new = low_rank(rng, 60, 8, noise=0.1), low_rank(rng, 5, 8)
    mask, seen = rng.random(Y.shape) < 0.7, rng.random(new.shape) < 0.6
    expected = RowModel.from_result(fitted(Y, mask)).complete(new, seen)
    for scale, offset in ((1e200, 0.0), (1e-200, 0.0), (3.0, -1000.0)):
        model = RowModel.from_result(fitted(scale * Y + offset, mask))
        completed = model.complete(scale * new + offset, seen)
        np.testing.assert_allclose((completed - offset) / scale, expected, rtol=1e-4, atol=1e-4)


def test_results_of_every_namespace_teach_the_same(backend):
    rng = np.random.default_rng(7)
    Y = low_rank(rng, 20, 6, noise=0.1)
    mask = rng.random(Y.shape) < 0.7
    options = {"max_iter": 30, "engine": "reference"}
    expected = RowModel.from_result(fitted(Y, mask, **options))
    model = RowModel.from_result(fitted(backend.array(Y), backend.array(mask), **options))
    np.testing.assert_allclose(model.covariance, expected.covariance, atol=1e-6)
    assert model.noise == pytest.approx(expected.noise, rel=1e-5)


def test_stacks_and_operators_are_refused():
    Y = low_rank(np.random.default_rng(8), 6, 5)
    stack = fitted(np.stack([Y, Y]), None, max_iter=2)
    with pytest.raises(ValueError, match="result: expected one matrix, got a stack of shape"):
        RowModel.from_result(stack)
    measured = airnp.fit(Blur().forward(Y), operator=airnp.Operator(Blur(), (6, 5)), max_iter=2, stop=None)
    with pytest.raises(ValueError, match="result: expected a fit of entries"):
        RowModel.from_result(measured)


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csr_array], ids=["dense", "sparse"])
def test_the_graphs_over_columns_count_and_no_others(kind):
    rng = np.random.default_rng(9)
    first, second = symmetric_graph(rng, 6), symmetric_graph(rng, 6)
    mixture = [
        FixedLaplacian(kind(first), "columns", 0.3),
        FixedLaplacian(kind(symmetric_graph(rng, 6)), "rows", 0.9),
        FixedLaplacian(kind(second), "columns", 0.1),
        TotalVariation(0.1),
    ]
    Y = low_rank(rng, 6, 6)
    both = 0.3 * first + 0.1 * second
    both *= 6 / both.sum()
    laplacian = np.diag(both.sum(axis=1)) - both
    kernel = _graph_kernel(fitted(Y, None, regularizers=mixture, max_iter=2))
    np.testing.assert_allclose(kernel, np.linalg.inv(np.eye(6) + _GRAPH_STRENGTH * laplacian), rtol=1e-5)
    for nothing in ([], [AdaptiveLaplacian("rows")], [AdaptiveLaplacian("columns", weight=0.0)]):
        assert _graph_kernel(fitted(Y, None, regularizers=nothing, max_iter=2)) is None


# --- the level ---


def test_with_few_entries_the_residuals_are_the_noise():
    Y = low_rank(np.random.default_rng(10), 4, 4)
    result = fitted(Y, None, max_iter=100)
    expected = np.mean((result.X - Y) ** 2) / float(result.normalization.scale.item()) ** 2
    model = RowModel.from_result(result)
    assert model.noise == pytest.approx(expected)
    np.testing.assert_allclose(model.covariance, np.cov(Y.T, bias=True) / model.scale**2, atol=1e-9)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_row_or_two_and_data_without_any_spread_are_no_problem(rows):
    for Y in (low_rank(np.random.default_rng(11), rows, 200), np.full((rows, 200), 7.0)):
        model = RowModel.from_result(fitted(Y, None, max_iter=20))
        answer = model.complete(np.zeros((1, 200)), np.zeros((1, 200), dtype=bool))
        np.testing.assert_allclose(answer[0], Y.mean(axis=0))


@pytest.mark.parametrize("noise", [0.01, 0.3, 1.0])
@pytest.mark.parametrize("missing", [0.0, 0.4])
def test_the_choose_level_is_nearly_the_best_for_new_rows(noise, missing):
    rng = np.random.default_rng(12)
    everything = low_rank(rng, 190, 30, noise=noise)
    rows, new = everything[:40], everything[40:]
    observed = rng.random(rows.shape) >= missing
    completed = np.where(observed, rows, rows + 0.5 * noise * rng.standard_normal(rows.shape))
    seen = rng.random(new.shape) >= (missing or 0.2)  # rows without gaps are judged with 20 % hidden
    mean, spread = completed.mean(axis=0), np.cov(completed.T, bias=True)

    def error(level):
        model = RowModel(mean, *level.split(spread, None), offset=0.0, scale=1.0)
        return root_mean_square((model.complete(new, seen) - new)[~seen])

    levels = [_Level(10.0**power, 0.0) for power in np.arange(-6, 2.1, 0.5)]
    best, worst = min(map(error, levels)), max(map(error, levels))
    chosen = error(_choose_level(completed, observed, None, np.random.default_rng(0)))
    assert worst > 1.2 * best, "the level must matter"
    assert chosen < 1.05 * best


def pairs(columns: int) -> np.ndarray:
    """A graph that connects columns 0 and 1, 2 and 3, …"""
    return np.kron(np.eye(columns // 2), [[0.0, 1.0], [1.0, 0.0]])


def test_the_graph_is_used_where_it_helps_and_only_there():
    rng = np.random.default_rng(13)
    # Forty rows are too few to learn by themselves which of sixty columns are alike.
    alike = np.repeat(rng.standard_normal((40, 30)), 2, axis=1)
    laplacian = np.eye(60) - pairs(60)
    kernel = np.linalg.inv(np.eye(60) + _GRAPH_STRENGTH * laplacian)
    observed = rng.random(alike.shape) < 0.7
    shares = {}
    for name, order in (("right", np.arange(60)), ("wrong", rng.permutation(60))):
        turned = kernel[np.ix_(order, order)]
        shares[name] = _choose_level(alike, observed, turned, np.random.default_rng(0)).share
    assert shares["right"] > 0
    assert shares["wrong"] == 0


# --- how well it does ---


def compared(truth, data, mask, **options):
    """Errors on the gaps of every fifth row: by column means, by the closed form, by fitting them as well."""
    new = np.arange(len(truth)) % 5 == 0
    gaps = ~mask[new]
    model = RowModel.from_result(airnp.fit(data[~new], mask[~new], seed=0, **options))
    means = np.ma.array(data, mask=~mask)[~new].mean(axis=0).filled(np.nan)
    guesses = (
        np.broadcast_to(means, gaps.shape),
        model.complete(data[new], mask[new]),
        airnp.fit(data, mask, seed=0, **options).X[new],
    )
    return [root_mean_square((guess - truth[new])[gaps]) for guess in guesses]


def test_new_rows_of_a_noisy_table_of_low_rank():
    rng = np.random.default_rng(14)
    truth = low_rank(rng, 150, 30)
    data = truth + 0.05 * rng.standard_normal(truth.shape)
    options = {"regularizers": [], "max_iter": 3000, "learning_rate": 3e-3}
    by_mean, by_model, by_refit = compared(truth, data, rng.random(truth.shape) < 0.6, **options)
    assert by_model < 0.05 * by_mean
    assert by_model < 1.1 * by_refit


@pytest.mark.parametrize(
    ("name", "share", "of_refit"), [("dti_ic", 0.6, 1.0), ("barbara", 0.6, 1.2)], ids=["ic", "barbara"]
)
def test_new_rows_of_the_papers_data(name, share, of_refit, data_directory, monkeypatch):
    monkeypatch.setenv("AIRNP_DATA", str(data_directory))
    truth = np.asarray(getattr(datasets, name)().matrix, dtype=np.float32)
    truth = truth[::2, ::2] if name == "barbara" else truth
    mask = np.random.default_rng(15).random(truth.shape) < 0.7
    by_mean, by_model, by_refit = compared(truth, truth, mask, max_iter=3000, learning_rate=3e-3)
    assert by_model < share * by_mean
    assert by_model < of_refit * by_refit
