"""``airnp.complete``: what it tries, what it chooses, and whether its expected error is honest."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import airnp
from airnp.completing import completion
from airnp.completing.completion import cross_fit
from airnp.completing.lowrank import fit_low_rank
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


def test_low_rank_wins_on_a_table_of_rank_3() -> None:
    rng = np.random.default_rng(1)
    truth = rng.random((40, 3)) @ rng.random((3, 30))
    observed = rng.random(truth.shape) < 0.6
    found = airnp.complete(np.where(observed, truth, np.nan), max_iter=300, seed=0)
    assert found.choice == {"model": "low rank"}
    assert "rank 4" in found.result.stop_reason  # one more for the offset that brings the data to [0, 1]
    assert found.expected_nmae < 1e-3
    assert np.abs(found.X - truth).max() < 1e-2
    np.testing.assert_array_equal(found.result.mask, observed)
    again = fit_low_rank(truth, observed, seed=found.candidates.seed)
    np.testing.assert_array_equal(found.X, again.X)
    assert "expected_nmae" in repr(found)
    assert str(found.candidates).endswith("model='low rank'")


def test_low_rank_takes_weights_and_bounds() -> None:
    weights, bounds = np.where(SEEN, 2.0, 0.0), (0.0, float(TRUTH.max()))
    found = airnp.complete(TRUTH, weights=weights, bounds=bounds, **QUICK)
    assert found.choice == {"model": "low rank"}
    assert found.result.bounds is not None
    np.testing.assert_array_equal(found.result.mask, SEEN)


def test_low_rank_does_not_see_the_entries_that_judge_it() -> None:
    found = airnp.complete(TRUTH, SEEN, **QUICK)
    kept = SEEN & ~found.candidates.held_out
    alone = fit_low_rank(np.where(kept, TRUTH, np.nan), seed=0)
    errors = np.abs(alone.X - TRUTH)[found.candidates.held_out] / np.ptp(TRUTH[SEEN])
    np.testing.assert_allclose(found.candidates.candidates[-1].nmae, errors.mean(), rtol=1e-12)


@pytest.mark.parametrize("scale", ["mean", "sum"])
def test_air_is_tried_with_other_weights_with_total_variation_and_without_regularizers(scale: Any) -> None:
    fidelity = airnp.Squared(scale=scale)
    found = airnp.complete(TRUTH, SEEN, fidelity=fidelity, **QUICK)
    default, *others, low_rank = (each.settings for each in found.candidates.candidates)
    assert default == {}
    assert low_rank == {"model": "low rank"}
    factor = fidelity.factor(*TRUTH.shape)
    graph = airnp.fit(TRUTH, SEEN, fidelity=fidelity, max_iter=1, stop=None).regularizers[0].weight / factor
    tried = [[(part.name, part.weight / factor) for part in each["regularizers"]] for each in others]
    expected = [
        [("rows", graph), ("columns", graph), ("total_variation", 0.005)],
        [("rows", graph), ("columns", graph), ("total_variation", 0.015)],
        [("rows", graph / 4), ("columns", graph / 4)],
        [("rows", graph * 4), ("columns", graph * 4)],
        [],
    ]
    for model, wanted in zip(tried, expected, strict=True):
        assert dict(model) == pytest.approx(dict(wanted))


def test_it_chooses_what_predicts_better() -> None:
    grid = [{"rank": 1, "regularizers": []}, {"rank": None, "regularizers": []}]
    found = airnp.complete(TRUTH, SEEN, grid=grid, max_iter=2000, seed=0)
    assert found.choice["rank"] is None
    assert found.expected_nmae < found.candidates.candidates[0].nmae


def test_in_doubt_the_first_is_kept() -> None:
    errors = np.random.default_rng(0).random((2, 200))
    errors[1] = errors[0] + np.random.default_rng(1).normal(-1e-4, 0.1, 200)
    errors[1] += errors[0].mean() - errors[1].mean() - 1e-4  # better by a hundredth of a standard error
    assert completion._choose(errors) == 0
    assert completion._choose(errors - [[0.0], [0.05]]) == 1


def test_the_expected_error_is_not_the_lowest_of_many() -> None:
    """Of twenty equally good candidates, some look better by chance: their lowest mean is too low."""
    rng = np.random.default_rng(0)
    lowest, honest, clear = [], [], []
    for _ in range(200):
        errors = rng.exponential(1.0, (20, 60))
        lowest.append(errors.mean(axis=1).min())
        honest.append(cross_fit(errors, rng).mean())
        errors[7] -= 0.5
        clear.append(cross_fit(errors, rng).mean())
    spread = 1 / np.sqrt(60 * 200)
    assert np.mean(lowest) < 0.85
    assert abs(np.mean(honest) - 1) < 4 * spread
    assert abs(np.mean(clear) - 0.5) < 5 * spread  # a candidate that is clearly better is found


def test_the_true_error_is_within_the_standard_errors() -> None:
    """Twelve scattered masks: the errors of the forecast are as large as its standard error says."""
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


def test_holes_that_cannot_be_copied_give_a_warning() -> None:
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


def test_regularizers_cannot_be_given() -> None:
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


def test_columns_of_a_frame_may_have_units() -> None:
    pandas = pytest.importorskip("pandas")
    scales = 10.0 ** (np.arange(18) % 5 * 2)
    plain, wild = (pandas.DataFrame(np.where(SEEN, TRUTH * s, np.nan)) for s in (1.0, scales))
    one, other = (airnp.complete(table, grid=GRID, **QUICK) for table in (plain, wild))
    np.testing.assert_allclose(other.completed() / scales, one.completed(), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(other.X / scales, one.X, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(other.completed().to_numpy()[SEEN], wild.to_numpy()[SEEN])
    high = float(np.nanmax(plain.to_numpy()[:, 0]))
    bounded = airnp.complete(plain, grid=GRID, bounds={0: (None, high)}, **QUICK)
    assert bounded.X[0].max() <= high
    with pytest.raises(ValueError, match="bounds"):
        airnp.complete(plain, grid=GRID, bounds=(None, high / 100), **QUICK)


# --- the bench ---


def test_the_bench_compares_what_is_expected_with_what_is_true(tmp_path: Any, capsys: Any) -> None:
    problem = Problem(TRUTH.astype(np.float32), SEEN)
    row = Row("IC 20%", load=lambda seed: problem, printed={})
    found = bench.measure(row, seed=0, max_iter=60)
    assert found["z"] == (found["expected"] - found["true"]) / found["standard_error"]
    assert len(found["candidates"]) == 8  # and the head of the table
    (tmp_path / "IC_20-0.json").write_text(json.dumps(found))
    bench.main(["--rows", "IC 20%", "--out", str(tmp_path)])  # reads the file, computes nothing
    printed = capsys.readouterr().out
    assert "| IC 20% | 0 |" in printed
    assert "in 0 of 1" in printed or "in 1 of 1" in printed
