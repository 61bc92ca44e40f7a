"""The specification of the sparse form's operations: the formulas in plain NumPy and SciPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.data.entries import Entries, Pattern
from airnp.engines.contract import DecayPart, Edges, Offsets, Slopes

Floats = npt.NDArray[Any]


def _matrix(pattern: Pattern, data: Floats) -> Any:
    from scipy.sparse import csr_array  # here, because importing it takes long

    return csr_array((data, pattern.indices, pattern.indptr), shape=(pattern.lines, pattern.width))


def residuals(
    entries: Entries,
    u: Floats,
    v: Floats,
    offsets: Offsets,
    *,
    scale: float,
    out: Slopes,
    plain: bool = False,
) -> Floats:
    r"""Write the gradient of :math:`F = \frac s2 \sum_{(i,j)} w_{ij} (x_{ij} - y_{ij})^2`; return F.

    With E the sparse matrix of s w (x − y): ∂U = E V, ∂V = Eᵀ U, ∂b = E 1, ∂c = Eᵀ 1; ∂μ is the sum of ∂b.
    """
    rows, columns = entries.pattern.line_of_each(), entries.pattern.indices
    error = entry_values(rows, columns, u, v, offsets) - entries.values
    weighted = error if entries.weights is None else entries.weights * error
    slopes = _matrix(entries.pattern, scale * weighted)
    out.u[...], out.v[...] = slopes @ v, slopes.T @ u
    out.rows[...], out.columns[...] = slopes.sum(axis=1), slopes.sum(axis=0)
    return np.array(scale / 2 * np.sum(weighted.astype(np.float64) * error))


def entry_values(
    rows: npt.NDArray[Any], columns: npt.NDArray[Any], u: Floats, v: Floats, offsets: Offsets
) -> Floats:
    """Return μ + b_i + c_j + u_i·v_j at pairs."""
    products = np.einsum("kr,kr->k", u[rows], v[columns])
    return np.asarray(
        products
        + offsets.rows[rows]
        + offsets.columns[columns]
        + u.dtype.type(np.asarray(offsets.mean).reshape(()))
    )


def line_sums(pattern: Pattern, x: Floats, *, out: Floats) -> None:
    """Write Ω x, Ω being 1 at the pattern's entries."""
    out[...] = _matrix(pattern, np.ones(len(pattern.indices), x.dtype)) @ x


def edge_terms(
    edges: Edges, logits: Floats, t: Floats, metric: Floats, *, weights: Floats, slopes: Floats, pull: Floats
) -> Floats:
    r"""Write P, ∂R/∂logits and 2 L t of a learned graph over candidate edges; return R.

    .. math:: R = \tfrac12 \langle A, D\rangle = \tfrac12 \sum_{(i,j)} P_{ij} D_{ij}, \quad A = (P + P^T)/2,
       \quad \partial R/\partial w_{ij} = \tfrac12 P_{ij} (D_{ij} - \textstyle\sum_l P_{il} D_{il}),
       \quad (2 L t)_i = \sum_j (P_{ij} + P_{ji}) (t_i - t_j)
    """
    pattern = edges.pattern
    starts, ends = pattern.line_of_each(), pattern.indices
    first = pattern.indptr[:-1]
    tops = np.maximum.reduceat(logits, first)
    weights[...] = np.exp(logits - tops[starts])
    weights /= np.add.reduceat(weights, first)[starts]
    difference = t[starts] - t[ends]
    distances = (difference * difference) @ metric
    means = np.add.reduceat(weights * distances, first)
    slopes[...] = 0.5 * weights * (distances - means[starts])
    flow = weights[:, None] * difference
    np.copyto(pull, 0)
    np.add.at(pull, starts, flow)
    np.add.at(pull, ends, -flow)
    return np.array(0.5 * np.sum(means, dtype=np.float64))


def edge_laplacian(pattern: Pattern, weights: Floats, t: Floats, metric: Floats, *, pull: Floats) -> Floats:
    """Write 2 L t = 2 (deg ⊙ t − A t) of a symmetric adjacency; return R = ½ Σ A_ij D_ij."""
    adjacency = _matrix(pattern, weights)
    degrees = np.asarray(adjacency.sum(axis=1))
    pull[...] = 2 * (degrees[:, None] * t - adjacency @ t)
    return np.array(0.5 * np.sum((t * pull) @ metric, dtype=np.float64))


def gram_factors(gram: Floats) -> tuple[Floats, Floats, Floats]:
    """Return E (r, r), γ (r,) ≥ 0 and E⁻¹ = Eᵀ of G = E diag(γ) Eᵀ: the spectrum, found in float64."""
    vectors, values = spectrum(gram)
    basis = np.ascontiguousarray(vectors, gram.dtype)
    return basis, values.astype(gram.dtype), basis.T


def spectrum(gram: Floats) -> tuple[Floats, Floats]:
    """Return E (r, r) and γ (r,) in float64; NaN for a G that is not finite, which the loss then tells."""
    if not np.isfinite(gram).all():
        return np.full(gram.shape, np.nan), np.full(gram.shape[:1], np.nan)
    values, vectors = np.linalg.eigh(gram.astype(np.float64))
    return vectors, np.maximum(values, 0)


def multiply(x: Floats, factor: Any, *, out: Floats) -> None:
    """Write x · factor, entry by entry."""
    out[...] = x * (factor if isinstance(factor, np.ndarray) else x.dtype.type(factor))


def add(target: Floats, x: Floats) -> None:
    """Add x to ``target``."""
    target += x


def decay(parts: Sequence[DecayPart], *, weight: float) -> Floats:
    r"""Add λ g ⊙ matrix to the slope of each part; return :math:`R = \tfrac12 \sum_i g_i \|row_i\|^2`."""
    energy = 0.0
    for matrix, growth, slope in parts:
        scaled = matrix if growth is None else growth * matrix
        energy += 0.5 * float(np.vdot(scaled, matrix))
        slope += matrix.dtype.type(weight) * scaled
    return np.array(energy)


def total(x: Floats, *, out: Floats) -> None:
    """Write the sum of all entries of x to the only entry of ``out``."""
    out[...] = x.sum(dtype=np.float64)
