"""The loop from outside: records, callbacks, interrupts, divergence and progress of fits of both forms."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import airnp
from airnp import (
    AdaptiveLaplacian,
    DivergenceError,
    EnergyChange,
    GradientDescent,
    HeldOut,
    Record,
    TotalVariation,
)
from airnp.engines import reference

RNG = np.random.default_rng(7)
TRUTH = RNG.random((13, 3)) @ RNG.random((3, 10)) * 40 - 7
MASK = RNG.random(TRUTH.shape) < 0.65
STORED = csr_array(np.where(MASK, TRUTH, 0))


def fit(**options: Any) -> airnp.FitResult:
    return airnp.fit(**{"Y": TRUTH, "mask": MASK, "max_iter": 60, "stop": None, "seed": 3, **options})


def fit_sparse(**options: Any) -> airnp.SparseFitResult:
    return airnp.fit_sparse(**{"S": STORED, "rank": 4, "max_iter": 60, "stop": None, "seed": 3, **options})


BOTH_FORMS = pytest.mark.parametrize("fit", [fit, fit_sparse], ids=["dense", "sparse"])
ALL_GRAPHS = [
    AdaptiveLaplacian("rows"),
    AdaptiveLaplacian("columns", 2e-3, "global"),
    AdaptiveLaplacian("rows", 1e-4, "product"),
    TotalVariation(1e-3),
]


def normalized(result: airnp.FitResult) -> np.ndarray:
    """The product of the factors, multiplied here."""
    product = result.factors[0]
    for factor in result.factors[1:]:
        product = factor @ product
    return product


def learned(result: airnp.FitResult) -> list[Any]:
    return [item.parameter for item in result.regularizers if item.parameter is not None]


def assert_whole(result: airnp.FitResult, **options: Any) -> None:
    """A result that ended early is, to the bit, the one that was asked to end there."""
    if result.n_iter == 0:
        about = {name: options[name] for name in ("regularizers", "dtype") if name in options}
        expected = airnp.Objective(TRUTH, MASK, **about).init(3, options.get("init", "gaussian"))
    else:
        again = fit(max_iter=result.n_iter, **options)
        expected = [*again.factors, *learned(again)]
        np.testing.assert_array_equal(result.X, again.X)
    for mine, other in zip([*result.factors, *learned(result)], expected, strict=True):
        np.testing.assert_array_equal(mine, other)
    undone = result.normalization.offset + result.normalization.scale * normalized(result)
    np.testing.assert_allclose(result.X, undone, rtol=1e-5 if result.X.dtype == np.float32 else 1e-12)
    assert np.isfinite(result.X).all()
    assert result.history["iteration"].max(initial=0) <= result.n_iter


# ------------------------------------------------------------------------------------ callback and history


@pytest.mark.parametrize(
    ("max_iter", "record", "expected"),
    [
        (25, 10, [1, 10, 20, 25]),
        (7, 3, [1, 3, 6, 7]),
        (1, 10, [1]),
        (4, 1, [1, 2, 3, 4]),
        (10, 100, [1, 10]),
        (130, 60, [1, 60, 120, 130]),
    ],
)
@pytest.mark.parametrize(
    ("fit", "stop"),
    [(fit, None), (fit, HeldOut(every=7)), (fit_sparse, None), (fit_sparse, HeldOut(every=7, refit=False))],
    ids=["dense", "dense, held out", "sparse", "sparse, held out"],
)
def test_records_are_the_first_the_multiples_and_the_last(fit, stop, max_iter, record, expected):
    seen = []

    def look(iteration, state):
        seen.append((iteration, state.iteration, state.loss))
        return 0  # any false value goes on

    result = fit(max_iter=max_iter, record=record, stop=stop, callback=look)
    assert result.history["iteration"].tolist() == expected
    assert [iteration for iteration, _, _ in seen] == expected
    assert [iteration for _, iteration, _ in seen] == expected
    assert [loss for _, _, loss in seen] == result.history["loss"].tolist()
    assert result.n_iter == max_iter
    assert "max_iter" in result.stop_reason


@BOTH_FORMS
def test_a_callback_stops_the_fit_at_the_state_it_saw(fit):
    states = {}

    def look(iteration, state):
        states[iteration] = (state, state.X.copy())
        return iteration >= 20

    result = fit(callback=look)
    assert list(states) == [1, 10, 20]
    assert (result.n_iter, result.best_iter, result.stop_reason) == (20, 20, "stopped by callback")
    np.testing.assert_allclose(states[20][1], result.X, rtol=1e-12)
    np.testing.assert_array_equal(result.X, fit(max_iter=20).X)
    for state, x in states.values():
        np.testing.assert_array_equal(state.X, x)  # once asked for, it stays


@BOTH_FORMS
def test_a_callback_sees_the_record_at_which_a_rule_stops(fit):
    seen = []
    result = fit(stop=EnergyChange(1e9), callback=lambda iteration, state: seen.append(iteration))
    assert result.n_iter == 2
    assert seen == [1, 2] == result.history["iteration"].tolist()


@BOTH_FORMS
def test_errors_of_a_callback_reach_the_caller(fit):
    def fail(iteration, state):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        fit(callback=fail)


def test_history_columns_and_loss():
    result = fit(regularizers=[*ALL_GRAPHS, AdaptiveLaplacian("rows", 1e-3)])
    names = ["energy_rows", "energy_columns", "energy_rows_2", "energy_total_variation", "energy_rows_3"]
    assert list(result.history) == ["iteration", "loss", "fidelity", *names]
    weights = [item.weight for item in result.regularizers]
    total = result.history["fidelity"] + sum(
        weight * result.history[name] for weight, name in zip(weights, names, strict=True)
    )
    np.testing.assert_allclose(result.history["loss"], total, rtol=1e-14)
    assert weights[0] == pytest.approx(2.88 / TRUTH.size)
    assert (np.diff(result.history["loss"]) < 0).all()
    with pytest.raises(KeyError, match=r"nmae.*there are iteration, loss"):
        result.history["nmae"]


def test_the_first_loss_is_the_objective_at_the_start():
    observed = TRUTH[MASK]
    Y = (TRUTH - observed.min()) / (observed.max() - observed.min())
    objective = airnp.Objective(Y, MASK, regularizers=ALL_GRAPHS)
    value, _ = objective.value_and_grad(objective.init(3))
    result = fit(regularizers=ALL_GRAPHS, max_iter=1)
    np.testing.assert_allclose(result.history["loss"], [value], rtol=1e-12)


def test_history_of_a_stack_has_a_value_per_problem():
    stack = np.stack([TRUTH, TRUTH**2, -TRUTH])
    result = fit(Y=stack, record=Record(truth=stack), max_iter=20)
    for name in ("loss", "fidelity", "energy_rows", "nmae"):
        assert result.history[name].shape == (3, 3)
    single = fit(Y=stack[1], record=Record(truth=stack[1]), max_iter=20)
    np.testing.assert_allclose(result.history["nmae"][:, 1], single.history["nmae"], rtol=1e-10)
    np.testing.assert_allclose(result.X[1], single.X, rtol=1e-9)


def test_nmae_is_recorded_and_decides_nothing():
    for stop in (None, HeldOut(patience=20, every=10)):
        blind, seeing = fit(stop=stop, max_iter=100), fit(stop=stop, max_iter=100, record=Record(truth=TRUTH))
        np.testing.assert_array_equal(blind.X, seeing.X)
        misled = fit(stop=stop, max_iter=100, record=Record(truth=-TRUTH))
        np.testing.assert_array_equal(blind.X, misled.X)
        assert blind.n_iter == seeing.n_iter == misled.n_iter
    last = fit(record=Record(truth=TRUTH))
    error = np.abs(last.X - TRUTH)[~MASK].mean() / (TRUTH.max() - TRUTH.min())
    assert last.history["nmae"][-1] == pytest.approx(error, rel=1e-12)
    assert last.history["nmae"].shape == last.history["loss"].shape


@pytest.mark.parametrize(
    ("truth", "mask", "message"),
    [
        (TRUTH[1:], MASK, r"truth: expected shape \(13, 10\), got \(12, 10\)"),
        (np.ones_like(TRUTH), MASK, "truth: .*constant"),
        (np.where(MASK, TRUTH, np.nan), MASK, "truth: expected finite"),
        (TRUTH, np.ones_like(MASK), "truth: nothing is missing"),
    ],
)
def test_a_truth_that_cannot_be_meant_is_refused_before_the_first_iteration(truth, mask, message):
    with pytest.raises(ValueError, match=message):
        fit(mask=mask, record=Record(truth=truth), callback=lambda *_: pytest.fail("an iteration was made"))


# ---------------------------------------------------------------------------------------------- interrupts


@BOTH_FORMS
@pytest.mark.parametrize("record", [1, 10, 1000])
def test_an_interrupt_in_a_callback_returns_that_very_state(fit, record):
    states = []

    def interrupt(iteration, state):
        states.append(state.result().X)
        if iteration >= 30:
            raise KeyboardInterrupt

    result = fit(callback=interrupt, record=record)
    assert result.stop_reason == "interrupted"
    assert result.n_iter == (60 if record == 1000 else 30)
    np.testing.assert_array_equal(result.X, states[-1])
    np.testing.assert_array_equal(result.X, fit(max_iter=result.n_iter).X)


@pytest.mark.parametrize("call", [1, 3, 5, 6, 249, 250, 251, 252, 253, 254, 256, 297])
@pytest.mark.parametrize("record", [10, 1000])
def test_an_interrupt_within_an_iteration_returns_a_whole_state(monkeypatch, call, record):
    """Five parameters are updated one after the other; the interrupt comes between any two of them."""
    calls, update = [0], reference._adam

    def interrupted(param, grad, change):
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt
        return update(param, grad, change)

    with monkeypatch.context() as patch:
        patch.setattr(reference, "_adam", interrupted)
        if call <= 5:
            with pytest.raises(KeyboardInterrupt):
                fit(engine="reference", record=record)
            return
        result = fit(engine="reference", record=record)
    assert result.stop_reason == "interrupted"
    begun = (call - 1) // 5
    assert begun - min(record, 50) <= result.n_iter <= begun, "more was lost than one portion"
    assert_whole(result, engine="reference")


def test_an_interrupt_under_a_stopping_rule_returns_its_best():
    seen = {}

    def interrupt(iteration, state):
        seen[iteration] = state.X.copy()
        if iteration == 55:
            raise KeyboardInterrupt

    result = fit(stop=HeldOut(every=3), record=1, callback=interrupt, max_iter=500)
    assert (result.n_iter, result.stop_reason) == (55, "interrupted")
    assert result.best_iter <= 55
    assert result.best_iter % 3 == 0
    np.testing.assert_array_equal(result.X, seen[result.best_iter])


@BOTH_FORMS
@pytest.mark.parametrize("record", [1, 100_000])
def test_ctrl_c_returns_the_result_so_far(fit, record):
    """A real SIGINT, wherever it strikes."""

    def press(iteration, state):
        if iteration == 1:
            threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()

    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = fit(max_iter=100_000, record=record, callback=press)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.stop_reason == "interrupted"
    assert 0 < result.n_iter < 100_000
    np.testing.assert_array_equal(result.X, fit(max_iter=result.n_iter).X)


# ---------------------------------------------------------------------------------------------- divergence

DIVERGING = {
    "descent": {"optimizer": GradientDescent(50.0), "regularizers": [], "init": airnp.Gaussian(0.5, 0.5)},
    "descent, sum": {"learning_rate": 0.5, "optimizer": "gradient_descent", "fidelity": airnp.Squared("sum")},
    "product": {
        "optimizer": GradientDescent(1.0, graph_learning_rate=300.0),
        "regularizers": [AdaptiveLaplacian("rows", 10.0, "product"), AdaptiveLaplacian("columns")],
        "init": airnp.Gaussian(0.5, 0.3),
    },
    "float32": {"optimizer": GradientDescent(100.0), "dtype": "float32", "init": airnp.Gaussian(0.5, 0.5)},
    "at once": {"optimizer": GradientDescent(1e200), "init": airnp.Gaussian(0.5, 0.5)},
}


def steps_until_divergence(options: dict[str, Any]) -> int:
    """How many steps lead to a loss that is not finite, counted without ``fit``."""
    options = {"optimizer": "gradient_descent", "learning_rate": 1e-3, **options}
    optimizer, rate = options.pop("optimizer"), options.pop("learning_rate")
    optimizer = GradientDescent(rate) if isinstance(optimizer, str) else optimizer
    start = options.pop("init", "gaussian")
    observed = TRUTH[MASK]
    Y = (TRUTH - observed.min()) / (observed.max() - observed.min())
    objective = airnp.Objective(Y, MASK, **options)
    params = objective.init(3, start)
    kinds = ["factor"] * 3 + ["graph"] * (len(params) - 3)
    state = optimizer.init(params, kinds)
    with np.errstate(all="ignore"):
        while state.step < 1000:
            value, grads = objective.value_and_grad(params)
            if not np.isfinite(value):
                return state.step
            optimizer.step(params, grads, state)
    raise AssertionError("the case does not diverge")


@pytest.mark.parametrize("name", DIVERGING)
@pytest.mark.parametrize("record", [1, 10])
def test_divergence_keeps_the_last_finite_state(name, record):
    options = DIVERGING[name]
    steps = steps_until_divergence(options)
    with pytest.raises(DivergenceError) as caught:
        fit(max_iter=1000, record=Record(record, TRUTH), **options)
    result = caught.value.result
    assert f"after {steps} iterations" in str(caught.value)
    assert f"the state after {result.n_iter} is in" in str(caught.value)
    assert steps - record - 1 <= result.n_iter < steps
    assert result.stop_reason == "diverged"
    for column in result.history:
        assert np.isfinite(result.history[column]).all(), column
    for item in result.regularizers:
        assert np.isfinite(item.energy).all()
    assert_whole(result, **options)


@pytest.mark.parametrize("name", DIVERGING)
def test_a_fit_whose_very_last_step_diverges_is_not_returned(name):
    options = DIVERGING[name]
    steps = steps_until_divergence(options)
    with pytest.raises(DivergenceError, match=f"after {steps} iterations") as caught:
        fit(max_iter=steps, **options)
    assert np.isfinite(caught.value.result.X).all()
    with pytest.raises(DivergenceError):
        fit(max_iter=1000, record=1, callback=lambda k, state: k == steps, **options)


@pytest.mark.parametrize("last", [False, True])
def test_a_sparse_fit_that_diverges_keeps_the_last_finite_state(last):
    jump = GradientDescent(0.1, schedule=lambda step: 1.0 if step < 17 else 1e200)
    with pytest.raises(DivergenceError, match=r"the loss became infinite .* after 17 iterations") as caught:
        fit_sparse(max_iter=17 if last else 60, optimizer=jump)
    result = caught.value.result
    assert (result.n_iter, result.stop_reason) == (10, "diverged")
    np.testing.assert_array_equal(result.X, fit_sparse(max_iter=10, optimizer=jump).X)


def test_divergence_under_held_out_returns_the_best_iterate():
    with pytest.raises(DivergenceError) as caught:
        fit(
            max_iter=1000,
            stop=HeldOut(every=1),
            optimizer=GradientDescent(0.3, schedule=lambda step: 1.0 if step < 60 else 1e6),
            regularizers=[],
            init=airnp.Gaussian(0.3, 0.1),
        )
    result = caught.value.result
    assert 0 < result.best_iter <= result.n_iter
    assert np.isfinite(result.X).all()


def test_a_divergence_error_survives_the_way_back_from_another_process():
    with pytest.raises(DivergenceError) as caught:
        fit(**DIVERGING["at once"])
    copy = pickle.loads(pickle.dumps(caught.value))
    assert str(copy) == str(caught.value)
    np.testing.assert_array_equal(copy.result.X, caught.value.result.X)


# --------------------------------------------------------------------------------------------------- progress


@BOTH_FORMS
def test_progress_shows_loss_and_energies_on_stderr(fit, capsys):
    fit(progress=True)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "60/60" in captured.err
    for name in ("loss=", "rows=", "columns="):
        assert name in captured.err


def test_without_progress_nothing_is_printed(capsys):
    fit()  # the first fit on a machine may say that it compiles
    capsys.readouterr()
    fit()
    assert capsys.readouterr() == ("", "")
