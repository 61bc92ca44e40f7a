"""Stopping rules: which entries are held out, when a fit ends, and which iterate it returns."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.sparse import csr_array
from scipy.sparse.linalg import aslinearoperator

import airnp
from airnp import AdaptiveLaplacian, EnergyChange, FixedLaplacian, HeldOut, TotalVariation
from airnp.data.entries import read_entries
from airnp.data.holdout import random_entries
from airnp.data.normalization import prepare
from airnp.engines import select_engine
from airnp.model.objective import ModelSettings
from airnp.training.dense import DenseTask
from airnp.training.monitors import Choice, HeldOutMonitor, LevelMonitor

RNG = np.random.default_rng(23)
TRUTH = RNG.random((15, 2)) @ RNG.random((2, 12)) + 0.05 * RNG.standard_normal((15, 12))
MASK = RNG.random(TRUTH.shape) < 0.7
STORED = csr_array(np.where(MASK, TRUTH, 0))
FAST = {"optimizer": airnp.Adam(1e-2), "seed": 9}


def held_out(mask: np.ndarray, rule: HeldOut, seed: int = 0) -> np.ndarray:
    """Return the entries that a rule hides from a dense fit."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", airnp.EmptyLineWarning)
        return judge(np.where(mask, 1.0, 0.0), mask, rule=rule, seed=seed).held_out


def judge(Y: Any, mask: Any = None, operator: Any = None, *, rule: HeldOut, seed: int) -> Any:
    """Return what a rule holds out of a dense fit, and judges by."""
    data = prepare(Y, mask, None, None, None, None, operator, False)
    task = DenseTask(data, ModelSettings([], 3, None, airnp.Squared()), select_engine("reference", np))
    return task.judge(rule.fraction, seed)


def looks(options: dict[str, Any], rule: HeldOut, **problem: Any) -> tuple[Any, dict[int, Any]]:
    """Fit, and return what every iteration had: its matrix, energies and fidelity."""
    seen = {}

    def keep(iteration: int, state: Any) -> None:
        energies = {name: np.asarray(value) for name, value in state.energies.items()}
        seen[iteration] = (state.normalized_matrix.copy(), energies, float(state.fidelity))

    fit = airnp.fit_sparse if "S" in options else airnp.fit
    return fit(stop=rule, record=1, callback=keep, **options, **problem), seen


# ------------------------------------------------------------------------------------------- what is held out


@given(
    mask=hnp.arrays(bool, st.tuples(st.integers(2, 12), st.integers(2, 12))),
    fraction=st.sampled_from([0.01, 0.05, 0.3, 0.9]),
    seed=st.integers(0, 2**32),
)
def test_no_row_or_column_loses_its_last_entry(mask, fraction, seed):
    mask[0, 0] = True
    hidden = held_out(mask, HeldOut(fraction), seed)
    left = mask & ~hidden
    assert not (hidden & ~mask).any(), "only observed entries can be held out"
    np.testing.assert_array_equal(left.any(axis=0), mask.any(axis=0))
    np.testing.assert_array_equal(left.any(axis=1), mask.any(axis=1))


@pytest.mark.parametrize(
    ("entries", "count"), [(1, 0), (2, 0), (4, 0), (5, 1), (19, 3), (100, 20), (144, 20)]
)
def test_how_many_are_held_out(entries, count):
    mask = (np.arange(144) < entries).reshape(72, 2)
    assert held_out(mask, HeldOut()).sum() == count


def test_a_larger_matrix_gives_its_share():
    mask = np.ones((60, 50), dtype=bool)
    assert held_out(mask, HeldOut(0.05)).sum() == 150
    assert held_out(mask, HeldOut(0.1)).sum() == 300
    first, second = (held_out(mask, HeldOut(), seed) for seed in (0, 1))
    assert not np.array_equal(first, second)
    assert first.any(axis=1).sum() > 45, "they are spread over the rows"


def test_a_sparse_fit_holds_out_no_last_entry_of_a_line():
    rng = np.random.default_rng(0)
    entries = read_entries(csr_array(np.where(rng.random((50, 40)) < 0.15, 1 + rng.random((50, 40)), 0)))
    hidden = random_entries(entries, 0.5, seed=3)
    kept, out = entries.split(hidden)
    assert out.nnz == hidden.sum() > 0
    np.testing.assert_array_equal(kept.pattern.counts > 0, entries.pattern.counts > 0)
    np.testing.assert_array_equal(kept.column_counts > 0, entries.column_counts > 0)


