"""Who rated what, as people have it: data frames, triples, pivot tables, sparse matrices; and their ids."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal, NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from airnp._arrays import stored_entries
from airnp._checks import checked_number, checked_seed
from airnp.data.entries import is_sparse

Places = npt.NDArray[np.int64]

_SPELLINGS = {
    "user": "user users userid uid u customer customerid member memberid reviewer reviewerid person who",
    "item": "item items itemid iid i movie movieid film filmid product productid asin book bookid isbn title "
    "song songid artist artistid track trackid business businessid joke jokeid anime animeid",
    "rating": "rating ratings score stars star value overall preference r",
    "timestamp": "timestamp time date datetime ts unixreviewtime reviewtime when",
}
_ROLES = {spelling: role for role, text in _SPELLINGS.items() for spelling in text.split()}


def column_roles(names: Sequence[Any], wanted: Iterable[str] = tuple(_SPELLINGS)) -> dict[str, int]:
    """Return the place of each wanted role: user, item, rating or timestamp, that names of columns tell.

    Raises
    ------
    ValueError
        If two columns have names of one wanted role.

    Examples
    --------
    >>> column_roles(["timestamp", "userId", "movie_id", "rating"])
    {'timestamp': 0, 'user': 1, 'item': 2, 'rating': 3}
    >>> column_roles(["a", "b"])
    {}
    """
    found: dict[str, int] = {}
    for place, name in enumerate(names):
        role = _ROLES.get(re.sub(r"[^a-z]", "", str(name).lower()), "")
        if role not in found and role in wanted:
            found[role] = place
        elif role in found:
            # An id goes before a name: "movieId" and "title".
            is_id, was_id = ("id" in str(each).lower() for each in (name, names[found[role]]))
            if is_id == was_id:
                raise ValueError(f"columns: expected one for the {role}, got {list(names)}; name the columns")
            if is_id:
                found[role] = place
    return found


class Interactions(NamedTuple):
    """A table of ratings with ids.

    Attributes
    ----------
    matrix : scipy.sparse matrix (users, items)
    users, items : Ids
    times : array (nnz,) or None
        When each entry was made, in the order of its rows.
    """

    matrix: Any
    users: Ids
    items: Ids
    times: npt.NDArray[Any] | None = None


def read_interactions(
    R: Any, user: Any = None, item: Any = None, rating: Any = None, timestamp: Any = None
) -> Interactions:
    """Return a table of ratings in any form that :func:`airnp.fit_ratings` takes, checked.

    Examples
    --------
    >>> found = read_interactions([("ann", "Alien", 5), ("bob", "Alien", 3)])
    >>> found.users.labels, found.items.labels, found.matrix.toarray().tolist()
    (['ann', 'bob'], ['Alien'], [[5.0], [3.0]])
    """
    names = {"user": user, "item": item, "rating": rating, "timestamp": timestamp}
    if hasattr(R, "to_pandas"):  # arrow and polars
        R = R.to_pandas()
    if hasattr(R, "columns") and hasattr(R, "iloc"):
        return _from_frame(R, names)
    _refuse_names(R, names)
    if is_sparse(R):
        return _from_sparse(R)
    if isinstance(R, tuple) and len(R) in (3, 4) and all(map(_is_sequence, R)):
        return _from_columns(*R)
    if (
        isinstance(R, list)
        and R
        and all(isinstance(line, tuple | list) and len(line) in (3, 4) for line in R)
    ):
        return _from_columns(*(list(column) for column in zip(*R, strict=True)))
    raise TypeError(
        f"R: expected a sparse matrix of SciPy, a data frame or triples (user, item, rating), got "
        f"{type(R).__name__}; scipy.sparse.coo_array((ratings, (users, items)), shape) makes a sparse matrix"
    )


def read_pairs(R: Any, user: Any = None, item: Any = None, timestamp: Any = None) -> Interactions:
    """Return who used what in any form that :func:`airnp.fit_implicit` takes, checked: ones in a matrix.

    Examples
    --------
    >>> found = read_pairs([("ann", "Alien"), ("bob", "Alien"), ("ann", "Alien")])
    >>> found.users.labels, found.items.labels, found.matrix.toarray().tolist()
    (['ann', 'bob'], ['Alien'], [[1.0], [1.0]])
    """
    names = {"user": user, "item": item, "timestamp": timestamp}
    if hasattr(R, "to_pandas"):  # arrow and polars
        R = R.to_pandas()
    if hasattr(R, "columns") and hasattr(R, "iloc"):
        columns = list(R.columns)
        chosen = _chosen_columns(columns, names)
        if len(columns) == 2 and chosen["user"] is None and chosen["item"] is None:
            chosen |= {"user": columns[0], "item": columns[1]}
        parts = [R[name] for name in _named(chosen, ("user", "item"), columns)]
        if any(part.isna().any() for part in parts):
            raise ValueError("R: expected a user and an item in every row, got rows with gaps")
        times = None if chosen["timestamp"] is None else R[chosen["timestamp"]]
        return _used(parts[0].tolist(), parts[1].tolist(), times)
    _refuse_names(R, names)
    if is_sparse(R):
        rows = stored_entries("R", R)
        if not (_numbers(rows.data) > 0).all():
            raise ValueError("R: expected stored entries above 0 for what was used, got others")
        return Interactions((rows > 0).astype(np.float64), Ids(range(R.shape[0])), Ids(range(R.shape[1])))
    if isinstance(R, tuple) and len(R) in (2, 3) and all(map(_is_sequence, R)):
        return _used(*R)
    if (
        isinstance(R, list)
        and R
        and all(isinstance(line, tuple | list) and len(line) in (2, 3) for line in R)
    ):
        return _used(*(list(column) for column in zip(*R, strict=True)))
    raise TypeError(
        f"R: expected a sparse matrix of SciPy, a data frame or pairs (user, item), got {type(R).__name__}"
    )


def _used(users: Any, items: Any, times: Any = None) -> Interactions:
    """Return the table of pairs; of one that is there more than once, the latest counts."""
    if len(users) != len(items):
        raise ValueError(f"R: expected as many users as items, got {len(users)} and {len(items)}")
    if not len(users):
        raise ValueError("R: expected at least one pair of a user and an item, got none")
    (rows, row_ids), (columns, column_ids) = _factorized(users), _factorized(items)
    times = None if times is None else read_times(times, len(rows))
    order = np.arange(len(rows)) if times is None else np.argsort(times, kind="stable")
    _, last = np.unique((rows * len(column_ids) + columns)[order][::-1], return_index=True)
    kept = order[::-1][last]  # in the order of rows
    return _table(rows[kept], columns[kept], np.ones(len(kept)), row_ids, column_ids, times, kept)


def _table(
    rows: Places, columns: Places, values: Any, row_ids: Ids, column_ids: Ids, times: Any, kept: Places
) -> Interactions:
    from scipy.sparse import csr_array

    matrix = csr_array((values, (rows, columns)), shape=(len(row_ids), len(column_ids)))
    if times is None or not has_order(times):
        return Interactions(matrix, row_ids, column_ids)
    return Interactions(matrix, row_ids, column_ids, times[kept])


def read_times(times: Any, count: int) -> npt.NDArray[Any]:
    """Return a number for each time: those of numbers, dates or text such as 1997-12-04 15:55:49.

    Raises
    ------
    ValueError
        If one is missing or is no time, or if there are not as many as ratings.

    Examples
    --------
    >>> read_times(["1970-01-02T00:00:00+00:00", 5, date(1970, 1, 3)], 3).tolist()[:2]
    [86400.0, 5.0]
    """
    values = np.ma.masked_array(times)
    if values.shape != (count,):
        raise ValueError(f"timestamp: expected a time for each of {count} ratings, got shape {values.shape}")
    found = np.asarray(values)
    missing = np.ma.getmaskarray(values) | (np.isnat(found) if found.dtype.kind in "mM" else False)
    if found.dtype.kind not in "biumM":
        moments = [moment(value) for value in found.tolist()]
        missing = missing | np.array([value is None for value in moments], dtype=bool)
        numbers = np.array([math.nan if value is None else value for value in moments], dtype=np.float64)
    else:
        numbers = found.astype(np.int64)
    if missing.any():
        line = int(np.argmax(missing))
        raise ValueError(
            f"timestamp: expected a number or a date such as 2020-01-31 12:00:00 in every row, got "
            f"{values[line]!r} in row {line + 1}; without this column, random ratings choose the settings"
        )
    return numbers


def moment(value: Any) -> float | None:
    """Return a time as a number, from a number, a date or the text of one; None for anything else.

    Examples
    --------
    >>> moment("881250949"), moment("1970-01-02T00:00:00+00:00"), moment("yesterday")
    (881250949.0, 86400.0, None)
    """
    try:
        return _finite(float(value))
    except (TypeError, ValueError, OverflowError):
        pass
    try:
        if isinstance(value, date) and not isinstance(value, datetime):
            value = datetime(value.year, value.month, value.day)
        return _finite((datetime.fromisoformat(value) if isinstance(value, str) else value).timestamp())
    except (AttributeError, ValueError, OverflowError):
        return None


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def has_order(times: npt.NDArray[Any] | None) -> bool:
    """Whether there are times, and not all the same."""
    return times is not None and len(times) > 0 and bool((times != times[0]).any())


def _refuse_names(R: Any, names: Mapping[str, Any]) -> None:
    if any(name is not None for name in names.values()):
        raise ValueError(
            f"{', '.join(list(names)[:-1])}: names of columns go with a data frame, got a {type(R).__name__}"
        )


def _chosen_columns(columns: Sequence[Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the column of each role: the one that the user names, or one with a usual name, or None."""
    columns, given = list(columns), [name for name in names.values() if name is not None]
    for role, name in names.items():
        if name is not None and name not in columns:
            raise ValueError(f"{role}: expected the name of a column, one of {columns[:10]}, got {name!r}")
    for name in given:
        if given.count(name) > 1 or columns.count(name) > 1:
            raise ValueError(
                f"{', '.join(names)}: expected the names of different columns, got {name!r} twice"
            )
    free = [name for name in columns if name not in given]
    told = column_roles(free, [role for role, name in names.items() if name is None])
    return {role: free[told[role]] if role in told else name for role, name in names.items()}


