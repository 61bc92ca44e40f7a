r"""Gaussians of resembling patches: one round of filling the gaps of a picture.

A patch is p×p pixels of all channels, a row of d = C·p² entries. Around each reference patch (every few
pixels) the K patches nearest to it within a window are one group, modelled by one Gaussian
(:mod:`airnp.resemblance.gaussian`). The nearest few of them that have gaps are filled with their conditional
means. A pixel becomes the mean of all patches that cover it, each weighted by the inverse of its variance:

.. math::
    x_q = \frac{Σ_k w_k \hat x_k}{Σ_k w_k}, \qquad w_k = \frac{ε}{v_k + ε}, \qquad
    u_q = \frac{n_q ε}{Σ_k w_k} - ε .

The new variance u is the harmonic mean of those of the n patches. Repeating the round improves matches,
groups and fill in turn; a step longer than 1 (over-relaxation) saves rounds.

**Filled pixels are wrong together.** EM adds to the covariance what is not known of filled entries. Their
variances alone, on the diagonal, would say that errors are independent from pixel to pixel, and each round
would make the picture rougher. The errors of a smooth fill are as smooth as the patches are, so the mean
variance V is added with the correlations of the group: C_ab (1 + s_a s_b), s_a = √(V_a / C_aa). Its diagonal
is C_aa + V_a.

Weights and weighted values are summed as integers. So sums do not depend on their order, and the answer does
not depend on threads, tiles or clusters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import array_api_compat as compat
import numpy as np
import numpy.typing as npt

from airnp.resemblance.gaussian import condition, shrunk
from airnp.resemblance.patch_graph import APART, run_parts, sweeps

Bools = npt.NDArray[np.bool_]
Whole = npt.NDArray[np.int64]

WEIGHT_ONE = 2.0**30
"""The integer that stands for a weight of 1."""

VALUE_ONE = 2.0**11
"""What a value is multiplied by, besides its weight. 2¹⁷ values within [-8, 8] can be added in 64 bits."""


@dataclass(frozen=True)
class Round:
    """How patches are compared and filled in one round.

    Parameters
    ----------
    patch : int
        Side of a patch in pixels.
    stride : int
        Pixels from one reference patch to the next.
    search : int
        Patches are compared that are at most so many rows and columns away.
    neighbours : int
        Patches of a group, K.
    answers : int
        How many patches of a group, the nearest ones, are filled.
    ridge, noise : float
        ρ and σ² of :func:`airnp.resemblance.gaussian.group_statistics`.
    trust : float
        Weight of a missing pixel of the reference patch in distances; an observed one has 1.
    step : float
        1 takes the new values; more goes further in their direction.
    softening : float
        ε, added to variances before they are inverted.
    """

    patch: int = 6
    stride: int = 3
    search: int = 10
    neighbours: int = 64
    answers: int = 12
    ridge: float = 5e-4
    noise: float = 1e-6
    trust: float = 0.2
    step: float = 1.0
    softening: float = 1e-5

    @property
    def reach(self) -> int:
        """How far away, in pixels, a pixel's new value can depend on others."""
        return 2 * (self.search + self.patch)

    def within(self, shape: tuple[int, int]) -> Round:
        """Return a round whose patches fit into a picture (H, W)."""
        patch = min(self.patch, *shape)
        return replace(self, patch=patch, stride=min(self.stride, patch))


@dataclass(frozen=True, eq=False)
class Sums:
    """What patches say about pixels, in integers: weight · value, weight, and how many patches.

    Attributes
    ----------
    values, weights, counts : array of int64 (C, H, W), of NumPy or CuPy
    """

    values: Any
    weights: Any
    counts: Any


def reference_places(length: int, patch: int, stride: int) -> Whole:
    """Return where reference patches begin along an axis: every ``stride`` pixels, and at the end.

    Examples
    --------
    >>> reference_places(12, 6, 4)
    array([0, 4, 6])
    """
    return np.unique(np.append(np.arange(0, max(length - patch, 0) + 1, stride), max(length - patch, 0)))


def touching(gaps: Bools, rows: Whole, columns: Whole, patch: int) -> Bools:
    """Return which patches that begin at the crossings of rows and columns have any gap.

    Parameters
    ----------
    gaps : ndarray of bool (H, W)
    rows, columns : ndarray of int
    patch : int

    Returns
    -------
    ndarray of bool (rows, columns)
    """
    total = np.zeros((gaps.shape[0] + 1, gaps.shape[1] + 1), np.int64)
    total[1:, 1:] = gaps.cumsum(axis=0).cumsum(axis=1)
    top, left = rows[:, None], columns[None, :]
    inside = (
        total[top + patch, left + patch]
        - total[top, left + patch]
        - total[top + patch, left]
        + total[top, left]
    )
    return np.asarray(inside > 0)


