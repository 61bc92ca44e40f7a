"""Adam in PyTorch's arithmetic, plain descent, their rates, schedules and explicit state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import airnp
from airnp import Adam, ExponentialDecay, GradientDescent
from airnp.optimizers import resolve_optimizer

Gradient = Callable[[int, np.ndarray], np.ndarray]

GRADIENTS: dict[str, Gradient] = {
    "bowl": lambda step, p: 2 * p,
    "oscillating": lambda step, p: np.cos(step * np.arange(1, p.size + 1)).reshape(p.shape).astype(p.dtype),
    "tiny": lambda step, p: 1e-9 * np.sin(step + np.arange(p.size)).reshape(p.shape).astype(p.dtype),
    "tiny, steady": lambda step, p: np.full_like(p, 1e-9),
    "sizes from 1e-12 to 1e6": lambda step, p: (
        (-1.0) ** (step // 3) * np.logspace(-12, 6, p.size).reshape(p.shape)
    ).astype(p.dtype),
    "mostly zero": lambda step, p: np.full_like(p, 1.0 if step % 17 == 0 else 0.0),
}


def run(optimizer: Any, start: np.ndarray, gradient: Gradient, steps: int) -> np.ndarray:
    """The parameter after each step."""
    params, path = [start.copy()], []
    state = optimizer.init(params)
    for step in range(1, steps + 1):
        optimizer.step(params, [gradient(step, params[0])], state)
        path.append(params[0].copy())
    return np.array(path)


# ------------------------------------------------------------------------------------------------------- Adam


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-6)])
@pytest.mark.parametrize("name", GRADIENTS)
@pytest.mark.parametrize(
    "settings",
    [{}, {"betas": (0.8, 0.95), "epsilon": 1e-6}, {"betas": (0.0, 0.5), "epsilon": 1e-12}],
    ids=["default", "faster", "no momentum"],
)
def test_adam_is_torch_adam(name, dtype, tolerance, settings):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; .ci/run installs it")
    start = np.random.default_rng(0).standard_normal((4, 3)).astype(dtype)
    gradient = GRADIENTS[name]
    ours = run(Adam(1e-2, **settings), start, gradient, 100)
    theirs = torch.tensor(start, requires_grad=True)
    named = {"betas": settings.get("betas", (0.9, 0.999)), "eps": settings.get("epsilon", 1e-8)}
    optimizer = torch.optim.Adam([theirs], lr=1e-2, **named)
    for step in range(1, 101):
        theirs.grad = torch.tensor(gradient(step, theirs.detach().numpy()))
        optimizer.step()
        expected = theirs.detach().numpy()
        assert ours.dtype == expected.dtype == dtype
        np.testing.assert_allclose(
            ours[step - 1], expected, rtol=tolerance, atol=tolerance, err_msg=f"step {step}"
        )


def test_adam_on_torch_tensors_is_torch_adam():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; .ci/run installs it")
    start = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(4, 3)
    params, theirs = [start.clone()], start.clone().requires_grad_()
    optimizer = Adam(1e-2)
    state, reference = optimizer.init(params), torch.optim.Adam([theirs], lr=1e-2)
    for step in range(1, 101):
        gradient = torch.cos(step * start)
        optimizer.step(params, [gradient], state)
        theirs.grad = gradient.clone()
        reference.step()
    torch.testing.assert_close(params[0], theirs.detach(), rtol=1e-12, atol=1e-12)


# Recorded with PyTorch 2.13.0:
#
#   p = torch.tensor([1.0, -2.0, 0.5, 3e-3], dtype=torch.float64, requires_grad=True)
#   optimizer = torch.optim.Adam([p], lr=1e-2)
#   for step in range(1, 101):
#       t = torch.tensor(float(step), dtype=torch.float64)
#       p.grad = torch.stack([torch.cos(t), 1e-9 * torch.sin(3 * t), torch.sign(torch.sin(t)) / t,
#                             1e-9 * torch.ones_like(t)])
#       optimizer.step()
#       if step in (1, 2, 10, 100):
#           print(step, p.tolist())
RECORDED = {
    1: [0.9900000001850816, -2.000139156235157, 0.4900000001, 0.002090909090909091],
    2: [0.9892346008520906, -2.0000606790824746, 0.48067820382981613, 0.0011818181818181827],
    10: [1.0046973629655147, -2.0001029505019217, 0.44827889898776996, -0.006090909090909088],
    100: [1.00934891659635, -2.0001279100784717, 0.4291133357383433, -0.08790909090909102],
}


def recorded_gradient(t: int, p: np.ndarray) -> np.ndarray:
    return np.array([np.cos(t), 1e-9 * np.sin(3 * t), np.sign(np.sin(t)) / t, 1e-9])


def test_adam_gives_what_was_recorded_from_torch():
    path = run(Adam(1e-2), np.array([1.0, -2.0, 0.5, 3e-3]), recorded_gradient, 100)
    for step, expected in RECORDED.items():
        np.testing.assert_allclose(path[step - 1], expected, rtol=1e-12, err_msg=f"step {step}")


def test_epsilon_stands_outside_the_bias_correction():
    """A first gradient of 1e-9 moves by rate · g/(g + ε) = rate/11; ε inside would make it rate/317."""
    (first,) = run(Adam(1e-2), np.zeros(1), lambda step, p: np.full(1, 1e-9), 1)
    assert first[0] == pytest.approx(-1e-2 / 11, rel=1e-12)


def test_adam_within_a_fit_is_adam():
    """The engine's updates, graphs on the way included, are those of the optimiser by itself."""
    rng = np.random.default_rng(0)
    Y, mask = rng.random((8, 6)), rng.random((8, 6)) < 0.7
    objective = airnp.Objective(Y, mask)
    params = objective.init(4)
    optimizer = Adam(1e-2, graph_learning_rate=5e-2)
    state = optimizer.init(params, ["factor"] * 3 + ["graph"] * 2)
    for _ in range(30):
        _, grads = objective.value_and_grad(params)
        optimizer.step(params, grads, state)
    result = airnp.fit(Y, mask, optimizer=optimizer, max_iter=30, stop=None, seed=4, normalize=False)
    for mine, fitted in zip(params[:3], result.factors, strict=True):
        np.testing.assert_allclose(mine, fitted, rtol=1e-9, atol=1e-12)
    for mine, item in zip(params[3:], result.regularizers, strict=True):
        np.testing.assert_allclose(mine, item.parameter, rtol=1e-9, atol=1e-12)


