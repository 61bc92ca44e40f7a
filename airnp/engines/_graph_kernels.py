"""Loops over the graph of patches and its Laplacian on pixels, compiled by numba on first use and cached."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from airnp.engines._patch_kernels import row_distances

_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}


@njit(nogil=True, cache=True)
def nearest_rows(padded, Q, wanted, first, step, patch, search, offsets, distances):
    """Write the K nearest patches of every wanted centre (y, x): their offsets and distances, nearest first.

    ``padded`` (1, C, H + p − 1, W + p − 1) has a frame around the picture, so that the patch around pixel
    (y, x) begins at (y, x). Offset o is (o // side − search, o % side − search); −1 where there is none.
    """
    H, W, K = offsets.shape
    side = 2 * search + 1
    out, line = np.empty((side * side, W), np.float32), np.empty(padded.shape[3], np.float32)
    own = search * side + search
    for y in range(first, H, step):
        left, right = W, 0
        for x in range(W):
            if wanted[y, x]:
                left, right = min(left, x), x + 1
        if left >= right:
            continue
        row_distances(padded, Q, 0, y, left, right, patch, search, out, line)
        for x in range(left, right):
            if not wanted[y, x]:
                continue
            near, far = offsets[y, x], distances[y, x]
            for k in range(K):
                near[k], far[k] = -1, np.inf
            for o in range(side * side):
                d = out[o, x - left]
                if d < far[K - 1] and o != own:
                    k = K - 1
                    while k > 0 and far[k - 1] > d:
                        far[k], near[k] = far[k - 1], near[k - 1]
                        k -= 1
                    far[k], near[k] = d, o


@njit(nogil=True, cache=True)
def couple_pixels(offsets, weights, top, left, height, width, search, reach, starts, others, shares):
    """Return the directed pixel graph of a window: how many edges there are, row by row.

    Pixel p is joined to p + o with the sum of the weights of all edges with offset o of patches whose centre
    is at most ``reach`` rows and columns away from p. Edges that leave the window are left out.
    """
    H, W, K = offsets.shape
    side = 2 * search + 1
    sums, used = np.zeros(side * side, np.float32), np.empty(side * side, np.int64)
    edges = 0
    for y in range(height):
        for x in range(width):
            starts[y * width + x] = edges
            count = 0
            for i in range(max(top + y - reach, 0), min(top + y + reach, H - 1) + 1):
                for j in range(max(left + x - reach, 0), min(left + x + reach, W - 1) + 1):
                    for k in range(K):
                        o = offsets[i, j, k]
                        if o < 0:
                            break
                        if sums[o] == 0:
                            used[count] = o
                            count += 1
                        sums[o] += weights[i, j, k]
            for n in range(count):
                o = used[n]
                v, u = y + o // side - search, x + o % side - search
                if 0 <= v < height and 0 <= u < width and sums[o] > 0:
                    if edges < others.size:
                        others[edges], shares[edges] = v * width + u, sums[o]
                    edges += 1
                sums[o] = np.float32(0)
    starts[height * width] = edges
    return edges


@njit(nogil=True, cache=True)
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


@njit(nogil=True, cache=True, fastmath=_FASTMATH)
def apply_laplacian(starts, others, weights, x, out):
    """out = L x: Σ_q w_pq (x_p − x_q)."""
    for p in range(x.size):
        total, own = np.float32(0), x[p]
        for e in range(starts[p], starts[p + 1]):
            total += weights[e] * (own - x[others[e]])
        out[p] = total


@njit(nogil=True, cache=True, fastmath=_FASTMATH)
def solve(starts, others, weights, x, unknown, first_order, second_order, tolerance, most):
    """Minimise second_order·‖L x‖² + first_order·xᵀ L x over the unknown pixels of x, in place.

    Conjugate gradients, preconditioned by the diagonal, until the residual is ``tolerance`` times what it was
    at x = 0 on the unknown pixels, or after ``most`` iterations. Returns how many there were.
    """
    n, m = x.size, unknown.size
    first, second = np.empty(n, np.float32), np.empty(n, np.float32)
    full = np.zeros(n, np.float32)
    over, r, z = np.empty(m, np.float64), np.empty(m, np.float64), np.empty(m, np.float64)
    direction = np.empty(m, np.float64)
    for i in range(m):
        p = unknown[i]
        degree, squares = 0.0, 0.0
        for e in range(starts[p], starts[p + 1]):
            degree += weights[e]
            squares += weights[e] * weights[e]
        diagonal = second_order * (degree * degree + squares) + first_order * degree
        over[i] = 1.0 / diagonal if diagonal > 0 else 0.0
    # What the residual would be with zeros at the unknown pixels sets the scale.
    for p in range(n):
        full[p] = x[p]
    for i in range(m):
        full[unknown[i]] = np.float32(0)
    apply_laplacian(starts, others, weights, full, first)
    apply_laplacian(starts, others, weights, first, second)
    scale = 0.0
    for i in range(m):
        p = unknown[i]
        b = second_order * second[p] + first_order * first[p]
        scale += b * b * over[i]
    apply_laplacian(starts, others, weights, x, first)
    apply_laplacian(starts, others, weights, first, second)
    rz = 0.0
    for i in range(m):
        p = unknown[i]
        r[i] = -(second_order * second[p] + first_order * first[p])
        z[i] = r[i] * over[i]
        direction[i] = z[i]
        rz += r[i] * z[i]
    for p in range(n):
        full[p] = np.float32(0)
    for iteration in range(most):
        if rz <= tolerance * tolerance * scale:
            return iteration
        for i in range(m):
            full[unknown[i]] = np.float32(direction[i])
        apply_laplacian(starts, others, weights, full, first)
        apply_laplacian(starts, others, weights, first, second)
        curvature = 0.0
        for i in range(m):
            p = unknown[i]
            curvature += direction[i] * (second_order * second[p] + first_order * first[p])
        if curvature <= 0:
            return iteration
        length = rz / curvature
        new = 0.0
        for i in range(m):
            p = unknown[i]
            x[p] += np.float32(length * direction[i])
            r[i] -= length * (second_order * second[p] + first_order * first[p])
            z[i] = r[i] * over[i]
            new += r[i] * z[i]
        turn = new / rz
        rz = new
        for i in range(m):
            direction[i] = z[i] + turn * direction[i]
    return most


@njit(nogil=True, cache=True)
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
