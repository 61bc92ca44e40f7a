"""Loops over the graph of patches and its Laplacian on pixels, compiled by numba on first use and cached."""

from __future__ import annotations

import math

import numpy as np

from airnp.engines._cpu_kernels import compiled
from airnp.engines._tiles import (
    FOUR,
    LANES,
    add_weighted,
    below,
    lowest_bit,
    squares_apart,
    sum_of_lines,
    weighted_sum,
)

_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}

WEIGHT_ONE = np.float32(2.0**30)
"""The integer that stands for a weight of 1."""

STRIP = 16
"""Rows whose nearest patches are found together. More share more sums, fewer stay in the cache."""


@compiled(nogil=True)
def nearest_rows(padded, Q, wanted, sweeps, order, first, step, patch, search, offsets, distances):
    """Write the K nearest patches of every wanted centre (y, x): their offsets and distances, nearest first.

    ``padded`` (C, H + p − 1, W + p − 1 + 16) has a frame around the picture, so that the patch around pixel
    (y, x) begins at (y, x), and room behind it. Offset o is (o // side − search, o % side − search); −1 where
    there is none.

    A sweep (strip, left, right) is a part of a strip of rows; every ``step``-th one from ``first`` on is
    done. The squared differences of a sweep and its shifted copy are computed once and added up over patches.
    """
    H, W, K = offsets.shape
    C, line, plane = padded.shape[0], padded.shape[2], padded.shape[1] * padded.shape[2]
    pixels, trust = padded.ravel(), Q.ravel()
    side = 2 * search + 1
    apart = np.empty((STRIP + patch - 1) * line, np.float32)
    column, sums, bars = (
        np.empty(line, np.float32),
        np.empty(line, np.float32),
        np.empty(STRIP * line, np.float32),
    )
    for number in range(first, len(sweeps), step):
        strip, left, right = sweeps[number]
        top, bottom = strip * STRIP, min((strip + 1) * STRIP, H)
        for y in range(top, bottom):
            for x in range(left, right):
                # Nothing is below the bar of a centre that is not wanted.
                bars[(y - top) * line + x] = -np.inf
                if wanted[y, x]:
                    bars[(y - top) * line + x] = np.inf
                    for k in range(K):
                        offsets[y, x, k], distances[y, x, k] = -1, np.inf
        for o in order:
            dy, dx = o // side - search, o % side - search
            y_from, y_to = max(top, -dy), min(bottom, H - dy)
            x_from, x_to = max(left, -dx), min(right, W - dx)
            if (dy == 0 and dx == 0) or y_from >= y_to or x_from >= x_to:
                continue
            rows, columns = y_to - y_from, x_to - x_from
            for u in range(rows + patch - 1):
                here = (y_from + u) * line + x_from
                there = here + dy * line + dx
                for x in range(0, columns + patch - 1, LANES):
                    squares_apart(
                        apart,
                        u * line + x,
                        pixels,
                        here + x,
                        pixels,
                        there + x,
                        trust,
                        here + x,
                        plane,
                        C,
                        0,
                        1,
                    )
            for y in range(rows):
                for x in range(0, columns + patch - 1, LANES):
                    sum_of_lines(column, x, apart, y * line + x, line, patch)
                bar = (y_from - top + y) * line + x_from
                for begin in range(0, columns, LANES):
                    sum_of_lines(sums, 0, column, begin, 1, patch)
                    # Entries behind the last column are no sums.
                    closer = below(sums, 0, bars, bar + begin) & ((1 << min(columns - begin, LANES)) - 1)
                    while closer:
                        x = lowest_bit(closer)
                        closer &= closer - 1
                        d, i, j = sums[x], y_from + y, x_from + begin + x
                        near, far = offsets[i, j], distances[i, j]
                        k = K - 1
                        while k > 0 and far[k - 1] > d:
                            far[k], near[k] = far[k - 1], near[k - 1]
                            k -= 1
                        far[k], near[k] = d, o
                        bars[bar + begin + x] = far[K - 1]


