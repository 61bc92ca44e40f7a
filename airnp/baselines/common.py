"""Read the data of a baseline, and complete one matrix of a stack after another."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from airnp._arrays import to_numpy
from airnp.data.inputs import EmptyLineWarning, read

Values = NDArray[np.float64]
Bools = NDArray[np.bool_]
Completion = Callable[[Values, Bools], Values]
"""Completes one matrix, given values (zero where missing) and a mask (True = observed)."""

Item = TypeVar("Item")


_LARGEST = 1e100


def complete_each(Y: Any, mask: Any, completion: Completion, empty_lines: str) -> Any:
    """Read the data, complete every matrix of the stack, and return it with the type and labels of the data.

    Parameters
    ----------
    Y, mask
        As :func:`airnp.fit` takes them.
    completion : callable
        Works in float64 on one matrix with missing entries. A matrix without any is returned as it is.
    empty_lines : str
        How the method fills rows and columns without any observed entry, for the warning.
    """
    with warnings.catch_warnings():
        # That warning speaks of graphs and factors, which these methods do not have.
        warnings.simplefilter("ignore", EmptyLineWarning)
        problem = read(Y, mask)
    values, observed = to_numpy(problem.values).astype(np.float64), to_numpy(problem.mask)
    if np.abs(values).max() > _LARGEST:
        raise ValueError(f"Y: expected numbers up to {_LARGEST:g} in size, whose squares are numbers")
    rows, columns = (int((~observed.any(axis=axis)).sum()) for axis in (-1, -2))
    if rows or columns:
        message = f"{rows} rows and {columns} columns have no observed entry; {empty_lines}"
        warnings.warn(message, EmptyLineWarning, stacklevel=3)
    X = values.copy()
    for index in np.ndindex(values.shape[:-2]):
        if not observed[index].all():
            X[index] = completion(values[index], observed[index])
    completed = X.astype(problem.dtype)
    return completed if problem.labels is None else problem.labels.put_on(completed)


def line_means(values: Values, mask: Bools) -> Values:
    """Return for every entry the average of the means of the observed entries of its row and its column.

    If one of the two lines is empty, the other counts alone; if both are, it is the mean of all.
    """
    overall = values[mask].mean()
    total = np.zeros_like(values)
    lines = np.zeros_like(values)
    for axis in (0, 1):
        count = mask.sum(axis=axis, keepdims=True)
        total += values.sum(axis=axis, keepdims=True) / np.maximum(count, 1)
        lines += count > 0
    return np.where(lines > 0, total / np.maximum(lines, 1), overall)


def show_progress(
    items: Iterable[Item], progress: Any, what: str, total: int | None = None
) -> Iterator[Item]:
    """Iterate over ``items``, with a progress bar if ``progress``."""
    if not isinstance(progress, bool | np.bool_):
        raise TypeError(f"progress: expected True or False, got {progress!r}")
    if not progress:
        return iter(items)
    from tqdm.auto import tqdm

    return iter(tqdm(items, desc=what, total=total, dynamic_ncols=True))
