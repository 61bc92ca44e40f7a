"""Adam with one second moment for each parameter matrix: by its formula, by every engine, in place."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import airnp
from airnp import Adam
from airnp.engines import cpu, reference
from airnp.engines import threads as pool
from tests.strategies import ADJACENCIES, seeds

engine = pytest.mark.parametrize("ops", [reference, cpu], ids=["reference", "cpu"])
SHAPES = [(4, 3), (5,), (), (1, 1), (70, 90), (3, 0)]


def literal(start, gradients, *, rate, betas=(0.9, 0.999), epsilon=1e-8):
    """The parameter after each step, one matrix, written out."""
    p, m, v, path = start.astype(float).copy(), np.zeros(start.shape), 0.0, []
    for t, g in enumerate(gradients, 1):
        m = betas[0] * m + (1 - betas[0]) * g
        v = betas[1] * v + (1 - betas[1]) * (np.sum(g**2) / max(g.size, 1))
        p = p - rate * (m / (1 - betas[0] ** t)) / (np.sqrt(v / (1 - betas[1] ** t)) + epsilon)
        path.append(p)
    return path


@engine
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 1e-5)])
@pytest.mark.parametrize("settings", [{}, {"betas": (0.8, 0.95), "epsilon": 1e-3}], ids=["default", "other"])
def test_it_is_the_formula_for_matrices_vectors_and_numbers_alike(ops, dtype, tolerance, settings):
    rng = np.random.default_rng(0)
    starts = [np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES]
    gradients = [[np.asarray(rng.standard_normal(shape), dtype) for shape in SHAPES] for _ in range(30)]
    params = [start.copy() for start in starts]
    optimizer = Adam(1e-2, second_moment="matrix", **settings)
    state = optimizer.init(params)
    paths = [
        literal(start, [step[i] for step in gradients], rate=1e-2, **settings)
        for i, start in enumerate(starts)
    ]
    for step, grads in enumerate(gradients):
        optimizer.step(params, grads, state, engine=ops)
        for param, path in zip(params, paths, strict=True):
            assert param.dtype == dtype
            np.testing.assert_allclose(param, path[step], rtol=tolerance, atol=tolerance)


@engine
@given(seed=seeds, batch=st.sampled_from([(3,), (2, 2), (1,)]))
def test_the_problems_of_a_stack_do_not_meet(ops, seed, batch):
    rng = np.random.default_rng(seed)
    start = rng.standard_normal((*batch, 3, 2))
    gradients = [
        rng.standard_normal(start.shape) * 10.0 ** rng.integers(-3, 4, (*batch, 1, 1)) for _ in "12345"
    ]
    optimizer, params = Adam(1e-2, second_moment="matrix"), [start.copy()]
    state = optimizer.init(params)
    for grad in gradients:
        optimizer.step(params, [grad], state, engine=ops)
    assert state.moments[0].second.shape == (*batch, 1, 1)
    for index in np.ndindex(batch):
        alone = literal(start[index], [grad[index] for grad in gradients], rate=1e-2)[-1]
        np.testing.assert_allclose(params[0][index], alone, rtol=1e-11, atol=1e-12)


@engine
def test_epsilon_stands_outside_the_bias_correction(ops):
    params, optimizer = [np.zeros((2, 2))], Adam(1e-2, second_moment="matrix")
    optimizer.step(params, [np.full((2, 2), 1e-9)], optimizer.init(params), engine=ops)
    np.testing.assert_allclose(params[0], -1e-2 / 11, rtol=1e-12)


@engine
def test_one_entry_is_ordinary_adam(ops):
    both = [[np.ones((1, 1))], [np.ones((1, 1))]]
    optimizers = [Adam(1e-2), Adam(1e-2, second_moment="matrix")]
    states = [optimizer.init(params) for optimizer, params in zip(optimizers, both, strict=True)]
    for step in range(20):
        for optimizer, params, state in zip(optimizers, both, states, strict=True):
            optimizer.step(params, [np.full((1, 1), np.cos(step))], state, engine=ops)
    np.testing.assert_allclose(both[0][0], both[1][0], rtol=1e-14)


@engine
def test_everything_happens_in_place_and_the_state_is_explicit(ops):
    params, grads = [np.ones((3, 2)), np.ones(4)], [np.full((3, 2), 2.0), np.array([3.0, 0, 0, 0])]
    optimizer = Adam(0.1, second_moment="matrix")
    state = optimizer.init(params)
    arrays = [*params, *(a for moments in state.moments for a in (moments.first, moments.second))]
    optimizer.step(params, grads, state, engine=ops)
    found = [*params, *(a for moments in state.moments for a in (moments.first, moments.second))]
    assert all(a is b for a, b in zip(arrays, found, strict=True))
    assert [array.shape for array in found] == [(3, 2), (4,), (3, 2), (1, 1), (4,), (1,)]
    np.testing.assert_allclose(state.moments[0].second, 4e-3)
    np.testing.assert_allclose(state.moments[1].second, 9e-3 / 4)
    np.testing.assert_array_equal(grads[0], 2.0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_number_of_threads_changes_no_bit(dtype, monkeypatch):
    monkeypatch.setattr(cpu, "_SMALL", 1)
    rng = np.random.default_rng(1)
    starts = [rng.standard_normal(shape).astype(dtype) for shape in [(130, 170), (2, 90, 70), (9,)]]
    gradients = [[rng.standard_normal(start.shape).astype(dtype) for start in starts] for _ in range(3)]
    found = []
    for threads in (1, 2, 3):
        params, optimizer = [start.copy() for start in starts], Adam(1e-2, second_moment="matrix")
        state = optimizer.init(params)
        monkeypatch.setattr(cpu, "_chunks", lambda work, small=0, threads=threads: threads)
        with pool.using(min(threads, 2)):
            for grads in gradients:
                optimizer.step(params, grads, state, engine=cpu)
        found.append(params)
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("batch", [(), (2,)])
def test_fits_by_both_engines_agree(adjacency, batch):
    rng = np.random.default_rng(0)
    Y, mask = rng.random((*batch, 9, 7)), rng.random((*batch, 9, 7)) < 0.8
    terms = [airnp.AdaptiveLaplacian(axis, adjacency=adjacency) for axis in ("rows", "columns")]
    optimizer = Adam(3e-3, graph_learning_rate=1e-2, second_moment="matrix")
    options = {"regularizers": terms, "optimizer": optimizer, "max_iter": 40, "stop": None, "seed": 3}
    fast, slow = (airnp.fit(Y, mask, engine=name, **options) for name in ("cpu", "reference"))
    np.testing.assert_allclose(fast.X, slow.X, rtol=1e-9, atol=1e-10)
    for a, b in zip(fast.regularizers, slow.regularizers, strict=True):
        np.testing.assert_allclose(a.parameter, b.parameter, rtol=1e-9, atol=1e-10)
    ordinary = airnp.fit(Y, mask, **{**options, "optimizer": Adam(3e-3, graph_learning_rate=1e-2)})
    assert np.abs(ordinary.X - fast.X).max() > 1e-4, "the option must reach the fit"


def test_every_namespace_takes_the_same_steps(backend):
    start = np.linspace(-1, 1, 6).reshape(3, 2)
    gradients = [np.cos(step * np.arange(1, 7)).reshape(3, 2) for step in range(1, 11)]
    params = [backend.xp.asarray(start.copy(), device=backend.device)]
    optimizer = Adam(1e-2, second_moment="matrix")
    state = optimizer.init(params)
    for grad in gradients:
        optimizer.step(params, [backend.array(grad)], state)
    host = np.asarray(params[0]) if backend.name in ("numpy", "torch") else np.from_dlpack(params[0])
    np.testing.assert_allclose(host, literal(start, gradients, rate=1e-2)[-1], rtol=1e-11)


@pytest.mark.parametrize("value", ["row", None, "Matrix"])
def test_other_values_are_refused(value):
    with pytest.raises(ValueError, match=r"^second_moment: expected one of 'entry', 'matrix', got"):
        Adam(second_moment=value)