def test_a_list_keeps_at_least_one():
    for shape in ((1, 10), (10, 1)):
        assert held_out(np.ones(shape, dtype=bool), HeldOut(0.99)).sum() == 9


@pytest.mark.filterwarnings("ignore::airnp.EmptyLineWarning")
@pytest.mark.parametrize("entries", [1, 2, 3, 5, 19])
def test_a_handful_of_entries_is_enough_to_fit(entries):
    mask = np.zeros((6, 5), dtype=bool)
    mask.flat[np.random.default_rng(entries).permutation(30)[:entries]] = True
    Y = np.arange(30.0).reshape(6, 5)
    result = airnp.fit(
        Y,
        mask,
        regularizers=[],
        max_iter=3000,
        stop=HeldOut(patience=100, relative_patience=0.0, refit=False),
        **FAST,
    )
    assert np.isfinite(result.X).all()
    if entries < 5:  # nothing to spare: what is fitted is watched, until it is fitted
        np.testing.assert_allclose(result.X[mask], Y[mask], atol=0.05)
        assert result.n_iter < 3000


@pytest.mark.parametrize("regularizers", [[], None], ids=["DMF", "AIR"])
def test_held_out_entries_do_not_train(regularizers):
    """Other values there, and every iteration is the same, to the bit."""
    rule = HeldOut(0.1, every=5, refit=False)
    hidden = held_out(MASK, rule, seed=9)
    other = np.where(hidden, TRUTH[::-1] * 3 - 1, TRUTH)
    options = {"mask": MASK, "normalize": False, "max_iter": 40, "regularizers": regularizers, **FAST}
    (_, states), (_, changed) = (looks(options, rule, Y=Y) for Y in (TRUTH, other))
    assert hidden.sum() >= 10
    assert list(states) == list(changed)
    for iteration in states:
        np.testing.assert_array_equal(states[iteration][0], changed[iteration][0])
    shown = np.where(MASK & ~hidden, TRUTH + 0.1, TRUTH)
    _, moved = looks(options, rule, Y=shown)
    assert not np.array_equal(states[40][0], moved[40][0])


def test_held_out_entries_do_not_train_a_covariance_graph():
    rule = HeldOut(0.1, refit=False)
    other = np.where(held_out(MASK, rule, seed=9), -TRUTH, TRUTH)
    options = {"mask": MASK, "normalize": False, "max_iter": 5, **FAST}
    graphs = [
        airnp.fit(Y, stop=rule, regularizers=[airnp.DirichletEnergy()], **options).regularizers[0].adjacency
        for Y in (TRUTH, other)
    ]
    np.testing.assert_array_equal(*graphs)


def test_weights_are_kept_and_held_out_entries_have_none():
    """Weights of held-out entries make no difference, those of the others do."""
    rule = HeldOut(0.1, every=5, refit=False)
    hidden = held_out(MASK, rule, seed=9)
    options = {"mask": MASK, "max_iter": 20, "regularizers": [], **FAST}
    ones = np.ones_like(TRUTH)
    _, plain = looks(options, rule, Y=TRUTH, weights=ones)
    _, hidden_heavier = looks(options, rule, Y=TRUTH, weights=np.where(hidden, 5.0, 1.0))
    _, others_heavier = looks(options, rule, Y=TRUTH, weights=np.where(hidden, 1.0, 5.0))
    np.testing.assert_array_equal(plain[20][0], hidden_heavier[20][0])
    assert not np.array_equal(plain[20][0], others_heavier[20][0])


