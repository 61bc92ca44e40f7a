"""Every namespace and device gives NumPy's answers, as arrays of its own."""

from __future__ import annotations

import copy
from typing import Any

import array_api_compat as compat
import array_api_strict
import numpy as np
import pytest

import airnp
from airnp import AdaptiveLaplacian, Blocks, DirichletEnergy, FixedLaplacian, HeldOut, TotalVariation
from airnp._arrays import to_numpy
from tests.conftest import Backend
from tests.namespaces import (
    ALL,
    CASES,
    GRAPH,
    MASK,
    MEASURED,
    NUMPY,
    OUTLIERS,
    WEIGHTS,
    Mixing,
    Options,
    Y,
    adaptive,
    arrays_of,
    assert_lives,
    assert_same,
    fitted,
    numpy_fit,
    stack,
)


@pytest.mark.parametrize("name", ALL)
def test_fit_gives_numpys_answer_where_the_data_lives(name: str, backend: Backend) -> None:
    data, mask, options = ALL[name](backend)
    before = [to_numpy(array).tobytes() for array in (data, mask) if array is not None]
    result = fitted(data, mask, options)
    assert_lives(result, backend)
    assert_same(result, numpy_fit(name))
    assert [to_numpy(array).tobytes() for array in (data, mask) if array is not None] == before


@pytest.mark.parametrize("name", CASES)
def test_objective_gives_numpys_value_and_gradient(name: str, backend: Backend) -> None:
    data, mask, options = CASES[name](backend)
    objective = airnp.Objective(data, mask, **options, engine="reference")
    plain = airnp.Objective(*CASES[name](NUMPY)[:2], **CASES[name](NUMPY)[2], engine="reference")
    start = [0.5 * array for array in plain.init(0, airnp.Gaussian(0.2, 0.5))]
    params = [backend.array(array) for array in start]
    before = [to_numpy(array).tobytes() for array in params]
    value, grads = objective.value_and_grad(params)
    expected, plain_grads = plain.value_and_grad(start)
    assert isinstance(value, float)
    assert value == pytest.approx(expected, rel=1e-11)
    for grad, plain_grad, param in zip(grads, plain_grads, params, strict=True):
        assert compat.array_namespace(grad) is compat.array_namespace(param)
        assert compat.device(grad) == compat.device(param)
        assert grad.dtype == param.dtype
        np.testing.assert_allclose(to_numpy(grad), plain_grad, rtol=0, atol=1e-11 * np.abs(plain_grad).max())
    assert [to_numpy(array).tobytes() for array in params] == before


@pytest.mark.parametrize("option", ["engine", "xp"])
def test_the_automatic_engine_and_the_named_namespace_give_the_same_answer(
    option: str, backend: Backend
) -> None:
    options = {"engine": {"engine": "auto"}, "xp": {"xp": backend.xp}}[option]
    result = fitted(*CASES["AIR"](backend)[:2], options)
    assert_lives(result, backend)
    assert_same(result, numpy_fit("AIR"))


def test_objective_starts_in_the_backend_from_numpys_numbers(backend: Backend) -> None:
    objective = airnp.Objective(backend.array(Y), backend.array(MASK))
    plain = airnp.Objective(Y, MASK)
    like = backend.array(Y)
    for init in ("gaussian", "balanced"):
        for found, expected in zip(objective.init(4, init), plain.init(4, init), strict=True):
            assert compat.array_namespace(found) is compat.array_namespace(like)
            assert compat.device(found) == compat.device(like)
            np.testing.assert_array_equal(to_numpy(found), expected)
    vector = objective.pack(objective.init(4))
    assert type(vector) is np.ndarray
    again = objective.unpack(vector)
    assert all(compat.device(array) == compat.device(like) for array in again)
    np.testing.assert_array_equal(objective.pack(again), vector)