def _named(chosen: Mapping[str, Any], roles: Sequence[str], columns: Sequence[Any]) -> list[Any]:
    """Return the columns of some roles; raise a ValueError if one is not known."""
    for role in roles:
        if chosen[role] is None:
            raise ValueError(f"{role}: expected the name of a column, one of {columns[:10]}, got None")
    return [chosen[role] for role in roles]


def split(
    users: Any,
    times: Any = None,
    *,
    how: Literal["random", "one", "time"] = "random",
    share: float = 0.2,
    seed: int = 0,
) -> npt.NDArray[np.bool_]:
    """Return which ratings to test on.

    Parameters
    ----------
    users : array (k,)
        Who made each rating.
    times : array (k,), optional
        When.
    how : {"random", "one", "time"}
        A random share of all ratings; one of each user who has more than one, the latest if there are times;
        or the latest share of all ratings.
    share : float
        For "random" and "time".
    seed : int

    Returns
    -------
    array of bool (k,)

    Examples
    --------
    >>> split(["a", "a", "b"], [1, 2, 3], how="one").tolist()
    [False, True, False]
    """
    who = np.asarray(_factorized(list(users))[0])
    order = np.random.default_rng(checked_seed(seed)).permutation(len(who))
    if how not in ("random", "one", "time"):
        raise ValueError(f"how: expected 'random', 'one' or 'time', got {how!r}")
    if how == "time" and times is None:
        raise ValueError("times: expected one for each rating to split by time, got None")
    if not 0 < checked_number("share", share) < 1:
        raise ValueError(f"share: expected a number between 0 and 1, got {share!r}")
    if times is not None and how != "random":
        order = order[np.argsort(read_times(times, len(who))[order], kind="stable")]
    found = np.zeros(len(who), bool)
    if how == "one":
        _, last = np.unique(who[order][::-1], return_index=True)
        chosen = order[::-1][last]
        found[chosen[np.bincount(who)[who[chosen]] > 1]] = True
    else:
        found[order[len(order) - round(share * len(order)) :]] = True
    return found


