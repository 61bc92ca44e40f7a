"""Error measures of a completed matrix, on the entries that were missing.

Every function takes arrays of any namespace and device (NumPy, CuPy, torch, ...), nested lists or pandas
frames, and computes in NumPy float64. A single matrix ``(m, n)`` gives a Python float; a stack
``(..., m, n)`` of independent problems gives one value per problem, as a float64 array of the batch shape.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from airnp._arrays import to_numpy
from airnp._checks import checked_number, checked_whole

__all__ = ["average_precision", "nmae", "psnr", "ranking", "rmse", "ssim"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_MATRIX = (-2, -1)  # the axes of one problem; everything before them is the batch
_SSIM_WINDOW = 7

_SSIM_LEAST = 1e-100
"""Range, over the largest number, below which the constants of SSIM would vanish."""


def nmae(X: Any, truth: Any, mask: Any) -> float | NDArray[np.float64]:
    r"""Normalised mean absolute error on the missing entries.

    .. math::
        \mathrm{NMAE} = \frac{1}{|\bar\Omega|}
            \frac{\sum_{(i,j) \in \bar\Omega} |X_{ij} - T_{ij}|}{\max T - \min T}

    where :math:`\bar\Omega` are the missing entries and the range is that of the whole truth of the problem.
    This is what the authors' program computes, and what the paper's tables report; the formula printed in the
    paper squares the norm.

    Parameters
    ----------
    X : array, shape (..., m, n)
        The completed matrix, or a stack of them. A NaN in a missing entry makes the value NaN.
    truth : array, shape (..., m, n)
        The complete matrix. Must be finite wherever `mask` is False; entries that are not finite elsewhere
        count neither for the error nor for the range.
    mask : array of bool or 0/1, shape (..., m, n), or None
        True = observed. None measures all entries.

    Returns
    -------
    float or ndarray of float64, shape (...)
        0 is perfect. A float for a single matrix, one value per problem for a stack.

    Raises
    ------
    ValueError
        If the shapes differ, if a problem has no missing entry, if `truth` is not finite where it is needed,
        or if the truth of a problem is constant.
    TypeError
        If an argument cannot be read as real numbers.

    Examples
    --------
    >>> from airnp.metrics import nmae
    >>> truth = [[0.0, 1.0], [2.0, 4.0]]
    >>> X = [[0.0, 1.0], [2.5, 3.5]]
    >>> mask = [[True, True], [False, False]]
    >>> nmae(X, truth, mask)
    0.125
    """
    estimate, target, missing = _prepare(X, truth, mask)
    error = _mean(np.abs(_errors(estimate, target, missing)), missing)
    return _float_or_array(error / _range(target))


def rmse(X: Any, truth: Any, mask: Any) -> float | NDArray[np.float64]:
    r"""Root mean squared error on the missing entries.

    .. math::
        \mathrm{RMSE} = \sqrt{\frac{1}{|\bar\Omega|} \sum_{(i,j) \in \bar\Omega} (X_{ij} - T_{ij})^2}

    Parameters
    ----------
    X, truth, mask
        As in :func:`nmae`.

    Returns
    -------
    float or ndarray of float64, shape (...)
        In the units of the truth. A float for a single matrix, one value per problem for a stack.

    Raises
    ------
    ValueError, TypeError
        As in :func:`nmae`; the truth may be constant.

    Examples
    --------
    >>> from airnp.metrics import rmse
    >>> rmse([[1.0, 5.0], [1.0, 2.0]], [[1.0, 2.0], [5.0, 2.0]], [[1, 0], [0, 1]])  # sqrt((9 + 16) / 2)
    3.5355339059327378
    """
    return _float_or_array(np.sqrt(_mean_squared_error(*_prepare(X, truth, mask))))


def average_precision(X: Any, truth: Any, mask: Any) -> float | NDArray[np.float64]:
    r"""Area under the curve of precision over recall (AUPR) on the missing entries of a binary matrix.

    .. math::
        \mathrm{AP} = \sum_k (R_k - R_{k-1}) P_k

    where the missing entries are taken from the highest estimate down, :math:`P_k` is the share of ones among
    the first :math:`k` of them, and :math:`R_k` the share of all missing ones that they hold. Entries of
    equal estimate are taken together. Only the order of the estimates counts.

    Use it where ones are rare, as in tables of interactions. There :func:`nmae` is close to the share of ones
    for every cautious answer, and predicting 0 everywhere, which finds nothing, looks good; its average
    precision is the share of ones, the least that a useful answer can have.

    Parameters
    ----------
    X, mask
        As in :func:`nmae`.
    truth : array, shape (..., m, n)
        The complete matrix, with 0 or 1 in each missing entry.

    Returns
    -------
    float or ndarray of float64, shape (...)
        1 is perfect: all ones are before all zeros. NaN if a missing entry of X is NaN. A float for a single
        matrix, one value per problem for a stack.

    Raises
    ------
    ValueError
        As in :func:`nmae`, if a missing entry of the truth is neither 0 nor 1, or if none is 1.

    Examples
    --------
    >>> from airnp.metrics import average_precision
    >>> average_precision([[0.9, 0.4], [0.6, 0.1]], [[1, 0], [0, 1]], None)  # ones are first and fourth
    0.75
    """
    estimate, target, missing = _prepare(X, truth, mask)
    other = missing & (target != 0) & (target != 1)
    if other.any():
        raise ValueError(
            f"truth: expected 0 or 1 at all entries that are measured, got {target[other][0]:g} "
            f"at index {_first(other)}"
        )
    none = np.asarray(~(missing & (target == 1)).any(axis=_MATRIX))
    if none.any():
        raise ValueError(f"truth: expected a missing entry that is 1, got none{_in_problem(none)}")
    batch = target.shape[:-2]
    values = np.empty(batch)
    for index in np.ndindex(batch):
        chosen = missing[index]
        values[index] = _average_precision(estimate[index][chosen], target[index][chosen])
    return _float_or_array(values)


def _average_precision(scores: Floats, ones: Floats) -> float:
    """Return the average precision of some entries, whose truth is 0 or 1."""
    if np.isnan(scores).any():
        return math.nan
    order = np.argsort(-scores, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)  # the last of equal estimates
    found = np.cumsum(ones[order])[ends]
    return float(np.sum(np.diff(found, prepend=0.0) * found / (ends + 1)) / found[-1])


def psnr(
    X: Any, truth: Any, mask: Any = None, *, data_range: float | None = None
) -> float | NDArray[np.float64]:
    r"""Peak signal-to-noise ratio on the missing entries, in decibels.

    .. math::
        \mathrm{PSNR} = 10 \log_{10} \frac{d^2}{\mathrm{MSE}}

    with :math:`d` the data range and the mean squared error taken over the missing entries.

    Parameters
    ----------
    X, truth, mask
        As in :func:`nmae`. All entries are measured without a mask, as is usual for images.
    data_range : float, optional
        The largest possible difference between two entries (1 for images in [0, 1], 255 for bytes).
        Each problem's own ``max(truth) - min(truth)`` if left out.

    Returns
    -------
    float or ndarray of float64, shape (...)
        Larger is better; infinite without any error. A float for a single matrix, one value per problem
        for a stack.

    Raises
    ------
    ValueError, TypeError
        As in :func:`nmae`, or if `data_range` is not positive. With it the truth may be constant.

    Examples
    --------
    >>> from airnp.metrics import psnr
    >>> round(psnr([[0.1, 0.9], [0.1, 0.9]], [[0.0, 1.0], [0.0, 1.0]]), 6)
    20.0
    """
    estimate, target, missing = _prepare(X, truth, mask)
    peak = _range(target) if data_range is None else _positive_range(data_range)
    with np.errstate(divide="ignore"):  # a perfect answer has no noise: infinite decibels, not a warning
        noise = np.log10(_mean_squared_error(estimate, target, missing))
    return _float_or_array(20.0 * np.log10(peak) - 10.0 * noise)


def ssim(X: Any, truth: Any, *, data_range: float | None = None) -> float | NDArray[np.float64]:
    """Mean structural similarity of whole images.

    It compares means, variances and covariance in 7×7 windows, so it has no meaning on scattered entries
    and takes no mask. Computed by :func:`skimage.metrics.structural_similarity` with its uniform window.

    Parameters
    ----------
    X : array, shape (..., m, n)
        The completed image, or a stack of them, at least 7×7.
    truth : array, shape (..., m, n)
        The original, finite everywhere.
    data_range : float, optional
        The largest possible difference between two entries (1 for images in [0, 1], 255 for bytes).
        Each problem's own ``max(truth) - min(truth)`` if left out.

    Returns
    -------
    float or ndarray of float64, shape (...)
        At most 1, which means identical. A float for a single image, one value per problem for a stack.

    Raises
    ------
    ImportError
        If scikit-image is not installed (``pip install "airnp[images]"``).
    ValueError, TypeError
        As in :func:`psnr`, or if the images are smaller than the window.

    Examples
    --------
    >>> import numpy as np
    >>> from airnp.metrics import ssim
    >>> image = np.outer(np.arange(8.0), np.arange(9.0))
    >>> ssim(image, image)
    1.0
    """
    try:
        import skimage.metrics
    except ImportError as error:
        raise ImportError('ssim needs scikit-image: pip install "airnp[images]"') from error

    estimate, target, _ = _prepare(X, truth, None)
    if min(target.shape[-2:]) < _SSIM_WINDOW:
        raise ValueError(
            f"X, truth: expected at least {_SSIM_WINDOW}×{_SSIM_WINDOW}, the window that ssim compares, "
            f"got shape {target.shape}"
        )
    batch = target.shape[:-2]
    peaks = np.broadcast_to(_range(target) if data_range is None else _positive_range(data_range), batch)
    similarity: Any = skimage.metrics.structural_similarity  # has no type hints
    values = np.empty(batch)
    for index in np.ndindex(batch):
        # In units of the largest number: squares of very large or small ones are no numbers.
        pair, peak = (target[index], estimate[index]), float(peaks[index])
        unit = max(peak, *(float(np.abs(image).max()) for image in pair))
        span = max(peak / unit, _SSIM_LEAST)
        values[index] = similarity(*(image / unit for image in pair), win_size=_SSIM_WINDOW, data_range=span)
    return _float_or_array(values)


def ranking(
    recommended: Mapping[Any, Sequence[Any]],
    relevant: Mapping[Any, Iterable[Any]],
    k: int = 10,
    *,
    items: int | None = None,
) -> dict[str, float]:
    r"""Measure lists of recommended items by the items that turned out to be relevant.

    .. math::
        \mathrm{precision} = \frac{|H|}{k}, \quad \mathrm{recall} = \frac{|H|}{|G|}, \quad
        \mathrm{NDCG} = \frac{\sum_{p \in H} 1 / \log_2(p + 1)}{\sum_{p=1}^{\min(k, |G|)} 1 / \log_2(p + 1)}

    for each user, with G the relevant items and H the places of those that are in the list, from 1; then the
    mean over users.

    Parameters
    ----------
    recommended : mapping of user to sequence of items
        Best first; what is behind the first ``k`` does not count. A user without a list has no hit.
    relevant : mapping of user to items
        Users without any relevant item are left out.
    k : int
    items : int, optional
        How many items there are, for the coverage.

    Returns
    -------
    dict
        ``precision``, ``recall``, ``ndcg``, and with ``items`` ``coverage``, the share of the items that are
        recommended to somebody.

    Raises
    ------
    ValueError
        If no user has a relevant item, or a list has an item twice.

    Examples
    --------
    >>> from airnp.metrics import ranking
    >>> found = ranking({"ann": ["x", "y"], "bob": ["z", "x"]}, {"ann": ["y"], "bob": ["z", "w"]}, 2, items=4)
    >>> found["precision"], found["recall"], round(found["ndcg"], 3), found["coverage"]
    (0.5, 0.75, 0.622, 0.75)
    """
    k = checked_whole("k", k)
    measured: list[tuple[float, float, float]] = []
    shown: set[Any] = set()
    for user, wanted in ((user, set(some)) for user, some in relevant.items()):
        first = list(recommended.get(user, ()))[:k]
        if len(set(first)) < len(first):
            raise ValueError(f"recommended: expected different items, got one twice for {user!r}")
        shown.update(first)
        if wanted:
            places = [place for place, item in enumerate(first, 1) if item in wanted]
            gain = sum(1 / math.log2(place + 1) for place in places)
            best = sum(1 / math.log2(place + 1) for place in range(1, min(k, len(wanted)) + 1))
            measured.append((len(places) / k, len(places) / len(wanted), gain / best))
    if not measured:
        raise ValueError("relevant: expected a user with a relevant item, got none")
    means = np.mean(measured, axis=0)
    found = dict(zip(("precision", "recall", "ndcg"), map(float, means), strict=True))
    return found if items is None else {**found, "coverage": len(shown) / checked_whole("items", items)}


def _prepare(X: Any, truth: Any, mask: Any) -> tuple[Floats, Floats, Bools]:
    """Return the estimate and the truth in float64 and the missing entries as bool, all of one shape."""
    estimate, target = _real(X, "X"), _real(truth, "truth")
    if estimate.shape != target.shape:
        raise ValueError(
            f"X, truth: expected the same shape, got X {estimate.shape} and truth {target.shape}"
        )
    if target.ndim < 2:
        raise ValueError(
            f"X, truth: expected matrices (m, n) or stacks (..., m, n), got shape {target.shape}"
        )
    missing = np.ones(target.shape, dtype=bool) if mask is None else ~_observed(mask, target.shape)

    nothing = np.asarray(~missing.any(axis=_MATRIX))
    if nothing.any():
        if mask is None:
            raise ValueError(f"truth: expected at least one entry, got shape {target.shape}")
        raise ValueError(
            f"mask: expected missing (False) entries to measure, got all True{_in_problem(nothing)}"
        )
    unknown = missing & ~np.isfinite(target)
    if unknown.any():
        raise ValueError(
            "truth: expected finite values at all entries that are measured, "
            f"got {target[unknown][0]} at index {_first(unknown)}"
        )
    return estimate, target, missing


def _real(values: Any, name: str) -> Floats:
    """Return array-like `values` in float64; raise TypeError if they are no real numbers."""
    array = to_numpy(values)
    if array.dtype.kind == "c":
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype}")
    try:
        return array.astype(np.float64, copy=False)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name}: expected real numbers, got dtype {array.dtype} ({error})") from error


def _observed(mask: Any, shape: tuple[int, ...]) -> Bools:
    """Return `mask` as bool; 0 and 1 of any dtype are accepted, nothing else."""
    array = to_numpy(mask)
    if array.shape != shape:
        raise ValueError(f"mask: expected the shape of truth, got mask {array.shape} and truth {shape}")
    observed: Bools = array == 1
    other = ~(observed | (array == 0))
    if other.any():
        raise ValueError(
            f"mask: expected bool or only 0 and 1, got {array[other][0]} at index {_first(other)}"
        )
    return observed


def _errors(estimate: Floats, target: Floats, missing: Bools) -> Floats:
    """Return ``estimate - target`` on the missing entries, 0 elsewhere, where both may be infinite."""
    return np.subtract(estimate, target, out=np.zeros_like(target), where=missing)


def _mean(values: Floats, missing: Bools) -> Floats:
    """Return the mean over each problem's missing entries, shape (...)."""
    return np.asarray(np.mean(values, axis=_MATRIX, where=missing))