def test_to_numpy_brings_everything_back(backend: Backend) -> None:
    result = fitted(*CASES["all together"](backend))
    host = result.to_numpy()
    assert_lives(host, NUMPY)
    for name, array in arrays_of(result).items():
        rounding = 1e-15 if "laplacian" in name else 0.0  # is computed from the adjacency
        np.testing.assert_allclose(
            arrays_of(host)[name], to_numpy(array), rtol=0, atol=rounding, err_msg=name
        )
    assert host.history is result.history
    np.testing.assert_array_equal(np.asarray(result), host.X)


def test_numpy_data_is_moved_to_the_namespace_that_is_named(backend: Backend) -> None:
    default = Backend(backend.name, backend.xp)
    result = fitted(Y, MASK, {"xp": backend.xp, "weights": WEIGHTS})
    assert_lives(result, default)
    assert_same(result, numpy_fit("weights"))
    nested = fitted(np.where(MASK, Y, np.nan).tolist(), None, {"xp": backend.xp})
    assert_lives(nested, default)
    assert_same(nested, numpy_fit("NaN is missing"))


def _another(backend: Backend) -> Backend:
    return Backend("strict", array_api_strict) if backend.xp is np else NUMPY


@pytest.mark.parametrize("name", ["mask", "weights"])
def test_mixed_namespaces_are_refused_by_name(name: str, backend: Backend) -> None:
    # A mask of NumPy may stand beside Y of another namespace, but nothing is moved out of a namespace.
    if backend.xp is not np:
        pytest.skip("arrays of NumPy are moved")
    other = _another(backend)
    own, foreign = backend.xp.__name__, other.xp.__name__
    values = {"mask": MASK, "weights": WEIGHTS}[name]
    for call in (airnp.fit, airnp.Objective):
        with pytest.raises(TypeError, match=f"one namespace: Y is {own}, {name} is {foreign}"):
            call(backend.array(Y), **{name: other.array(values)})


def test_arrays_are_not_moved_out_of_their_namespace(backend: Backend) -> None:
    if backend.xp is np:
        pytest.skip("arrays of NumPy are moved")
    for call in (airnp.fit, airnp.Objective):
        with pytest.raises(TypeError, match=f"xp: is numpy, but Y is an array of {backend.xp.__name__}"):
            call(backend.array(Y), xp=np)


def test_params_of_another_namespace_are_refused(backend: Backend) -> None:
    other = _another(backend)
    params = [other.array(to_numpy(param)) for param in airnp.Objective(Y, MASK).init(0)]
    objective = airnp.Objective(backend.array(Y), backend.array(MASK))
    with pytest.raises(TypeError, match=rf"Y is {backend.xp.__name__}, params\[0\] is {other.xp.__name__}"):
        objective.value_and_grad(params)


def test_mixed_devices_are_refused_by_name() -> None:
    xp = array_api_strict
    one, other = xp.Device("device1"), xp.Device("device2")
    data, mask = xp.asarray(Y, device=one), xp.asarray(MASK, device=other)
    for call in (airnp.fit, airnp.Objective):
        with pytest.raises(TypeError, match=r"one device: Y is on .*device1.*, mask is on .*device2"):
            call(data, mask)
        with pytest.raises(TypeError, match=r"one device: Y is on .*device1.*, weights is on .*CPU_DEVICE"):
            call(data, weights=xp.asarray(WEIGHTS))
    objective = airnp.Objective(data, xp.asarray(MASK, device=one))
    moved = [xp.asarray(to_numpy(param), device=other) for param in objective.init(0)]
    with pytest.raises(TypeError, match=r"one device: Y is on .*device1.*, params.0. is on .*device2"):
        objective.value_and_grad(moved)


def test_an_operator_that_leaves_the_device_or_the_namespace_is_refused() -> None:
    class Leaving(Mixing):
        def forward(self, X: Any) -> Any:
            return array_api_strict.asarray(to_numpy(super().forward(X)))

    class Leaked(Mixing):
        def adjoint(self, Z: Any) -> Any:
            return to_numpy(super().adjoint(Z))

    there = Backend("strict", array_api_strict, array_api_strict.Device("device1"))
    with pytest.raises(TypeError, match=r"operator: forward must return an array on .*device1.*CPU_DEVICE"):
        airnp.fit(there.array(MEASURED), operator=Leaving(there))
    with pytest.raises(
        TypeError, match=r"operator: adjoint must return an array of array_api_strict, got ndarray"
    ):
        airnp.fit(there.array(MEASURED), operator=Leaked(there))


