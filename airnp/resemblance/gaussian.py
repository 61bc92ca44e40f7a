r"""The conditional Gaussian: what rows that resemble each other say about the gaps of each of them.

A group is K rows of d entries. Its rows are drawn from one Gaussian with mean μ and covariance C. Row y is
known at its observed entries o and unknown at its gaps m.

**Gaps given the rest.** Up to a constant, −2 log p(x) = (x − μ)ᵀ P (x − μ) with P = C⁻¹. As a function of x_m
alone, with z = x − μ, this is z_mᵀ P_mm z_m + 2 z_mᵀ P_mo z_o: a Gaussian again. Completing the square,

.. math::
    \hat x_m = μ_m - P_{mm}^{-1} P_{mo} (y_o - μ_o), \qquad \mathrm{cov}(x_m | y_o) = P_{mm}^{-1}.

The inverse of a block of an inverse is a Schur complement, P_mm⁻¹ = C_mm − C_mo C_oo⁻¹ C_om, and from
P C = I follows P_mm⁻¹ P_mo = −C_mo C_oo⁻¹. So the same numbers are

.. math::
    \hat x_m = μ_m + C_{mo} C_{oo}^{-1} (y_o - μ_o), \qquad
    \mathrm{cov}(x_m | y_o) = C_{mm} - C_{mo} C_{oo}^{-1} C_{om}.

The first side inverts C once for the group and a matrix of the size of the gaps for each row; the second one
inverts a matrix of the size of what is observed for each row. The cheaper one is taken.

**The Gaussian given the rows.** The observed-data likelihood ∏ p(y_o) has no closed-form maximum. EM
maximises the expected log-likelihood of complete rows instead, which bounds it from below and touches it at
the current μ, C. With x̂ the completed rows and Σ their conditional covariances (zero outside the gaps),
E (x − a)(x − a)ᵀ = (x̂ − a)(x̂ − a)ᵀ + Σ, hence the maximum

.. math::
    μ = \mathrm{mean}\, \hat x, \qquad
    C = \mathrm{mean}\, (\hat x - μ)(\hat x - μ)^T + \mathrm{mean}\, Σ.

At a fixed point the gradients of bound and likelihood agree, and both vanish. If only the variances of filled
entries are kept, diag(var) replaces Σ.

**Shrinkage.** C + ρ·tr(C)/d·I + σ²·I keeps C regular if K < d, and is what held-out entries usually prefer.

All functions take any number of leading axes, one Gaussian for each: values are (…, K, d), means (…, d) and
covariances (…, d, d). They run on every array-API namespace. Fused implementations must give the same
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import array_api_compat as compat

from airnp._arrays import Array, Namespace, own_module, to_numpy

_LARGEST_BATCH = 2**22
"""Entries of the matrices that are solved at once."""


@dataclass(frozen=True)
class Moments:
    """Gaussians of groups of rows: their means and covariances.

    Attributes
    ----------
    mean : array (..., d)
    covariance : array (..., d, d)
    n_iter : int
        Iterations of EM that found them.
    """

    mean: Array
    covariance: Array
    n_iter: int = 0


def group_statistics(
    values: Array,
    variances: Array | None = None,
    *,
    weights: Array | None = None,
    ridge: float = 0.0,
    noise: float = 0.0,
) -> tuple[Array, Array]:
    """Return mean and covariance of groups of completed rows.

    Parameters
    ----------
    values : array (..., K, d)
        Rows, with their gaps filled.
    variances : array (..., K, d), optional
        Variances of filled entries, 0 where observed. Their mean is added to the diagonal.
    weights : array (..., K), optional
        How much each row counts. Default: all the same.
    ridge, noise : float
        ρ and σ²: adds ρ·tr(C)/d·I + σ²·I.

    Returns
    -------
    mean : array (..., d)
    covariance : array (..., d, d)

    Examples
    --------
    >>> import numpy as np
    >>> mean, covariance = group_statistics(np.array([[1.0, 2.0], [3.0, 6.0]]))
    >>> mean, covariance
    (array([2., 4.]), array([[1., 2.],
           [2., 4.]]))
    """
    xp = compat.array_namespace(values)
    shares = _shares(xp, values, weights)
    mean = xp.sum(shares * values, axis=-2)
    apart = values - mean[..., None, :]
    covariance = xp.matrix_transpose(shares * apart) @ apart
    if variances is not None:
        covariance = covariance + _diagonal(xp, xp.sum(shares * variances, axis=-2))
    return mean, shrunk(covariance, ridge, noise)


def shrunk(covariance: Array, ridge: float, noise: float) -> Array:
    """Return C + ρ·tr(C)/d·I + σ²·I for matrices (..., d, d); see the module's notes."""
    if not ridge and not noise:
        return covariance
    xp = compat.array_namespace(covariance)
    d = covariance.shape[-1]
    added = ridge * xp.linalg.trace(covariance) / d + noise
    eye = xp.eye(d, dtype=covariance.dtype, device=compat.device(covariance))
    return covariance + added[..., None, None] * eye