def latest(times: Any, share: float) -> npt.NDArray[np.bool_]:
    """Return which ratings are the latest share of all; of those at one time, some at random.

    Examples
    --------
    >>> latest([5, 1, 4, 2], 0.5).tolist()
    [True, False, True, False]
    """
    order = np.random.default_rng(0).permutation(len(times))
    order = order[np.argsort(np.asarray(times)[order], kind="stable")]
    found = np.zeros(len(order), bool)
    found[order[len(order) - round(share * len(order)) :]] = True
    return found


def _from_sparse(R: Any) -> Interactions:
    _numbers(stored_entries("R", R).data)  # refuses what a sparse matrix may hold and ratings may not
    return Interactions(R, Ids(range(R.shape[0])), Ids(range(R.shape[1])))


def _from_frame(frame: Any, names: Mapping[str, Any]) -> Interactions:
    columns = list(frame.columns)
    chosen = _chosen_columns(columns, names)
    if all(chosen[role] is not None for role in ("user", "item", "rating")):
        if frame[[chosen[role] for role in ("user", "item", "rating")]].isna().to_numpy().any():
            raise ValueError("R: expected a user, an item and a rating in every row, got rows with gaps")
        parts = [frame[chosen[role]] for role in ("user", "item", "rating")]
        times = None if chosen["timestamp"] is None else frame[chosen["timestamp"]]
        return _from_columns(parts[0].tolist(), parts[1].tolist(), parts[2], times)
    if any(name is not None for name in chosen.values()):
        _named(chosen, ("user", "item", "rating"), columns)
    return _from_pivot(frame)