def test_scipy_operators_are_for_numpy() -> None:
    from scipy.sparse.linalg import aslinearoperator

    with pytest.raises(TypeError, match=r"operator: scipy's linear operators .*strict"):
        airnp.fit(array_api_strict.asarray(Y), operator=aslinearoperator(np.eye(108)))


# --- dtypes ---


FLOAT32_TOLERANCE = 2e-5


@pytest.mark.parametrize("name", ["AIR", "all together", "Huber", "stack"])
def test_float32_data_stays_float32(name: str, backend: Backend) -> None:
    data, mask, options = CASES[name](NUMPY)
    result = fitted(backend.array(data.astype(np.float32)), backend.array(mask.copy()), options)
    assert_lives(result, backend, "float32")
    assert_same(result, numpy_fit(name), tolerance=FLOAT32_TOLERANCE)


def test_a_dtype_may_be_given_in_any_spelling(backend: Backend) -> None:
    spellings = ["float32", np.float32, np.dtype(np.float32), array_api_strict.float32, backend.xp.float32]
    expected = fitted(Y, MASK, {"max_iter": 5})
    for dtype in spellings:
        result = fitted(backend.array(Y), backend.array(MASK), {"dtype": dtype, "max_iter": 5})
        assert_lives(result, backend, "float32")
        assert_same(result, expected, tolerance=FLOAT32_TOLERANCE)
    narrow, wide = Y.astype(np.float32), {"dtype": backend.xp.float64, "max_iter": 5}
    result = fitted(backend.array(narrow), backend.array(MASK), wide)
    assert_lives(result, backend, "float64")
    assert_same(result, fitted(narrow.astype(float), MASK, {"max_iter": 5}))


def test_small_integers_and_booleans_become_float32(backend: Backend) -> None:
    for values in (np.rint(10 * Y).astype(np.int8), Y > 0):
        result = fitted(backend.array(values), backend.array(MASK), {})
        assert_lives(result, backend, "float32")
        expected = fitted(values.astype(float), MASK, {})
        assert_same(result, expected, tolerance=FLOAT32_TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "int64", "int8"])
def test_a_device_without_float64_computes_in_float32(dtype: str) -> None:
    try:
        there = Backend("strict", array_api_strict, array_api_strict.Device("no_float64"))
    except ValueError as error:
        pytest.skip(f"this array_api_strict has no such device: {error}")
    values = np.rint(10 * Y).astype(dtype)
    mask, weights = there.array(MASK), there.array(2 * MASK.astype(np.int64))
    for options in ({}, {"dtype": "float32"}, {"weights": weights}, {"stop": "auto"}, {"init": "balanced"}):
        options = {"max_iter": 5, **options}
        result = fitted(there.array(values), mask, options)
        assert_lives(result, there, "float32")
        host = {**options, "weights": 2.0 * MASK} if "weights" in options else {**options, "dtype": "float64"}
        assert_same(result, fitted(values, MASK, host), tolerance=FLOAT32_TOLERANCE)
    with pytest.raises(ValueError, match=r"dtype: expected float32, .*no_float64.*, got float64"):
        fitted(there.array(values), mask, {"dtype": "float64"})


def test_complex_arrays_are_refused_everywhere(backend: Backend) -> None:
    with pytest.raises(TypeError, match=r"Y: expected real numbers, got dtype .*complex"):
        airnp.fit(backend.array(Y + 0j))
    with pytest.raises(TypeError, match=r"mask: expected booleans or 0 and 1, got dtype .*complex"):
        airnp.fit(backend.array(Y), backend.array(MASK + 0j))
    with pytest.raises(ValueError, match=r"mask: expected True/False, 1/0 .* found 2"):
        airnp.fit(backend.array(Y), backend.array(2 * MASK))
    with pytest.raises(ValueError, match=r"weights: expected finite numbers of at least 0"):
        airnp.fit(backend.array(Y), weights=backend.array(-WEIGHTS))
    with pytest.raises(ValueError, match=r"Y: 12 observed entries are NaN or infinite, first at \(0, 2\)"):
        airnp.fit(backend.array(np.where(np.arange(9) == 2, np.inf, Y)))


