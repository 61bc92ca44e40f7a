"""The CPU engine's loops, compiled by numba on first use and cached on disk.

All arrays are C-contiguous stacks ``(batch, rows, columns)``, all scalars have their dtype (a Python number
would make numba compute in double precision). Every kernel splits its work into ``chunks`` that may run in
parallel; with one chunk it is a plain loop without a thread pool. Sums are reassociated so that they
vectorise; NaN and infinity propagate as usual.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np
from numba import njit, prange
from numba.core import event
from numba.core.caching import FunctionCache

from airnp.engines._blas import gemm, syrk
from airnp.engines._vector import exp, lanes, maximum, mirror_tile, symmetrize_tile

_FASTMATH = {"reassoc", "contract", "nsz", "arcp"}
_TILE = 32
PIECE = 4096
"""Entries of a partial sum, in sums that must not depend on the number of threads."""

_PRANGE_ONLY = {
    "prange": True,
    "fusion": False,
    "comprehension": False,
    "reduction": False,
    "inplace_binop": False,
    "setitem": False,
    "numpy": False,
    "stencil": False,
}


class _CompileNote(event.Listener):
    """Prints once that numba compiles, so that a first fit does not look like a hang."""

    _said = False

    def on_start(self, happened: Any) -> None:
        if not _CompileNote._said and happened.data["dispatcher"].py_func.__module__.startswith("airnp."):
            _CompileNote._said = True
            print("airnp: compiling for this machine, once (a few seconds) ...", file=sys.stderr, flush=True)  # noqa: T201

    def on_end(self, happened: Any) -> None:
        pass


event.register("numba:compile", _CompileNote())


class _Cache(FunctionCache):
    """Numba's cache on disk, whose failures say so once and cost no more than compiling again.

    A full disk, a file cut off by one, or one of another user are no reason to compute nothing.
    """

    _failed = False

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # what is unpickled from a broken file may raise anything
            self._go_without(error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as error:
            self._go_without(error)

    def _go_without(self, error: Exception) -> None:
        self.disable()
        if not _Cache._failed:
            _Cache._failed = True
            print(  # noqa: T201
                f"airnp: the cache of compiled code in {self.cache_path} cannot be used "
                f"({type(error).__name__}: {error}); going on without it. Make room there, or delete it.",
                file=sys.stderr,
                flush=True,
            )


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like ``numba.njit(**options)`` with a cache on disk, if there is a place for one."""

    def build(function: Callable[..., Any]) -> Any:
        dispatcher = njit(**options)(function)
        with suppress(RuntimeError):  # no directory is writable
            dispatcher._cache = _Cache(function)
        return dispatcher

    return build


class Kernel:
    """A loop in two builds, serial for one chunk and parallel for several, compiled when first called.

    A kernel that ``allocates`` arrays, or lets NumPy's functions do so, says so. In all others references are
    not counted: numba would do so for every row that a loop takes out of an array, which costs as much as the
    work on a short row.
    """

    def __init__(self, function: Callable[..., Any], *, allocates: bool = False) -> None:
        self._function, self._allocates = function, allocates
        self._serial = _compile(function, parallel=False, counted=allocates)
        self._parallel: Any = None

    def build(self, chunks: int) -> Any:
        """Return the build for a number of chunks, which is also the last argument of a call."""
        if chunks == 1:
            return self._serial
        if self._parallel is None:
            self._parallel = _compile(_rename(self._function), parallel=True, counted=self._allocates)
        return self._parallel


