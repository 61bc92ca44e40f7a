r"""A fitted table of ratings that can be served: by the ids of users and items, without the ratings.

**Fold-in.** A new user has ratings y_j of items j ∈ S, n = |S|. Items stay as they are, so with
p = n^{-1/2} Σ_S Y_j, the user's part of the mask factor, the fit's own loss in the user's b and u₀ is

.. math:: \tfrac12 \sum_{j ∈ S} (μ + b + c_j + (p + u_0)·v_j - y_j)^2 + \tfrac κ2 b^2
   + \tfrac{λ\sqrt n}2 \|u_0\|^2

a ridge regression: with rows a_j = (1, v_j) of A, residuals e_j = y_j − μ − c_j − p·v_j and
Λ = diag(κ, λ√n, …, λ√n), its minimum is (b, u₀) = (AᵀA + Λ)⁻¹ Aᵀ e, and u = p + u₀. A new item is the same
with the sides exchanged.

**Standard deviation.** Errors of variance σ² and that penalty as a prior make σ² (AᵀA + Λ)⁻¹ the covariance
of (b, u₀). To first order in the errors of both sides, which are taken as independent,

.. math:: var(x_{ij}) = σ^2 (1 + a_j^T (A_i^T A_i + Λ_i)^{-1} a_j + a_i^T (A_j^T A_j + Λ_j)^{-1} a_i)

with a 1 for the error of a rating itself. A rating that was fitted pulls its own prediction towards it, by
h = a_jᵀ (A_iᵀ A_i + Λ_i)⁻¹ a_j + a_iᵀ (A_jᵀ A_j + Λ_j)⁻¹ a_i to first order, which leaves an error of
variance σ² (1 − h): σ² is the sum of squared training errors over the sum of 1 − h.

**Implicit feedback.** The loss of who used what, ``airnp.implicit``, is a ridge regression in the factor
of one user, too: with items S used, its minimum is
u = (VᵀV + w V_SᵀV_S + λ_n)⁻¹ (1 + w) Σ_S v_j.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from os import PathLike
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_whole
from airnp.data.entries import Pattern
from airnp.data.interactions import Ids
from airnp.metrics import ranking
from airnp.results.sparse_result import SparseFitResult

Floats = npt.NDArray[Any]
Places = npt.NDArray[np.int64]
Model = TypeVar("Model", bound="Recommender")
Filter = Callable[[Any], bool] | Collection[Any]

_CHUNK = 2**24
"""Predictions to make at a time."""


_RELEVANT = 0.75
"""Where between the bounds a rating begins to make an item relevant."""

_LEAST_DECAY = 1e-6
"""Penalty of a ridge regression at least, as a share of the squares of its columns."""

_LEAST_LEFT = 0.1
"""Share of the variance of an error that a fit leaves at least."""


class UnknownIdWarning(UserWarning):
    """A user or an item has no rating: means and the other side's offset predict it."""


class Scored(NamedTuple):
    """An id and what it scores: a predicted rating, or a similarity from −1 to 1."""

    id: Any
    score: float


class Top(NamedTuple):
    """The best items of many users, best first, in one line each: (k,) users, items and predictions."""

    users: list[Any]
    items: list[Any]
    scores: Floats


@dataclass(frozen=True, eq=False)
class Newcomer:
    """A user or an item that was folded into a model; taken wherever an id of this side is.

    Attributes
    ----------
    side : {"user", "item"}
    factor : array (r,)
    offset : float
    seen : int64 array (k,)
        Rows or columns of the other side with a rating.
    """

    side: Literal["user", "item"]
    factor: Floats
    offset: float
    seen: Places


