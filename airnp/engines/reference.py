"""The specification: every operation in plain array-API code, for any namespace.

Each operation has its derivation, in the notation of ``docs/gradients.md``. The code is simple rather than
fast; tests compare the other engines with it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp._arrays import Array, to_numpy
from airnp.engines.contract import (
    NO_MEMORY,
    AdamUpdate,
    AdjacencyKind,
    Begin,
    LaplacianTerms,
    Memory,
    Precision,
    Run,
    Step,
    Update,
    VariationKind,
)
from airnp.engines.sparse_reference import add as add
from airnp.engines.sparse_reference import decay as decay
from airnp.engines.sparse_reference import edge_laplacian as edge_laplacian
from airnp.engines.sparse_reference import edge_terms as edge_terms
from airnp.engines.sparse_reference import entry_values as entry_values
from airnp.engines.sparse_reference import gram_factors as gram_factors
from airnp.engines.sparse_reference import line_sums as line_sums
from airnp.engines.sparse_reference import multiply as multiply
from airnp.engines.sparse_reference import residuals as residuals
from airnp.engines.sparse_reference import total as total

replays_sparse = False
looks_seldom = False


def product(
    a: Array,
    b: Array,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    out: Array | None = None,
) -> Array:
    """Return ``op(a) @ op(b)``, shape (…, m, n), where op transposes on request."""
    xp = array_namespace(a, b)
    return (xp.matrix_transpose(a) if transpose_a else a) @ (xp.matrix_transpose(b) if transpose_b else b)


def add_product(c: Array, a: Array, b: Array, *, alpha: float) -> Array:
    """Return ``c + alpha · a @ b``."""
    return c + alpha * (a @ b)


def gram(x: Array, *, columns: bool = False, out: Array | None = None) -> Array:
    """Return the products of all pairs of rows of ``x``, K = x xᵀ, or of all pairs of columns, K = xᵀ x."""
    turned = array_namespace(x).matrix_transpose(x)
    return turned @ x if columns else x @ turned


def _softmax(v: Array, axes: tuple[int, ...]) -> Array:
    """Return the softmax of ``v`` over ``axes``, with the maximum subtracted."""
    xp = array_namespace(v)
    weights = xp.exp(v - xp.max(v, axis=axes, keepdims=True))
    return weights / xp.sum(weights, axis=axes, keepdims=True)


def _product_adjacency(v: Array) -> tuple[Array, Array]:
    """Return A = exp(V + Vᵀ) / Σ exp(V) and P = exp(V) / Σ exp(V).

    Both exponents are shifted by c = max V: the shift of numerator and denominator cancels.
    """
    xp = array_namespace(v)
    top = xp.max(v, axis=(-2, -1), keepdims=True)
    weights = xp.exp(v - top)
    total = xp.sum(weights, axis=(-2, -1), keepdims=True)
    return xp.exp(v + xp.matrix_transpose(v) - top) / total, weights / total


def together() -> AbstractContextManager[None]:
    """Return a context that changes nothing: what is asked for is computed at once."""
    return nullcontext()


def adjacency(kind: AdjacencyKind, v: Array) -> Array:
    """Return the symmetric, non-negative adjacency A (…, k, k) of the free matrix V (…, k, k).

    =========== ========================== ==================
    kind        A                          softmax P over
    =========== ========================== ==================
    "row"       (P + Pᵀ) / 2               each row
    "global"    P + Pᵀ                     all entries
    "product"   exp(V + Vᵀ) / Σ exp(V)     all entries
    =========== ========================== ==================
    """
    xp = array_namespace(v)
    if kind == "row":
        p = _softmax(v, (-1,))
        return (p + xp.matrix_transpose(p)) / 2
    if kind == "global":
        p = _softmax(v, (-2, -1))
        return p + xp.matrix_transpose(p)
    return _product_adjacency(v)[0]


def _squared_distances(gram: Array) -> Array:
    """Return D[i, j] = ‖z_i − z_j‖² = K[i, i] + K[j, j] − 2 K[i, j]."""
    xp = array_namespace(gram)
    norms = xp.linalg.diagonal(gram)
    return norms[..., :, None] + norms[..., None, :] - 2 * gram


def laplacian_terms(
    kind: AdjacencyKind,
    v: Array,
    gram: Array,
    *,
    weight: float,
    update: Update | None = None,
    out: Array | None = None,
) -> LaplacianTerms:
    r"""Return the learned graph's energy, adjacency, 2 λ times its degrees, and the gradient of V.

    With D the squared distances, R = ½⟨A, D⟩. D is symmetric, hence ⟨P + Pᵀ, D⟩ = 2⟨P, D⟩, and

    * "row": R = ½ Σ_i r_i with r_i = Σ_j P_ij D_ij; a row's softmax has
      dP_ij = P_ij (dV_ij − Σ_l P_il dV_il), hence ∇R = ½ P ⊙ (D − r 1ᵀ);
    * "global": R = ⟨P, D⟩, and the same step over all entries gives ∇R = P ⊙ (D − R);
    * "product": V_kl moves A_kl and A_lk (equal, with equal D) and the normaliser, ∇R = A ⊙ D − R·P.

    Parameters
    ----------
    kind : {"row", "global", "product"}
    v : array (…, k, k)
        The free matrix V.
    gram : array (…, k, k)
        K = Z Zᵀ of the k rows that the graph connects.
    weight : float
        λ, which scales the gradient (and the update) and the degrees, not the energy.
    update : Update, optional
        Applied to V with the gradient, after everything else was computed from the given V.
    """
    xp = array_namespace(v, gram)
    distances = _squared_distances(gram)
    if kind == "row":
        p = _softmax(v, (-1,))
        a = (p + xp.matrix_transpose(p)) / 2
        row_energy = xp.sum(p * distances, axis=-1, keepdims=True)
        energy = xp.sum(row_energy, axis=(-2, -1)) / 2
        gradient = (weight / 2) * p * (distances - row_energy)
    elif kind == "global":
        p = _softmax(v, (-2, -1))
        a = p + xp.matrix_transpose(p)
        energy = xp.sum(p * distances, axis=(-2, -1))
        gradient = weight * p * (distances - energy[..., None, None])
    else:
        a, p = _product_adjacency(v)
        energy = xp.sum(a * distances, axis=(-2, -1)) / 2
        gradient = weight * (a * distances - energy[..., None, None] * p)
    pull = (2 * weight) * xp.sum(a, axis=-1)
    if update is None:
        return LaplacianTerms(energy, a, pull, gradient, v)
    (v,) = apply_updates([v], [gradient], [update])
    return LaplacianTerms(energy, a, pull, None, v)


def residual(
    x: Array,
    y: Array,
    weights: Array,
    *,
    scale: float,
    huber_delta: float | None = None,
    row_scale: Array | None = None,
    column_scale: Array | None = None,
    out: Array | None = None,
) -> tuple[Array, Array]:
    """Return the fidelity F and its gradient, with the diagonal parts of the Laplacians added.

    With e = x − y and weights w ≥ 0 (zero where nothing was observed)::

        squared   F = s/2 Σ w e²                       ∇F = s w ⊙ e
        Huber     F = s Σ w h(e)                       ∇F = s w ⊙ clip(e, −δ, δ)
                  h = e²/2 for |e| ≤ δ, else δ (|e| − δ/2)

    The returned gradient is ∇F + row_scale ⊙ x + x ⊙ column_scale: the degree part of 2 λ L Z only scales
    rows or columns of x, and this pass reads x anyway.

    Parameters
    ----------
    x, y, weights : arrays (…, m, n)
    scale : float
        s.
    huber_delta : float, optional
        δ; None is the squared loss.
    row_scale : array (…, m), optional
    column_scale : array (…, n), optional
    """
    xp = array_namespace(x, y, weights)
    error = x - y
    if huber_delta is None:
        slope = weights * error
        value = (scale / 2) * xp.sum(slope * error, axis=(-2, -1))
    else:
        size = xp.abs(error)
        inner = xp.where(size <= huber_delta, size, xp.full_like(size, huber_delta))
        # inner = min(|e|, δ), and h(e) = inner (|e| − inner/2) is both branches at once.
        slope = weights * xp.sign(error) * inner
        value = scale * xp.sum(weights * inner * (size - inner / 2), axis=(-2, -1))
    return value, scale_lines(scale * slope, x, row_scale, column_scale)


def scale_lines(g: Array, x: Array, row_scale: Array | None, column_scale: Array | None) -> Array:
    """Return ``g + row_scale ⊙ x + x ⊙ column_scale`` for scales of shape (…, m) and (…, n)."""
    if row_scale is not None:
        g = g + row_scale[..., :, None] * x
    if column_scale is not None:
        g = g + column_scale[..., None, :] * x
    return g


def fixed_laplacian(
    g: Array, z: Array, adjacency: Any, degree: Array, *, weight: float
) -> tuple[Array, Array]:
    """Return R = tr(zᵀ L z) and g + 2 λ L z, with L = diag(degree) − adjacency given and symmetric.

    Parameters
    ----------
    g, z : arrays (…, k, d)
    adjacency : array (…, k, k), or scipy.sparse array (k, k) beside NumPy ``z`` of two dimensions
    degree : array (…, k)
    weight : float
        λ, which scales the gradient, not the energy.
    """
    xp = array_namespace(g, z)
    laplacian_z = degree[..., :, None] * z - adjacency @ z
    return xp.sum(z * laplacian_z, axis=(-2, -1)), g + (2 * weight) * laplacian_z


def total_variation(
    g: Array, x: Array, *, kind: VariationKind, epsilon: float, weight: float
) -> tuple[Array, Array]:
    """Return the variation R(x) over neighbours in rows and columns, and g + λ ∇R.

    Over all differences d between vertical and horizontal neighbours::

        "l1"         R = Σ (√(d² + ε²) − ε)       ∂R/∂d = d / √(d² + ε²)
        "quadratic"  R = Σ d²                     ∂R/∂d = 2 d

    and since d = x_below − x_above, each slope is added below and subtracted above.
    """
    xp = array_namespace(g, x)
    energy = xp.zeros_like(x[..., 0, 0])
    for axis in (-2, -1):
        after = (..., slice(1, None), slice(None)) if axis == -2 else (..., slice(1, None))
        before = (..., slice(None, -1), slice(None)) if axis == -2 else (..., slice(None, -1))
        difference = x[after] - x[before]
        if kind == "l1":
            # √(d² + ε²) − ε = d² / (√(d² + ε²) + ε), which does not cancel for small d.
            root = xp.sqrt(difference * difference + epsilon * epsilon)
            energy = energy + xp.sum(difference * difference / (root + epsilon), axis=(-2, -1))
            slope = weight * difference / root
        else:
            energy = energy + xp.sum(difference * difference, axis=(-2, -1))
            slope = (2 * weight) * difference
        edge = xp.zeros_like(x[..., :1, :] if axis == -2 else x[..., :1])
        g = g + xp.concat([edge, slope], axis=axis) - xp.concat([slope, edge], axis=axis)
    return energy, g


def apply_updates(params: Sequence[Array], grads: Sequence[Array], updates: Sequence[Update]) -> list[Array]:
    """Apply one update per parameter, in place if the namespace allows it.

    Adam, at step t, in PyTorch's arithmetic::

        m ← m + (1 − β1)(g − m)        v ← β2 v + (1 − β2) g²
        p ← p − rate/(1 − β1ᵗ) · m / (√v / √(1 − β2ᵗ) + ε)

    ε is added after the bias correction: early gradients of this model are about 1e-6, where folding the
    correction into ε would shrink the first steps. With one second moment per matrix, the mean of its squared
    entries replaces g² (over the last two axes; over all entries of a vector or a number), and every entry
    is divided by the same root.
    """
    results = []
    for param, grad, update in zip(params, grads, updates, strict=True):
        if isinstance(update, AdamUpdate):
            param = _adam(param, grad, update)
        else:
            param -= update.current_rate * grad
        results.append(param)
    return results


def _adam(param: Array, grad: Array, update: AdamUpdate) -> Array:
    xp = array_namespace(param, grad)
    moments = update.moments
    moments.first += (1 - update.beta1) * (grad - moments.first)
    moments.second *= update.beta2
    moments.second += (1 - update.beta2) * (
        grad * grad if update.second_moment == "entry" else mean_square(grad)
    )
    step_size = update.current_rate / (1 - update.beta1**update.step)
    root_correction = math.sqrt(1 - update.beta2**update.step)
    param -= step_size * moments.first / (xp.sqrt(moments.second) / root_correction + update.epsilon)
    return param


def mean_square(grad: Array) -> Array:
    """Return the mean of the squared entries of each matrix, shape (…, 1, 1); of a vector, shape (1,)."""
    axes = tuple(range(-min(grad.ndim, 2), 0))
    entries = math.prod(grad.shape[axis] for axis in axes)
    total = array_namespace(grad).sum(grad * grad, axis=axes, keepdims=True)
    return total / max(entries, 1)


def memory(like: Array) -> Memory:
    """Return no memory: every operation of this engine allocates its own result."""
    return NO_MEMORY


def prepare(
    begin: Begin,
    step: Step,
    *,
    replayable: bool = False,
    threads: int | None = None,
    precision: Precision | None = None,
) -> Run:
    """Return a function that runs a number of iterations; the namespace chooses its threads itself."""

    def run(iterations: int) -> npt.NDArray[np.float64]:
        records = []
        for _ in range(iterations):
            values = step(begin())
            records.append(array_namespace(*values).stack(list(values)))
        return to_numpy(array_namespace(*records).stack(records)).astype(np.float64)

    return run
