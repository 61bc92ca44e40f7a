"""Predictions of ratings by labels: for pairs, or the best items of each user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from airnp.commands.base import UsageError
from airnp.sparse import SparseFitResult
from airnp.tables.triples import Triples

_AT_A_TIME = 2**24
"""Predictions that are made at a time."""

Places = npt.NDArray[np.int64]


class Predictions(NamedTuple):
    """Lines to write, and how many users and items were not known."""

    users: list[Any]
    items: list[Any]
    values: npt.NDArray[Any]
    unknown: dict[str, int]


def matrix_of(given: Triples, repeated: Literal["error", "last", "mean"], source: Path) -> Any:
    """Return ratings as a sparse matrix (users, items), with one entry for each pair.

    Raises
    ------
    UsageError
        If a pair is there twice and ``repeated`` is ``"error"``.
    """
    from scipy.sparse import csr_array

    shape = len(given.users), len(given.items)
    keys = given.rows * shape[1] + given.columns
    known, first, pair = np.unique(keys, return_index=True, return_inverse=True)
    values = given.values[first]
    if len(known) < len(keys):
        again = np.setdiff1d(np.arange(len(keys)), first)
        if repeated == "error":
            raise UsageError(
                f"{source}: {len(again)} ratings are of pairs that have one already, such as "
                f"{given.place(int(again[0]))}; --repeated last or mean says what counts"
            )
        if repeated == "mean":
            values = np.bincount(pair, weights=given.values) / np.bincount(pair)
        else:
            values[pair] = given.values  # of several, the last is written last
    return csr_array((values, (given.rows[first], given.columns[first])), shape=shape)


def places_of(labels: Sequence[str] | None, known: list[Any], argument: str) -> Places:
    """Return the places of labels that a user names; of all of them if None.

    Raises
    ------
    UsageError
        If there is no such label.
    """
    if labels is None:
        return np.arange(len(known), dtype=np.int64)
    labels = list(dict.fromkeys(labels))
    places = _looked_up(labels, known)
    if (places < 0).any():
        unknown = [repr(label) for label, place in zip(labels, places, strict=True) if place < 0]
        raise UsageError(f"{argument}: there are no ratings by {', '.join(unknown[:5])}")
    return places


def _looked_up(labels: Sequence[Any], known: list[Any]) -> Places:
    """Return the place of each label among the known ones, by its text; −1 for others."""
    places = {str(label): place for place, label in enumerate(known)}
    return np.array([places.get(str(label), -1) for label in labels], dtype=np.int64)


def of_pairs(result: SparseFitResult, given: Triples, pairs: Triples) -> Predictions:
    """Return predictions for pairs; without b_i for users, and without c_j for items, that have no rating."""
    users, items = _looked_up(pairs.users, given.users), _looked_up(pairs.items, given.items)
    rows, columns = users[pairs.rows], items[pairs.columns]
    both = (rows >= 0) & (columns >= 0)
    offsets = result.offsets
    assert offsets is not None
    values = np.full(len(rows), offsets.mean, dtype=result.row_factors.dtype)
    values += np.where(rows >= 0, offsets.rows[rows], 0) + np.where(columns >= 0, offsets.columns[columns], 0)
    if result.bounds is not None:
        values = result.bounds.put_on(values)
    values[both] = result.predict(rows[both], columns[both])
    called = [pairs.users[place] for place in pairs.rows], [pairs.items[place] for place in pairs.columns]
    unknown = {"unknown_users": int((users < 0).sum()), "unknown_items": int((items < 0).sum())}
    return Predictions(*called, values, unknown)


def best(result: SparseFitResult, given: Triples, ratings: Any, count: int, users: Places) -> Predictions:
    """Return for each user the items that are predicted best among those that the user has not rated."""
    found_users: list[Any] = []
    found_items: list[Any] = []
    values = []
    items = ratings.shape[1]
    step = max(1, _AT_A_TIME // items)
    for start in range(0, len(users), step):
        some = users[start : start + step]
        # Many predictions may be at the upper bound: their order is known before they are clipped.
        scores = _of_rows(result, some)
        for user, line in zip(some, scores, strict=True):
            seen = ratings.indices[ratings.indptr[user] : ratings.indptr[user + 1]]
            line[seen] = -np.inf
            chosen = _largest(line, min(count, items - len(seen)))
            found_users += [given.users[user]] * len(chosen)
            found_items += [given.items[item] for item in chosen]
            values.append(line[chosen])
    together = np.concatenate(values)
    if result.bounds is not None:
        together = result.bounds.put_on(together)
    return Predictions(found_users, found_items, together, {"unknown_users": 0, "unknown_items": 0})


def _of_rows(result: SparseFitResult, rows: Places) -> npt.NDArray[Any]:
    """Return some rows of the matrix, without its bounds."""
    offsets = result.offsets
    some = None if offsets is None else offsets._replace(rows=offsets.rows[rows])
    return replace(result, row_factors=result.row_factors[rows], offsets=some, bounds=None).X


def _largest(scores: npt.NDArray[Any], count: int) -> Places:
    """Return the places of the largest scores, in their order; of equal ones the first."""
    if count < len(scores):
        least = np.partition(scores, -count)[-count] if count else np.inf
        places = np.flatnonzero(scores >= least)
    else:
        places = np.arange(len(scores))
    return places[np.argsort(-scores[places], kind="stable")][:count]
