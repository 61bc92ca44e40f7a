"""Fit models to a table whose columns have units, complete its rows and new ones, and say how sure that is.

Columns are standardised first: a column less its center over its scale, both without the influence of
outliers. :func:`airnp.resemblance.rows.fit_rows` models standardised rows; ``method="air"`` is the factor
model of :func:`airnp.fit` on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_choice
from airnp.data.bounds import Bounds
from airnp.data.normalization import ColumnScaling
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

_FARTHEST = 30.0
"""Standardised entries are clipped to this before they reach a model."""


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
    _bounds: Bounds | None = field(repr=False, default=None)

    def within(self, bounds: Bounds) -> TableCompletion:
        """Return the completed table clipped and rounded to bounds, intervals included."""
        return replace(self, X=np.asarray(bounds.put_on(self.X)), _bounds=bounds)

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
        lower, upper = middle - reach, middle + reach
        if self._bounds is None:
            return lower, upper
        low, high = self._bounds.low, self._bounds.high
        return np.clip(lower, low, high), np.clip(upper, low, high)


@dataclass(frozen=True, eq=False)
class TableModel:
    """A fitted model of a table, which completes rows.

    Attributes
    ----------
    scaling : ColumnScaling
    blend : Blend or None
    rows : RowModel or None
        Completes new rows if ``method="air"``.
    replicates : list of Blend
        The same models of resampled rows, which imputations are drawn from.
    """

    scaling: ColumnScaling
    blend: Blend | None
    rows: RowModel | None
    replicates: list[Blend]
    threads: int

    def complete(self, values: npt.NDArray[Any], observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and standard deviations of filled entries, both (n, d)."""
        inside = _inputs(self.scaling, values, observed)
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
            inside = np.where(observed, _inputs(self.scaling, values, observed), np.nan)
            return self.scaling.undone(self.rows.complete(inside, observed, keep_observed=False))
        estimated, _ = self.complete(values, observed)
        for j in range(values.shape[1]):
            hidden = observed.copy()
            hidden[:, j] = False
            estimated[:, j] = self.complete(values, hidden)[0][:, j]
        return estimated

    def draws(self, values: npt.NDArray[Any], observed: Bools, rng: np.random.Generator) -> Iterator[Floats]:
        """Yield rows with their gaps drawn from what is known about them, once for each replicate."""
        inside = _inputs(self.scaling, values, observed)
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


def _inputs(scaling: ColumnScaling, values: npt.NDArray[Any], observed: Bools) -> Floats:
    """Return what a model sees: standardised values without extremes, 0 in gaps."""
    return np.clip(scaling.standardised(values, observed), -_FARTHEST, _FARTHEST)


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
        ``"auto"`` blends all models of ``airnp.resemblance.rows``, ``"em"`` Gaussians over all rows with
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
    scaling = ColumnScaling.of(values, observed)
    inside = _inputs(scaling, values, observed)
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
