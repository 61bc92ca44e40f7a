"""A scikit-learn imputer that fits the training table and completes new rows from the fit."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.data.bounds import Bounds
from airnp.data.inputs import EmptyLineWarning
from airnp.engines import Auto
from airnp.fitting import fit
from airnp.regularizers import Regularizer
from airnp.results.newrows import RowModel

try:
    from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
    from sklearn.impute import MissingIndicator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError('airnp.sklearn needs scikit-learn: pip install "airnp[sklearn]"') from error

__all__ = ["AIRImputer"]

Table = npt.NDArray[np.floating]
Bools = npt.NDArray[np.bool_]


class AIRImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Fill the gaps of a table with :func:`airnp.fit`, and those of new rows from the fitted model.

    ``fit`` and ``fit_transform`` complete the training table. ``transform`` completes any rows, each by
    itself and without another fit: a row is the mean of the completed training rows, plus a part in their
    row space, plus a remainder that is alike on columns which the learned column graph connects. With μ the
    mean and K the covariance of such rows, and σ² the variance of the noise, the estimate given the observed
    entries o is

    .. math:: \hat x = μ + K_{\cdot o} (K_{oo} + σ^2 I)^{-1} (y_o - μ_o)

    :mod:`airnp.results.newrows` derives this and explains how hidden entries of training rows determine σ².

    Parameters
    ----------
    missing_values : float, default=nan
        The value that marks a missing entry. If it is a number, NaN is an error.
    regularizers : list of Regularizer, optional
        The model; see :func:`airnp.fit`. ``None`` is AIR, ``[]`` plain deep matrix factorisation.
    depth : int, default=3
        Number of factors.
    rank : int, optional
        Inner dimension of the factors. Default: the smaller side of the table.
    max_iter : int, default=40_000
        Iterations at most.
    stop : "auto", None, or StopRule, default="auto"
        When to end; ``"auto"`` holds out some observed entries and keeps the iterate that predicts them best.
    learning_rate : float, default=1e-3
        Of Adam.
    bounds : (low, high), or mapping of column name to (low, high), optional
        Limits of completed entries; each side a number, None, or one number for each column. Observed entries
        must keep them, in new rows too. See :func:`airnp.fit`.
    integers : bool, booleans (n_features,), or list of columns, optional
        Which columns are rounded to whole numbers: positions, or names if X is a DataFrame.
    random_state : int, RandomState instance or None, default=None
        Seed of the fit; an int is the ``seed`` of :func:`airnp.fit`.
    keep_observed : bool, default=True
        Whether observed entries stay as they are. Otherwise they become the model's estimates without noise.
    keep_empty_features : bool, default=False
        Whether to keep columns that have no observed entry in ``fit``, with 0 in their gaps. Otherwise the
        output leaves them out, as :class:`sklearn.impute.SimpleImputer` does. The fit does not see them.
    add_indicator : bool, default=False
        Append the columns of a :class:`sklearn.impute.MissingIndicator`: 1 where an entry was missing, for
        each column that had gaps in ``fit``.
    threads : int, optional
        Threads of the fit. Default: one for each processor.
    progress : bool, default=False
        Show a progress bar.

    Attributes
    ----------
    result_ : FitResult
        The completed training table, the factors, the graphs and the history.
    row_model_ : RowModel
        The model that completes new rows.
    n_iter_ : int
        Iterations that were run.
    indicator_ : MissingIndicator or None
        None without ``add_indicator``.
    n_features_in_ : int
        Columns seen in ``fit``.
    feature_names_in_ : ndarray of str
        Their names, if all are strings.

    Warns
    -----
    EmptyLineWarning
        In ``fit``, if columns are left out or rows have no observed entry.

    Notes
    -----
    Completed rows have the dtype of the given rows, float32 or float64; integers become float64. A row
    without gaps stays unchanged; one without any observed entry becomes the mean. ``transform`` completes
    training rows nearly as ``fit_transform`` does, but not equally: the fit knows which rows resemble each
    other, ``transform`` sees one row at a time. The model holds a matrix of n×n for n columns.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((2, 10))
    >>> table = rng.random((50, 2)) @ right
    >>> gaps = rng.random(table.shape) < 0.2
    >>> imputer = AIRImputer(regularizers=[], max_iter=5000, random_state=0)
    >>> imputer = imputer.fit(np.where(gaps, np.nan, table))
    >>> new = np.array([[0.3, 0.8]]) @ right
    >>> completed = imputer.transform(np.where(np.arange(10) < 5, new, np.nan))
    >>> bool(np.abs(completed - new).max() < 0.01)
    True
    """

    def __init__(
        self,
        *,
        missing_values: float = np.nan,
        regularizers: Sequence[Regularizer] | None = None,
        depth: int = 3,
        rank: int | None = None,
        max_iter: int = 40_000,
        stop: Any = "auto",
        learning_rate: float = 1e-3,
        bounds: Any = None,
        integers: Any = None,
        random_state: Any = None,
        keep_observed: bool = True,
        keep_empty_features: bool = False,
        add_indicator: bool = False,
        threads: int | None = None,
        progress: bool = False,
    ) -> None:
        self.missing_values = missing_values
        self.regularizers = regularizers
        self.depth = depth
        self.rank = rank
        self.max_iter = max_iter
        self.stop = stop
        self.learning_rate = learning_rate
        self.bounds = bounds
        self.integers = integers
        self.random_state = random_state
        self.keep_observed = keep_observed
        self.keep_empty_features = keep_empty_features
        self.add_indicator = add_indicator
        self.threads = threads
        self.progress = progress

    def fit(self, X: Any, y: Any = None) -> AIRImputer:
        """Complete the training table and learn the distribution of its rows.

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        y : ignored

        Returns
        -------
        AIRImputer
            Itself.
        """
        self._learn(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Return the training table as the fit completes it.

        Parameters
        ----------
        X : array-like (n_samples, n_features)
        y : ignored

        Returns
        -------
        ndarray (n_samples, n_features_out), or what ``set_output`` asks for
        """
        table, observed = self._learn(X)
        completed = self.result_.completed() if self.keep_observed else self.result_.X
        return self._assemble(table, observed, completed)

    def transform(self, X: Any) -> Any:
        """Return rows with their gaps filled, each by itself and without another fit.

        Parameters
        ----------
        X : array-like (n_samples, n_features)
            New rows, or those of the training table.

        Returns
        -------
        ndarray (n_samples, n_features_out), or what ``set_output`` asks for
        """
        check_is_fitted(self)
        table, observed = self._read(X, reset=False)
        self._check_limits(table, observed)
        used = self._used
        completed = self.row_model_.complete(table[:, used], observed[:, used], self.keep_observed)
        return self._assemble(table, observed, completed)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """Return the names of the output's columns.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the input's columns. Default: ``feature_names_in_``, or x0, x1, …

        Returns
        -------
        ndarray of str
            Without the columns that are left out, and with those of the indicator.
        """
        check_is_fitted(self)
        names: npt.NDArray[np.object_] = super().get_feature_names_out(input_features)
        kept = names if self.keep_empty_features else names[self._used]
        if self.indicator_ is None:
            return kept
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    def _learn(self, X: Any) -> tuple[Table, Bools]:
        """Fit; return the training table and where it is observed."""
        for name in ("keep_observed", "keep_empty_features", "add_indicator"):
            _check_flag(name, getattr(self, name))
        table, observed = self._read(X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        self._limits = Bounds.of(self.bounds, self.integers, self.n_features_in_, names)
        self._check_limits(table, observed)
        used: Bools = np.asarray(observed.any(axis=0))
        if not used.any():
            raise ValueError("X: no entry is observed")
        if not used.all() and not self.keep_empty_features:
            empty = np.flatnonzero(~used) if names is None else names[~used]
            warnings.warn(
                f"columns {', '.join(map(str, empty))} have no observed entry and are left out; with "
                "keep_empty_features=True they are filled with 0",
                EmptyLineWarning,
                stacklevel=3,
            )
        self.result_ = fit(
            table[:, used],
            observed[:, used],
            regularizers=self.regularizers,
            depth=self.depth,
            rank=self.rank,
            max_iter=self.max_iter,
            stop=self.stop,
            learning_rate=self.learning_rate,
            **({} if self._limits is None else self._limits.options(used)),
            seed=_seed(self.random_state),
            engine=Auto(self.threads),
            progress=self.progress,
        )
        self.row_model_ = RowModel.from_result(self.result_)
        self.n_iter_ = self.result_.n_iter
        self._used = used
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(missing_values=self.missing_values, error_on_new=False)
            self.indicator_.fit(table)
        return table, observed

    def _check_limits(self, table: Table, observed: Bools) -> None:
        if self._limits is not None:
            self._limits.check(table, observed)

    def _read(self, X: Any, *, reset: bool) -> tuple[Table, Bools]:
        """Return the checked table, and True where it is observed."""
        missing = _checked_missing(self.missing_values)
        by_nan = bool(np.isnan(missing))
        table: Table = validate_data(
            self,
            X,
            reset=reset,
            dtype=(np.float64, np.float32),
            ensure_all_finite="allow-nan" if by_nan else True,
        )
        return table, ~np.isnan(table) if by_nan else table != missing

    def _assemble(self, table: Table, observed: Bools, completed: npt.NDArray[Any]) -> Table:
        """Return the completed columns, the empty ones if they are kept, and those of the indicator."""
        output = np.where(observed, table, 0)
        output[:, self._used] = completed
        if self._limits is not None:
            output = np.where(observed & self.keep_observed, table, self._limits.put_on(output))
        if not self.keep_empty_features:
            output = output[:, self._used]
        if self.indicator_ is None:
            return output
        # hstack gives the indicator the dtype of the output, whatever container scikit-learn returns.
        return np.hstack([output, self.indicator_.transform(table)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        missing = self.missing_values
        tags.input_tags.allow_nan = isinstance(missing, float | np.floating) and bool(np.isnan(missing))
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _checked_missing(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(f"missing_values: expected a number or nan, got {value!r}")
    return float(value)


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"{name}: expected True or False, got {value!r}")


def _seed(random_state: Any) -> int:
    """Return an int as it is, so that it equals the seed of :func:`airnp.fit`; else draw a number."""
    if isinstance(random_state, int | np.integer) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