def test_measurements_of_an_operator_are_held_out():
    A = np.random.default_rng(0).standard_normal((120, TRUTH.size))
    operator = airnp.Operator(aslinearoperator(A), TRUTH.shape)
    y = A @ TRUTH.ravel()
    rule = HeldOut(0.1, patience=50, every=5, refit=False)
    options = {"operator": operator, "regularizers": [], "normalize": False, **FAST}
    hidden = judge(y, operator=operator, rule=rule, seed=9).held_out
    assert hidden.shape == y.shape
    assert hidden.sum() == 20
    other = np.where(hidden, -2 * y, y)
    (_, first), (_, second) = (looks({**options, "max_iter": 20}, rule, Y=Y) for Y in (y, other))
    np.testing.assert_array_equal(first[20][0], second[20][0])
    result, states = looks({**options, "max_iter": 400}, rule, Y=y)
    errors = {k: np.abs(A @ states[k][0].ravel() - y)[hidden].mean() for k in states if k % 5 == 0}
    assert result.best_iter == min(errors, key=errors.__getitem__)
    np.testing.assert_array_equal(result.X, states[result.best_iter][0])


# ------------------------------------------------------------------------------------ when it ends, with what


Error = Callable[[np.ndarray], float]
"""Judges a matrix, as a rule does."""


def dense_error(rule: HeldOut) -> Error:
    hidden = held_out(MASK, rule, seed=9)
    parts = hidden, MASK & ~hidden
    return lambda matrix: max(np.abs(matrix - TRUTH)[part].mean() for part in parts)


def sparse_error(rule: HeldOut) -> Error:
    hidden = random_entries(read_entries(STORED), rule.fraction, seed=9)
    rows, columns = (line[hidden] for line in STORED.nonzero())
    return lambda matrix: np.sqrt(np.mean((matrix - TRUTH)[rows, columns] ** 2))


def replay(states: dict[int, Any], error_of: Error, rule: HeldOut, learned: list[str]) -> tuple[int, int]:
    """Return the last and the best iteration, as the rule's documentation has it, from every iteration."""
    best, lowest, peak, last = 0, np.inf, 0.0, max(states)
    waited, before, fitted = 0.0, 0, np.inf
    highest, gained, since = 0.0, np.inf, []
    for iteration, (matrix, energies, fidelity) in states.items():
        if iteration % rule.every and iteration != last:
            continue
        passed, error = iteration - before, error_of(matrix)
        # The errors after the last gain, from the highest of them on.
        since = [error] if error > max(since, default=0.0) else since
        if not lowest < error < min(since):
            waited += passed if fidelity < fitted * (1 - 1e-5 * passed) else passed / 3
        since.append(error)
        if error <= lowest * (1 + rule.tolerance):
            best = iteration
        lowest, highest = min(lowest, error), max(highest, error)
        if error < gained - rule.gain * min(error, highest - error):
            gained, waited, since = error, 0.0, [error]
        energy = sum(float(energies[name]) for name in learned)
        peak = max(peak, energy)
        if waited >= max(rule.patience, rule.relative_patience * iteration) and energy <= peak / 2:
            return iteration, best
        before, fitted = iteration, fidelity
    return last, best


GRAPH = np.diag(np.ones(14), 1) + np.diag(np.ones(14), -1)
DENSE = {"Y": TRUTH, "mask": MASK}
SPARSE = {"S": STORED, "rank": 10}
AIR = ["energy_rows", "energy_columns"]
MODELS = {
    "DMF": (DENSE, [], []),
    "AIR": (DENSE, None, AIR),
    "TV": (DENSE, [TotalVariation(1e-4)], []),
    "fixed": (DENSE, [FixedLaplacian(GRAPH)], []),
    "mixed": (DENSE, [FixedLaplacian(GRAPH), AdaptiveLaplacian("columns")], ["energy_columns"]),
    "not learned": (DENSE, [AdaptiveLaplacian("rows", weight=0.0)], []),
    "sparse DMF": (SPARSE, [], []),
    "sparse AIR": (SPARSE, None, AIR),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "rule",
    [
        HeldOut(0.1, patience=40, every=10, refit=False),
        HeldOut(0.1, 20, 0.15, every=7, refit=False),
        HeldOut(0.1, patience=60, every=10, refit=False, tolerance=0.002),
    ],
    ids=["absolute", "relative", "tolerant"],
)
def test_it_ends_when_patience_does_and_returns_the_best(name, rule):
    form, regularizers, learned = MODELS[name]
    # The energies of a learned graph fall from a large start; all others rise from a small one and stay.
    start = airnp.Gaussian(0.3, 0.3) if learned else "gaussian"
    options = {"regularizers": regularizers, "max_iter": 900, "normalize": False, "init": start}
    result, states = looks({**form, **options, **FAST}, rule)
    error_of = dense_error(rule) if form is DENSE else sparse_error(rule)
    last, best = replay(states, error_of, rule, learned)
    assert (result.n_iter, result.best_iter) == (last, best)
    assert result.stop_reason == "held-out error stopped falling"
    assert best <= last < 900
    np.testing.assert_allclose(result.X, states[best][0], rtol=0, atol=0 if form is DENSE else 1e-12)


