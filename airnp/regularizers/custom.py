"""A regulariser that is a user's own function of X."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from array_api_compat import array_namespace, device, is_array_api_obj

from airnp._arrays import Array, from_numpy
from airnp.engines.contract import Engine
from airnp.regularizers.base import Contribution, Problem, Regularizer, Term, checked_weight


class Custom(Regularizer):
    """λ R(X) for a function R of your own, with its gradient.

    Parameters
    ----------
    value_and_grad : callable
        ``value_and_grad(X)`` returns R and ∇R for X of shape (…, m, n) in the fit's namespace and in
        normalised units: R of shape (…), one number for each matrix of a stack, ∇R of X's shape.
        It must not change X. :func:`airnp.Objective.value_and_grad` is what to compare it with by finite
        differences.
    weight : float
        λ.
    name : str
        Its energies are recorded as ``energy_<name>``.

    Notes
    -----
    For a regulariser with a learned parameter, or one for :func:`airnp.fit_sparse`, write a subclass of
    :class:`airnp.Regularizer`. A checkpoint cannot hold a function: give it to :func:`airnp.resume` again.

    Examples
    --------
    Rows should sum to one:

    >>> import airnp
    >>> def of_rows(X):
    ...     off = X.sum(axis=-1, keepdims=True) - 1
    ...     return (off**2).sum(axis=(-2, -1)), 2 * off + 0 * X
    >>> shares = np.random.default_rng(0).dirichlet(np.ones(5), 20)
    >>> observed = np.random.default_rng(1).random(shares.shape) < 0.8
    >>> result = airnp.fit(shares, observed, regularizers=[airnp.Custom(of_rows, weight=0.1, name="sum")],
    ...                    normalize=False, max_iter=2000, stop=None, seed=0)
    >>> bool(np.abs(result.X.sum(axis=1) - 1).max() < 0.05)
    True
    """

    def __init__(
        self, value_and_grad: Callable[[Array], tuple[Any, Array]], weight: float, name: str = "custom"
    ) -> None:
        if not callable(value_and_grad):
            raise TypeError(f"value_and_grad: expected a function of X, got {type(value_and_grad).__name__}")
        if not (isinstance(name, str) and name.isidentifier()):
            raise ValueError(f"name: expected a word such as 'smoothness', got {name!r}")
        self.value_and_grad, self.weight, self.name = value_and_grad, checked_weight(weight), name

    def __repr__(self) -> str:
        function = getattr(self.value_and_grad, "__name__", type(self.value_and_grad).__name__)
        return f"Custom({function}, weight={self.weight!r}, name={self.name!r})"

    def bind(self, problem: Problem) -> Term:
        """Try the function on a matrix of zeros and return the term."""
        shape = (*problem.batch, problem.m, problem.n)
        term = CustomTerm(self.value_and_grad, self.weight)
        term.evaluate(from_numpy(np.zeros(shape), problem.xp, problem.device, problem.dtype))
        return term


class CustomTerm(Term):
    """λ R(X) by the user's function."""

    def __init__(self, value_and_grad: Callable[[Array], tuple[Any, Array]], weight: float) -> None:
        self._value_and_grad, self.weight = value_and_grad, weight

    def evaluate(self, x: Array) -> tuple[Array, Array]:
        """Return R (…) and ∇R (…, m, n), checked to be of these shapes and of the namespace of ``x``."""
        value, grad = self._value_and_grad(x)
        xp = array_namespace(x)
        if not is_array_api_obj(grad) or array_namespace(grad) is not xp:
            raise TypeError(
                f"value_and_grad: expected an array like X as gradient, got {type(grad).__name__}"
            )
        if tuple(grad.shape) != tuple(x.shape):
            raise ValueError(
                f"value_and_grad: expected a gradient of shape {tuple(x.shape)}, got {tuple(grad.shape)}"
            )
        energy = xp.astype(xp.asarray(value, device=device(x)), x.dtype)
        if tuple(energy.shape) != tuple(x.shape[:-2]):
            raise ValueError(
                f"value_and_grad: expected a value of shape {tuple(x.shape[:-2])}, got {tuple(energy.shape)}"
            )
        return energy, xp.astype(grad, x.dtype)

    def accumulate(self, ops: Engine, x: Array, g: Array, contribution: Contribution) -> tuple[Array, Array]:
        """Add λ ∇R to the gradient."""
        energy, grad = self.evaluate(x)
        return energy, g + self.weight * grad
