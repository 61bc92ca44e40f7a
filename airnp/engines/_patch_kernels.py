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

import numpy as np

from airnp.engines._cpu_kernels import compiled

_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
"""Sums are reassociated so that they vectorise. There is no NaN and no infinity in what is summed.

What a kernel calls has ``forceinline``: a function that is not inlined is compiled twice, by itself and
with its caller, and the two may round differently; a process that loads the kernel from a cache would run
the second where the process that compiled it ran the first.
"""


@compiled(nogil=True, fastmath={"contract"}, forceinline=True)
def row_distances(X, Q, frame, y, left, right, patch, search, out, column):
    """‖Q ⊙ (patch − candidate)‖² of all patches of a row to all candidates around them.

    out[o, x − left] is the distance of the patch at (y, x) of X[frame] to candidate o: frames in turn, then
    offsets −search … search of rows, then of columns. Infinite where there is no candidate.
    """
    F, C, H, W = X.shape
    side = 2 * search + 1
    count = right - left
    for f in range(F):
        for dy in range(-search, search + 1):
            other = y + dy
            for dx in range(-search, search + 1):
                o = (f * side + dy + search) * side + dx + search
                row = out[o]
                if other < 0 or other + patch > H:
                    for x in range(count):
                        row[x] = np.inf
                    continue
                first, last = max(left, -dx), min(right, W - patch + 1 - dx)
                if last <= first:
                    for x in range(count):
                        row[x] = np.inf
                    continue
                # Slices begin at 0: loops over them need no check for negative indices, and vectorise.
                n = last - first
                line = column[: n + patch - 1]
                line[:] = np.float32(0)
                stop = last + patch - 1
                for c in range(C):
                    for u in range(patch):
                        here = X[frame, c, y + u, first:stop]
                        there = X[f, c, other + u, first + dx : stop + dx]
                        weight = Q[c, y + u, first:stop]
                        for x in range(n + patch - 1):
                            apart = here[x] - there[x]
                            line[x] += weight[x] * apart * apart
                row[: first - left] = np.inf
                row[last - left : count] = np.inf
                total = row[first - left : last - left]
                for x in range(n):
                    total[x] = line[x]
                for v in range(1, patch):
                    moved = line[v : v + n]
                    for x in range(n):
                        total[x] += moved[x]