def test_energies_that_stay_high_hold_the_end_back():
    """Patience does not count while learned graphs still smooth."""
    rule = HeldOut(0.1, patience=1, relative_patience=0.0, every=1, refit=False)
    result, states = looks({**DENSE, "max_iter": 300, "normalize": False, **FAST}, rule)
    last, best = replay(states, dense_error(rule), rule, AIR)
    assert (result.n_iter, result.best_iter) == (last, best)
    unguarded, _ = replay(states, dense_error(rule), rule, [])
    assert unguarded < last, "the case must tell the two apart"


def test_a_standstill_between_two_components_is_waited_for():
    """Rank 2: the first component is fitted at 200, the second at 2500, bare patience would end at 2200."""
    rng = np.random.default_rng(0)
    truth = rng.random((30, 2)) @ rng.random((2, 20))
    mask = rng.random(truth.shape) < 0.7
    result = airnp.fit(truth, mask, regularizers=[], max_iter=4000, seed=0)
    assert airnp.metrics.nmae(result.X, truth, mask) < 2e-3
    stuck = airnp.fit(truth, mask, regularizers=[], max_iter=1500, stop=None, seed=0)
    assert airnp.metrics.nmae(stuck.X, truth, mask) > 2e-2, "the case must have a standstill"


def test_a_fit_that_has_converged_ends_in_the_end():
    """Nothing moves any more: three times the patience, for want of anything to wait for."""
    Y = np.outer(np.arange(1.0, 13), np.arange(1.0, 13))
    rule = HeldOut(0.1, patience=200, relative_patience=0.0, every=50, refit=False)
    result = airnp.fit(Y, regularizers=[], rank=2, depth=2, stop=rule, max_iter=20_000, **FAST)
    assert result.stop_reason == "held-out error stopped falling"
    assert 200 <= result.n_iter - result.best_iter <= 650
    np.testing.assert_allclose(result.X, Y, rtol=1e-3, atol=1e-2)


class Curve:
    """A judge that has seen everything already: errors on held-out and on fitted entries, look by look."""

    held_out = np.ones((2, 2), dtype=bool)
    batch = ()

    def __init__(self, watched: np.ndarray, fitted: np.ndarray) -> None:
        self.watched, self.fitted = watched, fitted

    def errors(self, state: Any) -> tuple[np.ndarray, np.ndarray]:
        place = state.iteration // 100 - 1
        return np.asarray(self.watched[place]), np.asarray(self.fitted[place])


def stopped(watched: np.ndarray, fitted: Any = 0.0, **options: Any) -> tuple[int, int]:
    """Return where a rule ends these errors, of looks at 100, 200, …, and which iterate it chooses."""
    fitted = np.broadcast_to(fitted, len(watched))
    monitor = HeldOutMonitor(HeldOut(**options), Curve(watched, fitted))
    for look, _ in enumerate(watched, start=1):
        state = SimpleNamespace(
            iteration=100 * look,
            fidelity=0.5**look,
            energies={"energy_rows": 1.0 / look},
            learned=("energy_rows",),
            params=[np.zeros((2, 2))],
            structure=None,
        )
        if monitor.check(state) is not None:
            break
    return 100 * look, int(monitor.choice(Choice([], np.array(0))).iteration)


def bend(*corners: tuple[int, float]) -> np.ndarray:
    """Return the errors of looks at 100, 200, …, straight between corners (iteration, error)."""
    iterations, errors = zip(*corners, strict=True)
    return np.interp(np.arange(100, iterations[-1] + 1, 100), iterations, errors)


def test_easy_held_out_entries_do_not_end_a_fit_at_its_beginning():
    """A mean predicts two bright holes better than the rest of a picture, which is not fitted yet."""
    watched = bend((100, 0.07), (1000, 0.061), (4000, 0.088), (10_000, 0.07), (14_000, 0.08))
    fitted = bend((100, 0.17), (2500, 0.088), (6000, 0.03), (14_000, 0.0))
    assert stopped(watched, fitted)[1] == 10_000
    last, chosen = stopped(watched)
    assert (last, chosen) == (3000, 1000), "the case must tell the two apart"