def _from_pivot(frame: Any) -> Interactions:
    """Return a table whose rows are users and whose columns are items, NaN where there is no rating."""
    from scipy.sparse import csr_array

    values = frame.to_numpy(dtype=np.float64, na_value=np.nan)
    there = ~np.isnan(values)
    if there.all():
        raise ValueError(
            f"R: expected columns for users, items and ratings, or a pivot table with gaps, got columns "
            f"{list(frame.columns)[:10]} without gaps; user=, item= and rating= name the columns"
        )
    rows, columns = np.nonzero(there)
    matrix = csr_array((_numbers(values[there]), (rows, columns)), shape=values.shape)
    return Interactions(matrix, Ids(frame.index.tolist()), Ids(frame.columns.tolist()))


def _from_columns(users: Any, items: Any, values: Any, times: Any = None) -> Interactions:
    if not len(users) == len(items) == len(values):
        raise ValueError(
            f"R: expected as many users as items and ratings, got {len(users)}, {len(items)}, {len(values)}"
        )
    numbers = _numbers(values)
    times = None if times is None else read_times(times, len(numbers))
    (rows, row_ids), (columns, column_ids) = _factorized(users), _factorized(items)
    shape = len(row_ids), len(column_ids)
    keys = rows * shape[1] + columns
    order = np.argsort(keys, kind="stable")
    if (np.diff(keys[order]) == 0).any():
        pairs = len(np.unique(keys))
        raise ValueError(
            f"R: expected at most one rating of an item by a user, got {len(keys)} ratings of {pairs} pairs; "
            "keep the last of each, or their mean"
        )
    return _table(rows[order], columns[order], numbers[order], row_ids, column_ids, times, order)


def _numbers(values: Any) -> npt.NDArray[np.float64]:
    """Return ratings as float64; raise if some are missing, not finite or no numbers."""
    found = np.asarray(values)
    if np.ma.is_masked(values):
        raise ValueError("R: expected a rating in every row, got masked ones")
    try:
        if found.dtype.kind in "cmM":
            raise TypeError
        numbers = found.astype(np.float64)
    except (TypeError, ValueError):
        raise TypeError(f"R: expected ratings that are numbers, got {found.dtype}") from None
    if not len(numbers):
        raise ValueError("R: expected at least one rating, got none")
    if not np.isfinite(numbers).all():
        wrong = numbers[~np.isfinite(numbers)]
        raise ValueError(f"R: expected finite ratings, got {wrong[0]}; {len(wrong)} ratings are not finite")
    return numbers


def _factorized(labels: Any) -> tuple[Places, Ids]:
    """Return the place of each label among the different ones, in the order of their first appearance."""
    known: dict[Any, int] = {}
    try:
        places = [known.setdefault(label, len(known)) for label in _one_by_one(labels)]
    except TypeError:
        raise TypeError("R: expected users and items that are hashable, such as numbers and text") from None
    if any(map(_is_missing, known)):
        raise ValueError("R: expected a user and an item in every row, got rows with gaps")
    return np.array(places, dtype=np.int64), Ids(list(known))


def _is_missing(label: Any) -> bool:
    """Whether a label is one of the ways to say that there is none."""
    named = label is None or type(label).__name__ in ("NAType", "NaTType")
    return named or (isinstance(label, float) and math.isnan(label))


def _is_sequence(part: Any) -> bool:
    """Whether a value is a list or a vector, of whatever."""
    return np.ndim(part) == 1 if hasattr(part, "ndim") else isinstance(part, Sequence) and not _is_text(part)


def _is_text(label: Any) -> bool:
    return isinstance(label, str | bytes)


