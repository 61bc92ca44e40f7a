"""What all baselines share: reading, one matrix after the other, holding out, iterated imputation."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from airnp._arrays import to_numpy
from airnp._checks import checked_number, checked_whole
from airnp.data.holdout import like_the_gaps
from airnp.data.inputs import EmptyLineWarning, read

Values = NDArray[np.float64]
Bools = NDArray[np.bool_]
Completion = Callable[[Values, Bools], Values]
"""Completes one matrix, given values (zero where missing) and a mask (True = observed)."""

Item = TypeVar("Item")


def complete_each(Y: Any, mask: Any, completion: Completion, empty_lines: str) -> Any:
    """Read the data, complete every matrix of the stack, and return it with the type and labels of the data.

    Parameters
    ----------
    Y, mask
        As :func:`airnp.fit` takes them.
    completion : callable
        Works in float64 on one matrix that has missing entries. One without is returned as it is.
    empty_lines : str
        How the method fills rows and columns without any observed entry, for the warning.
    """
    with warnings.catch_warnings():
        # Its text speaks of graphs and factors, which these methods do not have.
        warnings.simplefilter("ignore", EmptyLineWarning)
        seen = read(Y, mask)
    values, observed = to_numpy(seen.values).astype(np.float64), to_numpy(seen.mask)
    rows, columns = (int((~observed.any(axis=axis)).sum()) for axis in (-1, -2))
    if rows or columns:
        message = f"{rows} rows and {columns} columns have no observed entry; {empty_lines}"
        warnings.warn(message, EmptyLineWarning, stacklevel=3)
    X = values.copy()
    for index in np.ndindex(values.shape[:-2]):
        if not observed[index].all():
            X[index] = completion(values[index], observed[index])
    completed = X.astype(seen.dtype)
    return completed if seen.labels is None else seen.labels.put_on(completed)


def line_means(values: Values, mask: Bools) -> Values:
    """Return at every entry the average of its row's and its column's mean of observed entries.

    Where one of the two lines is empty the other one counts alone; where both are, the mean of all.
    """
    overall = values[mask].mean()
    total = np.zeros_like(values)
    lines = np.zeros_like(values)
    for axis in (0, 1):
        count = mask.sum(axis=axis, keepdims=True)
        total += values.sum(axis=axis, keepdims=True) / np.maximum(count, 1)
        lines += count > 0
    return np.where(lines > 0, total / np.maximum(lines, 1), overall)


def hold_out(mask: Bools, share: float, seed: int) -> Bools:
    """Return some observed entries to judge by, shaped as the gaps are; no line loses its last one.

    Raises
    ------
    ValueError
        When no entry can be spared.
    """
    wanted = max(1, round(share * int(mask.sum())))
    held = like_the_gaps(mask, wanted, np.random.default_rng([seed, 7]))
    if not held.any():
        raise ValueError("Y: has no observed entry to spare for choosing an option; give it instead")
    return held


def checked_share(name: str, value: Any) -> float:
    """Return ``value`` as a float if it lies strictly between 0 and 1, else raise."""
    share = checked_number(name, value)
    if not 0 < share < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")
    return share


def checked_positive(name: str, value: Any) -> float:
    """Return ``value`` as a float if it is a positive number, else raise."""
    number = checked_number(name, value)
    if number <= 0:
        raise ValueError(f"{name}: expected a positive number, got {value!r}")
    return number


def checked_seed(seed: Any) -> int:
    """Return a seed; a new one for None."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    return checked_whole("seed", seed, least=0)


def shown(items: Iterable[Item], progress: Any, what: str, total: int | None = None) -> Iterator[Item]:
    """Go through ``items``, with a bar if ``progress``."""
    if not isinstance(progress, bool | np.bool_):
        raise TypeError(f"progress: expected True or False, got {progress!r}")
    if not progress:
        return iter(items)
    from tqdm.auto import tqdm

    return iter(tqdm(items, desc=what, total=total, dynamic_ncols=True))


_PATIENCE = 5
_BETTER = 0.99


def imputed(
    values: Values,
    mask: Bools,
    X: Values,
    simplified: Callable[[Values], Values],
    max_iter: int,
    tol: float,
) -> Values:
    """Return the X that ``X ← simplified(values where observed, X elsewhere)`` leads to.

    The gaps are filled a little ahead of X, by Nesterov's momentum, which starts anew whenever it points
    back. It leads to the same answers in fewer iterations, most of all where little is observed.
    """
    ahead, age = X, 1.0
    for _ in range(max_iter):
        new = simplified(np.where(mask, values, ahead))
        change = new - X
        if np.sum((ahead - new) * change) > 0:
            age = 1.0
        older = (1 + np.sqrt(1 + 4 * age**2)) / 2
        ahead, X, age = new + (age - 1) / older * change, new, older
        if np.linalg.norm(change) <= tol * np.linalg.norm(new):
            break
    return X


def best_solution(solutions: Iterable[Values], values: Values, held: Bools) -> int:
    """Return which solution predicts held-out entries best, in the mean absolute error.

    The solutions go from simple to complex. A more complex one must be better by 1 %, and the search ends
    when a few in a row were not.
    """
    best, lowest = 0, np.inf
    for number, X in enumerate(solutions):
        error = float(np.abs(X - values)[held].mean())
        if error < _BETTER * lowest:
            best, lowest = number, error
        elif number - best >= _PATIENCE:
            break
    return best
