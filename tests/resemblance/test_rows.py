"""Models of rows and their blend: factors, scores, neighbours, what is held out, weights, calibration."""

from __future__ import annotations

import numpy as np
import pytest

from airnp.engines.threads import using
from airnp.resemblance.factors import Factors, fit_factors
from airnp.resemblance.gaussian import condition
from airnp.resemblance.mixture import Mixture, Rows, first_mixture, fit_mixture
from airnp.resemblance.neighbours import Forest, Neighbours
from airnp.resemblance.rows import (
    Blend,
    _blend_weights,
    _hold_out,
    _Trial,
    _weights_of_columns,
    fit_rows,
)
from airnp.resemblance.scores import ScoredMixture, TableScores, learn_scores

RNG = np.random.default_rng(0)


def standardised(values: np.ndarray) -> np.ndarray:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def rmse(filled: np.ndarray, truth: np.ndarray, observed: np.ndarray) -> float:
    return float(np.sqrt(((filled - truth)[~observed] ** 2).mean()))


def gaussian_table(n: int = 300, d: int = 6, rate: float = 0.3, seed: int = 1):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((n, 2)) @ rng.standard_normal((2, d)) + 0.3 * rng.standard_normal((n, d))
    return standardised(values), rng.random((n, d)) >= rate


# --- factors ---


def test_factors_are_the_conditional_gaussian_of_their_covariance():
    rng = np.random.default_rng(2)
    model = Factors(rng.standard_normal((7, 2)), rng.standard_normal(7), rng.random(7) + 0.1)
    values, observed = rng.standard_normal((9, 7)), rng.random((9, 7)) < 0.6
    covariance = model.loadings @ model.loadings.T + np.diag(model.noise)
    expected = condition(model.mean, covariance, values, observed)
    for found, known in zip(model.complete(values, observed), expected, strict=True):
        np.testing.assert_allclose(found, known, atol=1e-10)
    many = np.repeat(values[:1], 20_000, axis=0), np.repeat(observed[:1], 20_000, axis=0)
    drawn = model.draw(*many, rng)
    np.testing.assert_allclose(drawn.mean(axis=0), expected[0][0], atol=0.06)
    np.testing.assert_allclose(drawn.var(axis=0), expected[1][0], atol=0.1)


def test_wide_tables_have_factors():
    rng = np.random.default_rng(3)
    values = standardised(rng.standard_normal((40, 3)) @ rng.standard_normal((3, 160)))
    values += 0.1 * rng.standard_normal(values.shape)
    observed = rng.random(values.shape) < 0.8
    model = None
    for rank in (1, 2, 4):
        model = fit_factors(values, observed, rank, start=model)
    assert rmse(model.complete(values, observed)[0], values, observed) < 0.2
    blend = fit_rows(np.where(observed, values, 0), observed, rng=np.random.default_rng(0))
    assert all(name.startswith("low rank") for name in blend.models)
    assert rmse(blend.complete(values, observed)[0], values, observed) < 0.2


# --- normal scores ---


def test_scores_are_monotone_and_come_back():
    rng = np.random.default_rng(4)
    values = np.column_stack(
        [np.exp(rng.standard_normal(200)), rng.standard_normal(200), rng.random(200) < 0.1]
    )
    scores = learn_scores(values, np.ones(values.shape, bool))
    assert list(scores.columns) == [0]
    inside = scores.forward(values)
    order = values[:, 0].argsort()
    assert (np.diff(inside[order, 0]) > 0).all()
    np.testing.assert_allclose(scores.backward(inside), values)
    assert abs(inside[:, 0].mean()) < 0.01
    assert abs(inside[:, 0].std() - 1) < 0.05


def test_moments_through_scores_are_those_of_draws():
    rng = np.random.default_rng(5)
    values = np.exp(rng.standard_normal((4000, 1)))
    scores = learn_scores(values, np.ones(values.shape, bool))
    mean, square = scores.columns[0].moments(np.array([0.3]), np.array([0.25]))
    drawn = scores.columns[0].backward(0.3 + 0.5 * rng.standard_normal(200_000))
    np.testing.assert_allclose(mean, drawn.mean(), rtol=0.02)
    np.testing.assert_allclose(square, (drawn**2).mean(), rtol=0.05)


def test_a_scored_mixture_without_transforms_is_the_mixture():
    values, observed = gaussian_table()
    table = Rows(values, observed)
    mixture = fit_mixture(table, first_mixture(table), ridge=0.01, prior=0)
    found = ScoredMixture(TableScores({}), mixture).complete(values, observed)
    for one, two in zip(found, mixture.complete(values, observed), strict=True):
        np.testing.assert_array_equal(one, two)