def condition(
    mean: Array, covariance: Array, values: Array, observed: Array, *, side: str | None = None
) -> tuple[Array, Array]:
    """Fill the gaps of rows with their conditional means.

    Parameters
    ----------
    mean : array (..., d)
    covariance : array (..., d, d)
        Positive definite.
    values : array (..., K, d)
        Rows. What stands in gaps does not matter.
    observed : bool array (..., K, d)
    side : {"precision", "covariance"}, optional
        Which of the two equal formulas to use; see the module's notes. Default: the cheaper one.

    Returns
    -------
    filled : array (..., K, d)
        Rows with their gaps filled.
    variance : array (..., K, d)
        Conditional variances of filled entries, 0 where observed.

    Examples
    --------
    >>> import numpy as np
    >>> covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    >>> row, observed = np.array([[2.0, np.nan]]), np.array([[True, False]])
    >>> filled, variance = condition(np.zeros(2), covariance, row, observed)
    >>> filled, variance.round(2)
    (array([[2. , 1.6]]), array([[0.  , 0.36]]))
    """
    xp = compat.array_namespace(values)
    parts = [_whole_rows(xp, part) for part in _solutions(mean, covariance, values, observed, side)]
    return _in_order(xp, parts, values.shape)


def expectation(
    mean: Array,
    covariance: Array,
    values: Array,
    observed: Array,
    *,
    weights: Array | None = None,
    side: str | None = None,
) -> tuple[Array, Array, Array]:
    """Return the E step: rows with their gaps filled, variances, and the mean conditional covariance.

    Parameters
    ----------
    mean, covariance, values, observed, side
        See :func:`condition`.
    weights : array (..., K), optional
        How much each row counts in the mean.

    Returns
    -------
    filled : array (..., K, d)
    variance : array (..., K, d)
    unknown : array (..., d, d)
        Mean over the rows of the conditional covariances, which are 0 outside the gaps.
    """
    xp = compat.array_namespace(values)
    K, d = values.shape[-2:]
    parts = []
    groups = math.prod(values.shape[:-2])
    unknown = xp.zeros((groups, d * d), dtype=values.dtype, device=compat.device(values))
    shares = xp.broadcast_to(_shares(xp, values, weights), (*values.shape[:-1], 1))
    shares = xp.reshape(shares, (-1,))
    for part in _solutions(mean, covariance, values, observed, side):
        weighted = part.covariance * xp.take(shares, part.rows)[:, None, None]
        unknown = unknown + _scattered(xp, weighted, part.gaps, part.rows // K, groups, d)
        parts.append(_whole_rows(xp, part))
    filled, variance = _in_order(xp, parts, values.shape)
    return filled, variance, xp.reshape(unknown, (*values.shape[:-2], d, d))


def fit_gaussian(
    values: Array,
    observed: Array,
    *,
    ridge: float = 0.0,
    noise: float = 0.0,
    weights: Array | None = None,
    start: Moments | None = None,
    max_iter: int = 100,
    tolerance: float = 1e-4,
) -> Moments:
    """Fit Gaussians to groups of rows with gaps, by EM.

    Parameters
    ----------
    values : array (..., K, d)
    observed : bool array (..., K, d)
        Each entry should be observed in some row of its group.
    ridge, noise : float
        See :func:`group_statistics`.
    weights : array (..., K), optional
        How much each row counts.
    start : Moments, optional
        Default: means and variances of what is observed, and no correlations.
    max_iter : int
        Iterations at most.
    tolerance : float
        EM ends if an iteration changes no mean by more than this many standard deviations, and no entry of
        the covariance by more than this share of the product of two of them.

    Returns
    -------
    Moments

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> rows = rng.standard_normal((2000, 1)) * np.array([1.0, 2.0]) + 0.1 * rng.standard_normal((2000, 2))
    >>> gaussian = fit_gaussian(rows, rng.random(rows.shape) < 0.7)
    >>> gaussian.covariance.round(1)
    array([[1., 2.],
           [2., 4.]])
    """
    xp = compat.array_namespace(values)
    moments = _start(xp, values, observed, weights) if start is None else start
    mean, covariance = moments.mean, moments.covariance
    iteration = 0
    for iteration in range(1, max_iter + 1):  # noqa: B007  # it is returned
        filled, _, unknown = expectation(mean, covariance, values, observed, weights=weights)
        old_mean, old_covariance = mean, covariance
        mean, covariance = group_statistics(filled, weights=weights)
        covariance = shrunk(covariance + unknown, ridge, noise)
        scale = xp.sqrt(xp.linalg.diagonal(covariance)) + 1e-30
        moved = xp.max(xp.abs(mean - old_mean) / scale)
        turned = xp.max(xp.abs(covariance - old_covariance) / (scale[..., :, None] * scale[..., None, :]))
        if float(moved) < tolerance and float(turned) < tolerance:
            break
    return Moments(mean, covariance, iteration)


# --- one solution for all rows with the same number of gaps ---


@dataclass(frozen=True)
class _Solution:
    """Rows with the same number g of gaps: where they are, and the Gaussian of their gaps.

    Attributes
    ----------
    rows : array (n,)
        Positions among all rows of all groups.
    gaps : array (n, g)
        Which entries are missing.
    order : array (n, d)
        All entries, gaps first.
    packed : array (n, d)
        The row in that order, with its gaps filled.
    covariance : array (n, g, g)
    """

    rows: Array
    gaps: Array
    order: Array
    packed: Array
    covariance: Array


def _solutions(
    mean: Array, covariance: Array, values: Array, observed: Array, side: str | None
) -> Iterator[_Solution]:
    """Yield solutions that together have every row once."""
    if side not in (None, "precision", "covariance"):
        raise ValueError(f"side: expected 'precision', 'covariance' or None, got {side!r}")
    xp = compat.array_namespace(values)
    K, d = values.shape[-2:]
    groups = math.prod(values.shape[:-2])
    mean = xp.reshape(mean, (groups, 1, d))
    covariance = xp.reshape(covariance, (groups, d, d))
    observed = xp.reshape(observed, (groups, K, d))
    known = xp.where(observed, xp.reshape(values, (groups, K, d)) - mean, xp.zeros_like(mean))
    mean = xp.reshape(xp.broadcast_to(mean, known.shape), (-1, d))
    observed = xp.reshape(observed, (-1, d))
    counts = xp.sum(xp.astype(~observed, xp.int64), axis=1)
    by_precision = _cheaper_by_precision(xp, counts, groups, d) if side is None else side == "precision"
    if by_precision:
        precision = xp.linalg.inv(covariance)
        pulls = xp.reshape(known @ precision, (-1, d))
    known = xp.reshape(known, (-1, d))
    order = xp.argsort(xp.astype(observed, xp.int8), axis=1, stable=True)
    for g in map(int, to_numpy(xp.unique_values(counts))):
        use_precision = by_precision and (side is not None or 2 * g <= d)
        chosen = xp.nonzero(counts == g)[0]
        step = max(1, _LARGEST_BATCH // max(1, g * g, 0 if use_precision else d * d))
        for first in range(0, chosen.shape[0], step):
            rows = chosen[first : min(first + step, chosen.shape[0])]
            places = xp.take(order, rows, axis=0)
            gaps, seen = places[:, :g], places[:, g:]
            group = rows // K
            rest = _along(xp, xp.take(known, rows, axis=0), seen)
            if g == 0:
                unknown = xp.zeros((rows.shape[0], 0, 0), dtype=values.dtype, device=compat.device(values))
                moved = rest[:, :0]
            elif use_precision:
                unknown = xp.linalg.inv(_blocks(xp, precision, group, gaps, gaps))
                moved = -(unknown @ _along(xp, xp.take(pulls, rows, axis=0), gaps)[..., None])[..., 0]
            else:
                unknown = _blocks(xp, covariance, group, gaps, gaps)
                cross = _blocks(xp, covariance, group, seen, gaps)
                if g < d:
                    gain = xp.linalg.solve(_blocks(xp, covariance, group, seen, seen), cross)
                    unknown = unknown - xp.matrix_transpose(cross) @ gain
                else:
                    gain = cross
                moved = (rest[:, None, :] @ gain)[:, 0, :]
            packed = xp.concat([moved, rest], axis=1) + _along(xp, xp.take(mean, rows, axis=0), places)
            yield _Solution(rows, gaps, places, packed, unknown)


def _cheaper_by_precision(xp: Namespace, counts: Array, groups: int, d: int) -> bool:
    """Return whether to invert the covariances, for rows that have fewer gaps than observed entries."""
    gaps = xp.astype(counts, xp.float64)
    seen = d - gaps
    saved = xp.where((gaps > 0) & (2 * gaps <= d), seen**3 - gaps**3, xp.zeros_like(gaps))
    return float(xp.sum(saved)) > groups * d**3


def _whole_rows(xp: Namespace, part: _Solution) -> tuple[Array, Array, Array]:
    """Return positions of rows, the filled rows and their variances, without the covariances."""
    back = xp.argsort(part.order, axis=1)
    variance = xp.linalg.diagonal(part.covariance)
    g = variance.shape[1]
    nothing = xp.zeros_like(part.packed[:, g:])
    return part.rows, _along(xp, part.packed, back), _along(xp, xp.concat([variance, nothing], axis=1), back)


def _in_order(
    xp: Namespace, parts: list[tuple[Array, Array, Array]], shape: tuple[int, ...]
) -> tuple[Array, Array]:
    """Return filled rows and variances (..., K, d) in the order of the input."""
    rows, filled, variance = (xp.concat(each, axis=0) for each in zip(*parts, strict=True))
    place = xp.argsort(rows)
    first, second = (xp.reshape(xp.take(each, place, axis=0), shape) for each in (filled, variance))
    return first, second


# --- what the array-API standard does not have ---


def _along(xp: Namespace, values: Array, index: Array) -> Array:
    """Return values[i, index[i, j]] for values (n, d) and indices (n, k)."""
    n, d = values.shape
    flat = index + d * xp.arange(n, dtype=index.dtype, device=compat.device(index))[:, None]
    return xp.reshape(xp.take(xp.reshape(values, (-1,)), xp.reshape(flat, (-1,))), index.shape)


def _blocks(xp: Namespace, matrices: Array, which: Array, rows: Array, columns: Array) -> Array:
    """Return matrices[which[i], rows[i, j], columns[i, k]] for matrices (G, d, d), as (n, j, k)."""
    d = matrices.shape[-1]
    flat = (which[:, None] * d + rows)[:, :, None] * d + columns[:, None, :]
    return xp.reshape(xp.take(xp.reshape(matrices, (-1,)), xp.reshape(flat, (-1,))), flat.shape)


def _scattered(xp: Namespace, blocks: Array, index: Array, which: Array, groups: int, d: int) -> Array:
    """Return the sums by group of blocks (n, g, g), put at rows and columns ``index``, as (groups, d·d)."""
    if own_module(xp) is not None:
        flat = (which[:, None] * d + index)[:, :, None] * d + index[:, None, :]
        total = own_module(xp).bincount(flat.ravel(), blocks.ravel(), minlength=groups * d * d)
        return xp.astype(xp.reshape(total, (groups, d * d)), blocks.dtype)
    everything = xp.arange(d, dtype=index.dtype, device=compat.device(index))
    put = xp.astype(index[:, :, None] == everything, blocks.dtype)
    whole = xp.reshape(xp.matrix_transpose(put) @ blocks @ put, (-1, d * d))
    member = xp.astype(
        which == xp.arange(groups, dtype=which.dtype, device=compat.device(which))[:, None], blocks.dtype
    )
    return member @ whole


def _diagonal(xp: Namespace, values: Array) -> Array:
    """Return diagonal matrices (..., d, d)."""
    eye = xp.eye(values.shape[-1], dtype=values.dtype, device=compat.device(values))
    return values[..., None] * eye


def _shares(xp: Namespace, values: Array, weights: Array | None) -> Array:
    """Return the weights of rows, which sum to 1 in each group, (..., K, 1)."""
    if weights is None:
        return xp.full(
            (values.shape[-2], 1), 1 / values.shape[-2], dtype=values.dtype, device=compat.device(values)
        )
    weights = xp.astype(weights, values.dtype)
    return (weights / xp.sum(weights, axis=-1, keepdims=True))[..., None]


def _start(xp: Namespace, values: Array, observed: Array, weights: Array | None) -> Moments:
    """Return the means and variances of what is observed, without correlations."""
    seen = xp.astype(observed, values.dtype) * _shares(xp, values, weights)
    total = xp.sum(seen, axis=-2, keepdims=True)
    if not bool(xp.all(total > 0)):
        raise ValueError("observed: expected at least one observed entry in each column of each group")
    seen = seen / total
    clean = xp.where(observed, values, xp.zeros_like(values))
    mean = xp.sum(seen * clean, axis=-2)
    variance = xp.sum(seen * (clean - mean[..., None, :]) ** 2, axis=-2)
    return Moments(mean, _diagonal(xp, variance + 1e-6 * xp.mean(variance, axis=-1, keepdims=True) + 1e-12))
