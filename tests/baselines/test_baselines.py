"""Every baseline recovers data that suit it, is deterministic, and refuses wrong arguments."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pytest
from scipy import interpolate, ndimage

import airnp
from airnp import baselines
from airnp.baselines.common import line_means
from airnp.baselines.imputers import best_solution, climbing_ranks, hold_out, impute
from airnp.baselines.patches import _patches


def low_rank(shape: tuple[int, int] = (40, 30), rank: int = 2) -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))


def blocks() -> np.ndarray:
    """Five kinds of rows and four of columns, with a little noise."""
    rng = np.random.default_rng(1)
    kinds = rng.random((5, 4))
    return kinds.repeat(7, axis=0).repeat(6, axis=1) + 0.01 * rng.standard_normal((35, 24))


def groups(count: int, size: int) -> np.ndarray:
    return np.kron(np.eye(count), np.ones((size, size)) - np.eye(size))


def picture() -> np.ndarray:
    rows, columns = np.meshgrid(np.linspace(0, 2, 36), np.linspace(0, 3, 32), indexing="ij")
    return np.sin(2 * rows) * np.cos(columns) + rows


@dataclass(frozen=True)
class Case:
    """Data that suit a method, and the largest error it may have, as a share of that of the mean."""

    truth: Callable[[], np.ndarray]
    share: float
    options: dict[str, Any] = field(default_factory=dict)
    keeps_observed: bool = True

    def problem(self) -> tuple[np.ndarray, np.ndarray]:
        truth = self.truth()
        return truth, airnp.masks.random(truth.shape, missing=0.4, seed=3)


CASES = {
    "mean": Case(lambda: np.add.outer(np.arange(30.0), np.zeros(20)), 0.01, {"by": "rows"}),
    "knn": Case(blocks, 0.1),
    "svd": Case(low_rank, 0.01, {"seed": 0}),
    "soft_impute": Case(low_rank, 0.1, {"seed": 0}, keeps_observed=False),
    "pnmc": Case(picture, 0.15, {"seed": 0, "trials": 3, "epochs": 30}),
    "linear": Case(picture, 0.03),
    "biharmonic": Case(picture, 0.02),
    "navier_stokes": Case(picture, 0.1),
    "telea": Case(picture, 0.1),
    "fsr": Case(picture, 0.1),
    "dmf": Case(low_rank, 0.05, {"seed": 0, "max_iter": 3000}, keeps_observed=False),
    "rdmf": Case(picture, 0.1, {"seed": 0, "max_iter": 3000}, keeps_observed=False),
    "dmf_de": Case(
        blocks,
        0.2,
        {"seed": 0, "max_iter": 4000, "row_graph": groups(5, 7), "column_graph": groups(4, 6)},
        keeps_observed=False,
    ),
}
NEEDS = {
    "knn": ("sklearn", 'scikit-learn: pip install "airnp[baselines]"'),
    "pnmc": ("sklearn", 'scikit-learn: pip install "airnp[baselines]"'),
    "biharmonic": ("skimage", 'scikit-image: pip install "airnp[baselines]"'),
    **dict.fromkeys(("navier_stokes", "telea", "fsr"), ("cv2", 'OpenCV: pip install "airnp[bench]"')),
}
INTERPOLATING = ["linear", "biharmonic", "navier_stokes", "telea", "fsr"]
SEEDED = [name for name, case in CASES.items() if "seed" in case.options]
EVERY = pytest.mark.parametrize("name", list(CASES))


def completed(name: str, Y: Any, mask: Any = None, **changes: Any) -> Any:
    return baselines.METHODS[name](Y, mask, **{**CASES[name].options, **changes})


def test_there_is_a_case_for_every_method():
    assert list(CASES) == list(baselines.METHODS)
    assert sorted({*CASES, "METHODS"}) == sorted(baselines.__all__)
    assert all(getattr(baselines, name) is method for name, method in baselines.METHODS.items())


@EVERY
def test_recovers_data_that_suit_it_and_does_not_change_the_input(name):
    case = CASES[name]
    truth, mask = case.problem()
    Y = np.where(mask, truth, np.nan)
    before = Y.copy()
    X = completed(name, Y)
    np.testing.assert_array_equal(Y, before)
    assert X.shape == truth.shape
    assert X.dtype == np.float64
    by_mean = airnp.metrics.nmae(baselines.mean(Y), truth, mask)
    assert airnp.metrics.nmae(X, truth, mask) < case.share * by_mean
    assert np.array_equal(X[mask], truth[mask]) == case.keeps_observed


@EVERY
def test_missing_values_behind_a_mask_are_never_read(name):
    truth, mask = CASES[name].problem()
    first, second = truth.copy(), truth.copy()
    second[~mask] = 1e6 * np.random.default_rng(0).standard_normal(int((~mask).sum()))
    few = {"max_iter": 200} if "max_iter" in CASES[name].options else {}
    for array in (first, second, mask):
        array.flags.writeable = False
    X = completed(name, first, mask, **few)
    np.testing.assert_array_equal(X, completed(name, second, mask, **few))
    np.testing.assert_array_equal(X, completed(name, np.where(mask, truth, np.nan), **few))


@pytest.mark.parametrize("name", [name for name in SEEDED if "dmf" not in name])
def test_the_same_seed_gives_the_same_answer_and_none_is_allowed(name):
    truth, mask = CASES["knn"].problem()
    answers = [completed(name, truth, mask, seed=seed) for seed in (0, 0, None)]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert np.isfinite(answers[2]).all()


@EVERY
def test_fills_empty_rows_and_columns_within_the_range(name):
    truth, mask = CASES[name].problem()
    mask = mask.copy()
    mask[4], mask[:, 7] = False, False
    few = {"max_iter": 500} if "max_iter" in CASES[name].options else {}
    with pytest.warns(airnp.EmptyLineWarning, match="1 rows and 1 columns have no observed entry") as caught:
        X = completed(name, truth, mask, **few)
    assert [warning.filename for warning in caught] == [__file__]
    low, high = truth[mask].min(), truth[mask].max()
    empty = ~mask.any(axis=1, keepdims=True) | ~mask.any(axis=0, keepdims=True)
    assert np.abs(X - (low + high) / 2)[empty].max() <= 0.7 * (high - low)


@pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")
def test_an_empty_row_is_filled_as_documented():
    truth, mask = CASES["knn"].problem()
    mask = mask.copy()
    mask[4] = False
    columns = np.where(mask, truth, 0).sum(axis=0) / mask.sum(axis=0)
    np.testing.assert_allclose(baselines.knn(truth, mask)[4], columns)
    np.testing.assert_allclose(baselines.mean(truth, mask, by="both")[4], columns)
    np.testing.assert_allclose(baselines.mean(truth, mask, by="rows")[4], truth[mask].mean())
    np.testing.assert_allclose(baselines.soft_impute(truth, mask, seed=0)[4], truth[mask].mean())
    # Nothing links that row to others: it gets the mean of their factors, and so the mean of their rows.
    factors = baselines.dmf(truth, mask, max_iter=1000, seed=0)
    np.testing.assert_allclose(factors[4], np.delete(factors, 4, axis=0).mean(axis=0))


@pytest.mark.parametrize("name", ["mean", "knn", "svd", "soft_impute", "pnmc", *INTERPOLATING])
def test_a_stack_is_solved_one_by_one_and_a_full_matrix_stays(name):
    truth, mask = CASES[name].problem()
    stack = np.stack([truth, truth[::-1], truth]).astype(np.float32)
    masks = np.stack([mask, mask[:, ::-1], np.ones_like(mask)])
    X = completed(name, stack, masks)
    assert X.dtype == np.float32
    for one, matrix, observed in zip(X, stack, masks, strict=True):
        np.testing.assert_array_equal(one, completed(name, matrix, observed))
    np.testing.assert_array_equal(X[2], stack[2])


@pytest.mark.parametrize("name", ["mean", "knn", "dmf"])
def test_a_table_comes_back_as_a_table(name):
    truth, mask = CASES["knn"].problem()
    table = pd.DataFrame(np.where(mask, truth, np.nan), index=[f"r{i}" for i in range(len(truth))])
    few = {"max_iter": 100} if name == "dmf" else {}
    X = completed(name, table, **few)
    assert X.index.equals(table.index)
    np.testing.assert_array_equal(X.to_numpy(), completed(name, table.to_numpy(), **few))


@pytest.mark.parametrize("name", ["mean", "soft_impute", "pnmc", *INTERPOLATING])
def test_constant_data_is_completed_by_the_constant(name):
    Y = np.full((12, 10), 2.5)
    Y[3, 4:6] = np.nan
    np.testing.assert_allclose(completed(name, Y), 2.5)


@EVERY
def test_refuses_data_as_fit_does(name):
    with pytest.raises(ValueError, match=r"^Y: no entry is observed"):
        completed(name, np.full((4, 5), np.nan))
    with pytest.raises(ValueError, match=r"^mask: expected the shape of Y"):
        completed(name, np.ones((4, 5)), np.ones((5, 4)))
    with pytest.raises(ValueError, match=r"^Y: expected a matrix"):
        completed(name, np.ones(4))


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("mean", {"by": "row"}, ValueError, "by: expected one of 'all', 'rows'"),
        ("knn", {"by": "all"}, ValueError, "by: "),
        ("knn", {"k": 0}, ValueError, "k: expected at least 1"),
        ("knn", {"k": 2.0}, TypeError, "k: expected a whole number"),
        ("knn", {"weights": "inverse"}, ValueError, "weights: "),
        ("svd", {"rank": 31}, ValueError, "rank: expected at most 30"),
        ("svd", {"rank": 0}, ValueError, "rank: "),
        ("svd", {"tol": 0}, ValueError, "tol: expected a positive number"),
        ("svd", {"held_out": 1.0}, ValueError, "held_out: expected a number between 0 and 1"),
        ("svd", {"seed": -1}, ValueError, "seed: "),
        ("svd", {"max_iter": 0}, ValueError, "max_iter: "),
        ("svd", {"progress": "yes"}, TypeError, "progress: expected True or False"),
        ("soft_impute", {"shrinkage": 0.0}, ValueError, "shrinkage: expected a positive number"),
        ("soft_impute", {"shrinkage": "much"}, TypeError, "shrinkage: expected a number"),
        ("soft_impute", {"held_out": 0}, ValueError, "held_out: "),
        ("pnmc", {"patch": (4, 3)}, ValueError, "patch: expected odd numbers"),
        ("pnmc", {"patch": (1, 1)}, ValueError, "patch: expected odd numbers, at least one above 1"),
        ("pnmc", {"patch": 3}, TypeError, "patch: expected two whole numbers"),
        ("pnmc", {"hidden": 64}, TypeError, "hidden: expected the units of each hidden layer"),
        ("pnmc", {"hidden": (8, 0)}, ValueError, "hidden: "),
        ("pnmc", {"trials": 0}, ValueError, "trials: "),
        ("pnmc", {"epochs": 0}, ValueError, "epochs: "),
        ("pnmc", {"rounds": 0}, ValueError, "rounds: "),
        ("navier_stokes", {"radius": 0}, ValueError, "radius: expected at least 1"),
        ("telea", {"radius": 1.5}, TypeError, "radius: expected a whole number"),
        ("fsr", {"quality": "good"}, ValueError, "quality: expected one of 'fast', 'best'"),
        ("dmf", {"stop": "never"}, ValueError, "stop: "),
        ("dmf", {"depht": 3}, TypeError, "depht"),
        ("rdmf", {"weight": -1}, ValueError, "weight: "),
        ("dmf_de", {"row_graph": np.eye(3)[:2]}, ValueError, "row_graph: expected a square matrix"),
        ("dmf_de", {"column_graph": "ring"}, TypeError, "column_graph: expected an array"),
        ("dmf_de", {"row_graph": np.ones((3, 3))}, ValueError, "graph: expected 40 nodes.* rows, got 3"),
        ("dmf_de", {"weight": "strong"}, TypeError, "weight: "),
    ],
)
def test_refuses_bad_options(name, options, error, message):
    truth, mask = CASES["svd"].problem()
    with pytest.raises(error, match=message):
        baselines.METHODS[name](truth, mask, **options)


@pytest.mark.parametrize("name", NEEDS)
def test_a_missing_package_names_the_extra(name, monkeypatch):
    package, hint = NEEDS[name]
    for module in [package, *(loaded for loaded in sys.modules if loaded.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=re.escape(f"{name} needs {hint}")):
        baselines.METHODS[name](np.ones((3, 4)))


def test_plain_opencv_is_not_enough_for_fsr(monkeypatch):
    monkeypatch.delattr(cv2, "xphoto")
    with pytest.raises(ImportError, match=r"fsr needs opencv-contrib.*airnp\[bench\]"):
        baselines.fsr(np.ones((3, 4)))


@pytest.mark.parametrize("name", ["svd", "soft_impute", "pnmc"])
def test_shows_progress_when_asked(name, capsys):
    truth, mask = CASES["knn"].problem()
    quiet = completed(name, truth, mask)
    assert capsys.readouterr().err == ""
    np.testing.assert_array_equal(completed(name, truth, mask, progress=True), quiet)
    assert name in capsys.readouterr().err


@pytest.mark.parametrize("name", INTERPOLATING)
def test_an_image_may_have_any_range_and_any_place_for_gaps(name):
    """The answer scales and moves with the data, whatever numbers the library computes with."""
    truth, mask = CASES[name].problem()
    X = completed(name, truth, mask)
    np.testing.assert_allclose(completed(name, 40 * truth - 7, mask), 40 * X - 7, rtol=0, atol=0.5)
    corner = np.ones((35, 18), dtype=bool)  # no multiples of a block of 16
    corner[-3:, -3:] = corner[:2] = corner[10, 5:12] = False
    with pytest.warns(airnp.EmptyLineWarning):
        filled = completed(name, truth[:35, :18], corner)
    assert np.abs(filled - truth[:35, :18]).max() < 0.3 * np.ptp(truth)


@pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")
@pytest.mark.parametrize("name", INTERPOLATING)
def test_an_image_of_one_line_is_filled(name):
    Y = np.array([[1.0, np.nan, 3.0, 3.0, np.nan, 2.0]])
    for line, axis in ((Y, 1), (Y.T, 0)):
        X = completed(name, line)
        assert X.shape == line.shape
        assert 1 <= X.min() <= X.max() <= 3, axis


def test_linear_interpolation_is_that_of_all_observed_pixels():
    """Only pixels beside gaps are triangulated, and these triangles are the same."""
    truth = picture() + 0.3 * np.random.default_rng(0).standard_normal((36, 32))
    drawn = np.random.default_rng(1).random(truth.shape) < 0.2
    for mask in (drawn, ndimage.binary_dilation(drawn, structure=np.ones((3, 3)))):
        mask[:2, :2] = False  # outside all triangles
        gaps = np.argwhere(~mask)
        inside = interpolate.LinearNDInterpolator(np.argwhere(mask), truth[mask])(gaps)
        outside = interpolate.NearestNDInterpolator(np.argwhere(mask), truth[mask])(gaps)
        expected = np.where(np.isnan(inside), outside, inside)
        # Pixels on one circle have several triangulations, so some gaps may have other corners.
        assert np.isclose(baselines.linear(truth, mask)[~mask], expected).mean() > 0.9
        assert np.isnan(inside).any()


def test_opencv_methods_differ_by_their_options():
    truth, mask = CASES["telea"].problem()
    for method in (baselines.navier_stokes, baselines.telea):
        assert not np.array_equal(method(truth, mask, radius=1), method(truth, mask, radius=5))
    small, seen = truth[:16, :16], mask[:16, :16]
    best, fast = (baselines.fsr(small, seen, quality=quality) for quality in ("best", "fast"))
    assert not np.array_equal(best, fast)


def test_neighbours_may_be_columns_or_both():
    truth, mask = CASES["knn"].problem()
    rows, columns, both = (baselines.knn(truth, mask, by=by) for by in ("rows", "columns", "both"))
    np.testing.assert_array_equal(columns, baselines.knn(truth.T, mask.T).T)
    np.testing.assert_allclose(both, (rows + columns) / 2)
    assert not np.allclose(rows, columns)


def test_a_given_rank_is_exact_and_a_chosen_one_is_near():
    truth, mask = CASES["svd"].problem()
    exact = baselines.svd(truth, mask, rank=2, tol=1e-9, max_iter=3000)
    np.testing.assert_allclose(exact, truth, atol=1e-5)
    constant = baselines.svd(truth, mask, rank=1)
    assert airnp.metrics.nmae(constant, truth, mask) > 20 * airnp.metrics.nmae(exact, truth, mask)


def test_soft_impute_satisfies_the_optimality_conditions():
    """At the minimum the residual on observed entries is λ times a subgradient of the nuclear norm."""
    truth, mask = CASES["svd"].problem()
    shrinkage = 3.0
    X = baselines.soft_impute(truth, mask, shrinkage=shrinkage, tol=1e-10, max_iter=5000) - truth[mask].mean()
    residual = np.where(mask, truth - truth[mask].mean() - X, 0)
    left, sizes, right = np.linalg.svd(X)
    rank = int((sizes > 1e-6).sum())
    assert 0 < rank < min(X.shape)
    np.testing.assert_allclose(
        left[:, :rank].T @ residual @ right[:rank].T, shrinkage * np.eye(rank), atol=1e-5
    )
    assert np.linalg.norm(residual, 2) <= shrinkage * (1 + 1e-6)


def test_deep_factorisation_is_fit_with_these_regularizers():
    truth, mask = CASES["svd"].problem()
    short = {"max_iter": 60, "seed": 1}
    graph = groups(8, 5)
    weight = 0.01 / truth.size
    pairs = [
        (baselines.dmf(truth, mask, **short), []),
        (baselines.rdmf(truth, mask, **short), [airnp.TotalVariation(weight)]),
        (baselines.rdmf(truth, mask, weight=0.1, **short), [airnp.TotalVariation(0.1)]),
        (baselines.dmf_de(truth, mask, **short), [airnp.DirichletEnergy(a) for a in ("rows", "columns")]),
        (baselines.dmf_de(truth, mask, row_graph=graph, **short), [airnp.FixedLaplacian(graph, "rows")]),
    ]
    for X, regularizers in pairs:
        result = airnp.fit(truth, mask, regularizers=regularizers, stop=None, **short)
        np.testing.assert_array_equal(X, result.X)


def test_dmf_is_better_stopped_than_at_its_last_iterate_where_it_over_fits():
    truth = picture() + 0.3 * np.random.default_rng(0).standard_normal((36, 32))
    mask = airnp.masks.random(truth.shape, missing=0.4, seed=3)
    last, stopped = (baselines.dmf(truth, mask, max_iter=6000, stop=stop, seed=0) for stop in (None, "auto"))
    assert airnp.metrics.nmae(stopped, truth, mask) < 0.8 * airnp.metrics.nmae(last, truth, mask)


def test_a_patch_shows_everything_but_its_centre():
    filled = np.arange(12.0).reshape(3, 4) / 12
    seen = _patches(filled, (1, 0), np.array([[1, 0], [2, 3]]))
    np.testing.assert_allclose((seen + 1) * 6, [[2, 10], [3, 7]], atol=1e-5)  # mirrored above the first row
    assert _patches(filled, (1, 2), np.array([[1], [2]])).shape == (1, 14)


def test_line_means_use_what_there_is():
    mask = np.array([[True, True, False], [True, False, False], [False, False, False]])
    values = np.where(mask, [[1.0, 3.0, 0.0], [5.0, 0.0, 0.0], [0.0, 0.0, 0.0]], 0)
    expected = [[2.5, 2.5, 2.0], [4.0, 4.0, 5.0], [3.0, 3.0, 3.0]]
    np.testing.assert_allclose(line_means(values, mask), expected)


def test_held_out_entries_are_observed_and_leave_every_line_one():
    mask = airnp.masks.random((20, 15), missing=0.6, seed=0)
    held = hold_out(mask, 0.1, 0)
    assert held.sum() == round(0.1 * mask.sum())
    assert not (held & ~mask).any()
    assert ((mask & ~held).any(axis=1) == mask.any(axis=1)).all()
    with pytest.raises(ValueError, match="Y: has no observed entry to spare"):
        hold_out(np.eye(4, dtype=bool), 0.5, 0)


def test_a_more_complex_solution_must_be_better_by_a_percent():
    values, held = np.zeros((1, 1)), np.ones((1, 1), dtype=bool)

    def chosen(*errors: float) -> int:
        return best_solution((np.full((1, 1), error) for error in errors), values, held)

    assert chosen(4, 3, 2.99, 2, 1.995) == 3
    assert chosen(4, 3, 5, 5, 5, 5, 5, 1) == 1  # looks no further
    assert chosen(4, 3, 5, 5, 5, 5, 1) == 6


def test_momentum_leads_where_plain_iteration_leads_in_fewer_steps():
    truth, mask = low_rank(), airnp.masks.random((40, 30), missing=0.7, seed=0)
    calls = 0

    def shrunk(filled: np.ndarray) -> np.ndarray:
        nonlocal calls
        calls += 1
        left, sizes, right = np.linalg.svd(filled, full_matrices=False)
        return (left * np.maximum(sizes - 1, 0)) @ right

    plain = np.zeros_like(truth)
    while True:
        new = shrunk(np.where(mask, truth, plain))
        if np.linalg.norm(new - plain) < 1e-7:
            break
        plain = new
    without, calls = calls, 0
    X = impute(truth, mask, np.zeros_like(truth), shrunk, 5000, 1e-9)
    np.testing.assert_allclose(X, plain, atol=1e-5)
    assert calls < without / 2


def test_ranks_grow_by_a_fifth_and_end_at_the_smaller_side():
    ranks = list(climbing_ranks(240))
    assert ranks[:11] == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12]
    assert 200 < ranks[-1] <= 240
    assert list(climbing_ranks(1)) == [1]