@compiled(nogil=True, forceinline=True)
def smallest(distances, places, count):
    """Move the ``count`` smallest distances to the front, with their places. Equal ones count by place."""
    low, high = 0, distances.size - 1
    while low < high:
        middle = (low + high) // 2
        pivot, place = distances[middle], places[middle]
        i, j = low, high
        while i <= j:
            while distances[i] < pivot or (distances[i] == pivot and places[i] < place):
                i += 1
            while distances[j] > pivot or (distances[j] == pivot and places[j] > place):
                j -= 1
            if i <= j:
                distances[i], distances[j] = distances[j], distances[i]
                places[i], places[j] = places[j], places[i]
                i += 1
                j -= 1
        if count - 1 <= j:
            high = j
        elif count - 1 >= i:
            low = i
        else:
            break


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def statistics(Z, V, ridge, noise, mean, deviation, spread, C):
    """Mean, deviations and the upper triangle of the covariance of a group's rows Z (K, d).

    V is the mean variance of what is filled. It is added with the correlations of the rows themselves: filled
    pixels of a patch are wrong together, not one by one.
    """
    K, d = Z.shape
    for c in range(d):
        mean[c] = np.float32(0)
    for k in range(K):
        for c in range(d):
            mean[c] += Z[k, c]
    share = np.float32(1.0 / K)
    for c in range(d):
        mean[c] *= share
    for k in range(K):
        for c in range(d):
            deviation[k, c] = Z[k, c] - mean[c]
    for a in range(d):
        C[a, a:] = np.float32(0)
    whole = K - K % 8
    for k in range(0, whole, 8):
        for a in range(d):
            # Slices begin at 0, here and below: loops over them vectorise.
            row = C[a, a:]
            r0, r1, r2, r3 = (
                deviation[k, a:],
                deviation[k + 1, a:],
                deviation[k + 2, a:],
                deviation[k + 3, a:],
            )
            r4, r5, r6, r7 = (
                deviation[k + 4, a:],
                deviation[k + 5, a:],
                deviation[k + 6, a:],
                deviation[k + 7, a:],
            )
            z0, z1, z2, z3, z4, z5, z6, z7 = r0[0], r1[0], r2[0], r3[0], r4[0], r5[0], r6[0], r7[0]
            for b in range(d - a):
                row[b] += (z0 * r0[b] + z1 * r1[b] + z2 * r2[b] + z3 * r3[b]) + (
                    z4 * r4[b] + z5 * r5[b] + z6 * r6[b] + z7 * r7[b]
                )
    for k in range(whole, K):
        for a in range(d):
            row, r0 = C[a, a:], deviation[k, a:]
            z0 = r0[0]
            for b in range(d - a):
                row[b] += z0 * r0[b]
    for a in range(d):
        variance = C[a, a] * share
        spread[a] = math.sqrt(V[a] / (variance + np.float32(1e-12)))
    total = np.float32(0)
    for a in range(d):
        row, others = C[a, a:], spread[a:]
        s = spread[a]
        for b in range(d - a):
            row[b] = row[b] * share * (np.float32(1) + s * others[b])
        total += row[0]
    added = ridge * total / np.float32(d) + noise
    for a in range(d):
        C[a, a] += added


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def factor(A, n):
    """Overwrite the upper triangle of A (n, n) with U, A = UᵀU, row by row from the rows above."""
    for k in range(n):
        row = A[k, k:n]
        whole = k - k % 4
        for j in range(0, whole, 4):
            t0, t1, t2, t3 = A[j, k:n], A[j + 1, k:n], A[j + 2, k:n], A[j + 3, k:n]
            z0, z1, z2, z3 = t0[0], t1[0], t2[0], t3[0]
            for b in range(n - k):
                row[b] -= z0 * t0[b] + z1 * t1[b] + z2 * t2[b] + z3 * t3[b]
        for j in range(whole, k):
            t0 = A[j, k:n]
            z0 = t0[0]
            for b in range(n - k):
                row[b] -= z0 * t0[b]
        root = math.sqrt(max(row[0], np.float32(1e-30)))
        over = np.float32(1) / root
        for b in range(n - k):
            row[b] *= over
        row[0] = root


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def invert_factor(U, n, W):
    """Write U⁻ᵀ, which is lower triangular, to W (n, n)."""
    for i in range(n):
        row = W[i, :n]
        for b in range(n):
            row[b] = np.float32(0)
        whole = i - i % 4
        for k in range(0, whole, 4):
            # The rows end in zeros, so four of them can be taken together.
            t0, t1, t2, t3 = W[k, : k + 4], W[k + 1, : k + 4], W[k + 2, : k + 4], W[k + 3, : k + 4]
            z0, z1, z2, z3 = U[k, i], U[k + 1, i], U[k + 2, i], U[k + 3, i]
            for b in range(k + 4):
                row[b] -= z0 * t0[b] + z1 * t1[b] + z2 * t2[b] + z3 * t3[b]
        for k in range(whole, i):
            t0, z0 = W[k, : k + 1], U[k, i]
            for b in range(k + 1):
                row[b] -= z0 * t0[b]
        over = np.float32(1) / U[i, i]
        for b in range(i):
            row[b] *= over
        row[i] = over


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def inverse(U, n, W, P):
    """Write (UᵀU)⁻¹ = WᵀW to both triangles of P; W is overwritten with U⁻ᵀ."""
    invert_factor(U, n, W)
    for i in range(n):
        row = P[i, : i + 1]
        for b in range(i + 1):
            row[b] = np.float32(0)
        whole = n - (n - i) % 4
        for k in range(i, whole, 4):
            t0, t1, t2, t3 = W[k, : i + 1], W[k + 1, : i + 1], W[k + 2, : i + 1], W[k + 3, : i + 1]
            z0, z1, z2, z3 = t0[i], t1[i], t2[i], t3[i]
            for b in range(i + 1):
                row[b] += z0 * t0[b] + z1 * t1[b] + z2 * t2[b] + z3 * t3[b]
        for k in range(whole, n):
            t0 = W[k, : i + 1]
            z0 = t0[i]
            for b in range(i + 1):
                row[b] += z0 * t0[b]
    for i in range(n):
        for b in range(i):
            P[b, i] = P[i, b]


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def condition_on_precision(P, apart, gaps, count, A, W, filled, variance):
    """Conditional means (less the group's) and variances of ``count`` gaps, by P_mm; apart is 0 at gaps."""
    d = apart.size
    for a in range(count):
        row, full = A[a], P[gaps[a]]
        s = np.float32(0)
        for b in range(d):
            s += full[b] * apart[b]
        filled[a] = -s
        for b in range(a, count):
            row[b] = full[gaps[b]]
    factor(A, count)
    for a in range(count):
        row, rest = A[a, a:count], filled[a:count]
        s = rest[0] / row[0]
        for b in range(count - a):
            rest[b] -= s * row[b]
        rest[0] = s
    for a in range(count - 1, -1, -1):
        row, rest = A[a, a + 1 : count], filled[a + 1 : count]
        s = filled[a]
        for b in range(count - a - 1):
            s -= row[b] * rest[b]
        filled[a] = s / A[a, a]
    invert_factor(A, count, W)
    total = variance[:count]
    for b in range(count):
        total[b] = np.float32(0)
    for a in range(count):
        row = W[a, :count]
        for b in range(count):
            total[b] += row[b] * row[b]


