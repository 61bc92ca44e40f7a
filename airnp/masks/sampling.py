"""Masks whose entries, rows or columns are missing at random, and the checks that all masks share."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Seed = int | np.random.SeedSequence | np.random.Generator | None


def random(shape: Sequence[int], missing: float = 0.3, *, seed: Seed = None) -> Mask:
    """Drop every entry independently with the same probability.

    Parameters
    ----------
    shape : sequence of int
        ``(m, n)`` or ``(..., m, n)``.
    missing : float, default 0.3
        Probability of dropping an entry, in [0, 1). The share actually dropped fluctuates around it.
    seed : int, SeedSequence, Generator or None
        Passed to :func:`numpy.random.default_rng`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.random((240, 240), 0.3, seed=0)
    >>> round(1 - float(mask.mean()), 2)
    0.3
    """
    return generator(seed).random(checked_shape(shape)) >= checked_share(missing)


def rows(shape: Sequence[int], missing: float = 0.1, *, seed: Seed = None) -> Mask:
    """Drop whole rows, chosen at random.

    Parameters
    ----------
    missing : float, default 0.1
        Share of the rows to drop, in [0, 1): exactly ``round(missing * m)`` of them, but never all.
    shape, seed
        As in :func:`random`.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.rows((4, 3), 0.25, seed=0)
    >>> int((~mask).all(axis=1).sum())
    1
    """
    *batch, m, n = checked_shape(shape)
    return np.swapaxes(columns((*batch, n, m), missing, seed=seed), -1, -2).copy()


def columns(shape: Sequence[int], missing: float = 0.1, *, seed: Seed = None) -> Mask:
    """Drop whole columns, chosen at random: the transpose of :func:`rows`, with the same arguments.

    Returns
    -------
    ndarray of bool, shape (..., m, n)
        True = observed; exactly ``round(missing * n)`` columns are missing, but never all.

    Examples
    --------
    >>> from airnp import masks
    >>> mask = masks.columns((3, 4), 0.25, seed=0)
    >>> int((~mask).all(axis=0).sum())
    1
    """
    *batch, m, n = checked_shape(shape)
    count = min(round(checked_share(missing) * n), n - 1)
    observed = np.broadcast_to(np.arange(n) >= count, (*batch, n))
    kept = generator(seed).permuted(observed, axis=-1)
    return np.repeat(kept[..., np.newaxis, :], m, axis=-2)


def generator(seed: Seed) -> np.random.Generator:
    """Return the generator that a seed means."""
    try:
        return np.random.default_rng(seed)
    except (ValueError, TypeError) as error:
        raise type(error)(f"seed: {error}, got {seed!r}") from None


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of a mask, or of a stack of masks, as a tuple of int."""
    expected = "shape: expected positive int (m, n) or (..., m, n)"
    try:
        checked = tuple(operator.index(length) for length in shape)
    except TypeError as error:
        raise TypeError(f"{expected}, got {shape!r}") from error
    if len(checked) < 2 or min(checked) < 1:
        raise ValueError(f"{expected}, got {shape!r}")
    return checked


def checked_share(missing: Any) -> float:
    """Return ``missing`` as a float in [0, 1)."""
    return checked_between("missing", missing, "a number in [0, 1)", low=0, high=1)


def checked_between(
    name: str, value: Any, expected: str, *, low: float = -math.inf, high: float = math.inf
) -> float:
    """Return `value` as a float if it is a number with ``low <= value < high``; True and False are not."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected {expected}, got {value!r}")
    number = float(value)
    if not low <= number < high:
        raise ValueError(f"{name}: expected {expected}, got {value!r}")
    return number
