"""The loops of the sparse form on the CPU, compiled by numba.

As in :mod:`airnp.engines._cpu_kernels`, work is cut into ``chunks``; here chunk q has the lines ``cuts[q]``
to ``cuts[q + 1]``, which hold about the same number of entries each. A line is always summed in the same
order, so that only what is gathered across chunks (``parts``) depends on their number.

Rows of factors that are gathered from all over memory are asked for a few entries ahead.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from airnp.engines._cpu_kernels import Kernel
from airnp.sparse._rows import add_gap, add_scaled, dot, prefetch, squares

_AHEAD = 8
"""Entries between asking for a row and using it."""


@njit
def _ask_for(data, index, width):
    """Prefetch row ``index`` of the rows at an address, each ``width`` bytes long."""
    row = data + np.int64(index) * width
    for place in range(0, width, 64):
        prefetch(row + place)


@Kernel
def residuals(
    indptr, indices, values, u, v, mean, rows, columns, scale, cuts, gu, grows, parts, gcolumns, sums, chunks
):
    """Gradients of scale/2 Σ (x − y)²; ∂V and ∂c in one part for each chunk; Σ (x − y)² of each row."""
    rank, width = u.shape[1], u.shape[1] * u.itemsize
    zero, end = values.dtype.type(0), values.size - 1
    for chunk in prange(chunks):
        gv, gc = parts[chunk], gcolumns[chunk]
        gv[:] = 0
        gc[:] = 0
        u_data, gu_data = np.int64(u.ctypes.data), np.int64(gu.ctypes.data)
        v_data, gv_data = np.int64(v.ctypes.data), np.int64(gv.ctypes.data)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            here, slope_here = u_data + i * width, gu_data + i * width
            gu[i] = 0
            base = mean + rows[i]
            slopes, total = zero, 0.0
            for entry in range(indptr[i], indptr[i + 1]):
                ahead = indices[min(entry + _AHEAD, end)]
                _ask_for(v_data, ahead, width)
                _ask_for(gv_data, ahead, width)
                j = np.int64(indices[entry])
                other = v_data + j * width
                error = dot(zero, here, other, rank) + base + columns[j] - values[entry]
                total += np.float64(error) * np.float64(error)
                slope = scale * error
                slopes += slope
                gc[j] += slope
                add_scaled(slope, other, slope_here, rank)
                add_scaled(slope, here, gv_data + j * width, rank)
            grows[i] = slopes
            sums[i] = total


@Kernel
def add_parts(parts, gcolumns, gv, gc, chunks):
    """∂V and ∂c from the parts of all chunks, added in their order."""
    lines, rank = gv.shape
    for chunk in prange(chunks):
        for j in range(chunk * lines // chunks, (chunk + 1) * lines // chunks):
            target = gv[j]
            for k in range(rank):
                target[k] = parts[0, j, k]
            gc[j] = gcolumns[0, j]
            for part in range(1, parts.shape[0]):
                source = parts[part, j]
                for k in range(rank):
                    target[k] += source[k]
                gc[j] += gcolumns[part, j]


@Kernel
def values_at(rows, columns, u, v, mean, row_offsets, column_offsets, out, chunks):
    """x at pairs."""
    rank, width, size = u.shape[1], u.shape[1] * u.itemsize, out.size
    zero = out.dtype.type(0)
    for chunk in prange(chunks):
        u_data, v_data = np.int64(u.ctypes.data), np.int64(v.ctypes.data)
        for entry in range(chunk * size // chunks, (chunk + 1) * size // chunks):
            i, j = np.int64(rows[entry]), np.int64(columns[entry])
            product = dot(zero, u_data + i * width, v_data + j * width, rank)
            out[entry] = product + row_offsets[i] + column_offsets[j] + mean


@Kernel
def line_sums(indptr, indices, x, cuts, out, chunks):
    """The sum of the rows of x at each line's entries."""
    rank, width = x.shape[1], x.shape[1] * x.itemsize
    one, end = x.dtype.type(1), indices.size - 1
    for chunk in prange(chunks):
        data, target = np.int64(x.ctypes.data), np.int64(out.ctypes.data)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            out[i] = 0
            for entry in range(indptr[i], indptr[i + 1]):
                _ask_for(data, indices[min(entry + _AHEAD, end)], width)
                add_scaled(one, data + np.int64(indices[entry]) * width, target + i * width, rank)