def test_what_another_version_remembered_is_refused():
    monitor = HeldOutMonitor(HeldOut(), Curve(np.ones(1), np.ones(1)))
    state = monitor.state()
    monitor.restore(state)
    del state["_lowest"]
    with pytest.raises(ValueError, match="saved by another version of airnp"):
        monitor.restore(state)


def test_an_error_on_its_way_down_is_waited_for():
    falls = ((100, 0.2), (5000, 0.05), (6500, 0.06), (13_000, 0.051))
    assert stopped(bend(*falls, (20_000, 0.03), (24_000, 0.04)))[1] == 20_000
    noise = 0.002 * np.random.default_rng(0).random(130)
    last, chosen = stopped(bend((100, 0.2), (5000, 0.05), (6500, 0.055), (13_000, 0.055)) + noise)
    assert (last < 8500, chosen < 5500) == (True, True), "noise is no way down"


def test_a_fit_that_hardly_gains_ends():
    slow = bend((100, 0.2), (5000, 0.05), (30_000, 0.0498))
    last, chosen = stopped(slow)
    assert 7000 <= last <= 9000
    assert chosen == last, "the best iterate is returned, whether worth waiting for or not"
    assert stopped(slow, gain=0.0) == (30_000, 30_000)
    # Of a level that no fit gets below, such as noise, a small part is all there is to gain.
    noisy = 1 + bend((100, 0.02), (9000, 0.0), (15_000, 0.01))
    assert stopped(noisy)[1] == 9000


def test_more_is_held_out_where_gaps_are_holes():
    mask = np.ones((60, 50), dtype=bool)
    mask[20:30, 20:29] = False
    assert 250 <= held_out(mask, HeldOut()).sum() <= 400
    assert 120 <= held_out(mask, HeldOut(0.05)).sum() <= 200
    scattered = airnp.masks.random(mask.shape, 0.1, seed=0)
    assert held_out(scattered, HeldOut()).sum() == round(0.05 * scattered.sum())


@pytest.mark.parametrize("max_iter", [1, 9, 25])
def test_the_last_iterate_is_looked_at_as_well(max_iter):
    result = airnp.fit(
        TRUTH, MASK, regularizers=[], max_iter=max_iter, stop=HeldOut(every=10, refit=False), **FAST
    )
    assert result.best_iter == max_iter  # so early every iterate is better than those before
    stopped = airnp.fit(
        TRUTH,
        MASK,
        regularizers=[],
        stop=HeldOut(every=10, refit=False),
        record=1,
        callback=lambda k, _: k == 25,
        **FAST,
    )
    assert (stopped.n_iter, stopped.best_iter, stopped.stop_reason) == (25, 25, "stopped by callback")


@pytest.mark.parametrize("patience", [10, 40])
@pytest.mark.parametrize("regularizers", [[], None], ids=["DMF", "AIR"])
def test_a_stack_is_judged_one_by_one(regularizers, patience):
    rng = np.random.default_rng(0)
    stack = np.stack([TRUTH, TRUTH[::-1] ** 3, rng.random(TRUTH.shape)])
    masks = np.stack([MASK, rng.random(MASK.shape) < 0.5, np.roll(MASK, 3, axis=1)])
    options = {
        "regularizers": regularizers,
        "max_iter": 500,
        "stop": HeldOut(0.1, patience, relative_patience=0.0, every=10, refit=False),
        **FAST,
    }
    together = airnp.fit(stack, masks, **options)
    alone = [airnp.fit(Y, mask, **options) for Y, mask in zip(stack, masks, strict=True)]
    assert together.best_iter.tolist() == [result.best_iter for result in alone]
    assert len(set(together.best_iter.tolist())) > 1, "the case must tell them apart"
    assert together.n_iter == max(result.n_iter for result in alone)
    for X, result in zip(together.X, alone, strict=True):
        np.testing.assert_allclose(X, result.X, rtol=1e-6, atol=1e-8)


