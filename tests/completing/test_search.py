"""``airnp.search``: grids, the entries that judge, stacks and executors, candidates that fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import airnp
from airnp.completing import searching
from airnp.completing.judging import Judges, standard_error
from airnp.completing.searching import expand
from tests.conftest import Backend

RNG = np.random.default_rng(0)
TRUTH = RNG.random((24, 2)) @ RNG.random((2, 18))
SEEN = RNG.random(TRUTH.shape) < 0.7
QUICK: dict[str, Any] = {"regularizers": [], "max_iter": 150, "stop": None, "seed": 0}


def quick_without(*settings: str) -> dict[str, Any]:
    """Return the settings of a quick fit without some of them."""
    return {name: value for name, value in QUICK.items() if name not in settings}


# --- grids ---


def test_a_dict_of_lists_is_all_combinations() -> None:
    found = airnp.search(TRUTH, {"depth": [2, 3], "rank": [1, None]}, SEEN, **QUICK)
    assert [each.settings for each in found.candidates] == [
        {"depth": 2, "rank": 1},
        {"depth": 2, "rank": None},
        {"depth": 3, "rank": 1},
        {"depth": 3, "rank": None},
    ]
    assert found.best.nmae == min(each.nmae for each in found.candidates)


@pytest.mark.parametrize(
    ("grid", "kind", "message"),
    [
        ({"depht": [2]}, TypeError, "grid: 'depht' is no argument of airnp.fit; there are .*depth"),
        ([{"depth": 2}, {"lr": 1}], TypeError, "grid: 'lr' is no argument of airnp.fit"),
        ({"depth": 3}, TypeError, "grid: expected a list of values to try for 'depth', got 3"),
        ({"init": "gaussian"}, TypeError, "grid: expected a list of values to try for 'init'"),
        ({"depth": []}, ValueError, "grid: expected at least one value to try for 'depth'"),
        ([], ValueError, "grid: expected at least one candidate"),
        ("depth", TypeError, "grid: expected a dict of lists, or a list of dicts, got 'depth'"),
        ([3], TypeError, "grid: expected a dict of lists, or a list of dicts"),
        ({"mask": [SEEN]}, TypeError, "grid: 'mask' is nothing that fits can be searched for with"),
        ({"offsets": [True]}, TypeError, "grid: 'offsets' is no argument of airnp.fit"),
        ({"checkpoint": ["a"]}, TypeError, "grid: 'checkpoint' is nothing that fits"),
        ({"max_iter": [10]}, TypeError, "grid: 'max_iter' is given for all candidates already"),
    ],
)
def test_bad_grids_are_refused_by_key(grid: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=rf"^{message}"):
        airnp.search(TRUTH, grid, SEEN, **QUICK)


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ({"operator": object()}, TypeError, "settings: 'operator' is nothing that fits"),
        ({"max_itre": 5}, TypeError, "settings: 'max_itre' is no argument of airnp.fit"),
        ({"fraction": 1.5}, ValueError, "fraction: expected a number between 0 and 1"),
        ({"executor": 3}, TypeError, "executor: expected a concurrent.futures.Executor"),
    ],
)
def test_bad_settings_are_refused(said: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=rf"^{message}"):
        airnp.search(TRUTH, {"depth": [2]}, SEEN, **said)


def test_one_matrix_with_some_entries_is_needed() -> None:
    with pytest.raises(ValueError, match=r"^Y: expected one matrix, got an array of shape \(2, 24, 18\)"):
        airnp.search(np.stack([TRUTH, TRUTH]), {"depth": [2]})
    with pytest.raises(ValueError, match=r"^Y: 4 observed entries are too few"):
        airnp.search(np.arange(4.0).reshape(2, 2), {"depth": [2]})


# --- held-out entries ---


def test_candidates_do_not_see_the_entries_that_judge_them() -> None:
    found = airnp.search(TRUTH, {"depth": [2]}, SEEN, **QUICK)
    assert found.held_out.dtype == bool
    assert (found.held_out & SEEN).sum() == found.held_out.sum() >= 20
    np.testing.assert_array_equal(found.kept, SEEN & ~found.held_out)
    spoilt = np.where(found.held_out, 2 * TRUTH.max() - TRUTH, TRUTH)
    again = airnp.fit(spoilt, SEEN & ~found.held_out, depth=2, **QUICK)
    expected = np.abs(again.X - TRUTH)[found.held_out].mean() / np.ptp(TRUTH[SEEN])
    np.testing.assert_allclose(found.candidates[0].nmae, expected, rtol=1e-12)


def test_holes_are_judged_by_copies_of_them() -> None:
    observed = np.ones((60, 50), dtype=bool)
    observed[5:10, 5:11] = observed[40:44, 30:37] = False
    values = np.random.default_rng(1).random(observed.shape)
    judges = Judges.draw(values, observed, 0.05, np.random.default_rng(0))
    assert judges.in_holes
    assert judges.count >= 8
    assert not (judges.held_out & ~observed).any()
    sizes = np.bincount(judges.clusters)
    assert set(sizes) <= {28, 30}
    np.testing.assert_array_equal(np.sort(judges.gaps), [28, 30])


def test_the_standard_error_takes_a_hole_as_one() -> None:
    """Errors that are equal within a hole tell no more than one entry of each."""
    observed = np.ones((60, 50), dtype=bool)
    observed[5:10, 5:11] = False
    values = np.random.default_rng(1).random(observed.shape)
    judges = Judges.draw(values, observed, 0.05, np.random.default_rng(0))
    of_hole = np.random.default_rng(2).random(judges.count)
    wrong = values.copy()
    wrong[judges.held_out] += (of_hole * judges.scale)[judges.clusters]
    errors = judges.errors(wrong)
    np.testing.assert_allclose(errors, of_hole)
    np.testing.assert_allclose(standard_error(errors), of_hole.std(ddof=1) / np.sqrt(judges.count))
    # One hole is missing: its own error scatters as much as one of these.
    np.testing.assert_allclose(
        judges.forecast_error(errors), of_hole.std(ddof=1) * np.sqrt(1 + 1 / judges.count)
    )


def test_holes_that_cannot_be_copied_are_reported() -> None:
    observed = np.ones((20, 30), dtype=bool)
    observed[:10] = False  # another ten rows without any entry would be one too many
    judges = Judges.draw(np.random.default_rng(0).random((20, 30)), observed, 0.2, np.random.default_rng(0))
    assert judges.unlike_the_gaps
    assert not judges.in_holes


def test_the_same_seed_repeats_a_search() -> None:
    first, second = (airnp.search(TRUTH, {"depth": [2, 3]}, SEEN, **QUICK) for _ in range(2))
    assert [each.nmae for each in first.candidates] == [each.nmae for each in second.candidates]
    other = airnp.search(TRUTH, {"depth": [2, 3]}, SEEN, **{**QUICK, "seed": 1})
    assert (first.held_out != other.held_out).any()


def test_all_namespaces(backend: Backend) -> None:
    found = airnp.search(backend.array(TRUTH), {"depth": [1, 2]}, backend.array(SEEN), **QUICK)
    here = airnp.search(TRUTH, {"depth": [1, 2]}, SEEN, **QUICK)
    np.testing.assert_allclose(
        [c.nmae for c in found.candidates], [c.nmae for c in here.candidates], rtol=1e-6
    )


def test_bounds_and_weights_reach_the_fits() -> None:
    weights = np.where(SEEN, 2.0, 0.0)
    found = airnp.search(TRUTH, [{}], weights=weights, bounds=(0.0, float(TRUTH.max())), **QUICK)
    assert not (found.held_out & ~SEEN).any()
    assert found.best.nmae < 1


# --- stacks ---


def test_seeds_go_together_and_each_starts_where_it_would_alone() -> None:
    fits = [{"seed": seed, **quick_without("seed")} for seed in (3, 4)]
    seen = airnp.data.inputs.read(TRUTH, SEEN)
    stack = searching.fit_stack(seen, SEEN, fits)
    assert stack.matrix.shape == (2, *TRUTH.shape)
    for place, arguments in enumerate(fits):
        np.testing.assert_allclose(stack.matrix[place], airnp.fit(TRUTH, SEEN, **arguments).X, rtol=1e-8)


def test_graphs_of_a_stack_start_where_they_would_alone() -> None:
    fits = [{**quick_without("regularizers", "seed"), "seed": seed} for seed in (0, 5)]
    stack = searching.fit_stack(airnp.data.inputs.read(TRUTH, SEEN), SEEN, fits)
    alone = airnp.fit(TRUTH, SEEN, **fits[1])
    np.testing.assert_allclose(stack.matrix[1], alone.X, rtol=1e-6)


def test_a_search_over_seeds_is_one_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []

    def counted(Y: Any, *rest: Any, **options: Any) -> Any:
        shapes.append(Y.shape)
        return airnp.fit(Y, *rest, **options)

    monkeypatch.setattr("airnp.completing.searching.fit", counted)
    found = airnp.search(TRUTH, {"depth": [2, 3], "seed": [0, 1, 2]}, SEEN, **quick_without("seed"))
    assert shapes == [(3, *TRUTH.shape)] * 2
    assert len({each.nmae for each in found.candidates}) == 6
    shapes.clear()
    airnp.search(TRUTH, {"learning_rate": [1e-3, 2e-3]}, SEEN, **QUICK)
    assert shapes == [TRUTH.shape] * 2


def test_large_stacks_are_divided() -> None:
    fits = [{"seed": seed} for seed in range(5)]
    assert searching.seed_groups(fits, entries=2**19) == [[0, 1], [2, 3], [4]]
    assert searching.seed_groups(fits, entries=2**22) == [[0], [1], [2], [3], [4]]


# --- executors and failures ---


def test_an_executor_finds_the_same() -> None:
    grid = {"depth": [2, 3], "seed": [0, 1]}
    settings = {"engine": airnp.CPU(threads=1), **quick_without("seed")}
    here = airnp.search(TRUTH, grid, SEEN, **settings)
    with ThreadPoolExecutor(2) as executor:
        there = airnp.search(TRUTH, grid, SEEN, executor=executor, seed=here.seed, **settings)
    assert [each.settings for each in there.candidates] == [each.settings for each in here.candidates]
    np.testing.assert_allclose(
        [each.nmae for each in there.candidates], [each.nmae for each in here.candidates], rtol=1e-6
    )


DIVERGES = {"optimizer": airnp.GradientDescent(1e6)}


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_candidate_that_diverges_carries_its_error(elsewhere: bool) -> None:
    with ThreadPoolExecutor(1) as pool:
        executor = pool if elsewhere else None
        found = airnp.search(TRUTH, [{}, DIVERGES, {"depth": 2}], SEEN, executor=executor, **QUICK)
    assert isinstance(found.candidates[1].error, airnp.DivergenceError)
    assert np.isnan(found.candidates[1].nmae)
    assert [each.error for each in found.finished] == [None, None]
    assert found.best in found.finished
    assert "failed: DivergenceError" in str(found)


def test_a_stack_that_diverges_is_tried_one_by_one() -> None:
    found = airnp.search(
        TRUTH, [{**DIVERGES, "seed": 0}, {**DIVERGES, "seed": 1}, {}], SEEN, **quick_without("seed")
    )
    assert [each.error is None for each in found.candidates] == [False, False, True]


def test_if_all_fail_the_first_error_is_raised() -> None:
    with pytest.raises(ValueError, match=r"^depth: expected at least 1, got 0"):
        airnp.search(TRUTH, {"depth": [0, -1]}, SEEN, **QUICK)


def test_an_interrupt_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: Any, **options: Any) -> Any:
        def callback(iteration: int, state: Any) -> None:
            raise KeyboardInterrupt

        return airnp.fit(*args, **options, callback=callback)

    monkeypatch.setattr("airnp.completing.searching.fit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        airnp.search(TRUTH, {"depth": [2, 3]}, SEEN, **QUICK)


# --- the table ---


def test_it_is_a_table() -> None:
    found = airnp.search(TRUTH, {"depth": [2, 3]}, SEEN, progress=True, **QUICK)
    lines = str(found).splitlines()
    assert len(lines) == 3
    assert lines[1].endswith("depth=2")
    pytest.importorskip("pandas")
    frame = found.to_dataframe()
    assert list(frame["depth"]) == [2, 3]
    assert list(frame["nmae"]) == [each.nmae for each in found.candidates]


def test_warnings_of_empty_lines_come_once() -> None:
    observed = SEEN.copy()
    observed[3] = False
    with pytest.warns(airnp.EmptyLineWarning) as caught:
        airnp.search(TRUTH, {"depth": [1, 2]}, observed, **QUICK)
    assert len(caught) == 1


def test_expand_does_not_change_the_grid() -> None:
    grid = [{"depth": 2}]
    expand(grid, {})[0]["rank"] = 3
    assert grid == [{"depth": 2}]