# --- PyTorch ---


def import_torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed; .ci/run installs it")


def test_no_autograd_graph_is_built() -> None:
    torch = import_torch()
    operator = Mixing(Backend("torch", torch))
    operator.left = torch.nn.Parameter(operator.left)
    graph = torch.tensor(GRAPH, requires_grad=True)
    data, weights = (torch.tensor(array, requires_grad=True) for array in (Y, WEIGHTS))
    measured = torch.tensor(MEASURED, requires_grad=True)
    fits = [
        fitted(data, torch.tensor(MASK), {"weights": weights, "regularizers": [FixedLaplacian(graph)]}),
        fitted(measured, None, {"operator": operator}),
    ]
    for result in fits:
        for name, array in arrays_of(result).items():
            assert not array.requires_grad, name
            assert array.grad_fn is None, name
    assert data.requires_grad
    assert data.grad is None
    assert_same(fits[1], numpy_fit("operator"))
    params = [param.requires_grad_() for param in airnp.Objective(data, torch.tensor(MASK)).init(0)]
    _, grads = airnp.Objective(data, torch.tensor(MASK)).value_and_grad([param.detach() for param in params])
    assert not any(grad.requires_grad for grad in grads)


def test_torch_views_sparse_tensors_and_half_precision() -> None:
    torch = import_torch()
    spaced = torch.zeros((9, 24), dtype=torch.float64)
    spaced[:, ::2] = torch.tensor(Y.T)
    assert_same(fitted(spaced[:, ::2].T, torch.tensor(MASK), {}), numpy_fit("AIR"))
    with pytest.raises(TypeError, match=r"Y: expected a dense tensor, got layout torch.sparse_coo"):
        airnp.fit(torch.tensor(Y).to_sparse())
    graph = torch.tensor(GRAPH).to(torch.bfloat16)
    np.testing.assert_array_equal(to_numpy(graph), GRAPH)
    assert_same(fitted(Y, MASK, {"regularizers": [FixedLaplacian(graph)]}), numpy_fit("given graph"))
    for dtype in (torch.float16, torch.bfloat16):
        half = torch.tensor(Y).to(dtype)
        result = fitted(half, torch.tensor(MASK), {})
        assert result.X.dtype == torch.float32
        assert_same(result, fitted(half.double().numpy(), MASK, {}), tolerance=FLOAT32_TOLERANCE)


def test_a_float64_map_serves_a_float32_problem_in_torch() -> None:
    torch = import_torch()

    class Wide(Mixing):
        def forward(self, X: Any) -> Any:
            return super().forward(X.double())

        def adjoint(self, Z: Any) -> Any:
            return super().adjoint(Z.double())

    result = fitted(torch.tensor(MEASURED).float(), None, {"operator": Wide(Backend("torch", torch))})
    assert result.X.dtype == torch.float32
    assert_same(result, numpy_fit("operator"), tolerance=FLOAT32_TOLERANCE)


def test_jax_gives_numpys_answer() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed, and the test extra stays without it")
    wide = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        backend = Backend("jax", jax.numpy)
        result = fitted(*CASES["AIR"](backend))
        assert_lives(result, backend)
        assert_same(result, numpy_fit("AIR"))
    finally:
        jax.config.update("jax_enable_x64", wide)


# --- stacks ---


