r"""The graph of a picture's patches in closed form, and its Laplacian on pixels.

AIR's regulariser for blocks of a picture is the Dirichlet energy ½ Σ A_ij ‖z_i − z_j‖² of the patches z_i,
with an adjacency A that is learned. Two things make it cheap here.

**The adjacency has a closed form.** With an entropy beside the energy, each row of A solves

.. math::
    \min_{P_i} \; Σ_j P_{ij} D_{ij} + τ_i Σ_j P_{ij} \log P_{ij}, \qquad Σ_j P_{ij} = 1 ,

where D_ij = ‖z_i − z_j‖². Setting the derivative D_ij + τ_i (log P_ij + 1) equal for all j gives the softmax
P_ij = exp(−D_ij/τ_i) / Σ_l exp(−D_il/τ_i). Only the K nearest patches within a window are kept; τ_i is the
distance to the middle one of them.

**The energy is one of pixels.** The patches i and j are compared pixel by pixel: pixel p = i + s with pixel
q = j + s for all offsets s within a patch. So ½ Σ_ij A_ij Σ_s (x_{i+s} − x_{j+s})² = xᵀ L′ x with the
Laplacian L′ of

.. math::
    A'_{pq} = Σ_s A_{p-s, q-s}

(symmetrised). Its gradient is 2 L′ x. Order 2 is ‖L′ x‖², with the gradient 2 L′² x; as biharmonic inpainting
does beside harmonic, it continues slopes. L′² is never formed.

With the observed pixels fixed, the minimum over the missing ones is a linear system, solved by conjugate
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class GraphSettings:
    """How patches are joined.

    Parameters
    ----------
    patch : int
        Side of the compared patches in pixels; odd.
    search : int
        Patches are compared that are at most so many rows and columns away.
    neighbours : int
        Edges of a patch, K.
    coupled : int
        Side of the middle part of a patch whose pixels an edge joins; odd, at most ``patch``.
    trust : float
        Weight of a missing pixel in distances; an observed one has 1.
    first_order : float
        Share of the energy of order 1 beside that of order 2, in units of the mean degree.
    tolerance : float
        Residual of the linear systems. What follows a graph improves on it, so more digits are wasted.
    """

    patch: int = 7
    search: int = 10
    neighbours: int = 6
    coupled: int = 5
    trust: float = 0.5
    first_order: float = 0.1
    tolerance: float = 1e-3


@dataclass(frozen=True, eq=False)
class PatchGraph:
    """Edges from patches to their nearest ones.

    Attributes
    ----------
    offsets : ndarray of int16 (H, W, K)
        Where the neighbours of the patch around a pixel are: o // side − search rows and o % side − search
        columns away, side = 2·search + 1. −1 where there is none.
    weights : ndarray of float32 (H, W, K)
        Entropic weights; they sum to 1 for each patch that has neighbours.
    search, coupled : int
    """

    offsets: Any
    weights: Values
    search: int
    coupled: int

    @classmethod
    def of(
        cls, picture: Values, observed: Bools, wanted: Bools, how: GraphSettings, threads: int = 1
    ) -> PatchGraph:
        """Find the neighbours of the patches around wanted pixels.

        Parameters
        ----------
        picture : ndarray of float32 (C, H, W)
        observed : ndarray of bool (C, H, W)
        wanted : ndarray of bool (H, W)
        how : GraphSettings
        threads : int
        """
        from airnp.engines import _graph_kernels as kernels
        from airnp.engines._tiles import LANES

        margin = how.patch // 2
        frame = ((0, 0), (margin, margin), (margin, margin))
        mode: Any = "reflect" if min(picture.shape[1:]) > margin else "edge"
        behind = ((0, 0), (0, 0), (0, LANES))
        padded = np.pad(np.pad(picture, frame, mode=mode).astype(np.float32), behind)
        trust = np.where(np.pad(observed, frame, mode=mode), np.float32(1), np.float32(how.trust))
        trust = np.pad(trust, behind)
        shape = (*picture.shape[1:], how.neighbours)
        offsets = np.full(shape, -1, np.int16)
        distances, weights = np.empty(shape, np.float32), np.zeros(shape, np.float32)
        # Patches close by are mostly the nearest, so with them first the list of nearest ones changes seldom.
        steps = np.arange(-how.search, how.search + 1) ** 2
        order = np.argsort(np.add.outer(steps, steps).ravel(), kind="stable")
        strips = np.logical_or.reduceat(wanted, np.arange(0, len(wanted), kernels.STRIP))
        parts = sweeps(strips)
        run_parts(
            threads,
            lambda part: kernels.nearest_rows(
                padded, trust, wanted, parts, order, part, threads, how.patch, how.search, offsets, distances
            ),
        )
        run_parts(
            threads,
            lambda part: kernels.entropic_weights(
                distances[part::threads], offsets[part::threads], weights[part::threads]
            ),
        )
        return cls(offsets, weights, how.search, how.coupled)

    def laplacian(self, rows: slice | None = None, columns: slice | None = None) -> PixelLaplacian:
        """Return L′ on the pixels of a window, without the edges that leave it."""
        from airnp.engines import _graph_kernels as kernels

        H, W, K = self.offsets.shape
        rows, columns = rows or slice(0, H), columns or slice(0, W)
        height, width = rows.stop - rows.start, columns.stop - columns.start
        starts = np.zeros(height * width + 1, np.int64)
        size = height * width * 8 * K
        while True:
            others, shares = np.empty(size, np.int32), np.empty(size, np.float32)
            edges = kernels.couple_pixels(
                self.offsets, self.weights, rows.start, columns.start, height, width, self.search,
                self.coupled // 2, starts, others, shares,
            )  # fmt: skip
            if edges <= size:
                break
            size = edges
        both_starts = np.empty_like(starts)
        both, halves = np.empty(2 * edges, np.int32), np.empty(2 * edges, np.float32)
        kernels.symmetric(starts, others, shares, both_starts, both, halves)
        return PixelLaplacian(both_starts, both, halves, (height, width))


@dataclass(frozen=True, eq=False)
class PixelLaplacian:
    """The Laplacian L′ of a symmetric graph over the pixels of a picture, in rows.

    Attributes
    ----------
    starts : ndarray of int64 (H·W + 1,)
        Where the edges of each pixel begin.
    others : ndarray of int32
        Their other ends. An edge may stand twice; its weights add up.
    weights : ndarray of float32
    shape : (H, W)
    """

    starts: Any
    others: Any
    weights: Any
    shape: tuple[int, int]

    def __matmul__(self, x: Values) -> Values:
        """Return L′ x for x (H·W,)."""
        from airnp.engines import _graph_kernels as kernels

        out = np.empty_like(x)
        kernels.apply_laplacian(self.starts, self.others, self.weights.astype(x.dtype), x, out)
        return out

    @property
    def mean_degree(self) -> float:
        """Mean of the diagonal of L′ over the pixels that have edges."""
        joined = int((np.diff(self.starts) > 0).sum())
        return float(self.weights.sum(dtype=np.float64)) / max(joined, 1)

    def minimise(
        self,
        picture: Values,
        observed: Bools,
        first_order: float | None = 0.1,
        *,
        tolerance: float = 3e-5,
        max_iter: int = 300,
    ) -> Values:
        """Return a picture (C, H, W) whose missing pixels minimise ‖L′x‖² + first_order · degree · xᵀL′x.

        Parameters
        ----------
        picture : ndarray of float32 (C, H, W)
            Missing pixels are the start.
        observed : ndarray of bool (C, H, W)
        first_order : float or None
            None is the energy xᵀL′x alone.
        tolerance, max_iter
            Of the conjugate gradients.
        """
        from airnp.engines import _graph_kernels as kernels

        filled = np.array(picture, np.float32, order="C")
        orders = (1.0, 0.0) if first_order is None else (first_order * self.mean_degree, 1.0)
        flat, gaps = filled.reshape(len(filled), -1), ~observed.reshape(len(filled), -1)
        # Channels with the same gaps are solved together.
        left = np.arange(len(gaps))
        while left.size:
            same = (gaps[left] == gaps[left[0]]).all(axis=1)
            channels, left = left[same], left[~same]
            unknown = np.flatnonzero(gaps[channels[0]])
            if unknown.size:
                some = flat[channels]
                kernels.solve(
                    self.starts, self.others, self.weights, some, unknown, *orders, tolerance, max_iter
                )
                flat[channels] = some
        return filled


def near_gaps(gaps: Bools, reach: int) -> Bools:
    """Return which pixels (H, W) have a gap at most ``reach`` rows and columns away."""
    from scipy.ndimage import maximum_filter

    return np.asarray(maximum_filter(gaps, size=2 * reach + 1, mode="constant", cval=False))


APART = 64
"""Pixels between wanted places that cost less to sweep over than a new sweep does."""


def sweeps(wanted: Bools, apart: int = APART) -> npt.NDArray[np.int64]:
    """Return parts of rows that hold all wanted entries: (row, start, stop) of each.

    Loops over the columns of a part run together, and entries between wanted ones cost time, too: a part ends
    where more than ``apart`` entries are not wanted.

    Examples
    --------
    >>> sweeps(np.array([[1, 0, 1, 0, 0, 1], [0, 0, 0, 0, 1, 0]], bool), apart=1)
    array([[0, 0, 3],
           [0, 5, 6],
           [1, 4, 5]])
    """
    rows, columns = np.nonzero(wanted)
    begins = np.ones(rows.size, bool)
    begins[1:] = (np.diff(rows) > 0) | (np.diff(columns) > apart + 1)
    first = np.flatnonzero(begins)
    last = np.append(first[1:], rows.size) - 1
    return np.column_stack([rows[first], columns[first], columns[last[: first.size]] + 1])


def run_parts(threads: int, work: Callable[[int], Answer]) -> list[Answer]:
    """Return the answers of ``work`` to 0, 1, …, threads − 1, called side by side."""
    if threads == 1:
        return [work(0)]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, range(threads)))
