"""``airnp.complete``: what it tries, what it chooses, and that what it expects is honest."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import airnp
from airnp.completing import completion
from airnp.completing.completion import cross_fitted
from bench import complete as bench
from bench.paper_rows import Problem, Row
from tests.conftest import Backend

RNG = np.random.default_rng(0)
TRUTH = RNG.random((24, 2)) @ RNG.random((2, 18))
SEEN = RNG.random(TRUTH.shape) < 0.7
QUICK: dict[str, Any] = {"max_iter": 150, "stop": None, "seed": 0}
GRID = [{"regularizers": []}, {"regularizers": [], "depth": 2}, {"regularizers": [], "rank": 1}]


def test_the_choice_repeats_the_fit() -> None:
    found = airnp.complete(TRUTH, SEEN, grid=GRID, **QUICK)
    again = airnp.fit(TRUTH, SEEN, **found.choice)
    np.testing.assert_array_equal(found.X, again.X)
    np.testing.assert_array_equal(found.completed(), again.completed())
    assert found.choice["max_iter"] == 150
    assert found.choice["seed"] == 0


def test_the_final_fit_sees_all_entries() -> None:
    found = airnp.complete(TRUTH, SEEN, grid=GRID, **QUICK)
    np.testing.assert_array_equal(found.result.mask, SEEN)
    assert (found.candidates.held_out & SEEN).any()


def test_nothing_need_be_said() -> None:
    found = airnp.complete(np.where(SEEN, TRUTH, np.nan))
    assert len(found.candidates.candidates) == 4
    assert found.expected_nmae < 0.01  # the matrix has rank 2
    assert "expected_nmae" in repr(found)


def kinds(found: airnp.Completion) -> list[list[str]]:
    models = [each.settings.get("regularizers") for each in found.candidates.candidates]
    return [["defaults"] if model is None else [type(part).__name__ for part in model] for model in models]


def test_pictures_are_tried_with_and_without_total_variation() -> None:
    picture = np.add.outer(np.sin(np.arange(32) / 5), np.cos(np.arange(30) / 4))
    found = airnp.complete(picture, airnp.masks.random(picture.shape, 0.3, seed=0), max_iter=20, stop=None)
    graphs = ["AdaptiveLaplacian", "AdaptiveLaplacian"]
    assert kinds(found) == [["defaults"], graphs, [*graphs, "TotalVariation"], [*graphs, "TotalVariation"]]


def test_tables_are_tried_with_other_weights_and_none() -> None:
    found = airnp.complete(TRUTH, SEEN, **QUICK)
    graphs = ["AdaptiveLaplacian", "AdaptiveLaplacian"]
    assert kinds(found) == [["defaults"], graphs, graphs, []]
    weights = [each.settings["regularizers"][0].weight for each in found.candidates.candidates[1:3]]
    default = airnp.fit(TRUTH, SEEN, regularizers=None, max_iter=1, stop=None).regularizers[0].weight
    np.testing.assert_allclose(weights, [default / 4, default * 4])


def test_a_sum_as_fidelity_scales_the_weights() -> None:
    found = airnp.complete(TRUTH, SEEN, fidelity="sum", **QUICK)
    default = airnp.fit(TRUTH, SEEN, regularizers=None, fidelity="sum", max_iter=1, stop=None)
    tried = found.candidates.candidates[1].settings["regularizers"][0].weight
    np.testing.assert_allclose(tried, default.regularizers[0].weight / 4)


def test_it_chooses_what_predicts_better() -> None:
    grid = [{"rank": 1, "regularizers": []}, {"rank": None, "regularizers": []}]
    found = airnp.complete(TRUTH, SEEN, grid=grid, max_iter=2000, seed=0)
    assert found.choice["rank"] is None
    assert found.expected_nmae < found.candidates.candidates[0].nmae


def test_in_doubt_the_first_is_kept() -> None:
    errors = np.random.default_rng(0).random((2, 200))
    errors[1] = errors[0] + np.random.default_rng(1).normal(-1e-4, 0.1, 200)
    errors[1] += errors[0].mean() - errors[1].mean() - 1e-4  # better by a hundredth of a standard error
    assert completion._chosen(errors) == 0
    assert completion._chosen(errors - [[0.0], [0.05]]) == 1


def test_the_expected_error_is_not_the_lowest_of_many() -> None:
    """Twenty candidates that are equally good, by chance better or worse: the lowest mean is a mirage."""
    rng = np.random.default_rng(0)
    lowest, honest, clear = [], [], []
    for _ in range(200):
        errors = rng.exponential(1.0, (20, 60))
        lowest.append(errors.mean(axis=1).min())
        honest.append(cross_fitted(errors, rng).mean())
        errors[7] -= 0.5
        clear.append(cross_fitted(errors, rng).mean())
    spread = 1 / np.sqrt(60 * 200)
    assert np.mean(lowest) < 0.85
    assert abs(np.mean(honest) - 1) < 4 * spread
    assert abs(np.mean(clear) - 0.5) < 5 * spread  # and what is clearly better is found


def test_the_forecast_covers_what_is_true() -> None:
    """Entries here and there, twelve masks: the errors are as large as they are said to be."""
    scores = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        truth = rng.random((30, 3)) @ rng.random((3, 25)) + 0.1 * rng.standard_normal((30, 25))
        observed = rng.random(truth.shape) < 0.75
        found = airnp.complete(truth, observed, grid=GRID, fraction=0.1, max_iter=300, stop=None, seed=seed)
        true = airnp.metrics.nmae(found.X, truth, observed)
        scores.append((found.expected_nmae - true) / found.standard_error)
    assert np.sqrt(np.mean(np.square(scores))) < 1.7
    assert np.abs(scores).max() < 3.5


def test_holes_without_copies_are_warned_of() -> None:
    observed = np.ones((20, 18), dtype=bool)
    observed[:10] = False
    with (
        pytest.warns(airnp.EmptyLineWarning),
        pytest.warns(UserWarning, match="no copies of them can be held out"),
    ):
        airnp.complete(RNG.random((20, 18)), observed, grid=GRID[:1], **QUICK)


def test_a_candidate_that_fails_is_not_chosen() -> None:
    grid = [{"optimizer": airnp.GradientDescent(1e6)}, *GRID]
    found = airnp.complete(TRUTH, SEEN, grid=grid, **QUICK)
    assert found.candidates.candidates[0].error is not None
    assert "optimizer" not in found.choice


def test_regularizers_are_what_is_chosen() -> None:
    with pytest.raises(TypeError, match=r"^regularizers: are what is chosen; .* give a grid"):
        airnp.complete(TRUTH, SEEN, regularizers=[])


def test_bounds_are_kept() -> None:
    high = float(np.quantile(TRUTH[SEEN], 1))
    found = airnp.complete(TRUTH, SEEN, grid=GRID, bounds=(0, high), **QUICK)
    assert found.X.max() <= high


def test_all_namespaces(backend: Backend) -> None:
    found = airnp.complete(backend.array(TRUTH), backend.array(SEEN), grid=GRID, **QUICK)
    here = airnp.complete(TRUTH, SEEN, grid=GRID, **QUICK)
    assert type(found.X) is type(backend.array(TRUTH))
    np.testing.assert_allclose(found.expected_nmae, here.expected_nmae, rtol=1e-6)


def test_labels_come_back() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(np.where(SEEN, TRUTH, np.nan), columns=[f"c{j}" for j in range(18)])
    found = airnp.complete(frame, grid=GRID, bounds={"c0": (0, None)}, **QUICK)
    assert list(found.completed().columns) == list(frame.columns)


# --- the bench ---


def test_the_bench_compares_what_is_expected_with_what_is_true(tmp_path: Any, capsys: Any) -> None:
    problem = Problem(TRUTH.astype(np.float32), SEEN)
    row = Row("IC 20%", load=lambda seed: problem, printed={})
    found = bench.measured(row, seed=0, max_iter=60)
    assert found["z"] == (found["expected"] - found["true"]) / found["standard_error"]
    assert len(found["candidates"]) == 5
    (tmp_path / "IC_20-0.json").write_text(json.dumps(found))
    bench.main(["--rows", "IC 20%", "--out", str(tmp_path)])  # it is there already
    printed = capsys.readouterr().out
    assert "| IC 20% | 0 |" in printed
    assert "in 0 of 1" in printed or "in 1 of 1" in printed