def test_auto_is_held_out_and_none_never_stops():
    options = {"regularizers": [], "max_iter": 150, **FAST}
    auto, rule = airnp.fit(TRUTH, MASK, **options), airnp.fit(TRUTH, MASK, stop=HeldOut(), **options)
    np.testing.assert_array_equal(auto.X, rule.X)
    never = airnp.fit(TRUTH, MASK, stop=None, **options)
    assert (never.n_iter, never.best_iter) == (150, 150)
    assert never.stop_reason == "max_iter (150) reached"
    assert not np.array_equal(auto.X, never.X)


def test_a_rule_serves_many_fits():
    rule = HeldOut(0.1, patience=40, every=10, refit=False)
    options = {"regularizers": [], "max_iter": 500, "stop": rule, **FAST}
    first, _, third = (airnp.fit(Y, MASK, **options) for Y in (TRUTH, -(TRUTH**2), TRUTH))
    np.testing.assert_array_equal(first.X, third.X)


# ---------------------------------------------------------------------------------------------- energy change

START = {"init": airnp.Gaussian(0.4, 0.2), **FAST}


def first_quiet_iteration(energies: list[np.ndarray], delta: float) -> int:
    changes = np.max([np.abs(np.diff(energy)) for energy in energies], axis=0)
    return int(np.argmax(changes < delta)) + 2


@pytest.mark.parametrize("delta", [3.0, 0.3, 0.02])
@pytest.mark.parametrize("record", [1, 10])
def test_energy_change_stops_between_two_consecutive_iterations(delta, record):
    free = airnp.fit(TRUTH, MASK, stop=None, record=1, max_iter=300, **START)
    expected = first_quiet_iteration([free.history["energy_rows"], free.history["energy_columns"]], delta)
    assert 2 < expected < 300
    result = airnp.fit(TRUTH, MASK, stop=EnergyChange(delta), record=record, max_iter=300, **START)
    assert result.n_iter == result.best_iter == expected
    assert result.history["iteration"][-1] == expected
    assert result.stop_reason == f"energies changed by less than {delta:g}"


def test_energy_change_judges_a_stack_one_by_one():
    stack = np.stack([TRUTH, np.random.default_rng(0).random(TRUTH.shape), TRUTH[::-1] ** 4])
    options = {"mask": MASK, "stop": EnergyChange(0.05), "max_iter": 300, **START}
    together = airnp.fit(stack, **options)
    alone = [airnp.fit(Y, **options) for Y in stack]
    assert together.best_iter.tolist() == [result.n_iter for result in alone]
    assert len(set(together.best_iter.tolist())) > 1
    for X, result in zip(together.X, alone, strict=True):
        np.testing.assert_allclose(X, result.X, rtol=1e-9)
    ends = min(together.best_iter) + 1
    short = airnp.fit(stack, **{**options, "max_iter": int(ends)})
    assert sorted(set(short.best_iter.tolist())) == [ends - 1, ends]
    assert "max_iter" in short.stop_reason


def test_the_threshold_that_the_paper_prints_stops_at_once():
    """δ = m·n/1000 is 57.6 for an image of 240×240, more than the energies themselves."""
    t = np.linspace(0, 3, 240)
    image = np.cos(t)[:, None] * np.sin(2 * t) + 0.2 * np.random.default_rng(0).random((240, 240))
    mask = np.random.default_rng(1).random(image.shape) < 0.3
    result = airnp.fit(
        image.astype(np.float32), mask, stop=EnergyChange(240 * 240 / 1000), max_iter=50, seed=0
    )
    assert result.n_iter == 2
    assert result.stop_reason == "energies changed by less than 57.6"


def test_energy_change_is_a_rule_of_both_forms():
    for fit, data in ((airnp.fit, DENSE), (airnp.fit_sparse, SPARSE)):
        with pytest.raises(ValueError, match="stop: EnergyChange needs at least one regularizer"):
            fit(**data, regularizers=[], stop=EnergyChange(0.1), max_iter=5)
        assert fit(**data, stop=EnergyChange(1e9), max_iter=5).n_iter == 2