class _Side(NamedTuple):
    """One side of the model, as fold-in sees it: its own lines, and the other side's."""

    ids: Ids
    factors: Floats
    offsets: Floats
    pattern: Pattern
    other_ids: Ids
    other_factors: Floats
    other_offsets: Floats
    mask: Floats | None
    """Y for users, Z for items: a row for each line of the other side."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Recommender(SparseFitResult):
    """A :class:`SparseFitResult` whose rows are users and whose columns are items, with their ids.

    Attributes
    ----------
    users, items : Ids
        ``users.labels`` are the ids in the order of the rows. Numbers from 0 for a sparse matrix.
    seen : Pattern
        Who rated or used what.
    """

    users: Ids
    items: Ids
    seen: Pattern

    # --- predictions ---

    def predict(self, users: Any, items: Any) -> Floats:
        """Return predictions of pairs, clipped to the bounds if there are any.

        Parameters
        ----------
        users, items : id, Newcomer, or arrays or lists of ids that broadcast against each other
            An unknown id is predicted from what is known of the other side alone, with an
            :class:`UnknownIdWarning`: from the mean and its offset, or from how many users an item has.

        Returns
        -------
        array
            Of their common shape.
        """
        (rows, b, u), (columns, c, v) = self._lines("user", users), self._lines("item", items)
        shape = _common_shape(rows, columns)
        if isinstance(users, Newcomer) or isinstance(items, Newcomer):
            values = self._mean + b + c + np.sum(u * v, axis=-1, dtype=np.float64)
            return self._put_in_bounds(np.asarray(values, self.row_factors.dtype).reshape(shape))
        i, j = (np.ascontiguousarray(np.broadcast_to(part, shape).ravel()) for part in (rows, columns))
        values = np.full(i.shape, self._mean, self.row_factors.dtype)
        rows_known, columns_known = i >= 0, j >= 0
        values[rows_known] = self._alone("user")[i[rows_known]]
        values[columns_known] = self._alone("item")[j[columns_known]]
        values = self._put_in_bounds(values)
        both = rows_known & columns_known
        values[both] = super().predict(i[both], j[both])
        return np.asarray(values.reshape(shape))

    # --- rankings ---

    def recommend(
        self, user: Any, n: int = 10, *, exclude_seen: bool = True, filter: Filter | None = None
    ) -> list[Scored]:
        """Return the items with the highest predictions for a user, best first.

        Parameters
        ----------
        user : id or Newcomer
            An unknown one gets the items that are best without a user, with an :class:`UnknownIdWarning`.
        n : int
            How many at most.
        exclude_seen : bool
            Leave out what the user has rated or used.
        filter : callable or collection, optional
            Which items may be recommended: a function of an id, or the ids themselves.
        """
        if isinstance(user, Newcomer):
            self._check_newcomer("user", user)
            scores, seen = self._scores(user.offset, user.factor), user.seen
        elif (row := int(self._known("user", self._place("user", self.users, user)))) >= 0:
            scores = self._scores(float(self._row_offsets[row]), self.row_factors[row])
            seen = _line(self.seen, row)
        else:
            scores, seen = self._alone("item"), np.empty(0, np.int64)
        chosen = self._best(
            scores, seen if exclude_seen else seen[:0], checked_whole("n", n), self._allowed(filter)
        )
        return self._scored(self.items, chosen, self._put_in_bounds(scores[chosen]))

    def _scores(self, offset: float, factor: Floats) -> Floats:
        """Return the predictions of all items for one user, before they are clipped."""
        return np.asarray(self.column_factors @ factor + self._column_offsets + (self._mean + offset))

    def recommend_all(
        self, n: int = 10, *, users: Any = None, exclude_seen: bool = True, filter: Filter | None = None
    ) -> Top:
        """Return the best items of many users, some users at a time: the whole table is never formed.

        Parameters
        ----------
        n, exclude_seen, filter
            As of ``recommend``.
        users : list of ids, optional
            Default: all. Raise a ValueError for an unknown one.
        """
        n, allowed = checked_whole("n", n), self._allowed(filter)
        if isinstance(users, str | bytes | Newcomer) or not isinstance(users, Iterable | None):
            raise TypeError(f"users: expected a list of ids, got {users!r}")
        users = users if users is None else list(users)
        rows = np.arange(len(self.users)) if users is None else self.users.places(users)
        if (rows < 0).any():
            unknown = [label for label, row in zip(users, rows, strict=True) if row < 0]
            raise ValueError(
                f"users: expected users that the model knows, got {', '.join(map(repr, unknown[:5]))}"
            )
        who, what, values = [], [], [np.empty(0, self.row_factors.dtype)]
        step = max(1, _CHUNK // max(len(self.items), 1))
        for start in range(0, len(rows), step):
            some = rows[start : start + step]
            # Many predictions may be clipped to the upper bound, so they are ordered before that.
            table = self.row_factors[some] @ self.column_factors.T
            table += (self._row_offsets[some] + table.dtype.type(self._mean))[:, None] + self._column_offsets
            for row, scores in zip(some, table, strict=True):
                seen = _line(self.seen, row) if exclude_seen else np.empty(0, np.int64)
                chosen = self._best(scores, seen, n, allowed)
                who += [self.users[row]] * len(chosen)
                what += [self.items[item] for item in chosen]
                values.append(scores[chosen])
        return Top(who, what, self._put_in_bounds(np.concatenate(values)))

    def _ranking(self, wanted: Mapping[Any, Sequence[Any]], k: int) -> dict[str, float]:
        """Return what :func:`airnp.metrics.ranking` says of the best items of users who want some."""
        lists: dict[Any, list[Any]] = {}
        k = checked_whole("k", k)
        who, what, _ = self.recommend_all(k, users=[user for user in wanted if user in self.users])
        for user, item in zip(who, what, strict=True):
            lists.setdefault(user, []).append(item)
        return ranking(lists, wanted, k, items=len(self.items))

    def similar_items(self, item: Any, n: int = 10) -> list[Scored]:
        """Return the items whose factors have the highest cosine with those of an item, by id or new."""
        return self._similar("item", item, n)

    def similar_users(self, user: Any, n: int = 10) -> list[Scored]:
        """Return the users whose factors have the highest cosine with those of a user, by id or new."""
        return self._similar("user", user, n)

    def _similar(self, name: Literal["user", "item"], given: Any, n: int) -> list[Scored]:
        side = self._side(name)
        if isinstance(given, Newcomer):
            self._check_newcomer(name, given)
            place, factor = -1, given.factor
        else:
            place = int(self._place(name, side.ids, given))
            if place < 0:
                raise ValueError(f"{name}: expected one that the model knows, got {given!r}")
            factor = side.factors[place]
        lengths = np.linalg.norm(side.factors, axis=1) * np.linalg.norm(factor)
        cosines = side.factors @ factor / np.where(lengths > 0, lengths, 1)
        itself = np.array([place] if place >= 0 else [], dtype=np.int64)
        chosen = self._best(cosines, itself, checked_whole("n", n), None)
        return self._scored(side.ids, chosen, cosines[chosen])

    @staticmethod
    def _place(name: str, ids: Ids, given: Any) -> Places:
        """Return the place of one id."""
        place = ids.places(given)
        if place.ndim:
            raise TypeError(f"{name}: expected one id, got {given!r}")
        return place

    def _allowed(self, filter: Filter | None) -> npt.NDArray[np.bool_] | None:
        if filter is None:
            return None
        if callable(filter):
            return np.array([bool(filter(label)) for label in self.items.labels], dtype=bool)
        if isinstance(filter, str | bytes) or not isinstance(filter, Iterable):
            raise TypeError(f"filter: expected a function of an id, or a collection of ids, got {filter!r}")
        found = np.zeros(len(self.items), bool)
        places = self.items.places(list(filter))
        found[places[places >= 0]] = True
        return found

    @staticmethod
    def _best(scores: Floats, without: Places, n: int, allowed: Any) -> Places:
        """Return the places of the n largest scores, in their order; of equal ones the first."""
        able = np.ones(len(scores), bool) if allowed is None else allowed.copy()
        able[without] = False
        places = np.flatnonzero(able)
        if n < len(places):
            least = np.partition(scores[places], -n)[-n]
            places = places[scores[places] >= least]
        return np.asarray(places[np.argsort(-scores[places], kind="stable")][:n])

    @staticmethod
    def _scored(ids: Ids, places: Places, scores: Floats) -> list[Scored]:
        return [Scored(ids[place], float(score)) for place, score in zip(places, scores, strict=True)]

    # --- both sides ---

    @property
    def _mean(self) -> float:
        return float(self.base if self.offsets is None else self.offsets.mean)

    def _alone(self, name: Literal["user", "item"]) -> Floats:
        """Return what is predicted for each user or item if nothing is known of the other side."""
        offsets = self._row_offsets if name == "user" else self._column_offsets
        return np.asarray(self._mean + offsets)

    @property
    def _row_offsets(self) -> Floats:
        return np.asarray(self._all_offsets().rows)

    @property
    def _column_offsets(self) -> Floats:
        return np.asarray(self._all_offsets().columns)

    @cached_property
    def _raters(self) -> Pattern:
        return self.seen.transposed()[0]

    def _side(self, name: Literal["user", "item"]) -> _Side:
        users = (self.users, self.row_factors, self._row_offsets)
        items = (self.items, self.column_factors, self._column_offsets)
        if name == "user":
            return _Side(*users, self.seen, *items, self.mask_factors[0])
        return _Side(*items, self._raters, *users, self.mask_factors[1])

    def _lines(self, name: Literal["user", "item"], given: Any) -> tuple[Places, Floats, Floats]:
        """Return places, offsets and factors of ids or of a newcomer; zeros for unknown ones."""
        side = self._side(name)
        if isinstance(given, Newcomer):
            self._check_newcomer(name, given)
            return np.asarray(-1), np.asarray(given.offset), given.factor
        places = self._known(name, side.ids.places(given))
        known = places >= 0
        offsets = np.where(known, side.offsets[places], 0)
        return places, offsets, np.where(known[..., None], side.factors[places], 0)

    def _check_newcomer(self, name: str, given: Newcomer) -> None:
        if given.side != name:
            raise ValueError(f"{name}s: expected a new {name}, got a new {given.side}")
        others = self.items if name == "user" else self.users
        if given.factor.shape[0] != self.row_factors.shape[1] or (given.seen >= len(others)).any():
            raise ValueError(f"{name}s: expected a new {name} that was folded into this model")

    def _known(self, name: str, places: Places) -> Places:
        """Return places, with a warning if some are unknown."""
        if (places < 0).any():
            warnings.warn(
                f"{int((places < 0).sum())} of {places.size} {name}s are not known to the model; what is "
                "known of the other side alone predicts them",
                UnknownIdWarning,
                stacklevel=4,
            )
        return places

    def _put_in_bounds(self, values: Floats) -> Floats:
        return values if self.bounds is None else np.asarray(self.bounds.put_on(values))

    def _read_new(self, side: Any, known: Sequence[Any]) -> tuple[_Side, Places]:
        """Return what a newcomer is folded into, and the places of ids of the other side, −1 if unknown."""
        if side not in ("user", "item"):
            raise ValueError(f"side: expected 'user' or 'item', got {side!r}")
        lines = self._side(side)
        return lines, self._known("item" if side == "user" else "user", lines.other_ids.places(list(known)))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model with its ids to one ``.npz`` file, without pickle; :func:`airnp.load` reads it."""
        super().save(path)

    def __repr__(self) -> str:
        m, n = self.shape
        kind, pairs, rank = type(self).__name__, len(self.seen.indices), self.row_factors.shape[1]
        return f"<{kind} of {m} users and {n} items, {pairs} pairs, rank {rank}>"


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RatingsModel(Recommender):
    """Predictions by id: what :func:`airnp.fit_ratings` returns.

    Attributes
    ----------
    users, items : Ids
        ``users.labels`` are the ids in the order of the rows. Numbers from 0 for a sparse matrix.
    seen : Pattern
        Who rated what.
    noise : float
        σ of a rating around its prediction; see ``std``. NaN if there is only one rating.

    Examples
    --------
    >>> import airnp
    >>> people = ["ann", "ann", "bob", "bob", "eve", "eve"]
    >>> films = ["Alien", "Brazil", "Alien", "Casablanca", "Brazil", "Casablanca"]
    >>> model = airnp.fit_ratings((people, films, [5, 4, 4, 1, 5, 2]), max_iter=20, seed=0)
    >>> [scored.id for scored in model.recommend("ann", 3)]
    ['Casablanca']
    >>> new = model.fold_in({"Alien": 5})
    >>> [scored.id for scored in model.recommend(new)]
    ['Brazil', 'Casablanca']
    """

    noise: float = field(default=float("nan"))

    def std(self, users: Any, items: Any) -> Floats:
        """Return the standard deviation of ratings around ``predict``, in the same shape.

        It is larger for users and items with few ratings. For an unknown id it is as if a penalty were all
        that is known about it.
        """
        (rows, _, u), (columns, _, v) = self._lines("user", users), self._lines("item", items)
        shape = _common_shape(rows, columns)
        rank = self.row_factors.shape[1]
        u, v = (np.broadcast_to(part, (*shape, rank)).reshape(-1, rank) for part in (u, v))
        i, j = (np.broadcast_to(part, shape).ravel() for part in (rows, columns))
        spread = 1 + self._leverage("user", users, i, v) + self._leverage("item", items, j, u)
        return np.asarray(self.noise * np.sqrt(spread)).reshape(shape)

    def _leverage(self, name: Literal["user", "item"], given: Any, lines: Places, across: Floats) -> Floats:
        """Return aᵀ (AᵀA + Λ)⁻¹ a for the other side's rows a = (1, across), line by line."""
        from scipy.linalg import cho_factor, cho_solve

        side, found = self._side(name), np.empty(len(lines))
        wide = np.hstack([np.ones((len(across), 1)), across]).astype(np.float64)
        for line in np.unique(lines):
            which = np.flatnonzero(lines == line)
            if isinstance(given, Newcomer):
                seen = given.seen
            else:
                seen = _line(side.pattern, line) if line >= 0 else np.empty(0, np.int64)
            factored = cho_factor(self._normal_matrix(side.other_factors[seen])[1])
            found[which] = np.sum(wide[which].T * cho_solve(factored, wide[which].T), axis=0)
        return found

    def _normal_matrix(self, others: Floats) -> tuple[Floats, Floats]:
        """Return A and AᵀA + Λ."""
        wide = np.hstack([np.ones((len(others), 1)), others]).astype(np.float64)
        shrinkage, decay, _ = self.penalties
        gram = wide.T @ wide
        # Without a decay, it has an inverse all the same, in any unit of the ratings.
        least = _LEAST_DECAY * float(np.mean(np.diag(gram)[1:]))
        penalty = np.full(len(gram), max(decay * np.sqrt(max(len(others), 1)), least) or 1.0)
        penalty[0] = max(shrinkage, _LEAST_DECAY)
        return wide, gram + np.diag(penalty)

    def fold_in(self, ratings: Mapping[Any, float], *, side: Literal["user", "item"] = "user") -> Newcomer:
        """Return a new user, from ratings of some items, or a new item, from ratings by some users.

        In closed form: the model is not changed, and nothing is fitted again.

        Parameters
        ----------
        ratings : mapping of id to rating, or a Series of ratings by id
            Of items for a new user. Ids that the model does not know are ignored, with a warning.
        side : {"user", "item"}
            What is new.

        Returns
        -------
        Newcomer
            For ``predict``, ``recommend``, ``std`` and the similar ones.
        """
        try:
            given = dict(ratings)
            values = np.array([float(value) for value in given.values()])
        except (TypeError, ValueError):
            raise TypeError(f"ratings: expected a mapping of ids to numbers, got {ratings!r}") from None
        if not np.isfinite(values).all():
            raise ValueError(f"ratings: expected finite numbers, got {values[~np.isfinite(values)][0]}")
        lines, places = self._read_new(side, list(given))
        seen, values = places[places >= 0], values[places >= 0]
        others = lines.other_factors[seen].astype(np.float64)
        start = np.zeros(others.shape[1])
        if lines.mask is not None and len(seen):
            start = lines.mask[seen].sum(axis=0, dtype=np.float64) / np.sqrt(len(seen))
        wide, normal = self._normal_matrix(others)
        rest = values - self._mean - lines.other_offsets[seen] - others @ start
        found = np.linalg.solve(normal, wide.T @ rest)
        kind = self.row_factors.dtype
        return Newcomer(side, (start + found[1:]).astype(kind), float(found[0]), np.sort(seen))

    def evaluate(
        self,
        users: Sequence[Any],
        items: Sequence[Any],
        ratings: Any,
        *,
        k: int = 10,
        relevant: float | None = None,
    ) -> dict[str, float]:
        """Measure the model by ratings that it was not fitted to.

        Parameters
        ----------
        users, items : sequences of ids (k,)
            Unknown ones are predicted as in ``predict``, and get no recommendations.
        ratings : array (k,)
        k : int
            Length of the lists of recommended items.
        relevant : float, optional
            The least rating that makes an item relevant for its user. Default: three quarters of the way
            from the lower bound to the upper one, 4 of 1 to 5.

        Returns
        -------
        dict
            ``rmse`` and ``mae`` of the predictions; of ``recommend_all``, if an item is relevant, what
            :func:`airnp.metrics.ranking` measures.
        """
        values, users, items = np.asarray(ratings, dtype=np.float64), list(users), list(items)
        if values.shape != (len(users),) or len(items) != len(users) or not users:
            raise ValueError(
                f"ratings: expected at least one, and as many as users and items, got {values.shape} of "
                f"{len(users)} and {len(items)}"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"ratings: expected finite numbers, got {values[~np.isfinite(values)][0]}")
        if relevant is None:
            assert self.bounds is not None
            relevant = float(_RELEVANT * self.bounds.high + (1 - _RELEVANT) * self.bounds.low)
        errors = self.predict(users, items) - values
        found = {"rmse": float(np.sqrt(np.mean(errors**2))), "mae": float(np.mean(np.abs(errors)))}
        wanted: dict[Any, list[Any]] = {}
        for user, item, value in zip(users, items, values, strict=True):
            if value >= relevant:
                wanted.setdefault(user, []).append(item)
        if not wanted:
            return found
        return {**found, **self._ranking(wanted, k)}

    def with_noise(self, rows: Places, columns: Places, errors: Floats) -> RatingsModel:
        """Return the model with the σ that errors of fitted ratings, at these rows and columns, tell."""
        if len(errors) < 2:
            return self
        pull = self._leverage("user", None, rows, self.column_factors[columns])
        pull += self._leverage("item", None, columns, self.row_factors[rows])
        left, largest = np.maximum(1 - pull, _LEAST_LEFT), float(np.abs(errors).max()) or 1.0
        squares = (errors.astype(np.float64) / largest) ** 2
        return replace(self, noise=largest * float(np.sqrt(np.sum(squares) / np.sum(left))))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class ImplicitModel(Recommender):
    """Who will use what: what :func:`airnp.fit_implicit` returns.

    ``predict`` gives scores of pairs, about 1 for what was used and about 0 for what is not of interest.

    Attributes
    ----------
    users, items : Ids
        ``users.labels`` are the ids in the order of the rows. Numbers from 0 for a sparse matrix.
    seen : Pattern
        Who used what.
    weight : float
        w: what a pair that was used counts more than another.
    decay : float
        λ.

    Examples
    --------
    >>> import airnp
    >>> people = ["ann", "ann", "bob", "bob", "eve", "eve", "joe"]
    >>> films = ["Alien", "Brazil", "Alien", "Brazil", "Casablanca", "Notorious", "Casablanca"]
    >>> model = airnp.fit_implicit((people, films), seed=0)
    >>> model.recommend("joe", 1)[0].id
    'Notorious'
    >>> model.recommend(model.fold_in(["Alien"]), 1)[0].id
    'Brazil'
    """

    weight: float
    decay: float

    def fold_in(self, used: Sequence[Any], *, side: Literal["user", "item"] = "user") -> Newcomer:
        """Return a new user, from items that were used, or a new item, from users of it.

        In closed form: the model is not changed, and nothing is fitted again.

        Parameters
        ----------
        used : sequence of ids
            Items for a new user. Ids that the model does not know are ignored, with a warning.
        side : {"user", "item"}
            What is new.

        Returns
        -------
        Newcomer
            For ``predict``, ``recommend`` and the similar ones.
        """
        lines, places = self._read_new(side, used)
        seen = np.unique(places[places >= 0])
        others = lines.other_factors.astype(np.float64)
        some = others[seen]
        counts, own = lines.pattern.counts, np.array([len(seen)])
        decay = implicit_decays(counts, len(others), self.weight, self.decay, of=own)
        normal = others.T @ others + self.weight * some.T @ some + decay * np.eye(others.shape[1])
        factor = np.linalg.solve(normal, (1 + self.weight) * some.sum(axis=0))
        return Newcomer(side, factor.astype(self.row_factors.dtype), 0.0, seen)

    def evaluate(self, users: Sequence[Any], items: Sequence[Any], *, k: int = 10) -> dict[str, float]:
        """Measure ``recommend_all`` by pairs that were used later: :func:`airnp.metrics.ranking`.

        Parameters
        ----------
        users, items : sequences of ids (p,)
            Users that the model does not know get no recommendations.
        k : int
            Length of the lists of recommended items.
        """
        users, items = list(users), list(items)
        if len(users) != len(items) or not users:
            raise ValueError(
                f"users, items: expected as many of each, and at least one, got {len(users)} and {len(items)}"
            )
        wanted: dict[Any, list[Any]] = {}
        for user, item in zip(users, items, strict=True):
            wanted.setdefault(user, []).append(item)
        return self._ranking(wanted, k)

    def _alone(self, name: Literal["user", "item"]) -> Floats:
        """Return the share of users who used each item; of a user nothing is known."""
        if name == "user":
            return np.zeros(len(self.users))
        return np.asarray(self._raters.counts / max(len(self.users), 1))


