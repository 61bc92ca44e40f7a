"""Loops over the patches of a picture, compiled by numba on first use and cached on disk.

A picture is an array (F, C, H, W) of float32: F frames (one, unless the picture is part of a video), C
channels. A patch is named by the place of its upper left corner and has d = C·p·p entries, channel by
channel.

Nothing here depends on where a window was cut out of a picture: distances are summed in a fixed order, and
filled pixels are added up as 64-bit integers, which may be added in any order and by any thread. So a picture
has one answer, to the bit, however it is cut.
"""

from __future__ import annotations

import math
from collections import namedtuple

import numpy as np

from airnp.engines._cpu_kernels import compiled
from airnp.engines._tiles import (
    LANES,
    PADDING,
    ROWS,
    corner_inverse,
    corner_inverse_of_lanes,
    eliminate,
    eliminate_lanes,
    product,
    product_of_lanes,
    squares_apart,
    sum_of_lines,
)

INFINITY = np.int32(0x7F800000)
"""The bits of an infinite float."""

_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
"""Sums are reassociated so that they vectorise. There is no NaN and no infinity in what is summed.

What a kernel calls has ``forceinline``: a function that is not inlined is compiled twice, by itself and
with its caller, and the two may round differently; a process that loads the kernel from a cache would run
the second where the process that compiled it ran the first.
"""


@compiled(nogil=True, forceinline=True)
def row_distances(X, Q, shape, frame, y, left, right, patch, search, out, line, column):
    """‖Q ⊙ (patch − candidate)‖² of all patches of a row to all candidates around them.

    Entry (x − left) of row o of ``out``, at o · line, is the distance of the patch at (y, x) of X[frame] to
    candidate o: frames in turn, then offsets −search … search of rows, then of columns. Infinite where there
    is no candidate. X and Q are flat and ``shape`` is that of X, with room for sixteen entries behind them,
    and behind each row of ``out``.
    """
    F, C, H, W = shape
    side = 2 * search + 1
    count = right - left
    for f in range(F):
        for dy in range(-search, search + 1):
            other = y + dy
            for dx in range(-search, search + 1):
                row = ((f * side + dy + search) * side + dx + search) * line
                first, last = max(left, -dx), min(right, W - patch + 1 - dx)
                if other < 0 or other + patch > H or last <= first:
                    for x in range(count):
                        out[row + x] = np.inf
                    continue
                n = last - first
                weight = y * W + first
                here, there = frame * C * H * W + weight, (f * C * H + other) * W + first + dx
                for x in range(0, n + patch - 1, LANES):
                    squares_apart(column, x, X, here + x, X, there + x, Q, weight + x, H * W, C, W, patch)
                for x in range(0, n, LANES):
                    sum_of_lines(out, row + first - left + x, column, x, 1, patch)
                for x in range(first - left):
                    out[row + x] = np.inf
                for x in range(last - left, count):
                    out[row + x] = np.inf


@compiled(nogil=True, forceinline=True)
def kth_smallest(bits, count):
    """The ``count``-th smallest of floats that are not negative: by their bits, which have their order."""
    found = np.int32(0)
    for shift in range(30, -1, -1):
        middle, below = found | np.int32(1 << shift), np.int32(0)
        for o in range(bits.size):
            below += np.int32(bits[o] < middle)
        if below < count:
            found = middle
    return found