HELD_OUT: Options = {"stop": HeldOut(patience=10, every=5), "max_iter": 150, "learning_rate": 2e-2}
STACKED: dict[str, Options] = {
    "AIR": {},
    "AIR, auto": {"stop": "auto", "max_iter": 200},
    "AIR, held out": HELD_OUT,
    "DMF, held out": {**HELD_OUT, "regularizers": []},
    "energy change": {"stop": airnp.EnergyChange(2e-3), "max_iter": 150, "learning_rate": 1e-2},
    "mixture": {
        "regularizers": [
            adaptive("global"),
            AdaptiveLaplacian(Blocks(4, 3), adjacency="product", weight=1e-3),
            TotalVariation(1e-3),
            DirichletEnergy("rows"),
            FixedLaplacian(GRAPH),
        ]
    },
    "Huber and balanced": {"fidelity": airnp.Huber(), "init": "balanced", "depth": 2, "rank": 4},
    "gradient descent": {"optimizer": "gradient_descent", "learning_rate": 0.5},
}


@pytest.mark.parametrize("batch", [(3,), (2, 2)])
@pytest.mark.parametrize("name", STACKED)
def test_a_stack_is_its_matrices_one_by_one(name: str, batch: tuple[int, ...]) -> None:
    assert_stack_is_one_by_one(name, batch, NUMPY)


@pytest.mark.parametrize("name", ["AIR, held out", "mixture"])
def test_a_stack_of_any_namespace_is_its_matrices_one_by_one(name: str, backend: Backend) -> None:
    assert_stack_is_one_by_one(name, (2, 2), backend)


def assert_stack_is_one_by_one(name: str, batch: tuple[int, ...], backend: Backend) -> None:
    """Assert that each matrix of a stack has the answer that NumPy gives to it alone."""
    data, mask = stack(*batch, seed=7)
    data = data * np.logspace(-3, 3, int(np.prod(batch))).reshape(*batch, 1, 1)  # of different scales
    stacked = fitted(backend.array(data), backend.array(mask), STACKED[name])
    assert stacked.X.shape == data.shape
    for place in np.ndindex(*batch):
        single = fitted(data[place], mask[place], STACKED[name])
        np.testing.assert_array_equal(np.asarray(stacked.best_iter)[place], single.best_iter)
        for part, array in arrays_of(single).items():
            found = to_numpy(arrays_of(stacked)[part])
            found = found[place] if found.ndim == len(batch) + array.ndim else found
            size = max(np.abs(array).max(), 1e-6)
            np.testing.assert_allclose(found.astype(float), array, rtol=0, atol=1e-10 * size, err_msg=part)
        steps = len(single.history["iteration"])
        for column in ("loss", "fidelity"):
            records = stacked.history[column][(slice(steps), *place)]
            np.testing.assert_allclose(records, single.history[column], rtol=1e-10)


def test_the_stacks_of_that_test_end_at_different_iterations() -> None:
    """Otherwise it would not see whether each problem keeps its own best iterate."""
    data, mask = stack(3, seed=7)
    for name in ("AIR, held out", "DMF, held out"):
        single = [fitted(data[k], mask[k], STACKED[name]) for k in range(3)]
        assert len({result.n_iter for result in single}) > 1, name
        assert len({result.best_iter for result in single}) > 1, name


def test_a_stack_of_one_and_copies_agree(backend: Backend) -> None:
    one = fitted(backend.array(Y[None]), backend.array(MASK[None]), {})
    np.testing.assert_allclose(to_numpy(one.X)[0], numpy_fit("AIR").X, rtol=0, atol=1e-11)
    twice = fitted(backend.array(np.stack([Y, Y])), backend.array(MASK), {})
    np.testing.assert_array_equal(to_numpy(twice.X)[0], to_numpy(twice.X)[1])


def test_regularizers_serve_many_fits(backend: Backend) -> None:
    """A regulariser holds only what the user said: nothing of one fit is left for the next."""
    listed = [AdaptiveLaplacian(), FixedLaplacian(GRAPH), DirichletEnergy("columns"), TotalVariation(1e-3)]
    before = copy.deepcopy([vars(item) for item in listed])
    first = fitted(backend.array(Y), backend.array(MASK), {"regularizers": listed})
    fitted(OUTLIERS, None, {"regularizers": listed})
    again = fitted(backend.array(Y), backend.array(MASK), {"regularizers": listed})
    np.testing.assert_array_equal(to_numpy(first.X), to_numpy(again.X))
    assert repr(before) == repr([vars(item) for item in listed])