def _one_by_one(labels: Iterable[Any]) -> list[Any]:
    """Return the labels of a sequence, those of NumPy, pandas and Arrow as plain values of Python."""
    as_list = getattr(labels, "tolist", None) or getattr(labels, "to_pylist", None)
    return [_plain(label) for label in (labels if as_list is None else as_list())]


class Ids:
    """Ids of users or items, in the order of their rows or columns.

    Parameters
    ----------
    labels : sequence of hashable values
        All different.

    Examples
    --------
    >>> ids = Ids(["ann", "bob"])
    >>> ids.places(["bob", "eve"]).tolist(), ids[0]
    ([1, -1], 'ann')
    """

    def __init__(self, labels: Sequence[Any]) -> None:
        self.labels = [label.item() if isinstance(label, np.generic) else label for label in labels]
        self._places = {label: place for place, label in enumerate(self.labels)}
        if len(self._places) < len(self.labels):
            raise ValueError(
                f"ids: expected different ones, got {len(self.labels) - len(self._places)} twice"
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: Any) -> Any:
        return self.labels[place]

    def __contains__(self, label: Any) -> bool:
        return label in self._places

    def places(self, labels: Any) -> Places:
        """Return the place of each id, in the shape of the argument; −1 for unknown ones."""
        if _is_one(labels, self):
            return np.asarray(self._places.get(labels, -1), dtype=np.int64)
        if isinstance(labels, np.ndarray):
            found = [self._places.get(label, -1) for label in labels.ravel().tolist()]
            return np.array(found, dtype=np.int64).reshape(labels.shape)
        if isinstance(labels, list) and labels and isinstance(labels[0], list):
            return np.stack([self.places(line) for line in labels])
        return np.array([self._places.get(label, -1) for label in _one_by_one(labels)], dtype=np.int64)

    def stored(self, name: str) -> tuple[Any, dict[str, Any]]:
        """Return what JSON can hold, and arrays. Raise a TypeError for ids that cannot be saved."""
        if all(type(label) is int and abs(label) < 2**63 for label in self.labels):
            return "whole", {f"{name}_ids": np.array(self.labels, dtype=np.int64)}
        if all(type(label) is str for label in self.labels):
            content = json.dumps(self.labels).encode()
            return "text", {f"{name}_ids": np.frombuffer(content, np.uint8)}
        return [_tagged(label, name) for label in self.labels], {}

    @classmethod
    def restore(cls, stored: Any, arrays: Mapping[str, Any], name: str) -> Ids:
        """Return the ids that :meth:`stored` described."""
        if stored == "whole":
            return cls(arrays[f"{name}_ids"].tolist())
        if stored == "text":
            return cls(json.loads(arrays[f"{name}_ids"].tobytes()))
        return cls([_untagged(label) for label in stored])


def _plain(label: Any) -> Any:
    return label.item() if isinstance(label, np.generic) else label


def _is_one(labels: Any, known: Ids) -> bool:
    """Whether an argument is one id, not several: text, a number, or a tuple that is an id."""
    if isinstance(labels, tuple):
        return labels in known
    return _is_text(labels) or not isinstance(labels, Iterable)


_SIMPLE = (bool, int, float, str)


def _timestamp(text: str) -> Any:
    from pandas import Timestamp

    return Timestamp(text)


_WRITTEN: dict[str, tuple[Callable[[Any], str], Callable[[str], Any]]] = {
    "bytes": (bytes.hex, bytes.fromhex),
    "Decimal": (str, Decimal),
    "UUID": (str, UUID),
    "date": (date.isoformat, date.fromisoformat),
    "datetime": (datetime.isoformat, datetime.fromisoformat),
    "Timestamp": (str, _timestamp),
}
"""How ids of other types become text, and text ids, by the name of the type."""


def _tagged(label: Any, name: str) -> list[Any]:
    kind = type(label).__name__
    if isinstance(label, tuple):
        return ["tuple", [_tagged(part, name) for part in label]]
    if type(label) in _SIMPLE:
        return [kind, label]
    if kind in _WRITTEN:
        return [kind, _WRITTEN[kind][0](label)]
    raise TypeError(
        f"{name}: expected ids that are text, numbers, dates or tuples of them to save, got {kind}"
    )


def _untagged(stored: Any) -> Any:
    kind, value = stored
    if kind == "tuple":
        return tuple(_untagged(part) for part in value)
    if kind in _WRITTEN:
        return _WRITTEN[kind][1](value)
    return {each.__name__: each for each in _SIMPLE}[kind](value)
