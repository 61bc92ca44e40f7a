"""What a fit does when it is told nothing."""

from __future__ import annotations

import numpy as np
import pytest
from airnp.defaults_ import chosen_regularizers, neighbour_correlation, neighbours_are_alike

import airnp
from airnp.data.inputs import read

RNG = np.random.default_rng(11)
WAVES = np.sin(np.arange(40)[:, None] / 5) + np.cos(np.arange(50) / 7)
PICTURE = WAVES + 0.1 * RNG.standard_normal(WAVES.shape)
TABLE = PICTURE[RNG.permutation(40)][:, RNG.permutation(50)]
MASK = RNG.random(PICTURE.shape) < 0.6
QUICK = {"seed": 0, "max_iter": 3, "stop": None}


def names(*arguments, **options):
    return [item.name for item in airnp.fit(*arguments, **QUICK, **options).regularizers]


def test_a_picture_gets_total_variation_and_a_table_does_not():
    assert names(PICTURE, MASK) == ["rows", "columns", "total_variation"]
    assert names(TABLE, MASK) == ["rows", "columns"]


def test_none_is_air_whatever_the_data():
    assert names(PICTURE, MASK, regularizers=None) == ["rows", "columns"]
    assert names(PICTURE, MASK, regularizers=[]) == []


def test_both_axes_must_have_an_order():
    assert not neighbours_are_alike(read(PICTURE[RNG.permutation(40)]))
    assert not neighbours_are_alike(read(PICTURE[:, RNG.permutation(50)]))


def test_lines_of_different_means_are_no_order():
    ratings = np.add.outer(RNG.standard_normal(40), 3 * RNG.standard_normal(50))
    assert max(abs(neighbour_correlation(read(ratings), axis)) for axis in (-2, -1)) < 0.4


def test_measurements_have_no_neighbours():
    every_second = np.eye(40)[::2]
    operator = type(
        "Rows",
        (),
        {"forward": lambda self, X: every_second @ X, "adjoint": lambda self, Z: every_second.T @ Z},
    )()
    assert names(every_second @ PICTURE, operator=operator, shape=PICTURE.shape) == ["rows", "columns"]


@pytest.mark.parametrize("axis", [-2, -1])
def test_the_correlation_is_that_of_observed_neighbours(axis):
    observations = read(PICTURE, MASK)
    picture, mask = (PICTURE, MASK) if axis == -1 else (PICTURE.T, MASK.T)
    both = mask[:, 1:] & mask[:, :-1]
    differences = np.diff(picture, axis=1)[both]
    about_mean = np.concatenate(
        [row[seen] - row[seen].mean() for row, seen in zip(picture, mask, strict=True)]
    )
    variance = (about_mean**2).sum() / (mask.sum() - len(mask))
    expected = 1 - (differences**2).mean() / (2 * variance)
    assert neighbour_correlation(observations, axis) == pytest.approx(expected, rel=1e-6)


def test_missing_entries_are_not_looked_at():
    with_holes = np.where(MASK, PICTURE, np.nan)
    assert neighbour_correlation(read(with_holes), -1) == neighbour_correlation(read(PICTURE, MASK), -1)


@pytest.mark.parametrize("values", [np.ones((20, 20)), PICTURE[:7, :7], PICTURE[:1], PICTURE[:, :1]])
def test_constant_and_tiny_data_are_no_pictures(values):
    assert not neighbours_are_alike(read(values))


def test_few_pairs_are_not_believed():
    scarce = RNG.random(PICTURE.shape) < 0.02
    scarce[0, 0] = True
    with pytest.warns(airnp.EmptyLineWarning):
        assert neighbour_correlation(read(PICTURE, scarce), -1) == 0


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=r"regularizers: expected 'auto', None or a list of them, got 'tv'"):
        airnp.fit(PICTURE, MASK, regularizers="tv")


def test_a_list_is_left_alone():
    given = [airnp.TotalVariation(0.1)]
    assert chosen_regularizers(given, read(PICTURE), measured=False) is given


@pytest.mark.parametrize(("fidelity", "scale"), [("mean", 2 / PICTURE.size), ("sum", 1)])
def test_the_weight_follows_the_fidelity(fidelity, scale):
    result = airnp.fit(PICTURE, MASK, fidelity=fidelity, **QUICK)
    assert result.regularizers[2].weight == pytest.approx(0.005 * scale)


def test_a_picture_is_completed_better_with_it():
    rng = np.random.default_rng(3)
    y, x = np.mgrid[:48, :52]
    discs = zip(*(rng.uniform(*limits, 8) for limits in [(0, 48), (0, 52), (5, 16), (-1, 1)]), strict=True)
    picture = sum(((y - cy) ** 2 + (x - cx) ** 2 < r * r) * grey for cy, cx, r, grey in discs)
    mask = rng.random(picture.shape) < 0.6
    options = {"seed": 0, "max_iter": 4000, "stop": None, "learning_rate": 3e-3}
    fits = [airnp.fit(picture, mask, regularizers=given, **options) for given in ("auto", None)]
    with_it, without = (airnp.metrics.nmae(result.X, picture, mask) for result in fits)
    assert with_it < 0.7 * without
