"""``fit`` from outside: seeds, records, callbacks, interrupts, divergence, checkpoints, refusals."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import airnp
from airnp import AdaptiveLaplacian, DivergenceError, EnergyChange, GradientDescent, HeldOut, TotalVariation
from airnp.engines import reference

RNG = np.random.default_rng(7)
TRUTH = RNG.random((13, 3)) @ RNG.random((3, 10)) * 40 - 7
MASK = RNG.random(TRUTH.shape) < 0.65
ALL_GRAPHS = [
    AdaptiveLaplacian("rows"),
    AdaptiveLaplacian("columns", 2e-3, "global"),
    AdaptiveLaplacian("rows", 1e-4, "product"),
    TotalVariation(1e-3),
]


def fit(**options: Any) -> airnp.FitResult:
    settings: dict[str, Any] = {"max_iter": 60, "stop": None, "seed": 3, **options}
    Y, mask = settings.pop("Y", TRUTH), settings.pop("mask", MASK)
    return airnp.fit(Y, mask, **settings)


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


# ---------------------------------------------------------------------------------------------- repeatability


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("stop", [None, HeldOut(patience=20, every=10)], ids=["none", "held-out"])
def test_same_seed_gives_the_same_bits(dtype, stop):
    first, second = (fit(dtype=dtype, stop=stop, max_iter=120) for _ in range(2))
    assert first.X.dtype == dtype
    np.testing.assert_array_equal(first.X, second.X)
    np.testing.assert_array_equal(first.history["loss"], second.history["loss"])
    assert not np.array_equal(first.X, fit(dtype=dtype, stop=stop, max_iter=120, seed=4).X)


@pytest.mark.parametrize("record_every", [1, 7, 30, 1000])
@pytest.mark.parametrize(
    ("stop", "regularizers"),
    [
        (None, None),
        (HeldOut(patience=30, every=20), []),
        (HeldOut(patience=30, every=20), None),
        (EnergyChange(0.05), None),
    ],
    ids=["none", "held-out-dmf", "held-out-air", "energy"],
)
def test_record_every_is_only_to_look_at(stop, regularizers, record_every):
    options = {
        "stop": stop,
        "regularizers": regularizers,
        "max_iter": 500,
        "init": airnp.Gaussian(0.3, 0.3),
        "optimizer": airnp.Adam(1e-2),
    }
    usual, other = fit(**options), fit(record_every=record_every, **options)
    np.testing.assert_array_equal(usual.X, other.X)
    assert (usual.n_iter, usual.best_iter, usual.stop_reason) == (
        other.n_iter,
        other.best_iter,
        other.stop_reason,
    )
    assert stop is None or usual.n_iter < 500, "the case must exercise an early stop"


def test_a_seed_that_was_left_out_is_stored_and_repeats():
    first, second = fit(seed=None), fit(seed=None)
    assert first.seed != second.seed
    np.testing.assert_array_equal(fit(seed=first.seed).X, first.X)


def test_seeds_may_be_numpy_integers_and_large():
    assert fit(seed=np.int64(5), max_iter=2).seed == 5
    assert fit(seed=2**70, max_iter=2).seed == 2**70


def test_inputs_are_not_modified(tmp_path):
    Y, mask, truth, weights = TRUTH.copy(), MASK.copy(), TRUTH.copy(), np.where(MASK, 2.0, 1.0)
    start = [np.full(shape, 0.1) for shape in ((10, 10), (10, 10), (13, 10))]
    given = [Y, mask, truth, weights, *start]
    copies = [array.copy() for array in given]
    fit(Y=Y, mask=mask, truth=truth, weights=weights, init=start, max_iter=5)
    for array, copy in zip(given, copies, strict=True):
        np.testing.assert_array_equal(array, copy)


# --------------------------------------------------------------------------------------- callback and history


@pytest.mark.parametrize(
    ("max_iter", "record_every", "expected"),
    [
        (25, 10, [1, 10, 20, 25]),
        (7, 3, [1, 3, 6, 7]),
        (1, 10, [1]),
        (4, 1, [1, 2, 3, 4]),
        (10, 100, [1, 10]),
        (130, 60, [1, 60, 120, 130]),
    ],
)
@pytest.mark.parametrize("stop", [None, HeldOut(every=7)], ids=["none", "held-out"])
def test_records_are_the_first_the_multiples_and_the_last(max_iter, record_every, expected, stop):
    seen = []

    def look(iteration, state):
        seen.append((iteration, state.iteration, state.loss))
        return 0  # any false value goes on

    result = fit(max_iter=max_iter, record_every=record_every, stop=stop, callback=look)
    assert result.history["iteration"].tolist() == expected
    assert [iteration for iteration, _, _ in seen] == expected
    assert [iteration for _, iteration, _ in seen] == expected
    assert [loss for _, _, loss in seen] == result.history["loss"].tolist()
    assert result.n_iter == max_iter
    assert "max_iter" in result.stop_reason


def test_a_callback_stops_the_fit_at_the_state_it_saw():
    states = {}

    def look(iteration, state):
        states[iteration] = (state, state.X.copy())
        return iteration >= 20

    result = fit(callback=look)
    assert list(states) == [1, 10, 20]
    assert (result.n_iter, result.best_iter, result.stop_reason) == (20, 20, "stopped by callback")
    np.testing.assert_array_equal(states[20][1], result.X)
    np.testing.assert_array_equal(result.X, fit(max_iter=20).X)
    for state, x in states.values():
        np.testing.assert_array_equal(state.X, x)  # once asked for, it stays


def test_a_callback_sees_the_record_at_which_a_rule_stops():
    seen = []
    result = fit(stop=EnergyChange(1e9), callback=lambda iteration, state: seen.append(iteration))
    assert result.n_iter == 2
    assert seen == [1, 2] == result.history["iteration"].tolist()


def test_errors_of_a_callback_reach_the_caller():
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
    result = fit(Y=stack, truth=stack, max_iter=20)
    for name in ("loss", "fidelity", "energy_rows", "nmae"):
        assert result.history[name].shape == (3, 3)
    single = fit(Y=stack[1], truth=stack[1], max_iter=20)
    np.testing.assert_allclose(result.history["nmae"][:, 1], single.history["nmae"], rtol=1e-10)
    np.testing.assert_allclose(result.X[1], single.X, rtol=1e-9)


def test_nmae_is_recorded_and_decides_nothing():
    for stop in (None, HeldOut(patience=20, every=10)):
        blind, seeing = fit(stop=stop, max_iter=100), fit(stop=stop, max_iter=100, truth=TRUTH)
        np.testing.assert_array_equal(blind.X, seeing.X)
        misled = fit(stop=stop, max_iter=100, truth=-TRUTH)
        np.testing.assert_array_equal(blind.X, misled.X)
        assert blind.n_iter == seeing.n_iter == misled.n_iter
    last = fit(truth=TRUTH)
    error = np.abs(last.X - TRUTH)[~MASK].mean() / (TRUTH.max() - TRUTH.min())
    assert last.history["nmae"][-1] == pytest.approx(error, rel=1e-12)
    assert last.history["nmae"].shape == last.history["loss"].shape


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"truth": TRUTH[1:]}, r"truth: expected shape \(13, 10\), got \(12, 10\)"),
        ({"truth": np.ones_like(TRUTH)}, "truth: .*constant"),
        ({"truth": np.where(MASK, TRUTH, np.nan)}, "truth: expected finite"),
        ({"truth": TRUTH, "mask": np.ones_like(MASK)}, "truth: nothing is missing"),
    ],
)
def test_a_truth_that_cannot_be_meant_is_refused_before_the_first_iteration(options, message):
    with pytest.raises(ValueError, match=message):
        fit(callback=lambda iteration, state: pytest.fail("an iteration was made"), **options)


# ------------------------------------------------------------------------------------------------- interrupts


@pytest.mark.parametrize("record_every", [1, 10, 1000])
def test_an_interrupt_in_a_callback_returns_that_very_state(record_every):
    states = []

    def interrupt(iteration, state):
        states.append(state.X.copy())
        if iteration >= 30:
            raise KeyboardInterrupt

    result = fit(callback=interrupt, record_every=record_every)
    assert result.stop_reason == "interrupted"
    assert result.n_iter == (60 if record_every == 1000 else 30)
    np.testing.assert_array_equal(result.X, states[-1])
    assert_whole(result)


@pytest.mark.parametrize("call", [1, 3, 5, 6, 249, 250, 251, 252, 253, 254, 256, 297])
@pytest.mark.parametrize("record_every", [10, 1000])
def test_an_interrupt_within_an_iteration_returns_a_whole_state(monkeypatch, call, record_every):
    """Five parameters are updated one after the other; the interrupt comes between any two of them."""
    calls, update = [0], reference._adam

    def interrupted(param, grad, change):
        calls[0] += 1
        if calls[0] == call:
            raise KeyboardInterrupt
        return update(param, grad, change)

    with monkeypatch.context() as patch:
        patch.setattr(reference, "_adam", interrupted)
        result = fit(engine="reference", record_every=record_every)
    assert result.stop_reason == "interrupted"
    begun = (call - 1) // 5
    assert begun - min(record_every, 50) <= result.n_iter <= begun, "more was lost than one portion"
    assert_whole(result, engine="reference")


def test_an_interrupt_under_a_stopping_rule_returns_its_best():
    seen = {}

    def interrupt(iteration, state):
        seen[iteration] = state.X.copy()
        if iteration == 55:
            raise KeyboardInterrupt

    result = fit(stop=HeldOut(every=3), record_every=1, callback=interrupt, max_iter=500)
    assert (result.n_iter, result.stop_reason) == (55, "interrupted")
    assert result.best_iter <= 55
    assert result.best_iter % 3 == 0
    np.testing.assert_array_equal(result.X, seen[result.best_iter])


@pytest.mark.parametrize("record_every", [1, 100_000])
def test_ctrl_c_returns_the_result_so_far(record_every):
    """A real SIGINT, wherever it strikes."""

    def press(iteration, state):
        if iteration == 1:
            threading.Timer(0.25, os.kill, (os.getpid(), signal.SIGINT)).start()

    # A shell starts background jobs with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        result = fit(max_iter=100_000, record_every=record_every, callback=press, Y=TRUTH[:6, :5], mask=None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert result.stop_reason == "interrupted"
    assert 0 < result.n_iter < 100_000
    assert_whole(result, Y=TRUTH[:6, :5], mask=None)


# ------------------------------------------------------------------------------------------------- divergence

DIVERGING = {
    "descent": {"optimizer": GradientDescent(50.0), "regularizers": [], "init": airnp.Gaussian(0.5, 0.5)},
    "descent, sum": {"learning_rate": 0.5, "optimizer": "gradient_descent", "fidelity": "sum"},
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
@pytest.mark.parametrize("record_every", [1, 10])
def test_divergence_keeps_the_last_finite_state(name, record_every):
    options = DIVERGING[name]
    steps = steps_until_divergence(options)
    with pytest.raises(DivergenceError) as caught:
        fit(max_iter=1000, record_every=record_every, truth=TRUTH, **options)
    result = caught.value.result
    assert f"after {steps} iterations" in str(caught.value)
    assert f"the state after {result.n_iter} is in" in str(caught.value)
    assert steps - record_every - 1 <= result.n_iter < steps
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
        fit(max_iter=1000, record_every=1, callback=lambda k, state: k == steps, **options)


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


# ----------------------------------------------------------------------------------- progress and checkpoints


def test_progress_shows_loss_and_energies_on_stderr(capsys):
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


def test_checkpoints_are_written_on_the_way_and_load(tmp_path):
    path = tmp_path / "run.npz"
    found = []

    def look(iteration, state):
        if iteration > 1:
            found.append((iteration, airnp.load(path), state.X.copy()))

    result = fit(checkpoint=path, checkpoint_every=0, callback=look, record_every=10)
    assert [stored.n_iter for _, stored, _ in found] == [1, 10, 20, 30, 40, 50]
    assert {stored.stop_reason for _, stored, _ in found} == {"checkpoint"}
    for (_, _, x), (_, stored, _) in itertools.pairwise(found):
        np.testing.assert_array_equal(x, stored.X)  # each file holds the state of the record before
    assert result.stop_reason.startswith("max_iter")
    final = airnp.load(str(path))
    assert (final.n_iter, final.stop_reason) == (60, result.stop_reason)
    np.testing.assert_array_equal(final.X, result.X)
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.npz"]


def test_a_checkpoint_never_holds_a_state_that_is_not_finite(tmp_path):
    path = tmp_path / "run.npz"
    jump = GradientDescent(0.1, schedule=lambda step: 1.0 if step < 7 else 1e200)
    with pytest.raises(DivergenceError, match="after 7 iterations"):
        fit(
            record_every=1,
            checkpoint=path,
            checkpoint_every=0,
            optimizer=jump,
            init=airnp.Gaussian(0.1, 0.1),
        )
    stored = airnp.load(path)
    assert stored.n_iter == 6
    assert np.isfinite(stored.X).all()


def test_an_interrupted_fit_leaves_its_result_in_the_checkpoint(tmp_path):
    def interrupt(iteration, state):
        if iteration == 20:
            raise KeyboardInterrupt

    result = fit(checkpoint=tmp_path / "run.npz", callback=interrupt)
    stored = airnp.load(tmp_path / "run.npz")
    assert (stored.n_iter, stored.stop_reason) == (20, "interrupted")
    np.testing.assert_array_equal(stored.X, result.X)


def test_a_full_disk_does_not_cost_the_fit(monkeypatch, tmp_path):
    def full(*arguments, **keywords):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(RuntimeWarning, match="checkpoint: could not write .*No space left"):
        result = fit(checkpoint=tmp_path / "run.npz")
    assert result.n_iter == 60
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_that_could_never_be_written_is_refused_at_once(tmp_path):
    started = {"callback": lambda iteration, state: pytest.fail("an iteration was made")}
    with pytest.raises(FileNotFoundError, match="checkpoint: expected a file in a directory that exists"):
        fit(checkpoint=tmp_path / "no" / "run.npz", **started)
    with pytest.raises(IsADirectoryError, match="checkpoint: expected a file"):
        fit(checkpoint=tmp_path, **started)
    with pytest.raises(TypeError, match="checkpoint: expected a path, got int"):
        fit(checkpoint=3, **started)


# ---------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("scale", "offset"), [(1.0, 0.0), (1e-8, 0.0), (1e8, 1e9), (1.0, 1e6)])
def test_completed_keeps_observed_entries_exactly(dtype, scale, offset):
    Y = (TRUTH * scale + offset).astype(dtype)
    result = fit(Y=Y, max_iter=5)
    completed = result.completed()
    assert completed.dtype == dtype
    np.testing.assert_array_equal(completed[MASK], Y[MASK])
    np.testing.assert_array_equal(completed[~MASK], result.X[~MASK])
    assert not np.array_equal(result.X[MASK], Y[MASK])


def test_completed_of_a_stack_with_nan():
    stack = np.where(MASK, np.stack([TRUTH, 2 * TRUTH]), np.nan)
    completed = fit(Y=stack, mask=None, max_iter=5).completed()
    np.testing.assert_array_equal(completed[:, MASK], stack[:, MASK])
    assert np.isfinite(completed).all()


GRAPHS = {
    "rows": lambda x: x,
    "columns": lambda x: np.swapaxes(x, -1, -2),
    "blocks": lambda x: np.stack(
        [block.ravel() for half in np.split(x, 6) for block in np.split(half, 2, axis=1)]
    ),
}


@pytest.mark.parametrize("adjacency", ["row", "global", "product"])
@pytest.mark.parametrize("axis", GRAPHS)
def test_fitted_graphs_are_graphs_and_have_the_energy_they_claim(axis, adjacency):
    place = airnp.Blocks(2, 5) if axis == "blocks" else axis
    result = fit(
        Y=TRUTH[:12],
        mask=MASK[:12],
        regularizers=[AdaptiveLaplacian(place, 1e-2, adjacency)],
        optimizer=airnp.Adam(2e-2),
    )
    (item,) = result.regularizers
    nodes = {"rows": 12, "columns": 10, "blocks": 12}[axis]
    assert item.name == axis
    assert item.adjacency.shape == item.laplacian.shape == item.parameter.shape == (nodes, nodes)
    np.testing.assert_array_equal(item.adjacency, item.adjacency.T)
    assert (item.adjacency >= 0).all()
    assert item.adjacency.std() > 1e-6
    np.testing.assert_allclose(item.laplacian.sum(axis=1), 0, atol=1e-14)
    z = GRAPHS[axis](normalized(result))
    assert float(item.energy) == pytest.approx(np.trace(z.T @ item.laplacian @ z), rel=1e-10)


def test_energies_are_those_of_the_state_that_is_returned():
    """The history has what an iteration started from; the regularisers have where the fit ended."""
    one, two = fit(max_iter=20), fit(max_iter=21)
    for item, name in zip(one.regularizers, ("energy_rows", "energy_columns"), strict=True):
        assert float(item.energy) == pytest.approx(two.history[name][-1], rel=1e-12)


def test_graphs_live_where_the_fit_lives(backend):
    Y = backend.array(np.where(MASK, TRUTH, 0.0))
    result = airnp.fit(Y, backend.array(MASK), stop=None, max_iter=3, seed=0)
    item = result.to_numpy().regularizers[1]
    laplacian = result.regularizers[1].laplacian
    assert type(laplacian) is type(result.X)
    assert getattr(laplacian, "device", None) == getattr(Y, "device", None)
    host = airnp.FitResult.to_numpy(result)
    np.testing.assert_allclose(
        item.laplacian, np.diag(item.adjacency.sum(axis=1)) - item.adjacency, atol=1e-14
    )
    assert type(host.X) is np.ndarray
    np.testing.assert_array_equal(np.asarray(host), host.X)


@pytest.mark.parametrize("kind", ["csr_array", "csr_matrix", "coo_array", "csc_matrix"])
@pytest.mark.parametrize("axis", ["rows", "columns"])
def test_a_sparse_graph_stays_sparse(kind, axis):
    nodes = TRUTH.shape[0 if axis == "rows" else 1]
    path = np.diag(np.arange(1.0, nodes), 1)
    path += path.T
    sparse = getattr(scipy.sparse, kind)(path)
    result = fit(regularizers=[airnp.FixedLaplacian(sparse, axis)])
    dense = fit(regularizers=[airnp.FixedLaplacian(path, axis)])
    (item,), (plain,) = result.regularizers, dense.regularizers
    assert scipy.sparse.issparse(item.adjacency)
    assert scipy.sparse.issparse(item.laplacian)
    np.testing.assert_array_equal(item.adjacency.toarray(), path)
    np.testing.assert_array_equal(item.laplacian.toarray(), plain.laplacian)
    np.testing.assert_allclose(item.laplacian.sum(axis=1), 0, atol=1e-14)
    np.testing.assert_allclose(result.X, dense.X, rtol=1e-10)
    assert item.parameter is None
    z = GRAPHS[axis](normalized(result))
    assert float(item.energy) == pytest.approx(np.trace(z.T @ (item.laplacian @ z)), rel=1e-10)
    np.testing.assert_allclose(result.to_numpy().X, result.X)


def test_a_regularizer_without_a_graph_has_none():
    (item,) = fit(regularizers=[TotalVariation(1e-3, "quadratic")]).regularizers
    assert item.adjacency is None
    assert item.laplacian is None
    assert item.parameter is None


def test_a_warm_start_continues_from_the_same_loss():
    first, longer = fit(max_iter=40), fit(max_iter=41, record_every=1)
    start = [*first.factors, *learned(first)]
    copies = [array.copy() for array in start]
    warm = fit(init=start, max_iter=30)
    assert warm.history["loss"][0] == longer.history["loss"][40]
    assert warm.history["loss"][-1] < warm.history["loss"][0]
    for array, copy in zip(start, copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    by_factors = fit(init=first.factors, max_iter=1)
    assert by_factors.history["fidelity"][0] == longer.history["fidelity"][40]
    assert by_factors.history["energy_rows"][0] != longer.history["energy_rows"][40]


def test_a_warm_start_from_a_file(tmp_path):
    first = fit(max_iter=40, dtype="float32")
    first.save(tmp_path / "a.npz")
    stored = airnp.load(tmp_path / "a.npz")
    options = {"max_iter": 20, "dtype": "float32"}
    here = fit(init=[*first.factors, *learned(first)], **options)
    there = fit(init=[*stored.factors, *learned(stored)], **options)
    np.testing.assert_array_equal(here.X, there.X)


def test_results_compare_by_identity():
    """Field by field would ask arrays for one truth value."""
    first, second = fit(max_iter=2), fit(max_iter=2)
    assert first == first
    assert first != second
    assert first.history != second.history
    assert len({first, second}) == 2
    assert "13x10" in repr(first)


# -------------------------------------------------------------------------------------------------- arguments


def listed(*names: str) -> str:
    return ".*".join(f"'{name}'" for name in names)


WHOLE = [1.5, "3", None, True, np.nan]
BAD = [
    *[("max_iter", value, TypeError, "expected a whole number") for value in WHOLE],
    *[("max_iter", value, ValueError, "expected at least 1") for value in (0, -1)],
    *[("record_every", value, TypeError, "expected a whole number") for value in WHOLE],
    *[("record_every", value, ValueError, "expected at least 1") for value in (0, -10)],
    *[("seed", value, TypeError, "expected a whole number") for value in (1.5, "3", True, [1])],
    ("seed", -1, ValueError, "expected at least 0"),
    *[("depth", value, TypeError, "expected a whole number") for value in WHOLE],
    *[("depth", value, ValueError, "expected at least 1") for value in (0, -2)],
    *[("rank", value, TypeError, "expected a whole number") for value in (2.0, "3", False)],
    ("rank", 0, ValueError, "expected at least 1"),
    ("rank", 11, ValueError, r"expected at most min\(m, n\) = 10 .*got 11"),
    ("stop", "never", ValueError, "expected 'auto', None or a rule such as HeldOut.*got 'never'"),
    ("stop", 3, TypeError, "expected 'auto', None or a rule such as HeldOut.*got 3"),
    ("stop", HeldOut, TypeError, "expected 'auto', None or a rule"),
    ("optimizer", "sgd", ValueError, listed("adam", "gradient_descent")),
    ("optimizer", 3, TypeError, "expected a name or an object"),
    ("optimizer", None, TypeError, "expected a name or an object"),
    ("optimizer", airnp.Adam, TypeError, "expected a name or an object"),
    *[("learning_rate", value, TypeError, "expected a number") for value in ("1e-3", None, True)],
    *[("learning_rate", value, ValueError, "expected a positive") for value in (0, -1e-3, np.nan, np.inf)],
    ("init", "zeros", ValueError, listed("gaussian", "balanced")),
    ("init", 3, TypeError, "expected a name, an initializer"),
    ("init", airnp.Gaussian, TypeError, "expected a name, an initializer"),
    ("init", np.ones((10, 10)), TypeError, "a list of arrays"),
    ("init", [np.ones((10, 10))], ValueError, "expected 3 factors.*5 arrays in all; got 1"),
    ("init", [np.ones((3, 3))] * 3, ValueError, r"array 0 must have shape \(10, 10\), got \(3, 3\)"),
    ("init", [np.full(s, np.nan) for s in ((10, 10), (10, 10), (13, 10))], ValueError, "NaN or infinite"),
    ("engine", "gpu", ValueError, listed("auto", "reference")),
    ("engine", None, ValueError, listed("auto", "reference")),
    ("loss", "l1", ValueError, listed("squared", "huber")),
    ("loss", None, ValueError, listed("squared", "huber")),
    ("fidelity", "median", ValueError, listed("mean", "sum")),
    ("callback", "print", TypeError, r"expected a function of \(iteration, state\), got str"),
    ("normalize", "no", TypeError, "expected True or False, got 'no'"),
    ("shape", (3, 3), ValueError, r"expected that of Y, \(13, 10\).*got \(3, 3\)"),
    ("dtype", "float16", ValueError, "expected float32 or float64, got float16"),
    ("dtype", "complex64", ValueError, "expected float32 or float64, got complex64"),
    ("xp", "numpy", TypeError, "expected an array module"),
    ("regularizers", 3, TypeError, "expected"),
    ("regularizers", ["tv"], TypeError, "expected objects such as TotalVariation"),
    ("regularizers", TotalVariation(1e-3), TypeError, "expected a list"),
]


@pytest.mark.parametrize(("name", "value", "error", "message"), BAD, ids=lambda value: str(value)[:20])
def test_bad_arguments_are_named(name, value, error, message):
    with pytest.raises(error, match=f"^{name}: .*{message}"):
        airnp.fit(TRUTH, MASK, **{"max_iter": 2, name: value})


@pytest.mark.parametrize("value", [0, -0.1, np.nan, np.inf, "0.1", None, True])
def test_a_bad_huber_delta_is_named(value):
    with pytest.raises((ValueError, TypeError), match=r"^huber_delta: expected a"):
        fit(loss="huber", huber_delta=value)


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, int, float])
def test_numbers_of_any_kind_are_numbers(kind):
    assert fit(learning_rate=kind(1), loss="huber", huber_delta=kind(1), max_iter=1).n_iter == 1


def test_a_single_factor_has_full_rank():
    with pytest.raises(ValueError, match=r"^rank: a single factor"):
        fit(depth=1, rank=3)


def test_a_history_is_a_mapping_of_columns():
    result = fit(max_iter=20)
    assert len(result.history) == len(list(result.history)) == 5
    assert result.history["iteration"].dtype == np.int64
    assert "3 records" in repr(result.history)
    result.history["loss"][0] = np.nan  # a copy
    assert np.isfinite(result.history["loss"]).all()