def test_skewed_columns_prefer_scores():
    rng = np.random.default_rng(6)
    normal = rng.standard_normal((500, 2)) @ rng.standard_normal((2, 6)) + 0.3 * rng.standard_normal((500, 6))
    values, observed = standardised(np.exp(1.5 * normal)), rng.random((500, 6)) < 0.75
    blend = fit_rows(np.where(observed, values, 0), observed, rng=rng)
    assert blend.errors["scores em"] < min(error for name, error in blend.errors.items() if name[:2] == "em")
    assert sum(weight for name, weight in blend.weights.items() if name.startswith("scores")) > 0.4


# --- neighbours ---


def test_neighbours_are_the_gaussian_of_the_nearest_rows():
    values, observed = gaussian_table(n=60)
    table = Rows(values, observed)
    first = fit_mixture(table, first_mixture(table), ridge=0.01, prior=0)
    local = Neighbours.of(first, values, observed, 12, 0.05)
    found, spread = local.complete(values, observed)
    everything = np.cov(local.filled.T, bias=True) + np.diag(local.variance.mean(axis=0))
    for i in np.flatnonzero(~observed.all(axis=1))[:5]:
        nearest = np.argsort(((local.filled - local.filled[i]) ** 2).sum(axis=1))[:12]
        C = np.cov(local.filled[nearest].T, bias=True) + np.diag(local.variance[nearest].mean(axis=0))
        C += (0.05 * np.trace(C) / 6 + 1e-6) * np.eye(6)
        mean = local.filled[nearest].mean(axis=0)
        expected = condition(mean, 0.9 * C + 0.1 * everything, values[i : i + 1], observed[i : i + 1])
        np.testing.assert_allclose(found[i], expected[0][0], atol=1e-9)
        np.testing.assert_allclose(spread[i], expected[1][0], atol=1e-9)
    drawn = np.stack([local.draw(values, observed, np.random.default_rng(k)) for k in range(300)])
    apart = (drawn.mean(axis=0) - found)[~observed] / np.sqrt(spread[~observed] / 300)
    assert abs(apart).max() < 5
    assert (drawn[:, observed] == values[observed]).all()


def test_few_rows_at_once_give_the_same(monkeypatch):
    values, observed = gaussian_table(n=60)
    table = Rows(values, observed)
    local = Neighbours.of(
        fit_mixture(table, first_mixture(table), ridge=0.01, prior=0), values, observed, 9, 0.1
    )
    expected = local.complete(values, observed)
    monkeypatch.setattr("airnp.resemblance.neighbours._AT_ONCE", 600)
    for one, two in zip(local.complete(values, observed), expected, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-12)


# --- what is held out ---


def test_held_out_entries_have_the_shape_of_the_gaps():
    rng = np.random.default_rng(7)
    observed = np.ones((200, 8), bool)
    observed[:60, 3:6] = False  # whole blocks
    observed[60:90, 7] = False
    values = rng.standard_normal(observed.shape)
    trials = list(_hold_out(values, observed, rng))
    assert len(trials) == 1
    assert len(list(_hold_out(values[:150], observed[:150], rng))) == 2  # few rows are judged twice
    blocks = {tuple(row) for held in trials for row in held if row.any()}
    assert tuple(np.isin(np.arange(8), (3, 4, 5))) in blocks
    assert blocks <= {tuple(np.isin(np.arange(8), which)) for which in ((3, 4, 5), (7,))}
    for held in trials:
        assert not (held & ~observed).any()
        assert 0.03 < held.mean() < 0.12


def test_held_out_entries_depend_on_other_columns_as_the_gaps_do():
    rng = np.random.default_rng(12)
    values = rng.standard_normal((400, 6))
    observed = np.ones(values.shape, bool)
    observed[:, 2] = rng.random(400) > 1 / (1 + np.exp(1 - 3 * values[:, 0]))
    observed[:, 4] = rng.random(400) > 0.2
    (held,) = _hold_out(values, observed, rng)
    usual = values[observed[:, 2], 0].mean()
    assert values[held[:, 2], 0].mean() > usual + 0.4


def test_rows_and_columns_keep_entries():
    observed = np.zeros((30, 4), bool)
    observed[np.arange(30), np.arange(30) % 4] = True
    for held in _hold_out(np.zeros((30, 4)), observed, np.random.default_rng(8)):
        assert (observed & ~held).any(axis=1).all()
        assert ((observed & ~held).sum(axis=0) >= 2).all()


# --- the blend ---