@compiled(nogil=True, forceinline=True)
def nearest(bits, count, places):
    """Write the places of the ``count`` smallest distances, in order of place; of equal ones the first."""
    bar = kth_smallest(bits, count)
    equal = count
    for o in range(bits.size):
        equal -= bits[o] < bar
    n = 0
    for o in range(bits.size):
        if bits[o] < bar:
            places[n] = o
            n += 1
        elif bits[o] == bar and equal > 0:
            places[n] = o
            n += 1
            equal -= 1


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def statistics(Z, K, V, d, n, ridge, noise, mean, spread, C):
    """Mean, deviations and the upper triangle of the covariance of a group's rows: K lines of Z.

    Lines have n + 12 entries, of which d are in use, and are overwritten with deviations. V is the mean
    variance of what is filled. It is added with the correlations of the rows themselves: filled pixels of a
    patch are wrong together, not one by one. Rows of C from d to n are those of the identity.
    """
    line = n + PADDING
    mean[:d] = np.float32(0)
    for k in range(K):
        row = Z[k * line : k * line + d]
        for c in range(d):
            mean[c] += row[c]
    share = np.float32(1.0 / K)
    for c in range(d):
        mean[c] *= share
    for k in range(K):
        row = Z[k * line : k * line + d]
        for c in range(d):
            row[c] -= mean[c]
    for a in range(0, n, ROWS):
        for b in range(a, n, LANES):
            product(C, a * line + b, line, Z, a, line, 1, Z, b, line, K)
    total = np.float32(0)
    for a in range(d):
        variance = C[a * line + a] * share
        spread[a] = math.sqrt(V[a] / (variance + np.float32(1e-12)))
        total += variance + V[a] * variance / (variance + np.float32(1e-12))
    added = ridge * total / np.float32(d) + noise
    for a in range(n):
        first = a - a % ROWS
        row, others = C[a * line + first : a * line + line], spread[first:line]
        s = spread[a]
        for b in range(line - first):
            row[b] = row[b] * share * (np.float32(1) + s * others[b])
        C[a * line + a] = C[a * line + a] + added if a < d else np.float32(1)


@compiled(nogil=True, forceinline=True)
def inverse(C, n, U, T, W, P):
    """Write the upper triangle of C⁻¹ to P: C = UᵀU and P = WᵀW with W = U⁻ᵀ. T holds U's inverse corners."""
    line = n + PADDING
    for a in range(n * line):
        U[a], W[a] = C[a], np.float32(0)
    for a in range(n):
        W[a * line + a] = np.float32(1)
    for a in range(0, n, ROWS):
        corner = ROWS * a
        for b in range(a, n, LANES):
            eliminate(U, a * line + b, line, U, a, line, 1, U, b, line, a)
        corner_inverse(U, a * line + a, line, 1, T, corner)
        for b in range(a, n, LANES):
            product(U, a * line + b, line, T, corner, ROWS, 1, U, a * line + b, line, ROWS)
        for b in range(0, a + ROWS, LANES):
            eliminate(W, a * line + b, line, U, b * line + a, line, 1, W, b * line + b, line, a - b)
            product(W, a * line + b, line, T, corner, ROWS, 1, W, a * line + b, line, ROWS)
    for a in range(0, n, ROWS):
        for b in range(a, n, LANES):
            product(P, a * line + b, line, W, b * line + a, line, 1, W, b * line + b, line, n - b)