@compiled(nogil=True, forceinline=True)
def add_column(offsets, weights, W, K, first, last, j, sign, sums, used, listed, count):
    """Add the edges of the patches of part of a column to the sums by offset, or take them away.

    Returns how many offsets are listed. Sums are those of integers, so what is taken away leaves nothing.
    """
    for i in range(first, last):
        for k in range(K):
            e = (i * W + j) * K + k
            o = offsets[e]
            if o < 0:
                break
            sums[o] += sign * np.int64(weights[e] * WEIGHT_ONE)
            if not listed[o]:
                listed[o] = True
                used[count] = o
                count += 1
    return count


@compiled(nogil=True)
def couple_pixels(offsets, weights, top, left, height, width, search, reach, starts, others, shares):
    """Return the directed pixel graph of a window: how many edges there are, row by row.

    Pixel p is joined to p + o with the sum of the weights of all edges with offset o of patches whose centre
    is at most ``reach`` rows and columns away from p. Edges that leave the window are left out.
    """
    H, W, K = offsets.shape
    all_offsets, all_weights = offsets.ravel(), weights.ravel()
    side = 2 * search + 1
    sums, used, listed = (
        np.zeros(side * side, np.int64),
        np.empty(side * side, np.int64),
        np.zeros(side * side, np.bool_),
    )
    down, across = np.empty(side * side, np.int64), np.empty(side * side, np.int64)
    for o in range(side * side):
        down[o], across[o] = o // side - search, o % side - search
    edges = 0
    for y in range(height):
        first, last = max(top + y - reach, 0), min(top + y + reach, H - 1) + 1
        count = 0
        # From pixel to pixel, a column of patches comes in reach and another one goes out of it.
        for x in range(-2 * reach, width):
            j = left + x + reach
            if 0 <= j < W:
                count = add_column(
                    all_offsets, all_weights, W, K, first, last, j, 1, sums, used, listed, count
                )
            if x < 0:
                continue
            j = left + x - reach - 1
            if x > 0 and j >= 0:
                count = add_column(
                    all_offsets, all_weights, W, K, first, last, j, -1, sums, used, listed, count
                )
            starts[y * width + x] = edges
            n = 0
            while n < count:
                o = used[n]
                if sums[o] == 0:
                    listed[o] = False
                    count -= 1
                    used[n] = used[count]
                    continue
                n += 1
                v, u = y + down[o], x + across[o]
                if 0 <= v < height and 0 <= u < width:
                    if edges < others.size:
                        others[edges], shares[edges] = v * width + u, np.float32(sums[o]) / WEIGHT_ONE
                    edges += 1
        for n in range(count):
            sums[used[n]], listed[used[n]] = 0, False
    starts[height * width] = edges
    return edges


@compiled(nogil=True)
def symmetric(starts, others, shares, both_starts, both, halves):
    """Write (S + Sᵀ)/2 of a directed graph S, both in rows; an edge in both directions stands twice."""
    n = starts.size - 1
    for p in range(n + 1):
        both_starts[p] = 0
    for p in range(n):
        both_starts[p + 1] += starts[p + 1] - starts[p]
        for e in range(starts[p], starts[p + 1]):
            both_starts[others[e] + 1] += 1
    for p in range(n):
        both_starts[p + 1] += both_starts[p]
    place = both_starts[:n].copy()
    half = np.float32(0.5)
    for p in range(n):
        for e in range(starts[p], starts[p + 1]):
            q = others[e]
            both[place[p]], halves[place[p]] = q, half * shares[e]
            place[p] += 1
            both[place[q]], halves[place[q]] = p, half * shares[e]
            place[q] += 1


@compiled(nogil=True, fastmath=_FASTMATH)
def apply_laplacian(starts, others, weights, x, out):
    """out = L x: Σ_q w_pq (x_p − x_q)."""
    for p in range(x.size):
        total, own = np.float32(0), x[p]
        for e in range(starts[p], starts[p + 1]):
            total += weights[e] * (own - x[others[e]])
        out[p] = total