def implicit_decays(
    counts: Places, others: int, weight: float, decay: float, of: Places | None = None
) -> npt.NDArray[np.float64]:
    """Return λ_i = λ √(ā a_i) of lines with n_i pairs, where a_i = w n_i + N is all that a line weighs.

    Lines that weigh more can afford longer factors, but not in proportion.

    Parameters
    ----------
    counts : array (lines,)
        n_i of the lines that were fitted; ā is their mean.
    others : int
        N, how many lines the other side has.
    weight, decay : float
        w and λ.
    of : array, optional
        n_i of other lines, to return the decays of these.

    Examples
    --------
    >>> implicit_decays(np.array([0, 4]), 10, weight=5.0, decay=0.1).round(2)
    array([1.41, 2.45])
    """
    mean = weight * float(np.mean(counts)) + others
    weights = weight * np.asarray(counts if of is None else of, dtype=np.float64) + others
    return np.asarray(decay * np.sqrt(mean * weights))


def _common_shape(rows: Places, columns: Places) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(rows.shape, columns.shape)
    except ValueError:
        raise ValueError(
            f"users, items: expected as many of each, or shapes that broadcast, got {rows.shape} and "
            f"{columns.shape}"
        ) from None


def _line(pattern: Pattern, line: Any) -> Places:
    return np.asarray(pattern.indices[pattern.indptr[line] : pattern.indptr[line + 1]], dtype=np.int64)


def model_of(
    kind: type[Model], result: SparseFitResult, users: Ids, items: Ids, seen: Pattern, **own: Any
) -> Model:
    """Return a result of a fit with ids, as a model that can be served; ``own`` are its own attributes."""
    parts = {each.name: getattr(result, each.name) for each in fields(SparseFitResult)}
    return kind(**parts, users=users, items=items, seen=seen, **own)
