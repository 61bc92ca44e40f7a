"""The loops of the sparse form on the CPU, compiled by numba.

As in :mod:`airnp.engines._cpu_kernels`, work is split into ``chunks``; chunk q has the lines ``cuts[q]`` to
``cuts[q + 1]``, with about the same number of entries each. A line is always summed in the same order, so
only sums across chunks (``parts``) depend on their number.

A line is processed in stretches that stay in the nearest cache, because its rows are read more than once.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numba import njit, prange

from airnp.engines._cpu_kernels import Kernel
from airnp.engines._sparse_rows import add_both_ways, add_gaps, add_gaps_from, dots, put_sum, softmax, squares

_STRETCH = 64
"""Entries of a line that are processed at a time."""


@njit
def _address(array):
    return np.int64(array.ctypes.data)


@njit
def _scratch(dtype):
    """Return scratch for a stretch, apart from all other arrays; ``buffers.empty_apart`` says why."""
    return np.empty(_STRETCH + 128, dtype)[64 : 64 + _STRETCH]


@partial(Kernel, allocates=True)
def residuals(
    indptr, indices, values, weights, u, v, mean, rows, columns, scale, plain, cuts, first_strip, gu, grows,
    parts, gcolumns, sums, chunks,
):  # fmt: skip
    """Gradients of scale/2 Σ w (x − y)²; ∂V and ∂c in one part for each chunk; Σ w (x − y)² of each row.

    Empty ``weights`` mean w = 1. The first strip overwrites the results, later strips add to them.
    """
    rank, width, wide = u.shape[1], u.shape[1] * u.itemsize, indices.itemsize
    zero, index, weighted = values.dtype.type(0), indices.dtype.type(0), weights.size > 0
    for chunk in prange(chunks):
        gv, gc = parts[chunk], gcolumns[chunk]
        if first_strip:
            gv[:] = 0
            gc[:] = 0
        slopes = _scratch(values.dtype)
        u_data, gu_data, ends, scales = _address(u), _address(gu), _address(indices), _address(slopes)
        v_data, gv_data = _address(v), _address(gv)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            here, slope_here = u_data + i * width, gu_data + i * width
            slope_sum, total = zero, 0.0
            if first_strip:
                gu[i] = 0
            else:
                slope_sum, total = grows[i], sums[i]
            base = mean + rows[i]
            for first in range(indptr[i], indptr[i + 1], _STRETCH):
                count, limit = min(_STRETCH, indptr[i + 1] - first), indices.size - first
                line = ends + first * wide
                dots(zero, index, here, v_data, gv_data, line, count, limit, scales, rank)
                # Loops that sum do not write: whether they vectorise would depend on memory addresses.
                if plain:
                    for entry in range(count):
                        slopes[entry] -= values[first + entry]
                else:
                    for entry in range(count):
                        x = slopes[entry] + base + columns[indices[first + entry]]
                        slopes[entry] = x - values[first + entry]
                if weighted:
                    for entry in range(count):
                        error = np.float64(slopes[entry])
                        total += np.float64(weights[first + entry]) * error * error
                    for entry in range(count):
                        slopes[entry] *= scale * weights[first + entry]
                else:
                    for entry in range(count):
                        total += np.float64(slopes[entry]) * np.float64(slopes[entry])
                    for entry in range(count):
                        slopes[entry] *= scale
                if not plain:
                    for entry in range(count):
                        slope_sum += slopes[entry]
                    for entry in range(count):
                        gc[indices[first + entry]] += slopes[entry]
                add_both_ways(zero, index, scales, here, v_data, gv_data, line, count, slope_here, rank)
            grows[i] = slope_sum
            sums[i] = total


@Kernel
def add_parts(parts, gcolumns, gv, gc, chunks):
    """∂V and ∂c: the parts of all chunks, added in their order."""
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
    """out ← x at pairs of rows and columns."""
    rank, width, size, wide = u.shape[1], u.shape[1] * u.itemsize, out.size, columns.itemsize
    zero, index = out.dtype.type(0), columns.dtype.type(0)
    for chunk in prange(chunks):
        u_data, v_data, ends, target = _address(u), _address(v), _address(columns), _address(out)
        for entry in range(chunk * size // chunks, (chunk + 1) * size // chunks):
            i, j = np.int64(rows[entry]), columns[entry]
            place, limit = target + entry * out.itemsize, size - entry
            dots(zero, index, u_data + i * width, v_data, v_data, ends + entry * wide, 1, limit, place, rank)
            out[entry] += row_offsets[i] + column_offsets[j] + mean


@Kernel
def line_sums(indptr, indices, x, cuts, out, chunks):
    """The sum of the rows of x at each line's entries."""
    rank, width, wide = x.shape[1], x.shape[1] * x.itemsize, indices.itemsize
    zero, index = x.dtype.type(0), indices.dtype.type(0)
    for chunk in prange(chunks):
        data, target, ends = _address(x), _address(out), _address(indices)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            first = indptr[i]
            count, limit, line = indptr[i + 1] - first, indices.size - first, ends + first * wide
            put_sum(zero, index, data, line, count, limit, target + i * width, rank)


