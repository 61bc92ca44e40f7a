r"""Implicit feedback: who used what, without ratings.

With Ω the pairs that were used, the factors minimise the weighted squares of implicit ALS,

.. math:: \sum_{ij} x_{ij}^2 - \sum_{ij ∈ Ω} x_{ij}^2 + \sum_{ij ∈ Ω} (1 + w) (1 - x_{ij})^2
   + \sum_i λ_i \|u_i\|^2 + \sum_j λ_j \|v_j\|^2, \qquad x_{ij} = u_i·v_j

What was not used counts once, as a zero; what was used counts 1 + w times, as a one. With the items fixed,
each user is a ridge regression of its own. Setting the gradient to zero gives

.. math:: (G + λ_i + w V_i^T V_i) u_i = (1 + w) \sum_{j ∈ Ω_i} v_j, \qquad G = V^T V

where V_i has the rows of V that the user used. All users are solved at once, by conjugate gradients. With
G = Q diag(d) Qᵀ and in the basis Q, G + λ_i is diagonal: it is the preconditioner. Multiplying by w V_iᵀ V_i
for all i at once is the gradient ∂U = E V of the sparse form, with E the sparse matrix of w u_i·v_j: one pass
over the pairs. Then users and items change places.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_seed, checked_whole
from airnp.data.entries import Entries, Pattern
from airnp.data.holdout import Place, best_place, lowest_between, moved
from airnp.data.interactions import latest, read_pairs
from airnp.engines import CPU, Auto, EngineChoice, select_engine
from airnp.engines.contract import Offsets, Slopes
from airnp.engines.threads import using
from airnp.results.history import History
from airnp.results.ratings_model import ImplicitModel, implicit_decays

Floats = npt.NDArray[Any]

_KIND = np.float32
_RANK = 128
_ROUNDS, _STEPS = 10, 2
"""Rounds of both half-steps, and steps of conjugate gradients in each."""

_SCALE = 0.3
"""Standard deviation of a first score."""

_WEIGHT, _DECAY = 5.0, 0.03
"""w and λ that the search begins with."""

_FURTHEST, _LEAST_GAIN = 8, 0.01
"""How often they are doubled or halved at most, and by which share others have to be better."""

_TRIAL_RANK, _TRIAL_ROUNDS = 48, 4
_CHUNK = 2**22
"""Scores to compute at a time."""

_TRIAL_USERS = 2000
"""Users at most who tell how good the recommendations of a trial are."""

_TOP, _HELD_OUT, _TURNS = 10, 0.2, 2
"""Length of the lists of recommended items, and which share of the pairs is held out in how many turns."""


def fit_implicit(
    R: Any,
    *,
    user: Any = None,
    item: Any = None,
    timestamp: Any = None,
    rank: int | None = None,
    max_iter: int = _ROUNDS,
    seed: int | None = None,
    engine: str | CPU | Auto = "auto",
) -> ImplicitModel:
    """Recommend items from who used what: views, purchases, plays, without ratings.

    Weighted squares, minimised by solving for all users, then for all items, in closed form; see
    ``airnp.implicit``. The weight of what was used and the decay of the factors are chosen by the
    recommendations for held-out pairs, and the model is then fitted to all pairs.

    Parameters
    ----------
    R : data frame, pairs or sparse matrix
        A data frame of pandas, or a table of Arrow, has a row for each use, and columns that ``user`` and
        ``item`` name, or that have usual names, such as ``userId``; or it has two columns. Other columns are
        not read. Pairs are a list of (user, item), or two sequences in a tuple, each perhaps with times. A
        pair that is there more than once counts once. Stored entries of a sparse matrix (users, items) are
        what was used, and have to be above 0; how large they are does not matter.
    user, item, timestamp : optional
        Names of the columns of a data frame. With timestamps, the latest pairs are held out.
    rank : int, optional
        Length of a factor. Default: 128, or as large as the table allows.
    max_iter : int
        Rounds of solving for the users and for the items.
    seed : int, optional
        The same seed gives the same answer, bit for bit, on the same machine with as many threads.
    engine : {"auto", "cpu", "reference"} or CPU
        As in :func:`airnp.fit`.

    Returns
    -------
    ImplicitModel
        ``recommend(user)`` and ``fold_in(used)`` serve it by id.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> odd = np.add.outer(range(60), range(30)) % 2
    >>> who, what = np.nonzero(rng.random((60, 30)) < np.where(odd, 0.1, 0.5))
    >>> model = fit_implicit((who, what), seed=0)
    >>> found = [item for item, _ in model.recommend(4, 5)]
    >>> sum(item % 2 == 0 for item in found) >= 4
    True
    """
    pairs = read_pairs(R, user, item, timestamp)
    m, n = pairs.matrix.shape
    rank = min(_RANK, m, n) if rank is None else checked_whole("rank", rank)
    if rank > min(m, n):
        raise ValueError(
            f"rank: expected at most min(m, n) = {min(m, n)} for {m} users and {n} items, got {rank}"
        )
    max_iter = checked_whole("max_iter", max_iter)
    chosen = select_engine(engine, np)
    seed = checked_seed(seed)
    seen = Pattern(
        pairs.matrix.indptr.astype(np.int64),
        pairs.matrix.indices.astype(np.int32 if n < 2**31 else np.int64),
        n,
    )
    with using(chosen.threads):
        settings = _Search(seen, pairs.times, min(rank, _TRIAL_RANK), seed, chosen).choose()
        u, v = _factors(seen, settings, rank, max_iter, seed, chosen)
    return ImplicitModel(
        row_factors=u,
        column_factors=v,
        offsets=None,
        base=0.0,
        graphs=[],
        history=History([]),
        n_iter=max_iter,
        best_iter=max_iter,
        stop_reason="max_iter",
        seed=seed,
        users=pairs.users,
        items=pairs.items,
        seen=seen,
        weight=settings.weight,
        decay=settings.decay,
    )


class Settings(NamedTuple):
    """w, and λ of the decays."""

    weight: float
    decay: float


def _factors(
    seen: Pattern, settings: Settings, rank: int, rounds: int, seed: int, engine: EngineChoice
) -> tuple[Floats, Floats]:
    """Return U (m, r) and V (n, r) after some rounds."""
    rows = Entries(seen, np.zeros(len(seen.indices), _KIND))
    sides = rows, rows.turned
    decays = [
        implicit_decays(side.pattern.counts, side.pattern.width, *settings).astype(_KIND)[:, None]
        for side in sides
    ]
    scale = np.sqrt(_SCALE / np.sqrt(rank))
    rng = np.random.default_rng(seed)
    u = np.zeros((seen.lines, rank), _KIND)
    v = (scale * rng.standard_normal((seen.width, rank))).astype(_KIND)
    for _ in range(rounds):
        u = _solved(sides[0], u, v, decays[0], settings.weight, engine)
        v = _solved(sides[1], v, u, decays[1], settings.weight, engine)
    return u, v


def _solved(
    entries: Entries, u: Floats, v: Floats, decays: Floats, weight: float, engine: EngineChoice
) -> Floats:
    """Return the best U for V, by a few steps of conjugate gradients from the last one."""
    d, basis = np.linalg.eigh((v.T @ v).astype(np.float64))
    basis = basis.astype(_KIND)
    v = np.ascontiguousarray(v @ basis)
    diagonal = np.maximum(d, 0).astype(_KIND) + decays
    nothing = Offsets(_KIND(0), np.zeros(len(u), _KIND), np.zeros(len(v), _KIND))
    out = Slopes(np.empty_like(u), np.empty_like(v), np.empty(len(u), _KIND), np.empty(len(v), _KIND))

    def times(x: Floats) -> Floats:
        engine.ops.residuals(entries, x, v, nothing, scale=weight, out=out, plain=True)
        return np.asarray(out.u + diagonal * x)

    x = np.ascontiguousarray(u @ basis)
    rest = np.empty_like(x)
    engine.ops.line_sums(entries.pattern, v, out=rest)
    rest = (1 + weight) * rest - times(x)
    towards = better = rest / diagonal
    square = _dots(rest, better)
    for step in range(_STEPS):
        image = times(towards)
        length = square / np.maximum(_dots(towards, image), _TINY)
        x += length * towards
        if step < _STEPS - 1:
            rest -= length * image
            better = rest / diagonal
            before, square = square, _dots(rest, better)
            towards = better + square / np.maximum(before, _TINY) * towards
    return np.asarray(x @ basis.T)


_TINY = _KIND(1e-30)


def _dots(a: Floats, b: Floats) -> Floats:
    return np.asarray(np.einsum("ik,ik->i", a, b)[:, None])


class _Search:
    """Trials with some of the pairs, judged by recommending the others.

    Parameters
    ----------
    seen : Pattern
    times : array or None
        When each pair was used: the latest are held out. Without them any, at random.
    rank : int
    seed : int
    engine : EngineChoice
    """

    def __init__(self, seen: Pattern, times: Any, rank: int, seed: int, engine: EngineChoice) -> None:
        count = len(seen.indices)
        if times is not None:
            turns = [latest(times, _HELD_OUT)]
        else:
            places = np.random.default_rng(0).random(count)
            turns = [abs(places - (turn + 0.5) * _HELD_OUT) < _HELD_OUT / 2 for turn in range(_TURNS)]
        self._turns = [_Turn(*_split(seen, held)) for held in turns]
        self._rank, self._seed, self._engine = rank, seed, engine
        self._known: dict[Place, float] = {}

    def choose(self) -> Settings:
        """Return the settings that recommend best: the decay is changed, then the weight, then the decay."""
        place = best_place(lambda there: -self._gain(there), (1, 0, 1), _FURTHEST, _LEAST_GAIN)
        gains = [self._known.get(moved(place, 1, step)) for step in (-1, 0, 1)]
        errors = [-gain for gain in gains if gain is not None]
        beyond = lowest_between(*errors) if len(errors) == 3 else 0.0
        return self._settings((place[0], place[1] + beyond))

    @staticmethod
    def _settings(place: tuple[float, float]) -> Settings:
        return Settings(_WEIGHT * 2.0 ** place[0], _DECAY * 2.0 ** place[1])

    def _gain(self, place: Place) -> float:
        """Return the discounted gain of held-out pairs among the best items, summed over users."""
        if place not in self._known:
            settings, options = self._settings(place), (self._rank, _TRIAL_ROUNDS, self._seed, self._engine)
            self._known[place] = sum(
                turn.gain(*_factors(turn.kept, settings, *options)) for turn in self._turns
            )
        return self._known[place]


class _Turn:
    """Pairs to fit, and pairs that should be recommended then.

    Parameters
    ----------
    kept, wanted : Pattern
    """

    def __init__(self, kept: Pattern, wanted: Pattern) -> None:
        able = np.flatnonzero((kept.counts > 0) & (wanted.counts > 0))
        self._users = np.random.default_rng(0).permutation(able)[:_TRIAL_USERS]
        self.kept, self._wanted = kept, wanted

    def gain(self, u: Floats, v: Floats) -> float:
        """Return Σ 1/log₂(1 + place) over wanted pairs among the first places of a user's list."""
        discounts, total = 1 / np.log2(np.arange(2, _TOP + 3)), 0.0
        discounts[_TOP] = 0
        step = max(1, _CHUNK // len(v))
        for start in range(0, len(self._users), step):
            some = self._users[start : start + step]
            scores = u[some] @ v.T
            scores[_pairs(self.kept, some)] = -np.inf
            rows, columns = _pairs(self._wanted, some)
            best = np.partition(scores, -min(_TOP, len(v)), axis=1)[:, -_TOP:]
            places = np.sum(best[rows] > scores[rows, columns][:, None], axis=1)
            total += float(discounts[places].sum())
        return total


def _split(seen: Pattern, held: npt.NDArray[np.bool_]) -> tuple[Pattern, Pattern]:
    kept, rest = Entries(seen, np.zeros(len(held), _KIND)).split(held)
    return kept.pattern, rest.pattern


def _pairs(pattern: Pattern, lines: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return where the entries of some lines are, in a table of these lines."""
    counts = pattern.counts[lines]
    before = np.cumsum(counts) - counts
    places = np.arange(counts.sum()) + np.repeat(pattern.indptr[lines] - before, counts)
    return np.repeat(np.arange(len(lines)), counts), pattern.indices[places]