def test_weights_are_those_of_least_squares():
    rng = np.random.default_rng(9)
    truth = rng.standard_normal(5000)
    noise = rng.standard_normal((5000, 3)) * np.array([0.5, 1.0, 3.0])
    weights = _blend_weights(truth[:, None] + noise, truth)
    assert weights.sum() == pytest.approx(1)
    expected = np.array([4, 1, 0]) / 5  # of independent errors: one over the variance
    np.testing.assert_allclose(weights, expected, atol=0.04)


def test_columns_have_weights_of_their_own_as_far_as_they_have_entries():
    rng = np.random.default_rng(3)
    columns = np.repeat([0, 1, 2], [400, 400, 4])
    truth = rng.standard_normal(len(columns))
    errors = np.where(columns == 0, [[0.2], [0.8]], [[0.8], [0.2]]) * rng.standard_normal((2, len(columns)))
    answers = {name: (truth + error, np.ones_like(truth)) for name, error in zip("ab", errors, strict=True)}
    found = _weights_of_columns(_Trial(columns, truth, answers), np.array([0.5, 0.5]), 4)
    np.testing.assert_allclose(found.sum(axis=0), 1)
    assert found[0, 0] > 0.7
    assert found[1, 1] > 0.7
    assert abs(found[0, 2] - 0.5) < 0.1
    np.testing.assert_array_equal(found[:, 3], 0.5)


def test_a_blend_may_have_weights_for_each_column():
    values, observed = gaussian_table(n=60)
    rows = Rows(values, observed)
    models = {"a": first_mixture(rows), "b": fit_mixture(rows, first_mixture(rows), ridge=0.01, prior=0)}
    filled = [model.complete(values, observed)[0] for model in models.values()]
    shares = np.array([[1.0, 0, 0, 0, 0.5, 1], [0, 1, 1, 1, 0.5, 0]])
    blend = Blend(models, {"a": 0.5, "b": 0.5}, {}, np.empty(0, int), np.empty(0), shares)
    np.testing.assert_allclose(
        blend.complete(values, observed)[0], shares[0] * filled[0] + shares[1] * filled[1]
    )


def test_a_blend_is_not_worse_than_its_models_and_its_intervals_cover():
    truth, observed = gaussian_table(n=400, d=8)
    blend = fit_rows(np.where(observed, truth, 0), observed, rng=np.random.default_rng(1))
    assert blend.errors["blend"] <= min(blend.errors.values()) * 1.01
    filled, std = blend.complete(np.where(observed, truth, 0), observed)
    np.testing.assert_array_equal(filled[observed], truth[observed])
    assert not std[observed].any()
    assert abs(rmse(filled, truth, observed) / blend.errors["blend"] - 1) < 0.15
    for level in (0.5, 0.9):
        inside = np.abs(filled - truth) <= blend.reach(level, 8) * std
        assert abs(inside[~observed].mean() - level) < 0.09


def test_columns_with_few_held_out_entries_are_calibrated_like_all():
    rng = np.random.default_rng(10)
    columns = np.repeat([0, 1, 2], [2000, 2000, 5])
    ratios = np.abs(rng.standard_normal(4005)) * np.repeat([1.0, 3.0, 100.0], [2000, 2000, 5])
    blend = Blend({}, {}, {}, columns, ratios)
    half = blend.inflation(4) * blend.reach(0.9, 4)  # in standard deviations that the models expect
    np.testing.assert_allclose(half[:2], [1.645, 3 * 1.645], rtol=0.12)
    assert half[3] < half[2] < 8 * half[3]  # five entries that miss by a hundred are trusted in part
    assert 1.645 < half[3] < 3 * 1.645  # none at all: the factor of all columns


def test_small_tables_are_calibrated_by_more_entries_than_judge_the_models():
    values, observed = gaussian_table(n=400, d=6, rate=0.4)
    small = fit_rows(values, observed, rng=np.random.default_rng(0), families=("em",))
    assert np.bincount(small.columns, minlength=6).min() >= 60  # a tenth of the entries are 24
    values, observed = gaussian_table(n=4000, d=6, rate=0.4)
    large = fit_rows(values, observed, rng=np.random.default_rng(0), families=("em",))
    assert len(large.columns) <= 0.12 * 3000 * 6


def test_rows_are_completed_one_by_one():
    truth, observed = gaussian_table()
    blend = fit_rows(np.where(observed, truth, 0), observed, rng=np.random.default_rng(2))
    whole, _ = blend.complete(truth, observed)
    for i in (3, 50):
        np.testing.assert_allclose(blend.complete(truth[i : i + 1], observed[i : i + 1])[0], whole[i : i + 1])