# -------------------------------------------------------------------------------------------- what both share


def test_gradient_descent_steps_against_the_gradient():
    path = run(GradientDescent(0.1), np.array([1.0, -3.0]), lambda step, p: np.array([2.0, -step]), 3)
    np.testing.assert_allclose(path, [[0.8, -2.9], [0.6, -2.7], [0.4, -2.4]], rtol=1e-14)


def test_gradient_descent_converges_on_a_bowl():
    path = run(GradientDescent(0.1), np.array([5.0]), lambda step, p: 2 * p, 50)
    np.testing.assert_allclose(path[:, 0], 5 * 0.8 ** np.arange(1, 51), rtol=1e-12)


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
def test_graphs_may_have_a_rate_of_their_own(kind):
    params = [np.zeros(2), np.zeros(2), np.zeros(2)]
    optimizer = kind(0.1, graph_learning_rate=0.5)
    state = optimizer.init(params, ["factor", "graph", "factor"])
    optimizer.step(params, [np.ones(2)] * 3, state)
    np.testing.assert_allclose([param[0] for param in params], [-0.1, -0.5, -0.1], rtol=1e-6)
    alike = kind(0.1)
    assert alike.init(params, ["factor", "graph", "factor"]).rates == [0.1, 0.1, 0.1]
    assert optimizer.init(params).rates == [0.1, 0.1, 0.1]


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
def test_a_rate_of_their_own_reaches_the_graphs_of_a_fit(kind):
    rng = np.random.default_rng(1)
    Y, mask = rng.random((7, 5)), rng.random((7, 5)) < 0.8
    options = {"max_iter": 1, "stop": None, "seed": 2}
    slow = airnp.fit(Y, mask, optimizer=kind(1e-3), **options)
    fast = airnp.fit(Y, mask, optimizer=kind(1e-3, graph_learning_rate=1e-1), **options)
    start = airnp.Objective(Y, mask).init(2)
    for mine, other in zip(slow.factors, fast.factors, strict=True):
        np.testing.assert_array_equal(mine, other)
    for v, mine, other in zip(start[3:], slow.regularizers, fast.regularizers, strict=True):
        np.testing.assert_allclose(other.parameter - v, 100 * (mine.parameter - v), rtol=1e-4, atol=1e-12)
        assert np.abs(other.parameter - v).max() > 0


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
def test_a_schedule_scales_every_step(kind):
    seen = []

    def schedule(step: int) -> float:
        seen.append(step)
        return 1 / step

    # Under a gradient of 1 each step of either optimiser is its rate.
    path = run(kind(0.1, schedule=schedule), np.zeros(1), lambda step, p: np.ones(1), 4)
    np.testing.assert_allclose(-np.diff(path[:, 0], prepend=0), 0.1 / np.arange(1, 5), rtol=1e-6)
    assert sorted(set(seen)) == [1, 2, 3, 4]


