"""The loop over rows of a mixture of Gaussians, compiled by numba.

:mod:`airnp.resemblance.gaussian` derives the formulas, for one Gaussian; here z is a row less the mean of a
component, 0 in the gaps m, and P the component's precision:

    x̂_m = μ_m − P_mm⁻¹ (P z)_m        cov(x_m | y_o) = P_mm⁻¹
    −2 log p(y_o) = zᵀPz − (Pz)_mᵀ P_mm⁻¹ (Pz)_m − log det P + log det P_mm + |o| log 2π

The last line follows from log det C_oo = log det C + log det P_mm and from the minimum over z_m of zᵀPz.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from airnp.engines._cpu_kernels import Kernel

_compiled = njit(fastmath={"reassoc", "contract", "nsz", "arcp"}, error_model="numpy", forceinline=True)


@_compiled
def _cholesky(a, g):
    """Replace the lower triangle of a (g, g) by L with L·Lᵀ = a; return log det a."""
    total, product = 0.0, 1.0
    for i in range(g):
        for j in range(i):
            value = a[i, j]
            for k in range(j):
                value -= a[i, k] * a[j, k]
            a[i, j] = value / a[j, j]
        pivot = a[i, i]
        for k in range(i):
            pivot -= a[i, k] * a[i, k]
        a[i, i] = math.sqrt(max(pivot, 1e-60))
        product *= a[i, i]
        if i % 8 == 7:  # a logarithm takes as long as many products, which must not overflow
            total += math.log(product)
            product = 1.0
    return 2 * (total + math.log(product))


@_compiled
def _inverse(a, inverse, g):
    """Put the lower triangle of (L·Lᵀ)⁻¹ into ``inverse``, with L in that of a; L is replaced by L⁻¹."""
    for i in range(g):
        scale = -1 / a[i, i]
        for j in range(i + 1):
            inverse[i, j] = 0.0
        for k in range(i):
            factor = a[i, k] * scale
            for j in range(k + 1):
                inverse[i, j] += factor * a[k, j]
        for j in range(i):
            a[i, j] = inverse[i, j]
            inverse[i, j] = 0.0
        a[i, i] = -scale
    for k in range(g):
        for i in range(k + 1):
            factor = a[k, i]
            for j in range(i + 1):
                inverse[i, j] += factor * a[k, j]


@Kernel
def expectation(
    values, order, gaps, means, precisions, logs, least, ignored, filled, variance, shares, heights, counts,
    sums, squares, chunks,
):  # fmt: skip
    """E step of n rows and J components, with the sums that the M step needs, in one part for each chunk.

    ``order`` (n, d) holds the entries of a row, its ``gaps`` (n,) missing ones first. ``logs`` (J,) are
    log π + ½ log det P. Components with a share of less than ``least`` of a row add nothing to its sums;
    those whose ``shares`` were less than ``ignored`` before the call are not looked at, and get 0.
    ``sums`` and ``squares`` are of x − μ, the latter in lower triangles; without room for them, (0, …), only
    the rows are completed.
    """
    n, d = values.shape
    J = means.shape[0]
    for chunk in prange(chunks):
        most = 0
        for i in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            most = max(most, gaps[i])
        z, pulls = np.empty((J, d)), np.empty((J, d))
        factors = np.empty((J, most, most))
        inverse = np.empty((most, most))
        summed = len(counts) > 0
        if summed:
            counts[chunk] = 0
            sums[chunk] = 0
            squares[chunk] = 0
        for i in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            g = gaps[i]
            top = -np.inf
            for j in range(J):
                if shares[i, j] < ignored:
                    shares[i, j] = -np.inf
                    continue
                row, mean, precision = z[j], means[j], precisions[j]
                for k in range(g):
                    row[order[i, k]] = 0.0
                for k in range(g, d):
                    place = order[i, k]
                    row[place] = values[i, place] - mean[place]
                quadratic = 0.0
                pull = pulls[j]
                for a in range(d):
                    line = precision[a]
                    total = 0.0
                    for b in range(d):
                        total += line[b] * row[b]
                    pull[a] = total
                    quadratic += total * row[a]
                height = logs[j]
                if g > 0:
                    factor = factors[j]
                    for a in range(g):
                        line = precision[order[i, a]]
                        for b in range(a + 1):
                            factor[a, b] = line[order[i, b]]
                    height -= 0.5 * _cholesky(factor, g)
                    # Solve L u = (P z)_m, then Lᵀ s = u; z_m = −s.
                    for a in range(g):
                        value = pull[order[i, a]]
                        for b in range(a):
                            value -= factor[a, b] * pull[order[i, b]]
                        value /= factor[a, a]
                        pull[order[i, a]] = value
                        quadratic -= value * value
                    for a in range(g - 1, -1, -1):
                        value = pull[order[i, a]]
                        for b in range(a + 1, g):
                            value += factor[b, a] * row[order[i, b]]
                        row[order[i, a]] = -value / factor[a, a]
                height -= 0.5 * quadratic
                shares[i, j] = height
                top = max(top, height)
            total = 0.0
            for j in range(J):
                shares[i, j] = math.exp(shares[i, j] - top)
                total += shares[i, j]
            heights[i] = top + math.log(total) - 0.5 * (d - g) * math.log(2 * math.pi)
            for k in range(g):
                filled[i, order[i, k]] = 0.0
                variance[i, order[i, k]] = 0.0
            for k in range(g, d):
                filled[i, order[i, k]] = values[i, order[i, k]]
                variance[i, order[i, k]] = 0.0
            for j in range(J):
                share = shares[i, j] / total
                shares[i, j] = share
                if share == 0.0:
                    continue
                for k in range(g):
                    place = order[i, k]
                    filled[i, place] += share * (means[j, place] + z[j, place])
            for j in range(J):
                share = shares[i, j]
                if share < least:
                    continue
                row = z[j]
                if g > 0:
                    _inverse(factors[j], inverse, g)
                    for a in range(g):
                        place = order[i, a]
                        apart = means[j, place] + row[place] - filled[i, place]
                        variance[i, place] += share * (inverse[a, a] + apart * apart)
                if not summed:
                    continue
                square = squares[chunk, j]
                counts[chunk, j] += share
                for a in range(d):
                    scaled = share * row[a]
                    sums[chunk, j, a] += scaled
                    line = square[a]
                    for b in range(a + 1):
                        line[b] += scaled * row[b]
                for a in range(g):
                    line = square[order[i, a]]
                    for b in range(a + 1):
                        line[order[i, b]] += share * inverse[a, b]


@Kernel
def components(values, order, gaps, means, precisions, filled, variance, chunks):
    """Put the conditional means and variances of each row under each component at (J, n, d)."""
    n, d = values.shape
    J = means.shape[0]
    for chunk in prange(chunks):
        most = 0
        for i in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            most = max(most, gaps[i])
        row, pull = np.empty(d), np.empty(most)
        factor, inverse = np.empty((most, most)), np.empty((most, most))
        for i in range(chunk * n // chunks, (chunk + 1) * n // chunks):
            g = gaps[i]
            for j in range(J):
                mean, precision = means[j], precisions[j]
                for k in range(g):
                    row[order[i, k]] = 0.0
                for k in range(g, d):
                    place = order[i, k]
                    row[place] = values[i, place] - mean[place]
                    filled[j, i, place] = values[i, place]
                    variance[j, i, place] = 0.0
                for a in range(g):
                    line = precision[order[i, a]]
                    total = 0.0
                    for b in range(d):
                        total += line[b] * row[b]
                    pull[a] = total
                    for b in range(a + 1):
                        factor[a, b] = line[order[i, b]]
                _cholesky(factor, g)
                _inverse(factor, inverse, g)
                for a in range(g):
                    total = 0.0
                    for b in range(a):
                        total += inverse[a, b] * pull[b]
                    for b in range(a, g):
                        total += inverse[b, a] * pull[b]
                    filled[j, i, order[i, a]] = mean[order[i, a]] - total
                    variance[j, i, order[i, a]] = inverse[a, a]
