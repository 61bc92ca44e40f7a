"""Optimisers: they describe each step as data (:class:`Update`), hold explicit state, and update in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
from array_api_compat import array_namespace

from airnp._arrays import Array
from airnp.engines import reference
from airnp.engines.contract import AdamUpdate, DescentUpdate, Engine, Moments, Schedule, SecondMoment, Update

Kind: TypeAlias = Literal["factor", "graph"]


class Optimizer(Protocol):
    """The interface of an optimiser for fits."""

    def init(self, params: Sequence[Array], kinds: Sequence[Kind] | None = None) -> Any:
        """Return the state before the first step."""

    def updates(self, state: Any) -> Sequence[Update]:
        """Advance the state by one step and return the update of each parameter."""


def _checked_rate(name: str, rate: Any) -> float:
    if isinstance(rate, bool) or not isinstance(rate, int | float | np.number):
        raise TypeError(f"{name}: expected a number, got {type(rate).__name__}")
    if not 0 < rate < float("inf"):
        raise ValueError(f"{name}: expected a positive number, got {rate!r}")
    return float(rate)


def _check_rates(optimizer: Adam | GradientDescent) -> None:
    _checked_rate("learning_rate", optimizer.learning_rate)
    if optimizer.graph_learning_rate is not None:
        _checked_rate("graph_learning_rate", optimizer.graph_learning_rate)


def _rates(
    optimizer: Adam | GradientDescent, params: Sequence[Array], kinds: Sequence[Kind] | None
) -> list[float]:
    """Return the learning rate of each parameter by its kind."""
    kinds = ["factor"] * len(params) if kinds is None else kinds
    if len(kinds) != len(params):
        raise ValueError(f"kinds: expected {len(params)}, one for each parameter, got {len(kinds)}")
    factor_rate, graph_rate = optimizer.learning_rate, optimizer.graph_learning_rate
    return [graph_rate if kind == "graph" and graph_rate is not None else factor_rate for kind in kinds]


@dataclass(frozen=True)
class ExponentialDecay:
    """Multiply the learning rate by ``factor`` every ``every`` steps, smoothly.

    Examples
    --------
    >>> decay = ExponentialDecay(factor=0.5, every=100)
    >>> decay(1), decay(101)
    (1.0, 0.5)
    """

    factor: float
    every: int

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 1:
            raise ValueError(f"factor: expected a number in (0, 1], got {self.factor!r}")
        if self.every < 1:
            raise ValueError(f"every: expected at least 1, got {self.every!r}")

    def __call__(self, step: int) -> float:
        """Return the factor of the rate at ``step``, counted from 1."""
        return float(self.factor ** ((step - 1) / self.every))


@dataclass
class AdamState:
    """State of Adam: the number of steps made, and two moments and a rate for each parameter.

    ``moments[i].first`` has the shape of parameter i; so has ``moments[i].second``, except with one second
    moment per matrix, where it is (…, 1, 1), or (1,) for a vector.
    """

    moments: list[Moments]
    rates: list[float]
    step: int = 0


@dataclass(frozen=True)
class Adam:
    """Adam, in the arithmetic of ``torch.optim.Adam``.

    Parameters
    ----------
    learning_rate : float
        Of the factors.
    graph_learning_rate : float, optional
        Of the graphs. Default: the same.
    betas : (float, float)
        Decay of the first and of the second moment.
    epsilon : float
        Added to the root of the second moment after its bias correction.
    schedule : callable, optional
        Factor of both rates at step 1, 2, …
    second_moment : {"entry", "matrix"}
        One second moment per entry, or one per parameter matrix (of a stack; else per vector or number): the
        running mean of its squared gradient entries. With one per matrix, entries with small gradients make
        small steps, which over-fits far less where rows have few observations, as in tables of ratings.

    Examples
    --------
    >>> import numpy as np
    >>> params, optimizer = [np.array([1.0])], Adam(0.1)
    >>> state = optimizer.init(params)
    >>> for _ in range(100):
    ...     optimizer.step(params, [2 * params[0]], state)
    >>> bool(abs(params[0][0]) < 0.1), state.step
    (True, 100)

    One second moment per matrix keeps the direction of the first gradient:

    >>> params, optimizer = [np.zeros((1, 2))], Adam(0.1, second_moment="matrix")
    >>> optimizer.step(params, [np.array([[1.0, 7.0]])], optimizer.init(params))
    >>> np.round(params[0], 3)
    array([[-0.02, -0.14]])
    """

    learning_rate: float = 1e-3
    graph_learning_rate: float | None = None
    betas: tuple[float, float] = (0.9, 0.999)
    epsilon: float = 1e-8
    schedule: Schedule | None = None
    second_moment: SecondMoment = "entry"

    def __post_init__(self) -> None:
        _check_rates(self)
        if self.second_moment not in ("entry", "matrix"):
            raise ValueError(f"second_moment: expected one of 'entry', 'matrix', got {self.second_moment!r}")
        if len(self.betas) != 2 or not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas: expected two numbers in [0, 1), got {self.betas!r}")
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon: expected a number of at least 0, got {self.epsilon!r}")

    def init(self, params: Sequence[Array], kinds: Sequence[Kind] | None = None) -> AdamState:
        """Return the state before the first step: zero moments.

        Parameters
        ----------
        params : sequence of arrays
        kinds : sequence of {"factor", "graph"}, optional
            The kind of each parameter, which selects its rate. Default: all are factors.
        """
        moments = []
        for param in params:
            first = array_namespace(param).zeros_like(param)
            second = array_namespace(param).zeros_like(param)
            moments.append(
                Moments(first, second if self.second_moment == "entry" else reference.mean_square(second))
            )
        return AdamState(moments, _rates(self, params, kinds))

    def updates(self, state: AdamState) -> list[AdamUpdate]:
        """Advance the state by one step and return the update of each parameter."""
        state.step += 1
        return [
            AdamUpdate(
                moments, rate, state.step, *self.betas, self.epsilon, self.schedule, self.second_moment
            )
            for moments, rate in zip(state.moments, state.rates, strict=True)
        ]

    def step(
        self, params: list[Array], grads: Sequence[Array], state: AdamState, engine: Engine | None = None
    ) -> None:
        """Make one step: update ``params`` and ``state`` in place."""
        _step(self, params, grads, state, engine)


@dataclass
class DescentState:
    """State of gradient descent: the number of steps made and the rate of each parameter."""

    rates: list[float]
    step: int = 0


@dataclass(frozen=True)
class GradientDescent:
    """Plain gradient descent, p ← p − rate · g.

    Parameters
    ----------
    learning_rate : float
        Of the factors.
    graph_learning_rate : float, optional
        Of the graphs. Default: the same.
    schedule : callable, optional
        Factor of both rates at step 1, 2, …
    """

    learning_rate: float = 1e-3
    graph_learning_rate: float | None = None
    schedule: Schedule | None = None

    def __post_init__(self) -> None:
        _check_rates(self)

    def init(self, params: Sequence[Array], kinds: Sequence[Kind] | None = None) -> DescentState:
        """Return the state before the first step."""
        return DescentState(_rates(self, params, kinds))

    def updates(self, state: DescentState) -> list[DescentUpdate]:
        """Advance the state by one step and return the update of each parameter."""
        state.step += 1
        return [DescentUpdate(rate, state.step, self.schedule) for rate in state.rates]

    def step(
        self, params: list[Array], grads: Sequence[Array], state: DescentState, engine: Engine | None = None
    ) -> None:
        """Make one step: update ``params`` and ``state`` in place."""
        _step(self, params, grads, state, engine)


def _step(
    optimizer: Optimizer, params: list[Array], grads: Sequence[Array], state: Any, engine: Engine | None
) -> None:
    ops: Any = reference if engine is None else engine
    params[:] = ops.apply_updates(params, grads, optimizer.updates(state))


def resolve_optimizer(optimizer: Any, learning_rate: float) -> Any:
    """Return the optimiser for a name, with ``learning_rate``, or an optimiser object unchanged."""
    named = {"adam": Adam, "gradient_descent": GradientDescent}
    if isinstance(optimizer, str):
        if optimizer not in named:
            raise ValueError(
                f"optimizer: expected one of {', '.join(map(repr, named))} or an object, got {optimizer!r}"
            )
        return named[optimizer](_checked_rate("learning_rate", learning_rate))
    if isinstance(optimizer, type) or not (hasattr(optimizer, "init") and hasattr(optimizer, "updates")):
        raise TypeError(
            f"optimizer: expected a name or an object with init and updates, got {type(optimizer).__name__}"
        )
    return optimizer


def delayed(optimizer: Any, steps: int) -> Any:
    """Return the optimiser with its schedule advanced by ``steps``; its state starts afresh."""
    schedule = getattr(optimizer, "schedule", None)
    if steps == 0 or schedule is None:
        return optimizer
    return replace(optimizer, schedule=lambda step: schedule(step + steps))