def collect(
    X: Any, U: Any, M: Any, frame: int, rows: Whole, columns: Whole, how: Round, threads: int = 1
) -> Sums:
    """Fill the gaps of patches from their groups, and add up what they say about every pixel of a frame.

    Parameters
    ----------
    X, U : array of float32 (F, C, H, W), of NumPy or CuPy
        A picture with its gaps filled, values roughly within [0, 1], and the variances of filled pixels.
        Frames beside ``frame`` join the search.
    M : array of bool (F, C, H, W), of NumPy or CuPy
        True where observed.
    frame : int
    rows, columns : ndarray of int
        Where reference patches begin. Those without a gap are passed over.
    how : Round
    threads : int
        Threads of the CPU.

    Returns
    -------
    Sums
        Arrays of CuPy if X is one.
    """
    if compat.is_cupy_array(X):
        from airnp.resemblance import cuda_patches

        return cuda_patches.collect(X, U, M, frame, rows, columns, how)
    from airnp.engines import _patch_kernels as kernels

    # Compiled code for read-only arrays is other code, and may round otherwise.
    X, U, M = (np.require(part, requirements=["C", "W"]) for part in (X, U, M))
    wanted = touching(~M[frame].all(axis=0), rows, columns, how.patch)
    runs = sweeps(wanted, APART // how.stride)
    weights = np.where(M[frame], np.float32(1), np.float32(how.trust))

    def part(first: int) -> list[Whole]:
        sums = [np.zeros(X.shape[1:], np.int64) for _ in range(3)]
        kernels.fill_rows(
            X, U, M, weights, frame, rows, columns, wanted, runs, first, threads, how.patch, how.search,
            how.neighbours, how.answers, np.float32(how.ridge), np.float32(how.noise), how.softening,
            WEIGHT_ONE, VALUE_ONE, *sums,
        )  # fmt: skip
        return sums

    if rows.size * columns.size == 0:
        return Sums(*(np.zeros(X.shape[1:], np.int64) for _ in range(3)))
    parts = run_parts(threads, part)
    return Sums(*(sum(each[1:], each[0]) for each in zip(*parts, strict=True)))


def apply(sums: Sums, values: Any, variances: Any, gaps: Any, how: Round) -> tuple[Any, Any]:
    """Return values and variances after a round; pixels that no patch covers keep theirs.

    Arrays are NumPy's or CuPy's, all of one shape: (C, H, W), or any selection of pixels.
    """
    xp = compat.array_namespace(values)
    told = gaps & (sums.counts > 0)
    weight = xp.where(told, sums.weights, 1)
    mean = sums.values / weight / VALUE_ONE
    new = xp.where(told, values + how.step * (mean - values), values)
    unsure = sums.counts * how.softening * WEIGHT_ONE / weight - how.softening
    variance = xp.where(told, xp.where(unsure > 0, unsure, 0.0), variances)
    return new.astype(values.dtype), variance.astype(values.dtype)


# --- the specification ---


def collect_by_formula(X: Any, U: Any, M: Any, frame: int, rows: Whole, columns: Whole, how: Round) -> Sums:
    """Compute what :func:`collect` does, group by group, in NumPy and float64. For tests."""
    C, H, W = X.shape[1:]
    shape = (C, how.patch, how.patch)
    sums = [np.zeros((C, H, W), np.int64) for _ in range(3)]
    trust = np.where(M[frame], 1.0, how.trust)

    def cut(array: Any, y: int, x: int) -> Any:
        return array[:, y : y + how.patch, x : x + how.patch]

    wanted = touching(~M[frame].all(axis=0), rows, columns, how.patch)
    for i, j in np.argwhere(wanted):
        y, x = int(rows[i]), int(columns[j])
        places = [
            (f, b, a)
            for f in range(X.shape[0])
            for b in range(max(0, y - how.search), min(H - how.patch, y + how.search) + 1)
            for a in range(max(0, x - how.search), min(W - how.patch, x + how.search) + 1)
        ]
        own, weight = cut(X[frame], y, x), cut(trust, y, x)
        distances = [float((weight * (own - cut(X[f], b, a)) ** 2).sum()) for f, b, a in places]
        group = [places[k] for k in np.argsort(distances, kind="stable")[: how.neighbours]]
        Z, V, seen = (np.stack([cut(part[f], b, a).ravel() for f, b, a in group]) for part in (X, U, M))
        mean, covariance = group_moments(Z.astype(np.float64), V.astype(np.float64), how)
        filled, variance = condition(mean, covariance, Z.astype(np.float64), seen)
        for k, (f, b, a) in enumerate(group[: how.answers]):
            if f == frame:
                share = WEIGHT_ONE * how.softening / (np.maximum(variance[k], 0) + how.softening) + 1
                told = np.where(seen[k], 0, share.astype(np.int64))
                value = (told * np.clip(filled[k], -8, 8) * VALUE_ONE).astype(np.int64)
                for total, one in zip(sums, (value, told, (~seen[k]).astype(np.int64)), strict=True):
                    cut(total, b, a)[...] += one.reshape(shape)
    return Sums(*sums)


def group_moments(Z: Any, V: Any, how: Round) -> tuple[Any, Any]:
    """Return mean and covariance of a group's patches (K, d), with what is not known of filled pixels."""
    mean = Z.mean(axis=0)
    covariance = (Z - mean).T @ (Z - mean) / len(Z)
    spread = np.sqrt(V.mean(axis=0) / (np.diagonal(covariance) + 1e-12))
    return mean, shrunk(covariance * (1 + np.outer(spread, spread)), how.ridge, how.noise)
