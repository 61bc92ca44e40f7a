"""The loops over rows of mixtures of Gaussians and of trees, compiled by numba.

:mod:`airnp.resemblance.gaussian` derives the formulas, for one Gaussian; here z is a row less the mean of a
component, 0 in the gaps m, and P the component's precision:

    x̂_m = μ_m − P_mm⁻¹ (P z)_m        cov(x_m | y_o) = P_mm⁻¹
    −2 log p(y_o) = zᵀPz − (Pz)_mᵀ P_mm⁻¹ (Pz)_m − log det P + log det P_mm + |o| log 2π

The last line follows from log det C_oo = log det C + log det P_mm and from the minimum over z_m of zᵀPz.
"""

from __future__ import annotations

import math
from functools import partial

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


@partial(Kernel, allocates=True)
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


@partial(Kernel, allocates=True)
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


@_compiled
def _random(state):
    """Return the next state of a generator (xorshift64*), which is not 0, and a number in [0, 1)."""
    state ^= state >> np.uint64(12)
    state ^= state << np.uint64(25)
    state ^= state >> np.uint64(27)
    return state, float((state * np.uint64(2685821657736338717)) >> np.uint64(11)) * 2.0**-53


@partial(Kernel, allocates=True)
def grow(
    inputs, observed, targets, trees, tried, least, seed, feature, threshold, child, mean, square, chunks
):  # fmt: skip
    """Grow ``trees`` extremely randomised trees for each column of ``targets``.

    ``inputs`` (d, n) are the completed columns, ``observed`` (d, n) which entries a column is learned from. A
    node tries one random threshold for each of ``tried`` random other columns and takes the one that explains
    most; leaves have ``least`` rows or more. Nodes are (T, M): ``feature`` (−1 in leaves), ``threshold``, the
    first of two adjacent ``child`` nodes, and the ``mean`` and mean ``square`` of the target.
    """
    d, n = inputs.shape
    total = len(targets) * trees
    for chunk in prange(chunks):
        rows, spare = np.empty(n, np.int64), np.empty(n, np.int64)
        ys, xs = np.empty(n), np.empty(n)
        starts, ends = np.empty(feature.shape[1], np.int64), np.empty(feature.shape[1], np.int64)
        for tree in range(chunk * total // chunks, (chunk + 1) * total // chunks):
            target = targets[tree // trees]
            y = inputs[target]
            state = np.uint64(seed) + np.uint64(tree + 1) * np.uint64(11400714819323198485)
            state |= np.uint64(1)
            count = 0
            for i in range(n):
                if observed[target, i]:
                    rows[count] = i
                    count += 1
            starts[0], ends[0] = 0, count
            nodes, node = 1, 0
            while node < nodes:
                start, end = starts[node], ends[node]
                m = end - start
                first, second = 0.0, 0.0
                for i in range(m):
                    value = y[rows[start + i]]
                    ys[i] = value
                    first += value
                    second += value * value
                mean[tree, node] = first / m
                square[tree, node] = second / m
                feature[tree, node] = -1
                best, best_cut, best_column = first * first / m * (1 + 1e-9) + 1e-12, 0.0, -1
                if m >= 2 * least and nodes + 2 <= feature.shape[1]:
                    for _ in range(tried):
                        state, number = _random(state)
                        column = int(number * (d - 1))
                        if column >= target:
                            column += 1
                        x = inputs[column]
                        low = high = x[rows[start]]
                        for i in range(m):
                            value = x[rows[start + i]]
                            xs[i] = value
                            low = value if value < low else low
                            high = value if value > high else high
                        if low == high:
                            continue
                        state, number = _random(state)
                        cut = low + number * (high - low)
                        below, left = 0, 0.0
                        for i in range(m):
                            inside = xs[i] <= cut
                            below += inside
                            left += ys[i] if inside else 0.0
                        if below < least or m - below < least:
                            continue
                        gain = left * left / below + (first - left) * (first - left) / (m - below)
                        if gain > best:
                            best, best_cut, best_column = gain, cut, column
                if best_column >= 0:
                    x = inputs[best_column]
                    i, j = start, 0
                    for k in range(start, end):  # without branches that are hard to predict
                        row = rows[k]
                        inside = x[row] <= best_cut
                        rows[i], spare[j] = row, row
                        i += inside
                        j += not inside
                    rows[i:end] = spare[:j]
                    feature[tree, node], threshold[tree, node], child[tree, node] = (
                        best_column,
                        best_cut,
                        nodes,
                    )
                    starts[nodes], ends[nodes] = start, i
                    starts[nodes + 1], ends[nodes + 1] = i, end
                    nodes += 2
                node += 1


@Kernel
def ask(inputs, entries, places, trees, feature, threshold, child, mean, square, filled, variance, chunks):
    """Put mean and variance of what trees say about entries into ``filled`` and ``variance``, (k,) each.

    ``entries`` (k, 2) are row and column in ``inputs`` (n, d), ``places`` (d,) the columns' first trees over
    ``trees``. The variance is that within leaves and between trees.
    """
    for chunk in prange(chunks):
        for k in range(chunk * len(entries) // chunks, (chunk + 1) * len(entries) // chunks):
            row, first = inputs[entries[k, 0]], places[entries[k, 1]] * trees
            total, squares = 0.0, 0.0
            for tree in range(first, first + trees):
                node = 0
                while feature[tree, node] >= 0:
                    node = child[tree, node] + (row[feature[tree, node]] > threshold[tree, node])
                total += mean[tree, node]
                squares += square[tree, node]
            filled[k] = total / trees
            variance[k] = max(squares / trees - filled[k] * filled[k], 0.0)