def _rename(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy under another name: numba's cache distinguishes builds by name, not by options."""
    name = function.__name__ + "_parallel"
    twin = FunctionType(function.__code__, function.__globals__, name)
    twin.__module__, twin.__qualname__ = function.__module__, name
    return twin


def _compile(function: Callable[..., Any], *, parallel: bool, counted: bool) -> Any:
    """Return the numba build of a function.

    Only ``prange`` loops are parallel. A kernel has one of them: numba would fuse two, and a thread could
    then read what another has not written yet.
    """
    loops = _PRANGE_ONLY if parallel else False
    options = {"fastmath": _FASTMATH, "error_model": "numpy", "nogil": True, "_nrt": counted}
    return compiled(parallel=loops, **options)(function)


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _normalize(weights, inverse, products, lengths, i):
    """Normalise a row of the softmax and return Σ_j P_ij D_ij."""
    length = lengths[i]
    total = weights.dtype.type(0)
    for j in range(weights.size):
        weight = weights[j] * inverse
        weights[j] = weight
        total += weight * (length + lengths[j] - products[j] - products[j])
    return total


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _gradient_row(target, weights, products, lengths, length, scale):
    """target ← scale · P ⊙ (D − shift) of one row; ``length`` is the node's squared norm minus the shift."""
    for j in range(target.size):
        target[j] = scale * weights[j] * (length + lengths[j] - products[j] - products[j])


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _adam_row(values, mean, square, weights, products, lengths, length, scale, settings):
    """Adam's step of one row of V by the gradient of :func:`_gradient_row`, which is not stored."""
    gain1, keep2, gain2 = settings[0], settings[1], settings[2]
    rate, root, epsilon = settings[3], settings[4], settings[5]
    for j in range(values.size):
        slope = scale * weights[j] * (length + lengths[j] - products[j] - products[j])
        average = mean[j] + gain1 * (slope - mean[j])
        variance = keep2 * square[j] + gain2 * slope * slope
        mean[j] = average
        square[j] = variance
        values[j] -= rate * average / (math.sqrt(variance) * root + epsilon)


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _diagonals(gram, norms):
    for matrix in range(gram.shape[0]):
        for i in range(gram.shape[1]):
            norms[matrix, i] = gram[matrix, i, i]


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _add_up(values, scale, totals):
    """totals ← scale · the sum of each line of values, in double precision."""
    for matrix in range(values.shape[0]):
        total = 0.0
        for i in range(values.shape[1]):
            total += np.float64(values[matrix, i])
        totals[matrix] = scale * total


@Kernel
def multiply(routine, a, transpose_a, b, transpose_b, c, alpha, beta, chunks):
    """C ← alpha · op(A) op(B) + beta · C; an operand with one matrix is used for the whole stack."""
    batch, m, n = c.shape
    inner = a.shape[1] if transpose_a else a.shape[2]
    size = c.itemsize
    a_step = a.shape[1] * a.shape[2] if a.shape[0] > 1 else 0
    b_step = b.shape[1] * b.shape[2] if b.shape[0] > 1 else 0
    # Chunks are matrices of the stack if there are enough, else bands of rows of every matrix.
    by_matrix = batch >= chunks
    for chunk in prange(chunks):
        first, last = (chunk * batch // chunks, (chunk + 1) * batch // chunks) if by_matrix else (0, batch)
        top, bottom = (0, m) if by_matrix else (chunk * m // chunks, (chunk + 1) * m // chunks)
        if bottom > top:
            for matrix in range(first, last):
                a_offset = matrix * a_step + (top if transpose_a else top * a.shape[2])
                gemm(
                    routine,
                    transpose_a,
                    transpose_b,
                    bottom - top,
                    n,
                    inner,
                    alpha,
                    np.int64(a.ctypes.data) + a_offset * size,
                    a.shape[2],
                    np.int64(b.ctypes.data) + matrix * b_step * size,
                    b.shape[2],
                    beta,
                    np.int64(c.ctypes.data) + (matrix * m + top) * n * size,
                    n,
                )


@Kernel
def symmetric_product(gemm_routine, syrk_routine, z, transposed, k, one, zero, chunks):
    """The lower triangle of K ← op(Z) op(Z)ᵀ.

    Bands of rows end at n √(t / chunks), so that all have equal areas of the triangle.
    """
    batch, n, _ = k.shape
    inner = z.shape[1] if transposed else z.shape[2]
    stride, size = z.shape[2], k.itemsize
    z_data, k_data = np.int64(z.ctypes.data), np.int64(k.ctypes.data)
    for chunk in prange(chunks):
        top = np.int64(n * math.sqrt(chunk / chunks))
        bottom = np.int64(n * math.sqrt((chunk + 1) / chunks)) if chunk + 1 < chunks else n
        band = top if transposed else top * stride
        if bottom > top:
            for matrix in range(batch):
                source = z_data + matrix * z.shape[1] * stride * size
                target = k_data + (matrix * n + top) * n * size
                if top > 0:
                    gemm(
                        gemm_routine,
                        transposed,
                        not transposed,
                        bottom - top,
                        top,
                        inner,
                        one,
                        source + band * size,
                        stride,
                        source,
                        stride,
                        zero,
                        target,
                        n,
                    )
                syrk(
                    syrk_routine,
                    transposed,
                    bottom - top,
                    inner,
                    one,
                    source + band * size,
                    stride,
                    zero,
                    target + top * size,
                    n,
                )


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _mirror_block(k, like, top, bottom, left, right):
    """k[j, i] ← k[i, j] for the entries below the diagonal of a block of rows and columns."""
    side, n, size = lanes(k.itemsize), k.shape[1], k.itemsize
    data = np.int64(k.ctypes.data)
    for i in range(top, bottom, side):
        for j in range(left, min(right, i + side), side):
            if j + side <= i and i + side <= bottom and j + side <= right:
                mirror_tile(data + (i * n + j) * size, data + (j * n + i) * size, n, like)
            else:
                for row in range(i, min(i + side, bottom)):
                    for column in range(j, min(j + side, right, row)):
                        k[column, row] = k[row, column]


@Kernel
def mirror(k, chunks):
    """The upper triangles of K from its lower ones."""
    batch, n, _ = k.shape
    tiles = (n + _TILE - 1) // _TILE
    like = k.dtype.type(0)
    for chunk in prange(chunks):
        # Every chunks-th column of tiles, because they get shorter from left to right.
        for tile in range(chunk, batch * tiles, chunks):
            matrix, left = tile // tiles, (tile % tiles) * _TILE
            for top in range(left, n, _TILE):
                _mirror_block(k[matrix], like, top, min(top + _TILE, n), left, min(left + _TILE, n))


@Kernel
def row_graph(
    v, gram, half, weight, adjust, first, second, settings, p, gradient, norms, energies, totals, chunks
):
    """P = softmax of each row of V; totals = half · ⟨P, D⟩; and the gradient of V or Adam's step by it.

    ``gradient`` ← half · weight · P ⊙ (D − r), r_i = Σ_j P_ij D_ij; with ``adjust``, V steps by it instead
    and ``gradient`` is not written. Rows are finished one by one, while each is in the nearest cache.
    """
    batch, n, _ = v.shape
    rows = batch * n
    scale = half * weight
    zero, one = v.dtype.type(0), v.dtype.type(1)
    _diagonals(gram, norms)
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            source, weights, products = v[matrix, i], p[matrix, i], gram[matrix, i]
            top = maximum(source)
            total = zero
            for j in range(n):
                value = exp(source[j] - top)
                weights[j] = value
                total += value
            energy = _normalize(weights, one / total, products, norms[matrix], i)
            energies[matrix, i] = energy
            length = norms[matrix, i] - energy
            if adjust:
                mean, square = first[matrix, i], second[matrix, i]
                _adam_row(source, mean, square, weights, products, norms[matrix], length, scale, settings)
            else:
                _gradient_row(gradient[matrix, i], weights, products, norms[matrix], length, scale)
    _add_up(energies, np.float64(half), totals)


@partial(Kernel, allocates=True)
def maxima(v, tops, chunks):
    """The maximum of each matrix, in every entry of its line of ``tops``."""
    batch, n, _ = v.shape
    rows = batch * n
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            tops[matrix, i] = maximum(v[matrix, i])
    for matrix in range(batch):
        tops[matrix, :] = tops[matrix].max()


@partial(Kernel, allocates=True)
def exponentials(v, tops, keep, p, inverses, chunks):
    """P ← exp(V − top) if ``keep``, and 1 / ΣP of each matrix, in every entry of its line of ``inverses``."""
    batch, n, _ = v.shape
    rows = batch * n
    one = v.dtype.type(1)
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            source, weights, top = v[matrix, i], p[matrix, i], tops[matrix, i]
            total = v.dtype.type(0)
            for j in range(n):
                value = exp(source[j] - top)
                total += value
                if keep:
                    weights[j] = value
            inverses[matrix, i] = total
    for matrix in range(batch):
        inverses[matrix, :] = one / inverses[matrix].sum()


@Kernel
def global_energies(p, inverses, gram, norms, energies, totals, chunks):
    """P ← P · inverse, and totals = ⟨P, D⟩."""
    batch, n, _ = p.shape
    rows = batch * n
    _diagonals(gram, norms)
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            energies[matrix, i] = _normalize(
                p[matrix, i], inverses[matrix, i], gram[matrix, i], norms[matrix], i
            )
    _add_up(energies, 1.0, totals)


@Kernel
def global_step(p, gram, norms, totals, scale, adjust, v, first, second, settings, gradient, chunks):
    """``gradient`` ← scale · P ⊙ (D − total), or with ``adjust`` Adam's step of V by it."""
    batch, n, _ = p.shape
    rows = batch * n
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            weights, products = p[matrix, i], gram[matrix, i]
            length = norms[matrix, i] - p.dtype.type(totals[matrix])
            if adjust:
                values, mean, square = v[matrix, i], first[matrix, i], second[matrix, i]
                _adam_row(values, mean, square, weights, products, norms[matrix], length, scale, settings)
            else:
                _gradient_row(gradient[matrix, i], weights, products, norms[matrix], length, scale)


@njit(fastmath=_FASTMATH, error_model="numpy", forceinline=True)
def _symmetrize_block(p, half, top, bottom, left, right):
    """P ← half · (P + Pᵀ) for a block of rows and columns on or below the diagonal, and its mirror image."""
    side, n, size = lanes(p.itemsize), p.shape[1], p.itemsize
    data = np.int64(p.ctypes.data)
    for i in range(top, bottom, side):
        for j in range(left, min(right, i + side), side):
            if i + side <= bottom and j + side <= right:
                symmetrize_tile(data + (i * n + j) * size, data + (j * n + i) * size, n, half)
            else:
                for row in range(i, min(i + side, bottom)):
                    for column in range(j, min(j + side, right, row + 1)):
                        mean = half * (p[row, column] + p[column, row])
                        p[row, column] = mean
                        p[column, row] = mean


@Kernel
def symmetrize(p, half, chunks):
    """P ← half · (P + Pᵀ)."""
    batch, n, _ = p.shape
    tiles = (n + _TILE - 1) // _TILE
    for chunk in prange(chunks):
        # Every chunks-th column of tiles, from its diagonal downwards: no two chunks touch the same pair.
        for tile in range(chunk, batch * tiles, chunks):
            matrix, left = tile // tiles, (tile % tiles) * _TILE
            for top in range(left, n, _TILE):
                _symmetrize_block(p[matrix], half, top, min(top + _TILE, n), left, min(left + _TILE, n))


@Kernel
def row_sums(a, factor, sums, chunks):
    """factor · the sum of each row of A."""
    batch, n, _ = a.shape
    rows = batch * n
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            weights = a[matrix, i]
            total = a.dtype.type(0)
            for j in range(n):
                total += weights[j]
            sums[matrix, i] = factor * total


_gram_alone, _mirror_alone, _row_graph_alone = symmetric_product.build(1), mirror.build(1), row_graph.build(1)
_symmetrize_alone, _row_sums_alone = symmetrize.build(1), row_sums.build(1)


@njit(fastmath=_FASTMATH, error_model="numpy", _nrt=False)
def _whole_row_graph(
    gemm_routine, syrk_routine, z, transposed, one, zero, twice, pull,
    v, gram, half, weight, adjust, first, second, settings, p, gradient, norms, energies, totals,
):  # fmt: skip
    _gram_alone(gemm_routine, syrk_routine, z, transposed, gram, one, zero, 1)
    _mirror_alone(gram, 1)
    state = (adjust, first, second, settings)
    _row_graph_alone(v, gram, half, weight, *state, p, gradient, norms, energies, totals, 1)
    _symmetrize_alone(p, half, 1)
    _row_sums_alone(p, twice, pull, 1)


@Kernel
def two_row_graphs(one, other, chunks):
    """Gram matrix, terms and degrees of two graphs, a chunk each; both are tuples of all arguments."""
    for chunk in prange(chunks):
        if chunk == 0:
            _whole_row_graph(*one)
        else:
            _whole_row_graph(*other)


@Kernel
def pair_adjacency(v, tops, inverses, gram, a, norms, energies, totals, chunks):
    """A ← exp(V + Vᵀ − top) · inverse, and totals = ½ ⟨A, D⟩."""
    batch, n, _ = v.shape
    rows = batch * n
    _diagonals(gram, norms)
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            weights, products, lengths = a[matrix, i], gram[matrix, i], norms[matrix]
            length, top, inverse = norms[matrix, i], tops[matrix, i], inverses[matrix, i]
            energy = v.dtype.type(0)
            for j in range(n):
                weight = math.exp(v[matrix, i, j] + v[matrix, j, i] - top) * inverse
                weights[j] = weight
                energy += weight * (length + lengths[j] - products[j] - products[j])
            energies[matrix, i] = energy
    _add_up(energies, 0.5, totals)


@Kernel
def pair_gradient(v, tops, inverses, a, gram, norms, totals, scale, gradient, chunks):
    """``gradient`` ← scale · (A ⊙ D − R · P), with P = exp(V − top) · inverse."""
    batch, n, _ = v.shape
    rows = batch * n
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // n, row % n
            weights, products, lengths = a[matrix, i], gram[matrix, i], norms[matrix]
            values, target = v[matrix, i], gradient[matrix, i]
            length, top = norms[matrix, i], tops[matrix, i]
            share = v.dtype.type(totals[matrix]) * inverses[matrix, i]
            for j in range(n):
                distance = length + lengths[j] - products[j] - products[j]
                target[j] = scale * (weights[j] * distance - share * exp(values[j] - top))


@Kernel
def masked_residual(x, y, weights, scale, delta, row_scale, column_scale, gradient, values, totals, chunks):
    """gradient ← s w ⊙ (x − y) + (row_scale + column_scale) ⊙ x, with x − y clipped at ±delta if delta > 0.

    ``totals`` gets the fidelity; ``values`` is scratch for the part of each row.
    """
    batch, m, n = x.shape
    rows = batch * m
    half, huber = x.dtype.type(0.5), delta > 0
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // m, row % m
            current, target, shares = x[matrix, i], y[matrix, i], weights[matrix, i]
            slopes, columns, line = gradient[matrix, i], column_scale[matrix], row_scale[matrix, i]
            total = x.dtype.type(0)
            if huber:
                for j in range(n):
                    error = current[j] - target[j]
                    inner = min(max(error, -delta), delta)
                    slope = shares[j] * inner
                    total += slope * (error - half * inner)
                    slopes[j] = scale * slope + (line + columns[j]) * current[j]
            else:
                for j in range(n):
                    error = current[j] - target[j]
                    slope = shares[j] * error
                    total += half * slope * error
                    slopes[j] = scale * slope + (line + columns[j]) * current[j]
            values[matrix, i] = total
    _add_up(values, np.float64(scale), totals)


@Kernel
def add_scaled_lines(g, x, row_scale, column_scale, chunks):
    """g ← g + (row_scale + column_scale) ⊙ x."""
    batch, m, n = x.shape
    rows = batch * m
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // m, row % m
            slopes, current, columns = g[matrix, i], x[matrix, i], column_scale[matrix]
            line = row_scale[matrix, i]
            for j in range(n):
                slopes[j] += (line + columns[j]) * current[j]


@Kernel
def add_laplacian(g, z, neighbours, row_degrees, column_degrees, scale, values, totals, chunks):
    """g ← g + scale · L z with L z = degree ⊙ z − neighbours, and Σ z ⊙ L z for each row.

    One of the two degrees is zero: nodes are rows of z, or its columns. Degrees of one graph are used for
    the whole stack.
    """
    batch, m, n = z.shape
    rows = batch * m
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // m, row % m
            slopes, current, pulls = g[matrix, i], z[matrix, i], neighbours[matrix, i]
            line = row_degrees[matrix if len(row_degrees) > 1 else 0, i]
            columns = column_degrees[matrix if len(column_degrees) > 1 else 0]
            total = z.dtype.type(0)
            for j in range(n):
                pull = (line + columns[j]) * current[j] - pulls[j]
                slopes[j] += scale * pull
                total += current[j] * pull
            values[matrix, i] = total
    _add_up(values, 1.0, totals)


@partial(Kernel, allocates=True)
def add_sparse_laplacian_of_rows(g, z, data, indices, indptr, degrees, scale, values, totals, chunks):
    """g ← g + scale · L z for nodes that are rows of z and a graph in CSR form; Σ z ⊙ L z for each row."""
    batch, m, n = z.shape
    rows = batch * m
    for chunk in prange(chunks):
        pull = np.empty(n, z.dtype)
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // m, row % m
            slopes, current = g[matrix, i], z[matrix, i]
            for j in range(n):
                pull[j] = degrees[i] * current[j]
            for edge in range(indptr[i], indptr[i + 1]):
                weight, other = data[edge], z[matrix, indices[edge]]
                for j in range(n):
                    pull[j] -= weight * other[j]
            total = z.dtype.type(0)
            for j in range(n):
                slopes[j] += scale * pull[j]
                total += current[j] * pull[j]
            values[matrix, i] = total
    _add_up(values, 1.0, totals)


@Kernel
def add_sparse_laplacian_of_columns(g, x, data, indices, indptr, degrees, scale, values, totals, chunks):
    """The same for nodes that are columns of x; every row of x is read once and stays in the cache."""
    batch, m, n = x.shape
    rows = batch * m
    for chunk in prange(chunks):
        for row in range(chunk * rows // chunks, (chunk + 1) * rows // chunks):
            matrix, i = row // m, row % m
            slopes, current = g[matrix, i], x[matrix, i]
            total = x.dtype.type(0)
            for j in range(n):
                pull = degrees[j] * current[j]
                for edge in range(indptr[j], indptr[j + 1]):
                    pull -= data[edge] * current[indices[edge]]
                slopes[j] += scale * pull
                total += current[j] * pull
            values[matrix, i] = total
    _add_up(values, 1.0, totals)


@Kernel
def add_variation(g, x, quadratic, epsilon, weight, scratch, values, totals, chunks):
    """g ← g + weight · ∇TV(x), and each row's part of TV(x).

    Every difference is computed once by the chunk that holds its upper or left entry; the first row of a
    chunk also gets the slope of the difference to the row above it, which another chunk counts. ``scratch``
    is (chunks, n).
    """
    batch, m, n = x.shape
    rows = batch * m
    two = x.dtype.type(2)
    for chunk in prange(chunks):
        across = scratch[chunk]
        start, stop = chunk * rows // chunks, (chunk + 1) * rows // chunks
        for row in range(start, stop):
            matrix, i = row // m, row % m
            current, slopes = x[matrix, i], g[matrix, i]
            total = x.dtype.type(0)
            if row == start and i > 0:
                above = x[matrix, i - 1]
                for j in range(n):
                    step = current[j] - above[j]
                    slopes[j] += weight * (
                        two * step if quadratic else step / math.sqrt(step * step + epsilon * epsilon)
                    )
            if i + 1 < m:
                below, next_slopes, inside = x[matrix, i + 1], g[matrix, i + 1], row + 1 < stop
                for j in range(n):
                    step = below[j] - current[j]
                    if quadratic:
                        total += step * step
                        slope = weight * two * step
                    else:
                        root = math.sqrt(step * step + epsilon * epsilon)
                        total += step * step / (root + epsilon)
                        slope = weight * step / root
                    slopes[j] -= slope
                    if inside:
                        next_slopes[j] += slope
            # Slopes first, sums afterwards: a loop that writes to j and j + 1 at once does not vectorise.
            for j in range(n - 1):
                step = current[j + 1] - current[j]
                if quadratic:
                    total += step * step
                    across[j] = weight * two * step
                else:
                    root = math.sqrt(step * step + epsilon * epsilon)
                    total += step * step / (root + epsilon)
                    across[j] = weight * step / root
            for j in range(n - 1):
                slopes[j] -= across[j]
            for j in range(n - 1):
                slopes[j + 1] += across[j]
            values[matrix, i] = total
    _add_up(values, 1.0, totals)


@Kernel
def adam(p, g, first, second, settings, chunks):
    """Adam's step of a flat parameter.

    ``settings`` are 1 − β1, β2, 1 − β2, rate / (1 − β1ᵗ), 1 / √(1 − β2ᵗ) and ε, in the parameter's dtype.
    """
    size = p.size
    gain1, keep2, gain2 = settings[0], settings[1], settings[2]
    rate, root, epsilon = settings[3], settings[4], settings[5]
    for chunk in prange(chunks):
        # Slices, because the compiler cannot rule out that an index with an offset is negative.
        part = slice(chunk * size // chunks, (chunk + 1) * size // chunks)
        values, slopes, mean, square = p[part], g[part], first[part], second[part]
        for i in range(values.size):
            average = mean[i] + gain1 * (slopes[i] - mean[i])
            variance = keep2 * square[i] + gain2 * slopes[i] * slopes[i]
            mean[i] = average
            square[i] = variance
            values[i] -= rate * average / (math.sqrt(variance) * root + epsilon)


@njit(error_model="numpy", forceinline=True)
def _squares(values):
    """The sum of squares in double precision, in a fixed order that is the same in both builds."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    even = values.size - values.size % 4
    for i in range(0, even, 4):
        a += np.float64(values[i]) * np.float64(values[i])
        b += np.float64(values[i + 1]) * np.float64(values[i + 1])
        c += np.float64(values[i + 2]) * np.float64(values[i + 2])
        d += np.float64(values[i + 3]) * np.float64(values[i + 3])
    for i in range(even, values.size):
        a += np.float64(values[i]) * np.float64(values[i])
    return (a + b) + (c + d)


@Kernel
def mean_squares(g, second, settings, partial, chunks):
    """second ← β2 · second + (1 − β2) · the mean of the squares of each line of ``g`` (batch, entries).

    Partial sums over ``PIECE`` entries, ``partial`` (batch, pieces), are added in their order, so that the
    result does not depend on the number of threads.
    """
    batch, size = g.shape
    pieces = partial.shape[1]
    for chunk in prange(chunks):
        for place in range(chunk * batch * pieces // chunks, (chunk + 1) * batch * pieces // chunks):
            matrix, piece = place // pieces, place % pieces
            partial[matrix, piece] = _squares(g[matrix, piece * PIECE : min((piece + 1) * PIECE, size)])
    for matrix in range(batch):
        whole = 0.0
        for piece in range(pieces):
            whole += partial[matrix, piece]
        mean = g.dtype.type(whole / max(size, 1))
        second[matrix] = settings[1] * second[matrix] + settings[2] * mean


@njit(error_model="numpy", forceinline=True)
def _move(values, slopes, mean, gain, scale):
    """Adam's first moment and step, rounded after each operation, so that chunks do not change any bit."""
    for i in range(values.size):
        average = mean[i] + gain * (slopes[i] - mean[i])
        mean[i] = average
        values[i] -= scale * average


@Kernel
def adam_of_matrices(p, g, first, second, settings, chunks):
    """Adam's step of parameters (batch, entries) with one second moment per matrix, ``second`` (batch,)."""
    batch, size = p.shape
    gain1, rate, root, epsilon = settings[0], settings[3], settings[4], settings[5]
    for chunk in prange(chunks):
        for matrix in range(batch):
            scale = rate / (math.sqrt(second[matrix]) * root + epsilon)
            part = slice(chunk * size // chunks, (chunk + 1) * size // chunks)
            values, slopes, mean = p[matrix, part], g[matrix, part], first[matrix, part]
            _move(values, slopes, mean, gain1, scale)


@Kernel
def descend(p, g, settings, chunks):
    """A step of gradient descent of a flat parameter; ``settings`` has its rate."""
    size = p.size
    rate = settings[0]
    for chunk in prange(chunks):
        part = slice(chunk * size // chunks, (chunk + 1) * size // chunks)
        values, slopes = p[part], g[part]
        for i in range(values.size):
            values[i] -= rate * slopes[i]