# -------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"fraction": 0}, ValueError, "fraction: expected a number between 0 and 1, got 0"),
        ({"fraction": 1.0}, ValueError, "fraction: expected a number between 0 and 1"),
        ({"fraction": float("nan")}, ValueError, "fraction: expected a finite number"),
        ({"fraction": "a"}, TypeError, "fraction: expected a number, got 'a'"),
        ({"patience": 0}, ValueError, "patience: expected at least 1, got 0"),
        ({"patience": 2.5}, TypeError, "patience: expected a whole number, got 2.5"),
        ({"every": 0}, ValueError, "every: expected at least 1"),
        ({"every": 1.5}, TypeError, "every: expected a whole number"),
        ({"relative_patience": -0.1}, ValueError, "relative_patience: expected at least 0, got -0.1"),
        ({"relative_patience": float("nan")}, ValueError, "relative_patience: expected a finite"),
        ({"tolerance": -0.1}, ValueError, "tolerance: expected at least 0, got -0.1"),
        ({"tolerance": "a"}, TypeError, "tolerance: expected a number, got 'a'"),
        ({"gain": -0.1}, ValueError, "gain: expected at least 0, got -0.1"),
        ({"gain": float("inf")}, ValueError, "gain: expected a finite number"),
    ],
)
def test_bad_arguments_of_held_out(arguments, error, message):
    with pytest.raises(error, match=f"^{message}"):
        HeldOut(**arguments)


@pytest.mark.parametrize(
    ("delta", "error", "message"),
    [
        (0, ValueError, "delta: expected a positive number, got 0"),
        (-1.0, ValueError, "delta: expected a positive number"),
        (float("inf"), ValueError, "delta: expected a finite number"),
        ("a", TypeError, "delta: expected a number, got 'a'"),
        (True, TypeError, "delta: expected a number"),
    ],
)
def test_bad_arguments_of_energy_change(delta, error, message):
    with pytest.raises(error, match=f"^{message}"):
        EnergyChange(delta)


def test_rules_tell_what_they_are():
    expected = (
        "fraction=0.1, patience=300, relative_patience=0.5, every=20, refit=True, tolerance=0.0, gain=0.02"
    )
    assert repr(HeldOut(0.1, 300, 0.5, 20)) == f"HeldOut({expected})"
    assert repr(EnergyChange(0.5)) == "EnergyChange(0.5)"


# ----------------------------------------------------------------------------------------------- second phase


