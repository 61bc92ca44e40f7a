r"""Held-out entries that judge fits: drawn in the shape of the gaps, with a standard error of their mean.

Scattered gaps are judged by scattered entries, each of which counts by itself. Holes are judged by copies of
holes. The errors within a hole are much alike, so the number of holes counts, not that of entries: a copy is
one *cluster* and has one error, the mean over its entries. Holes are copied with a probability proportional
to their area; the plain mean of the clusters' errors :math:`e_c` therefore estimates the mean over all
missing entries:

.. math:: \bar e = \frac1k \sum_c e_c, \qquad \mathrm{se}^2 = \frac vk, \qquad
          v = \frac{1}{k-1} \sum_c (e_c - \bar e)^2.

The gaps themselves are a sample as well. With :math:`g_c` entries in hole c, the mean error over them
scatters about its expectation with the variance :math:`v \sum g_c^2 / (\sum g_c)^2`, which a forecast has to
add.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from airnp.data.holdout import have_holes, how_many, scattered

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

_HOLES, _MOST = 10, 0.1
"""Hold out at least this many copies of holes, but at most this share of the entries."""

_TRIES, _TOUCHING = 1000, 60
"""Copies to try, and how many in a row may touch a hole before one of them is accepted anyway."""

_SLACK = 0.8
"""Share of the entries of the emptiest line that may be left in another."""

_LONG, _OF_A_LINE = 3, 0.25
"""Missing entries of a line, at least, and their share of the line in the median. Scratches are no lines."""

_NET = 8.0
"""Depths of a hole that a piece of it is long."""

_LINE = np.array([[0, 0, 0], [1, 1, 1], [0, 0, 0]])


@dataclass(frozen=True, eq=False)
class Judges:
    """Held-out entries of one matrix.

    Attributes
    ----------
    held_out : boolean array (m, n)
    clusters : int array (entries held out,)
        The cluster, from 0, of each entry, in the order of ``numpy.argwhere``.
    truth : array (entries held out,)
    scale : float
        The range of the observed entries, or the size of equal ones, by which errors are divided.
    gaps : int array
        Sizes of the clusters that are missing.
    in_holes : bool
        Whether the clusters are copies of holes.
    unlike_the_gaps : bool
        Whether the gaps are holes, but no copies of them could be held out.
    """

    held_out: Bools
    clusters: npt.NDArray[np.int64]
    truth: Floats
    scale: float
    gaps: npt.NDArray[np.int64]
    in_holes: bool
    unlike_the_gaps: bool

    @classmethod
    def draw(
        cls,
        values: npt.NDArray[Any],
        observed: Bools,
        fraction: float,
        rng: np.random.Generator,
        by_column: bool = False,
        before: Bools | None = None,
    ) -> Judges:
        """Draw held-out entries of a matrix.

        Parameters
        ----------
        values : ndarray (m, n)
            Anything where not observed.
        observed : ndarray of bool (m, n)
        fraction : float
            Share of the observed entries to hold out; more where that makes fewer than ten holes.
        rng : Generator
        by_column : bool
            Whether to hold out scattered entries from columns in proportion to their gaps.
        before : ndarray of bool (m, n), optional
            Entries that have been held out already; scattered ones are held out again only if no others are
            left.

        Examples
        --------
        >>> picture = np.random.default_rng(0).random((40, 40))
        >>> observed = np.ones((40, 40), dtype=bool)
        >>> observed[10:14, 20:24] = False
        >>> judges = Judges.draw(picture, observed, 0.05, np.random.default_rng(1))
        >>> judges.in_holes, judges.count, int(judges.held_out.sum())
        (True, 10, 160)
        """
        seen = values[observed].astype(np.float64)
        # Equal entries have no range; as in a fit, their size takes its place.
        scale = float(seen.max() - seen.min()) or abs(float(seen[0])) or 1.0
        wanted = how_many(len(seen), fraction)
        copies = _copies(observed, wanted, rng)
        in_holes = copies is not None
        if copies is None:
            weights = np.ones(observed.shape)
            if by_column:
                weights *= (~observed).sum(axis=0) / np.maximum(observed.sum(axis=0), 1)
            if before is not None:
                weights[before] = 0.0
            held = scattered(observed, wanted, rng, None if weights.all() else weights)
            labels = np.full(held.shape, -1)
            labels[held] = np.arange(held.sum())
            gaps = np.ones(int((~observed).sum()), dtype=np.int64)
        else:
            labels, shapes = copies
            gaps = np.array([shape.sum() for shape in shapes], dtype=np.int64)
        held = labels >= 0
        clusters = np.unique(labels[held], return_inverse=True)[1].reshape(-1)
        if clusters.max(initial=0) < 1:
            raise ValueError(f"Y: {len(seen)} observed entries are too few to hold some of them out")
        unlike = not in_holes and have_holes(observed)
        return cls(held, clusters, values[held].astype(np.float64), scale, gaps, in_holes, unlike)

    @property
    def count(self) -> int:
        """Number of clusters."""
        return int(self.clusters.max()) + 1

    def errors(self, matrix: npt.NDArray[Any]) -> Floats:
        """Return the NMAE of a completed matrix (m, n) in each cluster."""
        sizes = np.abs(matrix[self.held_out].astype(np.float64) - self.truth) / self.scale
        return np.bincount(self.clusters, weights=sizes) / np.bincount(self.clusters)

    def forecast_error(self, errors: Floats) -> float:
        """Return the standard error of the clusters' mean as a forecast for the missing entries."""
        of_gaps = (self.gaps.astype(np.float64) ** 2).sum() / max(self.gaps.sum(), 1) ** 2
        return float(np.sqrt(errors.var(ddof=1) * (1 / len(errors) + of_gaps)))