@compiled(nogil=True, forceinline=True)
def pull(P, n, apart, pulls):
    """Write −P·apart, for sixteen columns side by side; P has its upper triangle."""
    line = n + PADDING
    for a in range(n * LANES):
        pulls[a] = np.float32(0)
    for a in range(0, n, ROWS):
        eliminate(pulls, a * LANES, LANES, P, a, line, 1, apart, 0, LANES, a)
        here = a * line + a
        eliminate(pulls, a * LANES, LANES, P, here, 1, line, apart, a * LANES, LANES, n - a)


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def solve(S, start, m, w, identity, T, filled, spread):
    """Solve sixteen systems [A | y | B] side by side: means Bᵀ A⁻¹ y, and squares diag Bᵀ A⁻¹ B.

    A is m×m, of which the upper triangle is read, and B m×w, or the identity if ``identity`` says so. With
    A = UᵀU, all columns are multiplied by U⁻ᵀ.
    """
    columns = m + 1 + w
    line = columns * LANES
    if identity:
        for a in range(m):
            for b in range(w * LANES):
                S[start + (a * columns + m + 1) * LANES + b] = np.float32(a == b // LANES)
    for a in range(0, m, ROWS):
        here = start + a * line
        stop = m + 1 + min(a + ROWS, w) if identity else columns
        for b in range(a, stop):
            # Above the diagonal of the identity are zeros.
            first = (b - m - 1) // ROWS * ROWS if identity and b > m else 0
            above = start + first * line
            eliminate_lanes(
                S, here + b * LANES, line, S, above + a * LANES, line, LANES,
                S, above + b * LANES, line, a - first,
            )  # fmt: skip
        corner_inverse_of_lanes(S, here + a * LANES, line, LANES, T, 0)
        for b in range(a, stop):
            product_of_lanes(
                S, here + b * LANES, line, T, 0, ROWS * LANES, LANES, S, here + b * LANES, line, ROWS
            )
    for b in range(0, w, ROWS):
        own = start + (m + 1 + b) * LANES
        product_of_lanes(filled, b * LANES, LANES, S, own, line, LANES, S, start + m * LANES, line, m)
    total = spread[: w * LANES]
    for b in range(w * LANES):
        total[b] = np.float32(0)
    for a in range(m):
        first = start + (a * columns + m + 1) * LANES
        row = S[first : first + w * LANES]
        for b in range(w * LANES):
            total[b] += row[b] * row[b]


Queue = namedtuple(
    "Queue", "half sizes widths starts rims systems centre floor where counts waiting corners filled spread"
)
"""Patches that wait to be filled, sixteen of a kind side by side: of nearly the same number of gaps.

Kinds 0 … half have up to 0, 4, 8, … gaps, which are filled by precisions; the others have up to 0, 4, 8, …
observed entries and are filled by covariances. ``sizes`` and ``widths`` are m and w of :func:`solve`; the
system of a kind is at ``starts``, and what belongs to its gaps at ``rims``: the group's mean, the variance
that squares are subtracted from, and the place in the picture.
"""


@compiled(nogil=True, forceinline=True)
def queue_for(d):
    """Return an empty queue for patches of d entries."""
    half = (d // 2 + ROWS - 1) // ROWS
    kinds = 2 * half + 2
    sizes, widths = np.empty(kinds, np.int64), np.empty(kinds, np.int64)
    starts, rims = np.zeros(kinds + 1, np.int64), np.zeros(kinds + 1, np.int64)
    for kind in range(kinds):
        m = ROWS * (kind if kind <= half else kind - half - 1)
        most = m if kind <= half else d - max(m - ROWS + 1, 0)
        w = (most + ROWS - 1) // ROWS * ROWS
        sizes[kind], widths[kind] = m, w
        starts[kind + 1] = starts[kind] + m * (m + 1 + w) * LANES
        rims[kind + 1] = rims[kind] + w * LANES
    rim, widest = rims[kinds], (d + ROWS) * LANES
    return Queue(
        half, sizes, widths, starts, rims, np.empty(starts[kinds], np.float32),
        np.empty(rim, np.float32), np.empty(rim, np.float32), np.empty(rim, np.int64),
        np.zeros((kinds, LANES), np.int64), np.zeros(kinds, np.int64),
        np.empty(ROWS * ROWS * LANES, np.float32),
        np.empty(widest, np.float32), np.empty(widest, np.float32),
    )  # fmt: skip


@compiled(nogil=True, forceinline=True)
def enter(queue, kind, matrix, line, pivots, m, y, number, gaps, count, mean, inside, base):
    """Let a patch wait: the ``m`` pivots of its system and their part of y, and its gaps."""
    S, lane = queue.systems, queue.waiting[kind]
    size, by_precision = queue.sizes[kind], kind <= queue.half
    columns = size + 1 + queue.widths[kind]
    for a in range(size):
        here = queue.starts[kind] + a * columns * LANES + lane
        p = pivots[a] if a < m else 0
        for b in range(a, size):
            S[here + b * LANES] = matrix[p * line + pivots[b]] if b < m else np.float32(a == b)
        S[here + size * LANES] = y[p * LANES + number] if a < m else np.float32(0)
        if not by_precision:
            for b in range(count):
                low, high = min(p, gaps[b]), max(p, gaps[b])
                known = matrix[low * line + high] if a < m else np.float32(0)
                S[here + (size + 1 + b) * LANES] = known
    for b in range(count):
        c = gaps[b]
        place = queue.rims[kind] + b * LANES + lane
        queue.centre[place], queue.where[place] = mean[c], base + inside[c]
        queue.floor[place] = np.float32(0) if by_precision else matrix[c * line + c]
    queue.counts[kind, lane] = count
    queue.waiting[kind] += 1


@compiled(nogil=True, forceinline=True)
def answer(queue, kind, softening, weight_one, value_one, sums, weights, counts):
    """Fill the waiting patches of a kind and add up what they say."""
    by_precision, rim = kind <= queue.half, queue.rims[kind]
    solve(
        queue.systems, queue.starts[kind], queue.sizes[kind], queue.widths[kind], by_precision,
        queue.corners, queue.filled, queue.spread,
    )  # fmt: skip
    for lane in range(queue.waiting[kind]):
        for b in range(queue.counts[kind, lane]):
            place = b * LANES + lane
            square, q = np.float64(queue.spread[place]), queue.where[rim + place]
            v = square if by_precision else max(np.float64(queue.floor[rim + place]) - square, 0.0)
            weight = np.int64(weight_one * softening / (v + softening) + 1.0)
            value = np.float64(queue.centre[rim + place] + queue.filled[place])
            sums[q] += np.int64(np.float64(weight) * min(max(value, -8.0), 8.0) * value_one)
            weights[q] += weight
            counts[q] += 1
    queue.waiting[kind] = 0


@compiled(nogil=True)
def fill_rows(
    X, U, M, Q, frame, rows, columns, wanted, sweeps, first, step, patch, search, neighbours, answers,
    ridge, noise, softening, weight_one, value_one, sums, weights, counts,
):  # fmt: skip
    """Fill the gaps of patches at the crossings of rows and columns from their nearest patches.

    A sweep (row, start, stop) is a part of a row whose distances are computed together. Every ``step``-th one
    from ``first`` on is done. The integers ``sums``, ``weights`` and ``counts`` (C, H,
    W) collect, for the pixels of ``frame``: weight · value, weight, and how many patches had a say.
    """
    F, C, H, W = X.shape
    d, K = C * patch * patch, neighbours
    n = (d + ROWS - 1) // ROWS * ROWS
    line = n + PADDING
    side = 2 * search + 1
    candidates = F * side * side
    widest = 0
    for number in range(first, len(sweeps), step):
        widest = max(widest, columns[sweeps[number, 2] - 1] + 1 - columns[sweeps[number, 1]])
    width = widest + LANES
    distances = np.empty(candidates * width, np.float32)
    by_bits = distances.view(np.int32)
    column, bits, own = (
        np.empty(W + 2 * LANES, np.float32),
        np.empty(candidates, np.int32),
        np.empty(K, np.int32),
    )
    near, bases, order = np.empty(K, np.int64), np.empty(K, np.int64), np.empty(K, np.int64)
    Z, mean, V = np.zeros(K * line, np.float32), np.empty(d, np.float32), np.empty(d, np.float32)
    spread, corners = np.zeros(line, np.float32), np.empty(ROWS * n, np.float32)
    covariance, P = np.zeros(n * line, np.float32), np.zeros(n * line, np.float32)
    factor, root = np.empty(n * line, np.float32), np.empty(n * line, np.float32)
    apart, pulls = np.zeros(n * LANES, np.float32), np.empty(n * LANES, np.float32)
    gaps, seen, inside = np.empty((LANES, d), np.int64), np.empty((LANES, d), np.int64), np.empty(d, np.int64)
    missing = np.empty(LANES, np.int64)
    for c in range(C):
        for u in range(patch):
            for v in range(patch):
                inside[(c * patch + u) * patch + v] = (c * H + u) * W + v
    values, trust = np.zeros(X.size + LANES, np.float32), np.zeros(Q.size + LANES, np.float32)
    values[: X.size], trust[: Q.size] = X.ravel(), Q.ravel()
    uncertain, known = U.ravel(), M.ravel()
    all_sums, all_weights, all_counts = sums.ravel(), weights.ravel(), counts.ravel()
    plane = C * H * W
    queue = queue_for(d)
    # After the last sweep there is one without patches, in which nothing waits any longer.
    for number in range(first, len(sweeps) + step, step):
        last = number >= len(sweeps)
        r, start, stop, y, left = 0, 0, 1, 0, 0
        if not last:
            r, start, stop = sweeps[number]
            y, left = rows[r], columns[start]
            right = columns[stop - 1] + 1
            row_distances(
                values, trust, X.shape, frame, y, left, right, patch, search, distances, width, column
            )
        for i in range(start, stop):
            answering = 0
            if not last:
                if not wanted[r, i]:
                    continue
                x = columns[i]
                usable = 0
                for o in range(candidates):
                    bits[o] = by_bits[o * width + x - left]
                    usable += bits[o] < INFINITY
                members = min(K, usable)
                nearest(bits, members, near)
                for k in range(members):
                    o = near[k]
                    own[k] = bits[o]
                    f, rest = o // (side * side), o % (side * side)
                    bases[k] = f * plane + (y + rest // side - search) * W + x + rest % side - search
                V[:] = np.float32(0)
                for k in range(members):
                    base = bases[k]
                    for c in range(d):
                        Z[k * line + c] = values[base + inside[c]]
                        V[c] += uncertain[base + inside[c]]
                share = np.float32(1.0 / members)
                for c in range(d):
                    V[c] *= share
                statistics(Z, members, V, d, n, ridge, noise, mean, spread, covariance)
                answering = min(answers, members)
                nearest(own[:members], answering, order)
            inverted = False
            for begin in range(0, max(answering, 1), LANES):
                batch = min(LANES, answering - begin)
                for j in range(batch):
                    k = order[begin + j]
                    missing[j], observed = 0, 0
                    for c in range(d):
                        if known[bases[k] + inside[c]]:
                            seen[j, observed] = c
                            observed += 1
                            apart[c * LANES + j] = Z[k * line + c]
                        else:
                            gaps[j, missing[j]] = c
                            missing[j] += 1
                            apart[c * LANES + j] = np.float32(0)
                    if bases[k] // plane != frame:
                        missing[j] = 0
                precise = False
                for j in range(batch):
                    precise = precise or 0 < missing[j] <= d - missing[j]
                if precise:
                    if not inverted:
                        inverse(covariance, n, factor, corners, root, P)
                        inverted = True
                    pull(P, n, apart, pulls)
                j = 0
                while True:
                    while j < batch:
                        count = missing[j]
                        by_precision = 2 * count <= d
                        pivots = count if by_precision else d - count
                        kind = (pivots + ROWS - 1) // ROWS + (0 if by_precision else queue.half + 1)
                        if queue.waiting[kind] == LANES:
                            break
                        if count > 0:
                            base = bases[order[begin + j]] - frame * plane
                            enter(
                                queue, kind, P if by_precision else covariance, line,
                                gaps[j] if by_precision else seen[j], pivots,
                                pulls if by_precision else apart, j, gaps[j], count, mean, inside, base,
                            )  # fmt: skip
                        j += 1
                    for kind in range(queue.waiting.size):
                        if queue.waiting[kind] == LANES or (last and queue.waiting[kind] > 0):
                            answer(
                                queue, kind, softening, weight_one, value_one,
                                all_sums, all_weights, all_counts,
                            )  # fmt: skip
                    if j >= batch:
                        break