@compiled(nogil=True, fastmath=_FASTMATH, forceinline=True)
def condition_on_covariance(C, apart, gaps, count, seen, n, A, W, filled, variance):
    """The same by C_oo, for rows with more gaps than observed entries; C has its upper triangle."""
    for a in range(n):
        row, p = A[a], seen[a]
        for b in range(a, n):
            row[b] = C[p, seen[b]]
    factor(A, n)
    # W[a] = row a of U⁻ᵀ C_om; variance[a] is row a of U⁻ᵀ (y − μ)_o for now.
    for a in range(n):
        row, p = W[a, :count], seen[a]
        for b in range(count):
            q = gaps[b]
            row[b] = C[p, q] if p < q else C[q, p]
        last = apart[p]
        for k in range(a):
            s, other = A[k, a], W[k, :count]
            for b in range(count):
                row[b] -= s * other[b]
            last -= s * variance[k]
        over = np.float32(1) / A[a, a]
        for b in range(count):
            row[b] *= over
        variance[a] = last * over
    means, spreads = filled[:count], variance[:count]
    for b in range(count):
        means[b] = np.float32(0)
    for a in range(n):
        s, row = variance[a], W[a, :count]
        for b in range(count):
            means[b] += s * row[b]
    for b in range(count):
        spreads[b] = C[gaps[b], gaps[b]]
    for a in range(n):
        row = W[a, :count]
        for b in range(count):
            spreads[b] -= row[b] * row[b]


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
    side = 2 * search + 1
    candidates = F * side * side
    widest = 0
    for n in range(first, len(sweeps), step):
        widest = max(widest, columns[sweeps[n, 2] - 1] + 1 - columns[sweeps[n, 1]])
    distances = np.empty((candidates, widest), np.float32)
    line, near, places = (
        np.empty(W, np.float32),
        np.empty(candidates, np.float32),
        np.empty(candidates, np.int64),
    )
    Z, deviation = np.empty((K, d), np.float32), np.empty((K, d), np.float32)
    V, mean, spread = np.empty(d, np.float32), np.empty(d, np.float32), np.empty(d, np.float32)
    covariance, P = np.empty((d, d), np.float32), np.empty((d, d), np.float32)
    A, B = np.empty((d, d), np.float32), np.empty((d, d), np.float32)
    apart, filled, variance = np.empty(d, np.float32), np.empty(d, np.float32), np.empty(d, np.float32)
    gaps, seen, inside = np.empty(d, np.int64), np.empty(d, np.int64), np.empty(d, np.int64)
    for c in range(C):
        for u in range(patch):
            for v in range(patch):
                inside[(c * patch + u) * patch + v] = (c * H + u) * W + v
    values, uncertain, known = X.ravel(), U.ravel(), M.ravel()
    all_sums, all_weights, all_counts = sums.ravel(), weights.ravel(), counts.ravel()
    plane = C * H * W
    for sweep in range(first, len(sweeps), step):
        r, start, stop = sweeps[sweep]
        y = rows[r]
        left = columns[start]
        row_distances(X, Q, frame, y, left, columns[stop - 1] + 1, patch, search, distances, line)
        for i in range(start, stop):
            if not wanted[r, i]:
                continue
            x = columns[i]
            usable = 0
            for o in range(candidates):
                if distances[o, x - left] < np.inf:
                    near[usable], places[usable] = distances[o, x - left], o
                    usable += 1
            k_here = min(K, usable)
            smallest(near[:usable], places[:usable], k_here)
            answering = min(answers, k_here)
            smallest(near[:k_here], places[:k_here], answering)
            for c in range(d):
                V[c] = np.float32(0)
            for k in range(k_here):
                o = places[k]
                f, rest = o // (side * side), o % (side * side)
                base = f * plane + (y + rest // side - search) * W + x + rest % side - search
                places[k] = base
                for c in range(d):
                    Z[k, c] = values[base + inside[c]]
                    V[c] += uncertain[base + inside[c]]
            share = np.float32(1.0 / k_here)
            for c in range(d):
                V[c] *= share
            statistics(Z[:k_here], V, ridge, noise, mean, deviation, spread, covariance)
            inverted = False
            for k in range(answering):
                base = places[k]
                if base // plane != frame:
                    continue
                n = count = 0
                for c in range(d):
                    if known[base + inside[c]]:
                        seen[n] = c
                        n += 1
                        apart[c] = deviation[k, c]
                    else:
                        gaps[count] = c
                        count += 1
                        apart[c] = np.float32(0)
                if count == 0:
                    continue
                if count <= n:
                    if not inverted:
                        for a in range(d):
                            for b in range(a, d):
                                A[a, b] = covariance[a, b]
                        factor(A, d)
                        inverse(A, d, B, P)
                        inverted = True
                    condition_on_precision(P, apart, gaps, count, A, B, filled, variance)
                else:
                    condition_on_covariance(covariance, apart, gaps, count, seen, n, A, B, filled, variance)
                for a in range(count):
                    c = gaps[a]
                    q = base - frame * plane + inside[c]
                    v = max(np.float64(variance[a]), 0.0)
                    weight = np.int64(weight_one * softening / (v + softening) + 1.0)
                    value = min(max(np.float64(mean[c] + filled[a]), -8.0), 8.0)
                    all_sums[q] += np.int64(np.float64(weight) * value * value_one)
                    all_weights[q] += weight
                    all_counts[q] += 1