def standard_error(errors: Floats) -> float:
    """Return the standard error of the mean of independent errors."""
    return float(errors.std(ddof=1) / np.sqrt(len(errors)))


Copies: TypeAlias = tuple[npt.NDArray[np.int64], list[Bools]]
"""The number of the copied hole at each entry, −1 elsewhere, and the shapes of all holes."""


def _copies(observed: Bools, wanted: int, rng: np.random.Generator) -> Copies | None:
    """Return entries under copies of holes; None if there are no holes, or no place for copies.

    A copy leaves in each line about half of it, or as much as the gaps leave in the emptiest one: what
    predicts half a line from its other half does not predict it from nothing. Thin lines that cross are one
    hole, which could not be moved in this way; there, each line is a shape of its own.
    """
    if not have_holes(observed):
        return None
    whole = _holes(~observed)
    emptiest = [float(observed.sum(axis).min()) for axis in (0, 1)]
    least = [max(_SLACK * min(emptiest[k], observed.shape[k] / 2), 1) for k in (0, 1)]
    for shapes, fewest in ((_thin_lines(~observed), least), (whole, least), (whole, [1.0, 1.0])):
        found = _placed(observed, shapes, fewest, wanted, rng) if shapes else None
        if found is not None:
            return found, shapes
    return None


def _placed(
    observed: Bools, shapes: list[Bools], fewest: Sequence[float], wanted: int, rng: np.random.Generator
) -> npt.NDArray[np.int64] | None:
    """Return the number of the copy at each entry, −1 elsewhere; None if fewer than two have a place."""
    from scipy import ndimage

    sizes = np.array([shape.sum() for shape in shapes], dtype=float)
    typical = float((sizes**2).sum() / sizes.sum())
    wanted = max(wanted, min(round(_HOLES * typical), round(_MOST * observed.sum())))
    labels = np.full(observed.shape, -1, dtype=np.int64)
    left, count, touching = observed.copy(), 0, 0
    for _ in range(_TRIES):
        if observed.sum() - left.sum() >= wanted:
            break
        shape = shapes[rng.choice(len(shapes), p=sizes / sizes.sum())]
        shape = shape[:: rng.choice((-1, 1)), :: rng.choice((-1, 1))]
        height, width = shape.shape
        top, first = rng.integers(0, np.subtract(observed.shape, shape.shape) + 1)
        copy = np.zeros_like(observed)
        copy[top : top + height, first : first + width] = shape
        copy &= left
        emptied = [
            ((left & ~copy).sum(axis)[copy.any(axis)] < least).any() for axis, least in enumerate(fewest)
        ]
        if any(emptied) or not copy.any():
            continue
        # Holes that touch form a larger one, which is harder to fill than the missing ones.
        if touching < _TOUCHING and (ndimage.binary_dilation(copy) & ~left).any():
            touching += 1
            continue
        labels[copy] = count
        left &= ~copy
        count, touching = count + 1, 0
    return labels if count > 1 else None


def _holes(missing: Bools) -> list[Bools]:
    """Return the holes; a net, much longer than it is deep, is cut into pieces of eight times its depth."""
    from scipy import ndimage

    labels, _ = ndimage.label(missing)
    depth = ndimage.distance_transform_edt(missing)
    found = []
    for number, box in enumerate(ndimage.find_objects(labels)):
        hole = labels[box] == number + 1
        side = math.ceil(_NET * depth[box][hole].max())
        if max(hole.shape) <= 2 * side:
            side = max(hole.shape)
        height, width = hole.shape
        corners = product(range(0, height, side), range(0, width, side))
        pieces = (hole[top : top + side, left : left + side] for top, left in corners)
        found += [piece for piece in pieces if piece.any()]
    return found


def _thin_lines(missing: Bools) -> list[Bools]:
    """Return the rows and columns, or parts of them, that gaps consist of; none if gaps are wider."""
    from scipy import ndimage

    along, across = (ndimage.label(missing, _LINE if axis else _LINE.T)[0] for axis in (1, 0))
    lengths = [np.bincount(labels.ravel())[labels] for labels in (along, across)]
    shares = np.maximum(lengths[0] / missing.shape[1], lengths[1] / missing.shape[0])
    if np.median(np.minimum(*lengths)[missing]) > 1 or np.median(shares[missing]) < _OF_A_LINE:
        return []
    found = []
    for labels, own, other in ((along, *lengths), (across, *lengths[::-1])):
        for number, box in enumerate(ndimage.find_objects(labels)):
            if own[box].flat[0] >= _LONG and np.median(other[box]) < own[box].flat[0]:
                found.append(labels[box] == number + 1)
    return found
