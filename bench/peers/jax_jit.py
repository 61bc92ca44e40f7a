"""The model in JAX: value_and_grad and Adam in one ``jax.jit``, parameters donated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp

from bench.peers.problem import EPSILON, LEARNING_RATE, Problem


def _trace_energy(a, z):
    """tr(Zᵀ L Z), as the formula is printed."""
    return jnp.trace(z.T @ (jnp.diag(a.sum(axis=1)) - a) @ z)


def _gram_energy(a, z):
    """The same as Σ deg |z|² − Σ A (Z Zᵀ): fewer products."""
    return jnp.sum(a.sum(axis=1) * jnp.sum(z * z, axis=1)) - jnp.sum(a * (z @ z.T))


ENERGIES = {"trace": _trace_energy, "gram": _gram_energy}


def _loss(params, values, mask, problem: Problem, form: str):
    x = params[0]
    for factor in params[1 : problem.depth]:
        x = factor @ x
    loss = problem.scale * jnp.sum((mask * (x - values)) ** 2)
    if problem.method == "AIR":
        for z, v in ((x, params[problem.depth]), (x.T, params[problem.depth + 1])):
            p = jax.nn.softmax(v, axis=1)
            loss = loss + problem.weight * ENERGIES[form]((p + p.T) / 2, z)
    elif problem.method == "RDMF":
        for d in (x[1:] - x[:-1], x[:, 1:] - x[:, :-1]):
            loss = loss + problem.weight * jnp.sum(jnp.sqrt(d * d + EPSILON**2) - EPSILON)
    return loss


def jitted(problem: Problem, form: str = "trace") -> Callable[[int], float]:
    """Return a function that runs iterations and returns the last loss."""
    values = jnp.asarray(problem.values)
    mask = jnp.asarray(problem.mask, dtype=values.dtype)

    @partial(jax.jit, donate_argnums=(0, 1, 2))
    def step(params, first, second, count):
        loss, grads = jax.value_and_grad(_loss)(params, values, mask, problem, form)
        count = count + 1
        first = [m + 0.1 * (g - m) for m, g in zip(first, grads, strict=True)]
        second = [0.999 * v + 0.001 * g * g for v, g in zip(second, grads, strict=True)]
        rate = LEARNING_RATE / (1 - 0.9**count)
        root = jnp.sqrt(1 - 0.999**count)
        params = [
            p - rate * m / (jnp.sqrt(v) / root + 1e-8) for p, m, v in zip(params, first, second, strict=True)
        ]
        return params, first, second, count, loss

    params = [jnp.asarray(p) for p in problem.params]
    state = [params, [jnp.zeros_like(p) for p in params], [jnp.zeros_like(p) for p in params]]
    count = jnp.zeros((), dtype=values.dtype)

    def run(iterations: int) -> float:
        nonlocal state, count
        for _ in range(iterations):
            *state, count, loss = step(*state, count)
        return float(loss)

    return run