@Kernel
def edge_terms(indptr, indices, logits, t, metric, cuts, weights, slopes, pull, means, chunks):
    """P, ∂R/∂logits, and the outgoing half Σ_j P_ij (t_i − t_j) of 2 L t; Σ_j P_ij D_ij of each node."""
    rank, width, wide = t.shape[1], t.shape[1] * t.itemsize, indices.itemsize
    zero, index = logits.dtype.type(0), indices.dtype.type(0)
    for chunk in prange(chunks):
        data, metrics, ends = _address(t), _address(metric), _address(indices)
        pulls, free = _address(pull), _address(logits)
        distances, shares = _address(slopes), _address(weights)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            first, last = indptr[i], indptr[i + 1]
            here, target, line = data + i * width, pulls + i * width, ends + first * wide
            count, limit, offset = last - first, indices.size - first, first * logits.itemsize
            pull[i] = 0
            means[i] = zero
            if count:
                squares(zero, index, metrics, here, data, line, count, limit, distances + offset, rank)
                means[i] = softmax(zero, free + offset, shares + offset, distances + offset, count)
                add_gaps(zero, index, shares + offset, here, data, line, count, target, rank)


@Kernel
def incoming_pull(indptr, indices, places, weights, t, cuts, pull, chunks):
    """Add the incoming half Σ_i P_ij (t_j − t_i) of 2 L t."""
    rank, width, wide = t.shape[1], t.shape[1] * t.itemsize, indices.itemsize
    zero, index = t.dtype.type(0), indices.dtype.type(0)
    for chunk in prange(chunks):
        data, pulls, ends = _address(t), _address(pull), _address(indices)
        shares, where = _address(weights), _address(places)
        for j in range(cuts[chunk], cuts[chunk + 1]):
            first = indptr[j]
            count, limit, line = indptr[j + 1] - first, indices.size - first, ends + first * wide
            here, target, from_here = data + j * width, pulls + j * width, where + first * places.itemsize
            add_gaps_from(zero, index, from_here, shares, here, data, line, count, limit, target, rank)


@partial(Kernel, allocates=True)
def laplacian(indptr, indices, weights, t, metric, cuts, pull, means, chunks):
    """2 L t of a symmetric graph; Σ_j A_ij D_ij of each node."""
    rank, width, wide = t.shape[1], t.shape[1] * t.itemsize, indices.itemsize
    zero, index, two = t.dtype.type(0), indices.dtype.type(0), t.dtype.type(2)
    for chunk in prange(chunks):
        distances, doubled = _scratch(t.dtype), _scratch(t.dtype)
        data, metrics, ends = _address(t), _address(metric), _address(indices)
        pulls, found, shares = _address(pull), _address(distances), _address(doubled)
        for i in range(cuts[chunk], cuts[chunk + 1]):
            here, target = data + i * width, pulls + i * width
            pull[i] = 0
            total = zero
            for first in range(indptr[i], indptr[i + 1], _STRETCH):
                count, limit = min(_STRETCH, indptr[i + 1] - first), indices.size - first
                line = ends + first * wide
                squares(zero, index, metrics, here, data, line, count, limit, found, rank)
                for edge in range(count):
                    total += weights[first + edge] * distances[edge]
                for edge in range(count):
                    doubled[edge] = two * weights[first + edge]
                add_gaps(zero, index, shares, here, data, line, count, target, rank)
            means[i] = total