@compiled(nogil=True, forceinline=True)
def columns_of_unknown(
    starts, others, weights, unknown, place, rows, degrees, row_starts, columns, entries
):  # fmt: skip
    """Write the columns of L that belong to unknown pixels, row by row; return how many rows are not zero.

    ``place`` (n,) has the number of each unknown pixel, −1 elsewhere. The first rows are those of the unknown
    pixels, in their order; the others follow. Row r of the matrix is row ``rows[r]`` of L, whose diagonal is
    ``degrees[r]``. Edges that stand twice become one entry; the diagonal is the first entry of the row of an
    unknown pixel.
    """
    n, m = place.size, unknown.size
    slot = np.full(m, -1, np.int64)
    count, size = 0, 0
    for number in range(m + n):
        p = unknown[number] if number < m else number - m
        if number >= m and place[p] >= 0:
            continue
        begin = size
        if number < m:
            columns[size], entries[size] = number, np.float32(0)
            slot[number] = size
            size += 1
        degree = np.float32(0)
        for e in range(starts[p], starts[p + 1]):
            degree += weights[e]
            i = place[others[e]]
            if i < 0:
                continue
            if slot[i] < begin:
                slot[i] = size
                columns[size], entries[size] = i, np.float32(0)
                size += 1
            entries[slot[i]] -= weights[e]
        if number < m:
            entries[begin] += degree
        if size > begin:
            rows[count], row_starts[count], degrees[count] = p, begin, degree
            count += 1
    row_starts[count] = size
    return count


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def apply_energy(row_starts, columns, entries, count, x, first_order, second_order, out, four):
    """Write second_order·BᵀB x + first_order·L_UU x for the columns B of the unknown pixels.

    x and ``out`` have four columns, one after another in each of their m rows.
    """
    m = x.size // FOUR
    for i in range(x.size):
        out[i] = np.float32(0)
    for r in range(count):
        begin, size = row_starts[r], row_starts[r + 1] - row_starts[r]
        weighted_sum(four, x, columns, entries, begin, size)
        if r < m:
            for lane in range(FOUR):
                out[r * FOUR + lane] += first_order * four[lane]
        if second_order > 0:
            for lane in range(FOUR):
                four[lane] *= second_order
            add_weighted(four, out, columns, entries, begin, size)


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def dots(x, y, over, out):
    """Write Σ x y · over for each of four columns."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    for i in range(x.size // FOUR):
        a, b, scale = x[i * FOUR : i * FOUR + FOUR], y[i * FOUR : i * FOUR + FOUR], over[i]
        s0 += np.float64(a[0] * b[0] * scale)
        s1 += np.float64(a[1] * b[1] * scale)
        s2 += np.float64(a[2] * b[2] * scale)
        s3 += np.float64(a[3] * b[3] * scale)
    out[0], out[1], out[2], out[3] = s0, s1, s2, s3


@compiled(nogil=True, fastmath=_FASTMATH)
def solve(starts, others, weights, X, unknown, first_order, second_order, tolerance, most):
    """Minimise second_order·‖L x‖² + first_order·xᵀ L x over the unknown pixels of each row x of X, in place.

    Conjugate gradients for four rows of X (C, n) side by side, preconditioned by the diagonal, until every
    residual is ``tolerance`` times what it was at x = 0 on the unknown pixels, or after ``most`` iterations.
    Only the columns of L that belong to unknown pixels take part.
    """
    C, n = X.shape
    m = unknown.size
    first_order, second_order = np.float32(first_order), np.float32(second_order)
    place = np.full(n, -1, np.int32)
    most_entries = m
    for i in range(m):
        p = unknown[i]
        place[p] = i
        most_entries += 2 * (starts[p + 1] - starts[p])
    rows, row_starts, degrees = np.empty(n, np.int64), np.empty(n + 1, np.int64), np.empty(n, np.float32)
    columns, entries = np.empty(most_entries, np.int32), np.empty(most_entries, np.float32)
    count = columns_of_unknown(
        starts, others, weights, unknown, place, rows, degrees, row_starts, columns, entries
    )

    over, ones = np.zeros(m, np.float32), np.ones(m, np.float32)
    for r in range(count):
        for e in range(row_starts[r], row_starts[r + 1]):
            over[columns[e]] += second_order * entries[e] * entries[e]
    for i in range(m):
        diagonal = over[i] + first_order * entries[row_starts[i]]
        over[i] = np.float32(1) / diagonal if diagonal > 0 else np.float32(0)

    known, four = np.zeros(n * FOUR, np.float32), np.empty(FOUR, np.float32)
    r, x = np.empty(m * FOUR, np.float32), np.empty(m * FOUR, np.float32)
    product, direction = np.empty(m * FOUR, np.float32), np.empty(m * FOUR, np.float32)
    scale, rz = np.empty(FOUR, np.float64), np.empty(FOUR, np.float64)
    curvature, new = np.empty(FOUR, np.float64), np.empty(FOUR, np.float64)
    for first in range(0, C, FOUR):
        for lane in range(FOUR):
            for p in range(n):
                known[p * FOUR + lane] = X[first + lane, p] if first + lane < C else np.float32(0)
        for i in range(m):
            for lane in range(FOUR):
                x[i * FOUR + lane] = known[unknown[i] * FOUR + lane]
                known[unknown[i] * FOUR + lane] = np.float32(0)
                r[i * FOUR + lane] = np.float32(0)
        # The right-hand side is what the known pixels alone ask for: the gradient with zeros elsewhere.
        for k in range(count):
            p = rows[k]
            weighted_sum(four, known, others, weights, starts[p], starts[p + 1] - starts[p])
            for lane in range(FOUR):
                four[lane] -= degrees[k] * known[p * FOUR + lane]
            if k < m:
                for lane in range(FOUR):
                    r[k * FOUR + lane] += first_order * four[lane]
            for lane in range(FOUR):
                four[lane] *= second_order
            add_weighted(four, r, columns, entries, row_starts[k], row_starts[k + 1] - row_starts[k])
        dots(r, r, over, scale)
        apply_energy(row_starts, columns, entries, count, x, first_order, second_order, product, four)
        for i in range(m):
            for lane in range(FOUR):
                r[i * FOUR + lane] -= product[i * FOUR + lane]
                direction[i * FOUR + lane] = r[i * FOUR + lane] * over[i]
        dots(r, r, over, rz)
        for _ in range(most):
            if (rz <= tolerance * tolerance * scale).all():
                break
            apply_energy(
                row_starts, columns, entries, count, direction, first_order, second_order, product, four
            )
            dots(direction, product, ones, curvature)
            for lane in range(FOUR):
                four[lane] = rz[lane] / curvature[lane] if curvature[lane] > 0 else 0.0
            for i in range(m):
                for lane in range(FOUR):
                    x[i * FOUR + lane] += four[lane] * direction[i * FOUR + lane]
                    r[i * FOUR + lane] -= four[lane] * product[i * FOUR + lane]
            dots(r, r, over, new)
            for lane in range(FOUR):
                four[lane] = new[lane] / rz[lane] if rz[lane] > 0 else 0.0
                rz[lane] = new[lane]
            for i in range(m):
                for lane in range(FOUR):
                    here = i * FOUR + lane
                    direction[here] = r[here] * over[i] + four[lane] * direction[here]
        for lane in range(min(FOUR, C - first)):
            for i in range(m):
                X[first + lane, unknown[i]] = x[i * FOUR + lane]


@compiled(nogil=True)
def entropic_weights(distances, offsets, weights):
    """Softmax of −D/τ over the neighbours of each centre; τ is the distance to the middle one."""
    H, W, K = distances.shape
    for y in range(H):
        for x in range(W):
            if offsets[y, x, 0] < 0:
                continue
            found = 0
            while found < K and offsets[y, x, found] >= 0:
                found += 1
            tau = distances[y, x, found // 2] + np.float32(1e-6)
            total = np.float32(0)
            for k in range(found):
                w = np.float32(math.exp(-(distances[y, x, k] - distances[y, x, 0]) / tau))
                weights[y, x, k] = w
                total += w
            for k in range(found):
                weights[y, x, k] /= total
