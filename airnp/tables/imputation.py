"""Fit models to a table whose columns have units, complete its rows and new ones, and say how sure that is.

Columns are standardised first: a column less its center over its scale, both without the influence of
outliers. :func:`airnp.resemblance.rows.fit_rows` models standardised rows; ``method="air"`` is the factor
model of :func:`airnp.fit` on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_choice
from airnp.engines import Auto
from airnp.engines.threads import checked_threads, using
from airnp.fitting import fit
from airnp.resemblance.rows import Blend, fit_rows
from airnp.results.newrows import RowModel
from airnp.results.result import FitResult

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

METHODS = ("auto", "em", "local", "air")
_FAMILIES = {"auto": None, "em": ("em",), "local": ("em", "local")}

_FAR = 6.0
"""Entries beyond this many interquartile ranges from the quartiles do not count for center and scale."""

_FARTHEST = 30.0
"""Standardised entries are clipped to this before they reach a model."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """Center and scale of each column, (d,)."""

    center: Floats
    scale: Floats

    @classmethod
    def of(cls, values: npt.NDArray[Any], observed: Bools) -> Scaling:
        """Return the scaling of a table (n, d) with gaps; a constant column has scale 1.

        Examples
        --------
        >>> table = np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [1e9, 5.0]])
        >>> Scaling.of(table, np.array([[True] * 2] * 3 + [[False, True]])).scale.round(2)
        array([0.82, 1.  ])
        """
        d = values.shape[1]
        center, scale = np.zeros(d), np.ones(d)
        for j in range(d):
            column = values[observed[:, j], j].astype(np.float64)
            if not len(column):
                continue
            low, high = np.quantile(column, [0.25, 0.75])
            if high > low:
                reach = _FAR * (high - low)
                column = column.clip(low - reach, high + reach)
            center[j], spread = column.mean(), column.std()
            scale[j] = spread if spread > 1e-12 * abs(center[j]) else 1.0
        return cls(center, scale)

    def standardised(self, values: npt.NDArray[Any], observed: Bools) -> Floats:
        """Return standardised values, 0 in gaps."""
        inside = (np.where(observed, values, self.center) - self.center) / self.scale
        return np.clip(inside, -_FARTHEST, _FARTHEST)

    def undone(self, inside: npt.NDArray[Any]) -> Floats:
        """Return values in the units of the table."""
        return np.asarray(inside * self.scale + self.center)


@dataclass(frozen=True, eq=False)
class TableCompletion:
    """A completed table.

    Attributes
    ----------
    X : ndarray (n, d)
        The table with its gaps filled; with ``method="air"`` the model's values everywhere.
    observed : bool ndarray (n, d)
    std : ndarray (n, d)
        Standard deviations of filled entries, 0 where observed.
    weights : dict of str to float
        The models in the blend.
    errors : dict of str to float
        Errors of all models on held-out entries, in standard deviations of columns.
    seed : int
    fit : FitResult or None
        The fit of the standardised table, with ``method="air"``.
    """

    X: npt.NDArray[Any]
    observed: Bools = field(repr=False)
    std: Floats = field(repr=False)
    weights: dict[str, float]
    errors: dict[str, float] = field(repr=False)
    seed: int
    fit: FitResult | None = field(repr=False, default=None)
    _values: npt.NDArray[Any] = field(repr=False, default_factory=lambda: np.empty(0))
    _model: TableModel | None = field(repr=False, default=None)

    @property
    def expected_error(self) -> float:
        """Root mean squared error to expect in gaps, in standard deviations of columns."""
        return self.errors.get("blend", float("nan"))

    def completed(self) -> npt.NDArray[Any]:
        """Return the table with its gaps filled and observed entries as they were."""
        return np.where(self.observed, self._values, self.X).astype(self.X.dtype)

    def interval(self, level: float = 0.9) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the ends of intervals that cover the missing entries with a probability, both (n, d).

        The errors on held-out entries calibrate their widths, column by column where enough were held out.
        Where an entry is observed, both ends are equal to it.
        """
        if not 0 < level < 1:
            raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
        assert self._model is not None
        reach = self._model.reach(level, self) * np.where(self.observed, 0, 1)
        middle = self.completed()
        return middle - reach, middle + reach


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted model of a table, which completes rows.

    Attributes
    ----------
    scaling : Scaling
    blend : Blend or None
    rows : RowModel or None
        Completes new rows if ``method="air"``.
    replicates : list of Blend
        The same models of resampled rows, which imputations are drawn from.
    """

    scaling: Scaling
    blend: Blend | None
    rows: RowModel | None
    replicates: list[Blend]
    threads: int

    def complete(self, values: npt.NDArray[Any], observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and standard deviations of filled entries, both (n, d)."""
        inside = self.scaling.standardised(values, observed)
        if self.blend is None:
            assert self.rows is not None
            filled = self.rows.complete(np.where(observed, inside, np.nan), observed)
            return np.where(observed, values, self.scaling.undone(filled)), np.full(values.shape, np.nan)
        with using(self.threads):
            filled, std = self.blend.complete(inside, observed)
        return np.where(observed, values, self.scaling.undone(filled)), std * self.scaling.scale

    def estimate(self, values: npt.NDArray[Any], observed: Bools) -> Floats:
        """Return rows in which observed entries are estimated, too.

        The blend predicts each of them from the other entries of its row; ``method="air"`` removes noise.
        """
        if self.blend is None:
            assert self.rows is not None
            inside = np.where(observed, self.scaling.standardised(values, observed), np.nan)
            return self.scaling.undone(self.rows.complete(inside, observed, keep_observed=False))
        estimated, _ = self.complete(values, observed)
        for j in range(values.shape[1]):
            hidden = observed.copy()
            hidden[:, j] = False
            estimated[:, j] = self.complete(values, hidden)[0][:, j]
        return estimated

    def draws(self, values: npt.NDArray[Any], observed: Bools, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield rows with their gaps drawn from what is known about them, once for each replicate."""
        inside = self.scaling.standardised(values, observed)
        for blend in self.replicates:
            with using(self.threads):
                drawn = blend.draw(inside, observed, rng)
            yield np.where(observed, values, self.scaling.undone(drawn))

    def reach(self, level: float, completion: TableCompletion) -> Floats:
        """Return half the widths of intervals for a completed table, (n, d) or (d,)."""
        if self.blend is None:
            assert completion.fit is not None
            lower, upper = completion.fit.interval(level)
            return np.asarray((upper - lower) / 2 * self.scaling.scale)
        return completion.std * self.blend.reach(level, len(self.scaling.scale))


def fit_table(
    values: npt.NDArray[Any],
    observed: Bools,
    *,
    method: str = "auto",
    seed: int = 0,
    replicates: int = 0,
    threads: int | None = None,
    **air: Any,
) -> tuple[TableModel, TableCompletion]:
    """Fit a model to a table and complete it.

    Parameters
    ----------
    values : float ndarray (n, d)
        What stands in gaps does not matter.
    observed : bool ndarray (n, d)
        Each column has an observed entry.
    method : {"auto", "em", "local", "air"}
        ``"auto"`` blends all models of :mod:`airnp.resemblance.rows`, ``"em"`` Gaussians over all rows with
        several ridges, ``"local"`` these and the nearest rows. ``"air"`` is :func:`airnp.fit`.
    seed : int
    replicates : int
        Models of resampled rows to fit, for multiple imputation. Not with ``"air"``.
    threads : int, optional
        Default: one for each processor.
    **air
        Arguments of :func:`airnp.fit` for ``method="air"``.

    Returns
    -------
    TableModel
    TableCompletion
    """
    checked_choice("method", method, METHODS)
    scaling = Scaling.of(values, observed)
    inside = scaling.standardised(values, observed)
    number = checked_threads(threads)
    if method == "air":
        result = fit(inside.astype(values.dtype), observed, seed=seed, engine=Auto(threads), **air)
        model = TableModel(scaling, None, RowModel.from_result(result), [], number)
        X = scaling.undone(np.asarray(result.X)).astype(values.dtype)
        std = np.full(values.shape, np.nan)
        return model, TableCompletion(X, observed, std, {"air": 1.0}, {}, seed, result, values, model)
    rng = np.random.default_rng([seed, 16])
    with using(number):
        blend = fit_rows(inside, observed, rng=rng, families=_FAMILIES[method])
        copies = [blend.resampled(inside, observed, rng) for _ in range(replicates)]
    model = TableModel(scaling, blend, None, copies, number)
    filled, std = model.complete(values, observed)
    X = filled.astype(values.dtype)
    return model, TableCompletion(X, observed, std, blend.weights, blend.errors, seed, None, values, model)