@Kernel
def edge_terms(indptr, indices, logits, t, metric, cuts, weights, slopes, pull, means, chunks):
    """P, ∂R/∂logits, and the outgoing half Σ_j P_ij (t_i − t_j) of 2 L t; Σ_j P_ij D_ij of each node."""
    rank, width = t.shape[1], t.shape[1] * t.itemsize
    half, zero, end = logits.dtype.type(0.5), logits.dtype.type(0), indices.size - 1
    for chunk in prange(chunks):
        data, metrics = np.int64(t.ctypes.data), np.int64(metric.ctypes.data)
        pulls = np.int64(pull.ctypes.data)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            first, last = indptr[i], indptr[i + 1]
            here, target = data + i * width, pulls + i * width
            pull[i] = 0
            if first == last:
                means[i] = zero
                continue
            top = logits[first]
            for edge in range(first, last):
                top = max(top, logits[edge])
            total, mean = zero, zero
            for edge in range(first, last):
                _ask_for(data, indices[min(edge + _AHEAD, end)], width)
                distance = squares(zero, metrics, here, data + np.int64(indices[edge]) * width, rank)
                weight = math.exp(logits[edge] - top)
                weights[edge] = weight
                slopes[edge] = distance
                total += weight
                mean += weight * distance
            inverse = logits.dtype.type(1) / total
            mean *= inverse
            means[i] = mean
            for edge in range(first, last):
                weight = weights[edge] * inverse
                weights[edge] = weight
                slopes[edge] = half * weight * (slopes[edge] - mean)
                add_gap(weight, here, data + np.int64(indices[edge]) * width, target, rank)


@Kernel
def incoming_pull(indptr, indices, places, weights, t, cuts, pull, chunks):
    """Add the incoming half Σ_i P_ij (t_j − t_i) of 2 L t."""
    rank, width, end = t.shape[1], t.shape[1] * t.itemsize, indices.size - 1
    for chunk in prange(chunks):
        data, pulls = np.int64(t.ctypes.data), np.int64(pull.ctypes.data)
        weight_data, size = np.int64(weights.ctypes.data), weights.itemsize
        for j in range(cuts[chunk], cuts[chunk + 1]):
            here, target = data + j * width, pulls + j * width
            for edge in range(indptr[j], indptr[j + 1]):
                ahead = min(edge + _AHEAD, end)
                _ask_for(data, indices[ahead], width)
                prefetch(weight_data + np.int64(places[ahead]) * size)
                other = data + np.int64(indices[edge]) * width
                add_gap(weights[places[edge]], here, other, target, rank)


@Kernel
def laplacian(indptr, indices, weights, t, metric, cuts, pull, means, chunks):
    """2 L t of a symmetric graph; Σ_j A_ij D_ij of each node."""
    rank, width = t.shape[1], t.shape[1] * t.itemsize
    zero, end = t.dtype.type(0), indices.size - 1
    for chunk in prange(chunks):
        data, metrics = np.int64(t.ctypes.data), np.int64(metric.ctypes.data)
        pulls = np.int64(pull.ctypes.data)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            here, target = data + i * width, pulls + i * width
            pull[i] = 0
            total = zero
            for edge in range(indptr[i], indptr[i + 1]):
                _ask_for(data, indices[min(edge + _AHEAD, end)], width)
                weight, other = weights[edge], data + np.int64(indices[edge]) * width
                total += weight * squares(zero, metrics, here, other, rank)
                add_gap(weight + weight, here, other, target, rank)
            means[i] = total
