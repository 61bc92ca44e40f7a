"""Baselines without a model: means, nearest neighbours, linear interpolation, biharmonic inpainting."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._checks import checked_choice, checked_whole
from airnp.baselines.common import Bools, Values, complete_each, line_means
from airnp.images.surfaces import linear_surface


def mean(Y: Any, mask: Any = None, *, by: str = "all") -> Any:
    """Fill every gap with a mean of observed entries. Observed entries are kept.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    by : {"all", "rows", "columns", "both"}
        Mean of all observed entries, of those of the gap's row, of its column, or the average of the last
        two. Where such a line is empty, ``"both"`` uses the other one, the rest the mean of all.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Examples
    --------
    >>> from numpy import nan
    >>> mean([[1.0, 2.0], [6.0, nan]])
    array([[1., 2.],
           [6., 3.]])
    """
    checked_choice("by", by, ("all", "rows", "columns", "both"))

    def complete(values: Values, mask: Bools) -> Values:
        if by == "both":
            return np.where(mask, values, line_means(values, mask))
        axis = {"all": None, "rows": 1, "columns": 0}[by]
        count = mask.sum(axis=axis, keepdims=True)
        means = values.sum(axis=axis, keepdims=True) / np.maximum(count, 1)
        return np.where(mask, values, np.where(count > 0, means, values[mask].mean()))

    return complete_each(Y, mask, complete, "they are filled with means of other entries")


def knn(Y: Any, mask: Any = None, *, k: int = 5, by: str = "rows", weights: str = "distance") -> Any:
    """Fill a gap from the k nearest rows, columns, or both. Observed entries are kept.

    Lines are compared on the entries that both have; the neighbours of a gap are the nearest lines that have
    it. Uses :class:`sklearn.impute.KNNImputer`.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    k : int
        Neighbours of a gap; fewer where there are fewer.
    by : {"rows", "columns", "both"}
        Whether neighbours are rows, columns, or the average of the two answers is taken.
    weights : {"distance", "uniform"}
        Whether near neighbours count more, by the inverse of their distance, or all the same.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    A row without any observed entry has no neighbours and becomes the mean of the columns (of the observed
    entries of each), a column likewise the mean of the rows; where both are empty the mean of all.

    Examples
    --------
    >>> from numpy import nan
    >>> knn([[1.0, 2.0, 3.0], [1.0, 2.0, nan], [9.0, 8.0, 7.0]], k=1)
    array([[1., 2., 3.],
           [1., 2., 3.],
           [9., 8., 7.]])
    """
    k = checked_whole("k", k)
    checked_choice("by", by, ("rows", "columns", "both"))
    checked_choice("weights", weights, ("distance", "uniform"))
    try:
        from sklearn.impute import KNNImputer
    except ImportError as error:
        raise ImportError('knn needs scikit-learn: pip install "airnp[baselines]"') from error

    def by_rows(values: Values, mask: Bools) -> Values:
        X = np.where(mask, values, line_means(values, mask))
        # A column without entries has no neighbour to ask, and the imputer would make it zero.
        some = mask.any(axis=0)
        gaps = np.where(mask, values, np.nan)[:, some]
        X[:, some] = KNNImputer(n_neighbors=k, weights=weights).fit_transform(gaps)
        return X

    def complete(values: Values, mask: Bools) -> Values:
        answers = [by_rows(values, mask)] if by != "columns" else []
        if by != "rows":
            answers.append(by_rows(values.T, mask.T).T)
        average: Values = np.mean(answers, axis=0)
        return average

    return complete_each(Y, mask, complete, "they are filled with means of other entries")


def linear(Y: Any, mask: Any = None) -> Any:
    """Interpolate linearly over triangles of observed pixels of an image. Observed entries are kept.

    The order of rows and columns must mean something, as in an image. Gaps outside all triangles, at the
    margin, become their nearest observed entry. Uses :class:`scipy.interpolate.LinearNDInterpolator`.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged as any other gap.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(6.0), np.arange(7.0))
    >>> mask = np.ones(ramp.shape, dtype=bool)
    >>> mask[2:4, 3:5] = False
    >>> bool(np.allclose(linear(ramp, mask), ramp))
    True
    """
    return complete_each(Y, mask, linear_surface, "they are bridged from the nearest observed ones")


def biharmonic(Y: Any, mask: Any = None) -> Any:
    """Fill the gaps of an image so that its biharmonic operator vanishes there. Observed entries are kept.

    The order of rows and columns must mean something, as in an image.
    Uses :func:`skimage.restoration.inpaint_biharmonic`, which clips to the range of the observed entries.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged as any other gap.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(6.0), np.arange(7.0))
    >>> mask = np.ones(ramp.shape, dtype=bool)
    >>> mask[2:4, 3:5] = False
    >>> bool(np.allclose(biharmonic(ramp, mask), ramp))
    True
    """
    try:
        from skimage.restoration import inpaint_biharmonic
    except ImportError as error:
        raise ImportError('biharmonic needs scikit-image: pip install "airnp[baselines]"') from error

    def complete(values: Values, mask: Bools) -> Values:
        filled: Values = np.asarray(inpaint_biharmonic(values, ~mask))
        return np.where(mask, values, filled)

    return complete_each(Y, mask, complete, "they are bridged from the nearest observed ones")