def test_exponential_decay():
    decay = ExponentialDecay(factor=0.5, every=100)
    np.testing.assert_allclose([decay(step) for step in (1, 51, 101, 201)], [1, 0.5**0.5, 0.5, 0.25])
    path = run(
        GradientDescent(1.0, schedule=ExponentialDecay(0.5, 1)), np.zeros(1), lambda step, p: np.ones(1), 60
    )
    assert path[-1, 0] == pytest.approx(-2.0)


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
def test_updates_are_made_in_place(kind):
    params, grads = [np.ones((3, 2)), np.ones((2, 2))], [np.ones((3, 2)), np.ones((2, 2))]
    arrays, list_ = list(params), params
    optimizer = kind(0.1)
    state = optimizer.init(params)
    assert state.step == 0
    for _ in range(3):
        optimizer.step(params, grads, state)
    assert state.step == 3
    assert params is list_
    for array, param, grad in zip(arrays, params, grads, strict=True):
        assert param is array
        assert (param < 1).all()
        assert (grad == 1).all(), "gradients are only read"


def test_the_state_of_adam_is_explicit_and_in_place():
    params = [np.ones(3)]
    optimizer = Adam(0.1)
    state = optimizer.init(params)
    (moments,) = state.moments
    first, second = moments.first, moments.second
    optimizer.step(params, [np.array([1.0, 2.0, -3.0])], state)
    assert state.moments[0].first is first
    np.testing.assert_allclose(first, [0.1, 0.2, -0.3])
    np.testing.assert_allclose(second, [1e-3, 4e-3, 9e-3])
    other = optimizer.init(params)
    assert other.step == 0
    assert (other.moments[0].first == 0).all(), "an optimiser holds nothing of its fits"


def test_a_state_carries_on_where_it_was():
    gradient = GRADIENTS["oscillating"]
    whole = run(Adam(1e-2), np.ones(3), gradient, 20)
    params = [np.ones(3)]
    state = Adam(1e-2).init(params)
    for step in range(1, 21):
        Adam(1e-2).step(params, [gradient(step, params[0])], state)  # a new object every time
    np.testing.assert_array_equal(params[0], whole[-1])


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
def test_every_namespace_takes_the_same_steps(backend, kind):
    start = np.linspace(-1, 1, 6).reshape(3, 2)
    expected = run(kind(1e-2), start, GRADIENTS["oscillating"], 10)[-1]
    params = [backend.xp.asarray(start.copy(), device=backend.device)]
    optimizer = kind(1e-2)
    state = optimizer.init(params)
    for step in range(1, 11):
        grad = backend.array(GRADIENTS["oscillating"](step, start))
        optimizer.step(params, [grad], state)
    host = np.asarray(params[0]) if backend.name in ("numpy", "torch") else np.from_dlpack(params[0])
    np.testing.assert_allclose(host, expected, rtol=1e-12)


# -------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("kind", [Adam, GradientDescent])
@pytest.mark.parametrize("name", ["learning_rate", "graph_learning_rate"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-1.0, ValueError),
        (np.nan, ValueError),
        (np.inf, ValueError),
        ("a", TypeError),
        (True, TypeError),
    ],
)
def test_bad_rates_are_named(kind, name, value, error):
    with pytest.raises(error, match=f"^{name}: expected a"):
        kind(**{name: value})


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, int])
def test_rates_of_any_number_type_are_taken(kind):
    assert Adam(kind(1)).learning_rate == 1
    assert GradientDescent(1e-3, graph_learning_rate=kind(1)).graph_learning_rate == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"betas": (0.9,)}, "betas: expected two numbers"),
        ({"betas": (0.9, 1.0)}, "betas: expected two numbers in"),
        ({"betas": (-0.1, 0.9)}, "betas: expected two numbers in"),
        ({"epsilon": -1e-8}, "epsilon: expected a number of at least 0"),
        ({"epsilon": np.nan}, "epsilon: expected a number of at least 0"),
    ],
)
def test_bad_arguments_of_adam_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        Adam(**arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 10), "factor: expected"),
        ((1.5, 10), "factor: expected"),
        ((0.5, 0), "every: expected at least 1"),
    ],
)
def test_bad_arguments_of_a_decay_are_named(arguments, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        ExponentialDecay(*arguments)


def test_kinds_must_match_the_parameters():
    with pytest.raises(ValueError, match="kinds: expected 2, one for each parameter, got 1"):
        Adam().init([np.ones(1), np.ones(1)], ["factor"])


def test_names_and_objects_are_resolved():
    assert resolve_optimizer("adam", 0.5) == Adam(0.5)
    assert resolve_optimizer("gradient_descent", 0.5) == GradientDescent(0.5)
    mine = Adam(0.25)
    assert resolve_optimizer(mine, 0.5) is mine
    with pytest.raises(
        ValueError, match=r"optimizer: expected one of 'adam', 'gradient_descent'.*got 'lion'"
    ):
        resolve_optimizer("lion", 0.5)