def _mean_squared_error(estimate: Floats, target: Floats, missing: Bools) -> Floats:
    """Return the mean squared error over each problem's missing entries, shape (...)."""
    return _mean(_errors(estimate, target, missing) ** 2, missing)


def _range(target: Floats) -> Floats:
    """Return max − min of each problem's finite entries, shape (...); raise ValueError if one is constant."""
    finite = np.isfinite(target)
    highest = np.max(target, axis=_MATRIX, where=finite, initial=-math.inf)
    lowest = np.min(target, axis=_MATRIX, where=finite, initial=math.inf)
    spread: Floats = np.asarray(highest - lowest)
    constant = np.asarray(spread == 0)
    if constant.any():
        raise ValueError(
            "truth: expected more than one value, as max - min is the unit of the metric, "
            f"got a constant{_in_problem(constant)}"
        )
    return spread


def _positive_range(data_range: Any) -> float:
    peak = checked_number("data_range", data_range)
    if peak <= 0:
        raise ValueError(f"data_range: expected a positive number or None, got {data_range!r}")
    return peak


def _first(flags: Bools) -> tuple[int, ...]:
    """Return the index of the first True, for messages."""
    return tuple(int(i) for i in np.argwhere(flags)[0])


def _in_problem(flags: Bools) -> str:
    """Return which problem of a stack is the first in `flags`, in words; nothing for a single matrix."""
    return f" in problem {_first(flags)}" if flags.ndim else ""


def _float_or_array(values: Floats) -> float | Floats:
    return float(values) if np.ndim(values) == 0 else np.asarray(values)
