"""Choose observed entries to hold out, so that predicting them is as hard as predicting the missing ones.

Scattered missing entries have observed neighbours; the inside of a hole has none. A fit that is judged by
scattered entries only would look good long after it has begun to fill holes badly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from airnp.data.entries import Entries

Bools = npt.NDArray[np.bool_]
Place: TypeAlias = tuple[int, int]

_CLUSTERED = 0.25
"""Gaps are holes if the neighbours of missing entries are missing by this share more often than by chance."""

_TRIES = 300
"""Attempts to place a copy of a hole."""

_SHARE, _SHARE_IN_HOLES = 0.05, 0.1
"""Share of the observed entries to hold out, and that where holes are few."""

_FEW_HOLES = 10
"""Fewer holes than these are few."""

_FEWEST = 20
"""Hold out at least this many entries, or a fifth if there are few."""


def how_many(total: int, fraction: float) -> int:
    """Return how many of ``total`` observed entries to hold out: ``fraction`` of them, but at least a few.

    Examples
    --------
    >>> how_many(1000, 0.05), how_many(200, 0.05), how_many(50, 0.05)
    (50, 20, 10)
    """
    return min(max(round(fraction * total), min(_FEWEST, total // 5)), total - 1)


def hold_out(observed: Bools, fraction: float | None, seed: int) -> Bools:
    """Choose the observed entries that a fit does not see; without a fraction, the default share of them.

    Where holes are few, they are large, and what a copy of one tells about the others is little: twice the
    share is held out.

    Examples
    --------
    >>> observed = np.ones((40, 50), dtype=bool)
    >>> observed[10:14, 20:25] = False
    >>> int(hold_out(observed, None, seed=0).sum()), int(hold_out(observed, 0.05, seed=0).sum())
    (208, 100)
    >>> int(hold_out(np.ones((40, 50), dtype=bool), None, seed=0).sum())
    100
    """
    if fraction is None:
        few = have_holes(observed) and count_holes(observed) < _FEW_HOLES
        fraction = _SHARE_IN_HOLES if few else _SHARE
    wanted = how_many(int(observed.sum()), fraction)
    return like_the_gaps(observed, wanted, np.random.default_rng([seed, 1]))


def like_the_gaps(observed: Bools, wanted: int, rng: np.random.Generator) -> Bools:
    """Choose about ``wanted`` observed entries to hold out, in holes if the missing ones form holes."""
    if have_holes(observed):
        held = holes(observed, wanted, rng)
        if held.sum() >= wanted / 2:
            return held
    return scattered(observed, wanted, rng)


def have_holes(observed: Bools) -> bool:
    """Return whether missing entries form holes, as in damaged pictures, rather than being scattered.

    Examples
    --------
    >>> observed = np.ones((20, 20), dtype=bool)
    >>> observed[5:11, 4:12] = False
    >>> have_holes(observed)
    True
    """
    missing = ~observed
    if min(observed.shape) < 3 or not missing.any() or not observed.any():
        return False
    # Count every pair of neighbours in rows and columns from both sides.
    pairs = [(missing[1:], missing[:-1]), (missing[:, 1:], missing[:, :-1])]
    both = sum(2 * int((a & b).sum()) for a, b in pairs)
    any_of_them = sum(int(a.sum()) + int(b.sum()) for a, b in pairs)
    return bool(both / any_of_them > missing.mean() + _CLUSTERED)


def count_holes(observed: Bools) -> int:
    """Return how many holes missing entries form: groups that touch along rows and columns.

    Examples
    --------
    >>> count_holes(np.array([[0, 1, 0], [0, 1, 1]], dtype=bool))
    2
    """
    from scipy import ndimage

    return int(ndimage.label(~observed)[1])


def scattered(
    observed: Bools, wanted: int, rng: np.random.Generator, weights: npt.NDArray[np.float64] | None = None
) -> Bools:
    """Choose ``wanted`` observed entries at random, or fewer so that every row and column keeps one.

    A matrix of a single row or column, such as a list of measurements, keeps at least one entry in all.

    Parameters
    ----------
    observed : ndarray of bool (m, n)
    wanted : int
    rng : Generator
    weights : ndarray (m, n), optional
        How likely each entry is chosen, relative to the others; 0 for those that come last.
    """
    held = np.zeros(observed.shape, dtype=bool)
    wanted = min(wanted, int(observed.sum()) - 1)
    guarded = min(observed.shape) > 1
    in_row, in_column = observed.sum(axis=1).tolist(), observed.sum(axis=0).tolist()
    places = rng.permutation(np.argwhere(observed))
    if weights is not None:
        # The smallest of exponential variables is each with a probability proportional to its rate.
        times = rng.exponential(size=len(places)) / np.maximum(weights[tuple(places.T)], 1e-300)
        places = places[np.argsort(times)]
    for row, column in places.tolist():
        if wanted <= 0:
            break
        if guarded and (in_row[row] == 1 or in_column[column] == 1):
            continue
        in_row[row] -= 1
        in_column[column] -= 1
        held[row, column] = True
        wanted -= 1
    return held


def holes(observed: Bools, wanted: int, rng: np.random.Generator) -> Bools:
    """Choose about ``wanted`` observed entries under copies of the real holes, flipped and moved at random.

    A copy is rejected if a row or column would lose all its entries, so there may be fewer, or none.
    """
    from scipy import ndimage

    labels, count = ndimage.label(~observed)
    shapes = [labels[box] == number + 1 for number, box in enumerate(ndimage.find_objects(labels))]
    areas = np.array([shape.sum() for shape in shapes], dtype=float)
    held = np.zeros(observed.shape, dtype=bool)
    rows, columns = observed.shape
    for _ in range(_TRIES):
        if held.sum() >= wanted:
            break
        shape = shapes[rng.choice(count, p=areas / areas.sum())]
        shape = shape[:: rng.choice((-1, 1)), :: rng.choice((-1, 1))]
        height, width = shape.shape
        top, left = rng.integers(0, (rows - height + 1, columns - width + 1))
        more = held.copy()
        more[top : top + height, left : left + width] |= shape
        more &= observed
        too_many = more.sum() > 1.5 * wanted and held.sum() > 0.5 * wanted
        if not too_many and _lines(observed & ~more) == _lines(observed):
            held = more
    return held


def _lines(observed: Bools) -> int:
    """Return the number of rows and columns that have an entry."""
    return int(observed.any(axis=0).sum() + observed.any(axis=1).sum())


def random_entries(entries: Entries, fraction: float | None, seed: int) -> Bools:
    """Return which entries of a sparse matrix to hold out: at random, as far as every line keeps one.

    Without a fraction, the default share of them.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> from airnp.data.entries import read_entries
    >>> int(random_entries(read_entries(csr_array(np.ones((20, 30)))), 0.1, seed=0).sum())
    60
    """
    total = entries.nnz
    wanted = how_many(total, _SHARE if fraction is None else fraction)
    order = np.random.default_rng([seed, 1]).permutation(total)
    free = np.ones(total, bool)
    for line in (entries.pattern.line_of_each()[order], entries.pattern.indices[order]):
        free[np.unique(line, return_index=True)[1]] = False
    held = np.zeros(total, bool)
    held[order[np.flatnonzero(free)[:wanted]]] = True
    return held


def best_place(
    error: Callable[[Place], float],
    axes: Sequence[int],
    furthest: int,
    least_gain: float = 0.0,
    start: Place = (0, 0),
) -> Place:
    """Return where a held-out error is small, from a start in steps along one axis after the other.

    Parameters
    ----------
    error : callable
        Of a place, two whole numbers. It is asked again for places that it was asked for.
    axes : sequence of {0, 1}
        Which axis to walk along, first upwards, and downwards if that is no better.
    furthest : int
        How far from zero at most.
    least_gain : float
        Share of the error by which another place has to be better.
    start : two whole numbers

    Examples
    --------
    >>> best_place(lambda place: (place[0] - 2) ** 2 + abs(place[1] + 1), [0, 1], furthest=5)
    (2, -1)
    """
    place = start
    for axis in axes:
        for direction in (1, -1):
            began = place
            while abs(place[axis] + direction) <= furthest:
                there = moved(place, axis, direction)
                if error(there) >= error(place) - least_gain * abs(error(place)):
                    break
                place = there
            if place != began:
                break
    return place


def moved(place: Place, axis: int, step: int) -> Place:
    """Return the place so many steps away along an axis."""
    return (place[0] + step, place[1]) if axis == 0 else (place[0], place[1] + step)


def lowest_between(before: float, middle: float, after: float) -> float:
    """Return where the parabola through errors at −1, 0 and 1 is lowest, if that is near 0: from −½ to ½.

    Through f₋, f, f₊ it is at (f₋ − f₊) / 2(f₋ − 2 f + f₊).

    Examples
    --------
    >>> lowest_between(2.0, 1.0, 1.5)
    0.16666666666666666
    """
    bend = before - 2 * middle + after
    return float(np.clip((before - after) / (2 * bend), -0.5, 0.5)) if bend > 0 else 0.0