def test_the_same_seed_gives_the_same_blend():
    truth, observed = gaussian_table()
    first, second = (
        fit_rows(np.where(observed, truth, 0), observed, rng=np.random.default_rng(3)) for _ in range(2)
    )
    assert first.weights == second.weights
    np.testing.assert_array_equal(first.complete(truth, observed), second.complete(truth, observed))


def test_families_are_those_asked_for():
    truth, observed = gaussian_table()
    blend = fit_rows(truth, observed, rng=np.random.default_rng(4), families=("em", "local"))
    assert {name.split()[0] for name in blend.errors} == {"em", "local", "blend"}
    assert all(isinstance(model, Mixture | Neighbours) for model in blend.models.values())


def test_a_table_without_gaps_still_learns_to_fill_them():
    truth, _ = gaussian_table()
    blend = fit_rows(truth, np.ones(truth.shape, bool), rng=np.random.default_rng(5))
    hidden = np.random.default_rng(6).random(truth.shape) < 0.7
    assert rmse(blend.complete(truth, hidden)[0], truth, hidden) < 0.6


def test_resampled_blends_differ_and_draw():
    truth, observed = gaussian_table()
    rng = np.random.default_rng(7)
    blend = fit_rows(np.where(observed, truth, 0), observed, rng=rng)
    copies = [blend.resampled(np.where(observed, truth, 0), observed, rng) for _ in range(2)]
    assert not any(name.startswith("local") for copy in copies for name in copy.models)
    answers = [copy.complete(truth, observed)[0] for copy in copies]
    assert 0 < np.abs(answers[0] - answers[1])[~observed].mean() < 0.2
    drawn = copies[0].draw(truth, observed, rng)
    np.testing.assert_array_equal(drawn[observed], truth[observed])
    spread = rmse(drawn, truth, observed) / rmse(answers[0], truth, observed)
    assert 1.2 < spread < 1.7  # an error of the model, and one as large of the draw: about √2


def test_more_rows_than_are_looked_at(monkeypatch):
    for name in ("_MOST_JUDGED", "_MOST_FITTED", "_MOST_NEIGHBOURS"):
        monkeypatch.setattr(f"airnp.resemblance.rows.{name}", 100)
    truth, observed = gaussian_table(n=400)
    blend = fit_rows(np.where(observed, truth, 0), observed, rng=np.random.default_rng(8))
    assert rmse(blend.complete(truth, observed)[0], truth, observed) < 0.7


# --- trees ---


def test_trees_see_what_gaussians_do_not():
    rng = np.random.default_rng(13)
    values = rng.uniform(-1, 1, (500, 4))
    values[:, 3] = np.where(values[:, 0] * values[:, 1] > 0, 1.0, -1.0)
    observed = np.ones(values.shape, bool)
    observed[rng.random(500) < 0.3, 3] = False
    table = Rows(values, observed)
    first = fit_mixture(table, first_mixture(table), ridge=0.01, prior=0)
    forest = Forest.of(first, values, observed, np.array([3]), 20)
    filled, variance = forest.complete(values, observed)
    assert rmse(filled, values, observed) < 0.5 * rmse(first.complete(values, observed)[0], values, observed)
    assert (variance[~observed] > 0).all()
    assert not variance[observed].any()
    np.testing.assert_array_equal(filled[observed], values[observed])
    with using(2):
        again = Forest.of(first, values, observed, np.array([3]), 20)
    np.testing.assert_array_equal(again.complete(values, observed)[0], filled)
    drawn = forest.draw(values, observed, rng)
    np.testing.assert_array_equal(drawn[observed], values[observed])
    blend = fit_rows(values, observed, rng=np.random.default_rng(1), families=("em", "trees"))
    assert max(blend.weights, key=blend.weights.__getitem__).startswith("trees after ")
    assert not any(name.startswith("trees") for name in blend.resampled(values, observed, rng).models)


def test_leaves_are_means_of_rows():
    rng = np.random.default_rng(14)
    values = rng.standard_normal((60, 3))
    observed = np.ones(values.shape, bool)
    table = Rows(values, observed)
    forest = Forest.of(first_mixture(table), values, observed, np.array([0, 2]), 3)
    feature, threshold, child, mean, square = forest.nodes
    for tree, target in enumerate([0, 0, 0, 2, 2, 2]):
        leaves: dict[int, list[int]] = {}
        for i, row in enumerate(values):
            node = 0
            while feature[tree, node] >= 0:
                assert feature[tree, node] != target
                node = child[tree, node] + int(row[feature[tree, node]] > threshold[tree, node])
            leaves.setdefault(node, []).append(i)
        for node, members in leaves.items():
            assert len(members) >= 4
            assert mean[tree, node] == pytest.approx(values[members, target].mean())
            assert square[tree, node] == pytest.approx((values[members, target] ** 2).mean())