def noisy_problem() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a matrix of rank 3, the same with noise, and a mask."""
    rng = np.random.default_rng(0)
    truth = rng.random((30, 3)) @ rng.random((3, 25))
    noisy = truth + 0.05 * rng.standard_normal(truth.shape)
    return truth, noisy, rng.random(truth.shape) < 0.6


SETTINGS = {"regularizers": [], "max_iter": 6000, "seed": 0, "learning_rate": 3e-3}
RULE = {"fraction": 0.2, "patience": 200, "every": 20}


def refit(**options: Any) -> tuple[np.ndarray, np.ndarray, airnp.FitResult]:
    truth, noisy, mask = noisy_problem()
    return truth, mask, airnp.fit(noisy, mask, **{**SETTINGS, **options})


def test_the_held_out_entries_are_fitted_in_the_end():
    truth, mask, single = refit(stop=HeldOut(**RULE, refit=False))
    *_, double = refit(stop=HeldOut(**RULE))
    assert single.best_iter < single.n_iter < double.n_iter <= single.n_iter + 500
    assert double.best_iter > single.n_iter
    assert airnp.metrics.nmae(double.X, truth, mask) < airnp.metrics.nmae(single.X, truth, mask)
    # The last record was made with all entries, at the level of the best iterate with some of them.
    at_best = single.history["fidelity"][single.history["iteration"] == single.best_iter]
    assert double.history["fidelity"][-1] <= at_best / 0.8 + 1e-12


def test_a_second_phase_that_does_not_help_leaves_no_trace(monkeypatch):
    *_, single = refit(stop=HeldOut(**RULE, refit=False))
    never = np.array(False)
    monkeypatch.setattr(HeldOutMonitor, "compare", lambda self, state: (never, never))
    *_, double = refit(stop=HeldOut(**RULE))
    assert double.n_iter == single.n_iter + 500, "the second phase should have been tried"
    assert double.best_iter == single.best_iter
    np.testing.assert_array_equal(double.X, single.X)


def test_a_level_that_is_not_reached_leaves_the_iterate_closest_to_it(monkeypatch):
    begun = LevelMonitor.__init__
    monkeypatch.setattr(LevelMonitor, "__init__", lambda self, level, *rest: begun(self, 0 * level, *rest))
    truth, mask, single = refit(stop=HeldOut(**RULE, refit=False))
    *_, double = refit(stop=HeldOut(**RULE))
    assert double.n_iter == single.n_iter + 500
    assert single.n_iter < double.best_iter <= double.n_iter
    second = double.history["iteration"] > single.n_iter
    closest = double.history["iteration"][second][double.history["fidelity"][second].argmin()]
    assert double.best_iter == closest
    assert airnp.metrics.nmae(double.X, truth, mask) < airnp.metrics.nmae(single.X, truth, mask)


@pytest.mark.parametrize("max_iter", [1, 2, 3, 19, 150, 300, 1000, 6000])
@pytest.mark.parametrize("form", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_both_phases_keep_to_max_iter(form, max_iter):
    iterations = []
    options = {"regularizers": [], "max_iter": max_iter, "stop": HeldOut(0.2, patience=10**6, every=10)}
    result = (airnp.fit if form is DENSE else airnp.fit_sparse)(
        **form, **options, **FAST, callback=lambda iteration, state: iterations.append(iteration)
    )
    assert max(iterations) == result.n_iter == result.history["iteration"][-1] <= max_iter


def test_a_sparse_refit_makes_as_many_iterations_as_were_best():
    options = {**SPARSE, "regularizers": [], **FAST}
    result = airnp.fit_sparse(**options, stop=HeldOut(0.1, patience=20, every=5), max_iter=2000)
    alone = airnp.fit_sparse(**options, stop=None, max_iter=result.best_iter)
    np.testing.assert_array_equal(result.X, alone.X)
    assert result.n_iter > result.best_iter


def test_a_fit_that_is_still_getting_better_uses_all_its_iterations():
    rng = np.random.default_rng(0)
    truth = rng.random((30, 2)) @ rng.random((2, 20))
    mask = rng.random(truth.shape) < 0.7
    common = {"regularizers": [], "max_iter": 3000, "seed": 0}
    single = airnp.fit(truth, mask, stop=HeldOut(refit=False), **common)
    double = airnp.fit(truth, mask, stop=HeldOut(), **common)
    assert double.n_iter == double.best_iter == 3000
    error = airnp.metrics.nmae
    assert error(double.X, truth, mask) < 1.5 * error(single.X, truth, mask)


def test_a_callback_that_stops_the_first_phase_stops_the_fit():
    *_, result = refit(stop=HeldOut(0.2, every=10), callback=lambda iteration, state: iteration == 300)
    assert result.n_iter == 300
    assert result.stop_reason == "stopped by callback"


def test_where_the_rest_is_fitted_exactly_there_is_no_second_phase():
    rng = np.random.default_rng(0)
    Y = rng.random((30, 30))  # nothing can be predicted
    rule = HeldOut(0.2, patience=3000, every=100)
    result = airnp.fit(Y, rng.random(Y.shape) < 0.7, regularizers=[], max_iter=4000, stop=rule, seed=0)
    assert result.n_iter <= 4000
    monitor = HeldOutMonitor(rule, judge(Y, rule=rule, seed=0))
    monitor._best_error, monitor._best_fit = np.array(0.3), np.array(0.001)
    assert monitor.follow_up(Choice([], np.array(5)), "continue") is None


def test_a_stack_goes_on_problem_by_problem():
    *_, one = refit(stop=HeldOut(**RULE))
    truth, noisy, mask = noisy_problem()
    stacks = np.stack([noisy, noisy[::-1]]), np.stack([mask, mask[::-1]])
    stack = airnp.fit(*stacks, stop=HeldOut(**RULE), **SETTINGS)
    assert stack.best_iter.shape == (2,)
    assert (stack.best_iter > one.best_iter - 2000).all()
    assert airnp.metrics.nmae(stack.X[0], truth, mask) < 0.06


def test_a_schedule_goes_on_where_it_was():
    seen = []
    schedule = lambda step: seen.append(step) or 1.0  # noqa: E731
    refit(stop=HeldOut(0.2, every=10), optimizer=airnp.Adam(3e-3, schedule=schedule), max_iter=400)
    assert max(seen) <= 400
    assert seen == sorted(seen)
