"""A scikit-learn imputer for tables whose columns have units: numbers, categories, dates."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_choice, checked_whole
from airnp.data.bounds import Bounds
from airnp.data.inputs import EmptyLineWarning
from airnp.regularizers import Regularizer
from airnp.tables.imputation import METHODS, fit_table
from airnp.tables.kinds import ColumnKind, FrameCode, is_identifier, kinds_of

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

_OF_THE_FIT = {
    "regularizers": None,
    "depth": 3,
    "rank": None,
    "max_iter": 40_000,
    "stop": "auto",
    "learning_rate": 1e-3,
    "progress": False,
}
"""Options of :func:`airnp.fit` and their defaults; other methods refuse other values."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows as numbers.

    Attributes
    ----------
    values : ndarray (n, D)
    observed : bool ndarray (n, D)
    frame : DataFrame or None
        The rows as they came, if their columns are not all floats.
    """

    values: Table
    observed: Bools
    frame: Any = None


class AIRImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Fill the gaps of a table, and those of new rows from the fitted model.

    Columns are standardised. Then several models of rows are fitted and blended by their errors on held-out
    entries, which have the shape of the gaps: Gaussians (EM), mixtures of Gaussians, both also over normal
    scores of skewed columns, nearest rows, trees, and a Gaussian of low rank. ``airnp.resemblance`` derives
    them.
    ``transform`` completes any rows, each by itself and in closed form.

    Parameters
    ----------
    method : {"auto", "em", "local", "air"}, default="auto"
        ``"auto"`` is the blend of all models, ``"em"`` of Gaussians over all rows only, ``"local"`` of these
        and the nearest rows. ``"air"`` is :func:`airnp.fit` on standardised columns.
    missing_values : float, default=nan
        The value that marks a missing entry. If it is a number, NaN is an error.
    sample_posterior : bool, default=False
        Draw what is filled in from its distribution, for multiple imputation; see :meth:`imputations`. Not
        with ``"air"``.
    n_imputations : int, default=5
        Imputations that :meth:`imputations` gives.
    identifiers : "auto" or list of columns, default="auto"
        Columns that only tell rows apart. They are passed through, with their gaps. ``"auto"``: columns of
        whole numbers, all different and next to each other, and columns of more than 50 or only different
        strings. A warning names them.
    regularizers, depth, rank, max_iter, stop, learning_rate, progress
        See :func:`airnp.fit`; only for ``method="air"``.
    bounds : (low, high), mapping of column name to (low, high), or "data", optional
        Limits of completed entries; each side a number, None, or one number for each column. Observed entries
        must keep them, in new rows too. ``"data"``: the least and the largest observed number of each column
        in ``fit``; observed entries of new rows may be outside.
    integers : bool, booleans (n_features,), or list of columns, optional
        Which columns are rounded to whole numbers: positions, or names if X is a DataFrame.
    random_state : int, RandomState instance or None, default=None
        Seed of what is held out and drawn, or of the fit.
    keep_observed : bool, default=True
        Whether observed entries stay as they are. Otherwise they are estimated: from the other entries of
        their rows, or by ``"air"`` without noise. Only for tables of floats.
    keep_empty_features : bool, default=False
        Whether to keep columns that have no observed entry in ``fit``, with 0 in their gaps. Otherwise the
        output leaves them out, as :class:`sklearn.impute.SimpleImputer` does. The fit does not see them.
    add_indicator : bool, default=False
        Append the columns of a :class:`sklearn.impute.MissingIndicator`: 1 where an entry was missing, for
        each column that had gaps in ``fit``.
    threads : int, optional
        Threads of the fit. Default: one for each processor.

    Attributes
    ----------
    result_ : TableCompletion
        The completed training table as numbers: ``X``, ``std``, ``interval(level)``, the ``weights`` of the
        models and their ``errors`` on held-out entries.
    model_ : TableModel
        The model that completes rows.
    n_iter_ : int
        Iterations that were run, with ``"air"``; else 1.
    kinds_ : list of str
        Kind of each column, see :mod:`airnp.tables.kinds`.
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
    UserWarning
        In ``fit``, if columns look like identifiers.

    Notes
    -----
    An array, or a DataFrame of floats, becomes an array of the same dtype. A DataFrame with other columns
    (integers, booleans, categoricals, strings, dates) becomes a DataFrame: same index, columns and dtypes.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> right = rng.random((2, 10))
    >>> table = rng.random((100, 2)) @ right
    >>> gaps = rng.random(table.shape) < 0.2
    >>> imputer = AIRImputer(random_state=0).fit(np.where(gaps, np.nan, table))
    >>> new = np.array([[0.3, 0.8]]) @ right
    >>> completed = imputer.transform(np.where(np.arange(10) < 5, new, np.nan))
    >>> bool(np.abs(completed - new).max() < 0.05)
    True
    """

    def __init__(
        self,
        *,
        method: str = "auto",
        missing_values: float = np.nan,
        sample_posterior: bool = False,
        n_imputations: int = 5,
        identifiers: Any = "auto",
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
        self.method = method
        self.missing_values = missing_values
        self.sample_posterior = sample_posterior
        self.n_imputations = n_imputations
        self.identifiers = identifiers
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
        X : array-like or DataFrame (n_samples, n_features)
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
        X : array-like or DataFrame (n_samples, n_features)
        y : ignored

        Returns
        -------
        ndarray or DataFrame (n_samples, n_features_out), or what ``set_output`` asks for
        """
        rows = self._learn(X)
        if self.sample_posterior or (self.method != "air" and not self.keep_observed):
            return self._assemble(rows, self._complete(rows))
        completed = self.result_.completed() if self.keep_observed else self.result_.X
        return self._assemble(rows, completed)

    def transform(self, X: Any) -> Any:
        """Return rows with their gaps filled, each by itself and without another fit.

        Parameters
        ----------
        X : array-like or DataFrame (n_samples, n_features)
            New rows, or those of the training table.

        Returns
        -------
        ndarray or DataFrame (n_samples, n_features_out), or what ``set_output`` asks for
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
        self._check_limits(rows)
        return self._assemble(rows, self._complete(rows))

    def imputations(self, X: Any) -> list[Any]:
        """Return several completed tables, whose gaps are drawn from what is known about them.

        Each one is drawn from models of resampled rows, so that their differences also show what is not
        known about the models. Analyse each table and pool the answers by Rubin's rules.

        Parameters
        ----------
        X : array-like or DataFrame (n_samples, n_features)
            Rows of the training table, or new ones.

        Returns
        -------
        list of ndarray or DataFrame
            ``n_imputations`` of them.
        """
        check_is_fitted(self)
        if not self.sample_posterior:
            raise ValueError("sample_posterior: expected True to draw imputations, got False")
        rows = self._read(X, reset=False)
        self._check_limits(rows)
        used = self._used
        rng = np.random.default_rng([self._seed, 5])
        draws = self.model_.draws(rows.values[:, used], rows.observed[:, used], rng)
        return [self._assemble(rows, drawn) for drawn in draws]

    def interval(self, X: Any, level: float = 0.9) -> tuple[Any, Any]:
        """Return the ends of intervals that cover missing numbers with a probability.

        Parameters
        ----------
        X : array-like or DataFrame (n_samples, n_features)
        level : float, default=0.9

        Returns
        -------
        lower, upper : ndarray (n_samples, n_features), or DataFrame
            Equal to X where it is observed. Columns that the model does not see have NaN in gaps. Those of a
            DataFrame with columns that are not floats have its numbers, as floats, and its dates.
        """
        check_is_fitted(self)
        if not 0 < level < 1:
            raise ValueError(f"level: expected a number between 0 and 1, got {level!r}")
        if self.model_.blend is None:
            raise ValueError("method: 'air' has intervals for its training table only: result_.interval")
        rows = self._read(X, reset=False)
        used, limits = self._used, self._inner_limits(rows)
        filled, std = self.model_.complete(rows.values[:, used], rows.observed[:, used])
        half = std * self.model_.blend.reach(level, int(used.sum()))
        ends = []
        for side in (filled - half, filled + half):
            end = np.full(rows.values.shape, np.nan)
            end[:, used] = side
            if limits is not None:
                end = np.clip(end, limits.low, limits.high)
            ends.append(np.where(rows.observed, rows.values, end))
        if rows.frame is not None:
            assert self._code is not None
            return self._code.numbers(rows.frame, ends[0]), self._code.numbers(rows.frame, ends[1])
        return ends[0], ends[1]

    def probabilities(self, X: Any) -> dict[Any, Any]:
        """Return the probabilities of categories.

        Parameters
        ----------
        X : DataFrame (n_samples, n_features)

        Returns
        -------
        dict of column name to DataFrame (n_samples, categories)
            For each column of categories or booleans; 0 and 1 where observed.
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
        if rows.frame is None or self._code is None:
            raise TypeError("X: expected a DataFrame with categories")
        filled = self._whole(rows, self._complete(rows)).astype(np.float64)
        return self._code.probabilities(rows.frame, filled)

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
        kept = names if self.keep_empty_features else names[~self._empty]
        if self.indicator_ is None:
            return kept
        return np.concatenate([kept, self.indicator_.get_feature_names_out(names)])

    # --- learning ---

    def _learn(self, X: Any) -> _Rows:
        """Fit; return the training table."""
        self._check_options()
        rows = self._read(X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        self._check_identifiers()
        owners = self._owners(rows)
        if isinstance(self.bounds, str) and self.bounds == "data":
            self._limits: Bounds | None = self._limits_of_data(rows)
        else:
            self._limits = Bounds.of(self.bounds, self.integers, self.n_features_in_, names)
        self._check_limits(rows)
        seen = np.asarray(rows.observed.any(axis=0))
        self._empty = np.array([not seen[owners == j].any() for j in range(self.n_features_in_)])
        self._empty &= np.array([kind.kind != "identifier" for kind in self._kinds])
        apart = np.array([kind.kind == "identifier" for kind in self._kinds])
        if not seen.any():
            raise ValueError("X: no entry is observed")
        if self._empty.any() and not self.keep_empty_features:
            empty = np.flatnonzero(self._empty) if names is None else names[self._empty]
            warnings.warn(
                f"columns {', '.join(map(str, empty))} have no observed entry and are left out; with "
                "keep_empty_features=True they are filled with 0",
                EmptyLineWarning,
                stacklevel=3,
            )
        if apart.any() and isinstance(self.identifiers, str):
            shown = np.flatnonzero(apart) if names is None else names[apart]
            warnings.warn(
                f"columns {', '.join(map(str, shown))} look like identifiers and are passed through, with "
                "their gaps; identifiers=[] lets the model see them",
                UserWarning,
                stacklevel=3,
            )
        used = seen & ~apart[owners]
        if not used.any():
            raise ValueError("X: no column is left for the model; identifiers=[] lets it see all")
        self._used, self._seed = used, _seed(self.random_state)
        known = rows.observed[:, used]
        if self.method != "air" and not known.any(axis=1).all():
            warnings.warn(
                f"{int((~known.any(axis=1)).sum())} rows have no observed entry; they are filled with means",
                EmptyLineWarning,
                stacklevel=3,
            )
        self.model_, self.result_ = fit_table(
            rows.values[:, used],
            known,
            method=self.method,
            seed=self._seed,
            replicates=self.n_imputations if self.sample_posterior else 0,
            threads=self.threads,
            **({name: getattr(self, name) for name in _OF_THE_FIT} if self.method == "air" else {}),
        )
        limits = self._inner_limits(rows)
        if limits is not None:
            low, high, whole = (
                np.broadcast_to(side, used.shape)[used] for side in (limits.low, limits.high, limits.whole)
            )
            self.result_ = self.result_.within(Bounds(low, high, whole))
        self.n_iter_ = 1 if self.result_.fit is None else self.result_.fit.n_iter
        self.kinds_ = [kind.kind for kind in self._kinds]
        self.indicator_ = None
        if self.add_indicator:
            self.indicator_ = MissingIndicator(missing_values=self.missing_values, error_on_new=False)
            self.indicator_.fit(self._marked(rows))
        return rows

    def _check_options(self) -> None:
        for name in ("sample_posterior", "keep_observed", "keep_empty_features", "add_indicator"):
            _check_flag(name, getattr(self, name))
        checked_choice("method", self.method, METHODS)
        checked_whole("n_imputations", self.n_imputations)
        if self.threads is not None:
            checked_whole("threads", self.threads)
        if not (isinstance(self.identifiers, str) and self.identifiers == "auto") and (
            isinstance(self.identifiers, str) or not isinstance(self.identifiers, Sequence)
        ):
            raise TypeError(f"identifiers: expected 'auto' or a list of columns, got {self.identifiers!r}")
        if self.method == "air":
            if self.sample_posterior:
                raise ValueError("sample_posterior: expected False with method='air', got True")
            return
        for name, usual in _OF_THE_FIT.items():
            value = getattr(self, name)
            if value is not usual and (type(value) is not type(usual) or value != usual):
                raise ValueError(f"{name}: only for method='air', got {value!r} with {self.method!r}")

    def _check_identifiers(self) -> None:
        columns = [kind.name for kind in self._kinds]
        unknown = (
            [] if isinstance(self.identifiers, str) else [c for c in self.identifiers if c not in columns]
        )
        if unknown:
            raise ValueError(f"identifiers: expected columns of X, got {unknown[0]!r}")

    def _limits_of_data(self, rows: _Rows) -> Bounds:
        values = np.where(rows.observed, rows.values, np.nan).astype(np.float64)
        owners, d = self._owners(rows), self.n_features_in_
        low, high = np.full(d, -np.inf), np.full(d, np.inf)
        for column in np.flatnonzero(rows.observed.any(axis=0)):
            low[owners[column]], high[owners[column]] = (
                np.nanmin(values[:, column]),
                np.nanmax(values[:, column]),
            )
        names = getattr(self, "feature_names_in_", None)
        limits = Bounds.of((list(low), list(high)), self.integers, d, names)
        assert limits is not None
        return limits

    def _check_limits(self, rows: _Rows) -> None:
        """Raise ValueError if observed entries are outside of limits that were asked for, or not whole."""
        limits = self._inner_limits(rows)
        if limits is None:
            return
        seen = rows.observed
        if isinstance(self.bounds, str):  # new rows may go beyond the data of the fit
            seen = seen & ~limits.outside(rows.values)
        limits.check(rows.values, seen)

    def _inner_limits(self, rows: _Rows) -> Bounds | None:
        """Return the limits of the columns inside; those of categories and dates have none."""
        if self._limits is None or rows.frame is None:
            return self._limits
        owners = self._owners(rows)
        number = np.array([kind.kind == "number" for kind in self._kinds])[owners]
        low, high, whole = (
            np.broadcast_to(side, self.n_features_in_)[owners]
            for side in (self._limits.low, self._limits.high, self._limits.whole)
        )
        return Bounds(np.where(number, low, -np.inf), np.where(number, high, np.inf), whole & number)

    # --- rows in, rows out ---

    def _owners(self, rows: _Rows) -> npt.NDArray[np.intp]:
        """Return the column of X that each column inside belongs to."""
        if rows.frame is None or self._code is None:
            return np.arange(rows.values.shape[1])
        return self._code.owners

    def _read(self, X: Any, *, reset: bool) -> _Rows:
        """Return checked rows as numbers, and where they are observed."""
        missing = _checked_missing(self.missing_values)
        by_nan = bool(np.isnan(missing))
        if reset:
            self._code: FrameCode | None = None
            self._kinds: list[ColumnKind] = []
        if _has_kinds(X) if reset else self._code is not None:
            return self._read_frame(X, by_nan, reset)
        if isinstance(X, np.ndarray) and X.dtype.kind in "mM":
            raise TypeError(f"X: expected numbers, got dtype {X.dtype}; put dates into a data frame")
        if isinstance(X, np.ma.MaskedArray):  # scikit-learn would take what is masked as observed
            X = np.ma.filled(X if X.dtype.kind == "f" else X.astype(np.float64), missing)
        table: Table = validate_data(
            self,
            X,
            reset=reset,
            dtype=(np.float64, np.float32),
            ensure_all_finite="allow-nan" if by_nan else True,
        )
        observed = ~np.isnan(table) if by_nan else table != missing
        if reset:
            names = getattr(self, "feature_names_in_", range(table.shape[1]))
            self._kinds = [
                ColumnKind(name, self._kind_of_numbers(name, table[observed[:, j], j]), table.dtype)
                for j, name in enumerate(names)
            ]
        return _Rows(table, observed)

    def _kind_of_numbers(self, name: Any, values: Table) -> str:
        if isinstance(self.identifiers, str):
            return "identifier" if is_identifier(values.astype(np.float64)) else "number"
        return "identifier" if name in self.identifiers else "number"

    def _read_frame(self, X: Any, by_nan: bool, reset: bool) -> _Rows:
        if not hasattr(X, "iloc"):
            raise TypeError(f"X: expected a DataFrame as in fit, got {type(X).__name__}")
        if not by_nan:
            raise ValueError("missing_values: expected nan for a table whose columns are not all floats")
        validate_data(self, X, reset=reset, skip_check_array=True)
        if reset:
            if len(X) < 1:
                raise ValueError("X: expected at least one row, found 0 sample(s)")
            if not self.keep_observed:
                raise ValueError("keep_observed: expected True for a table whose columns are not all floats")
            self._code = FrameCode(kinds_of(X, self.identifiers))
            self._kinds = self._code.columns
        assert self._code is not None
        values = self._code.encode(X)
        if np.isinf(values).any():
            raise ValueError("X: contains infinity")
        return _Rows(values, ~np.isnan(values), X)

    def _complete(self, rows: _Rows) -> Table:
        """Return the columns that the model sees, with their gaps filled, or drawn."""
        values, observed = rows.values[:, self._used], rows.observed[:, self._used]
        if self.sample_posterior:
            rng = np.random.default_rng([self._seed, 4])
            return next(iter(self.model_.draws(values, observed, rng)))
        if not self.keep_observed:
            return self.model_.estimate(values, observed)
        return self.model_.complete(values, observed)[0]

    def _whole(self, rows: _Rows, completed: npt.NDArray[Any]) -> Table:
        """Return all columns inside: completed ones, empty ones with 0, identifiers with their gaps."""
        apart = np.array([kind.kind == "identifier" for kind in self._kinds])[self._owners(rows)]
        output = np.where(rows.observed, rows.values, np.where(apart, self.missing_values, 0))
        output = output.astype(rows.values.dtype)
        output[:, self._used] = completed
        limits = self._inner_limits(rows)
        if limits is not None:
            output = np.where(rows.observed & self.keep_observed, rows.values, limits.put_on(output))
        return output

    def _marked(self, rows: _Rows) -> Any:
        """Return a table of the input's columns with gaps where they were, for the indicator."""
        if rows.frame is None:
            return rows.values
        import pandas

        marks = np.where(rows.frame.isna().to_numpy(), np.nan, 0.0)
        return pandas.DataFrame(marks, columns=rows.frame.columns, index=rows.frame.index)

    def _assemble(self, rows: _Rows, completed: npt.NDArray[Any]) -> Any:
        """Return the completed columns, the empty ones if they are kept, and those of the indicator."""
        output: Any = self._whole(rows, completed)
        if rows.frame is not None:
            assert self._code is not None
            output = self._code.decode(rows.frame, output)
            if not self.keep_empty_features:
                output = output.loc[:, ~self._empty]
            if self.indicator_ is None:
                return output
            import pandas

            marks = np.asarray(self.indicator_.transform(self._marked(rows)))
            names = self.get_feature_names_out()[output.shape[1] :]
            return pandas.concat([output, pandas.DataFrame(marks, index=output.index, columns=names)], axis=1)
        if not self.keep_empty_features:
            output = output[:, ~self._empty]
        if self.indicator_ is None:
            return output
        # hstack gives the indicator the dtype of the output, whatever container scikit-learn returns.
        return np.hstack([output, self.indicator_.transform(self._marked(rows))])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        missing = self.missing_values
        tags.input_tags.allow_nan = isinstance(missing, float | np.floating) and bool(np.isnan(missing))
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _has_kinds(X: Any) -> bool:
    """Return whether X is a DataFrame with columns that are not of NumPy's floats."""
    if not (hasattr(X, "iloc") and hasattr(X, "columns")):
        return False
    return any(
        getattr(dtype, "kind", "O") not in "fc" or not isinstance(dtype, np.dtype) for dtype in X.dtypes
    )


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
        if random_state < 0:
            raise ValueError(f"random_state: expected at least 0, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31))
