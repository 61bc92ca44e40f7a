"""What a loader returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Dataset"]


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """A matrix to complete, with everything that its source says about it.

    Attributes
    ----------
    name : str
        The loader's name.
    matrix : ndarray of float64, shape (m, n)
        The values; NaN where nobody knows them.
    source : str
        Who made the data and where the files come from.
    licence : str
        What is known about the terms of use.
    mask : ndarray of bool, shape (m, n), or None
        The entries given for training, True = observed; None if the source has no split of its own.
    test_mask : ndarray of bool, shape (m, n), or None
        The entries to measure the error on: ``airnp.metrics.rmse(X, data.matrix, ~data.test_mask)``.
    row_graph, column_graph : ndarray (k, k), scipy.sparse array, or None
        Adjacencies over the rows and the columns, symmetric and not negative, as
        :class:`airnp.FixedLaplacian` takes them.
    row_labels, column_labels : tuple of str, or None
        What the source calls the rows and the columns.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp.datasets import Dataset
    >>> Dataset("steps", np.arange(6.0).reshape(2, 3), source="counted", licence="none needed")
    <Dataset steps: 2×3, values from 0 to 5>
    """

    name: str
    matrix: NDArray[np.float64]
    source: str
    licence: str
    mask: NDArray[np.bool_] | None = None
    test_mask: NDArray[np.bool_] | None = None
    row_graph: Any = None
    column_graph: Any = None
    row_labels: tuple[str, ...] | None = None
    column_labels: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        m, n = self.matrix.shape
        parts = [f"{m}×{n}", f"values from {np.nanmin(self.matrix):g} to {np.nanmax(self.matrix):g}"]
        if self.mask is not None:
            parts.append(f"{self.mask.mean():.1%} for training")
        if self.test_mask is not None:
            parts.append(f"{self.test_mask.mean():.1%} for testing")
        for what in ("graph", "labels"):
            lines = [line for line in ("row", "column") if getattr(self, f"{line}_{what}") is not None]
            if lines:
                parts.append(
                    f"{' and '.join(lines)} {what}{'s' if len(lines) == 2 and what == 'graph' else ''}"
                )
        return f"<Dataset {self.name}: {', '.join(parts)}>"
