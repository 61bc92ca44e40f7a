"""Complete a table of standardised columns: several models of its rows, blended by held-out entries.

The models are one Gaussian over all rows (EM), mixtures of Gaussians (:mod:`airnp.resemblance.mixture`), both
also over normal scores of skewed columns (:mod:`airnp.resemblance.scores`), the nearest rows and trees
(:mod:`airnp.resemblance.neighbours`), and a Gaussian of low rank (:mod:`airnp.resemblance.factors`).

To judge them, some rows lose entries: each one where another row, of a similar kind, has its gaps. So the
held-out entries have the shape of the gaps, whole blocks and drop-out included. The weights of the blend
minimise the squared error on these entries, are not negative and sum to one; each column has its own, drawn
towards those of all columns. The held-out errors, divided by the standard deviations that the blend expects,
calibrate the latter. Where they are few, further entries are held out, and the blend is fitted without them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from airnp.resemblance.factors import Factors, fit_factors
from airnp.resemblance.mixture import Mixture, Rows, first_mixture, fit_mixture, rescaled, split
from airnp.resemblance.neighbours import Forest, Neighbours
from airnp.resemblance.scores import ScoredMixture, TableScores, learn_scores, relearn_scores

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

RIDGES = (0.01, 0.1, 0.3, 0.001)
"""ρ of one Gaussian over all rows, in the order they are tried; the first one is the start of the others."""

GROUPS = (15, 40)
"""K: sizes of groups of nearest rows."""

_ROWS_OF_A_COMPONENT = 24
_MOST_COMPONENTS = 32
_MOST_COLUMNS = 150
"""Above this, only the Gaussian of low rank is fitted."""

_ROWS_OF_A_COLUMN = 16
"""With more rows for each column, covariances are known well enough without a low rank."""

_MOST_LOCAL_WORK = 2e9
"""Rows times columns cubed, at most, for groups of nearest rows."""

_MOST_TREE_WORK = 1e7
"""Rows times columns, times columns again but at most 50 of them, at most, for trees."""

_TREES = "trees after "
_FEW_TREES, _MANY_TREES = 10, 24
"""Trees for each column: to judge them, and if they are in the blend."""

_PROBED, _PROBING_TREES, _WORSE = 6, 4, 1.1
"""A few trees for a few columns tell whether trees may help: their error is at most this multiple."""

_MOST_JUDGED, _MOST_FITTED, _MOST_NEIGHBOURS = 3000, 20_000, 5000
"""Rows that judge the models, that the chosen ones are fitted to, and that neighbours are looked up among."""

_FEW_ROWS, _MOST_TRIALS = 200, 4
"""With fewer rows, models are judged several times, so that so many rows take part, but at most so often."""

_HELD_OUT, _LEAST_JUDGED = 0.1, 0.25
"""So large a share of the entries is held out, but in at least the second share of the rows."""

_DONORS, _SHRINKAGE, _FARTHEST = 256, 10.0, 3.0
"""Rows that others may get gaps from; the ridge of how likely gaps are, and where its inputs are clipped."""

_STRONG_RIDGES = ("em 0.1", "em 0.3")

_BENDS = 0.9
"""If mixtures have less than this share of the error of Gaussians, other linear models are not tried."""

_NEAR = 1.02
"""Of two ways to build mixtures, the worse one ends if its error is this multiple of the better one's."""

_FEW_COMPONENTS = 8
"""With so many components, the worse of two ways to build mixtures ends in any case."""

_FALLS = 0.99
"""More components are tried if the last ones had less than this share of the error before."""

_EXTREME = 3.0
"""Held-out errors of more than this multiple of the 90 % quantile do not widen intervals further."""

_LEAST_PRIOR, _MOST_PRIOR = 10.0, 1000.0
"""Held-out entries that all columns together count for in the calibration of one column."""

_ENOUGH, _MOST_ROUNDS = 100, 2
"""Held-out entries of a column that suffice to calibrate it, and how often more are held out, at most."""

_PRIOR_WEIGHTS = 300.0
"""Held-out entries that those of all columns count for in the weights of one column."""

_PRIOR_STUDENT = 20
"""Held-out entries that Student's distribution counts for in the calibration of intervals."""

_EXACT = 1e-20
"""A mean squared error, in variances of columns, that no blend needs to improve."""

_SMALLEST_WEIGHT = 0.03
_TOWARDS_EQUAL, _TOWARDS_EQUAL_ENTRIES = 0.05, 10
"""How much equal weights are preferred, as a share of the held-out squares and as so many entries of them."""


@dataclass(frozen=True)
class _Precision:
    """How precisely mixtures are fitted.

    Attributes
    ----------
    tolerance : float
        EM ends if the mean log-density of an entry rises by less. More precision does not fill gaps better.
    of_mixtures : float
        The same for mixtures of several components, whose iterations take longer.
    ridge : float
        The largest one.
    """

    tolerance: float = 4e-3
    of_mixtures: float = 1e-2
    ridge: float = 1.0


_FOR_DRAWING = _Precision(tolerance=2e-5, of_mixtures=2e-5, ridge=1e-3)


class RowModel(Protocol):
    """What completes rows: a model of their distribution."""

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the variances of filled entries, both (n, d)."""

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn from their conditional distribution, (n, d)."""


@dataclass(frozen=True, eq=False)
class Blend:
    """A weighted mean of models of rows, with calibrated standard deviations.

    Attributes
    ----------
    models : dict of str to RowModel
    weights : dict of str to float
        They sum to 1.
    errors : dict of str to float
        Root mean squared errors of all models that were tried on held-out entries, in standard deviations of
        columns; ``"blend"`` is that of the blend itself.
    columns : ndarray (k,)
        Columns of the held-out entries.
    ratios : ndarray (k,)
        Their errors over the standard deviations that the blend expected.
    by_column : ndarray (models, d), optional
        Weights in each column. Default: the same in all of them.
    """

    models: dict[str, RowModel]
    weights: dict[str, float]
    errors: dict[str, float]
    columns: npt.NDArray[np.intp] = field(repr=False)
    ratios: Floats = field(repr=False)
    by_column: Floats | None = field(repr=False, default=None)

    def complete(self, values: Floats, observed: Bools) -> tuple[Floats, Floats]:
        """Return rows with their gaps filled, and the standard deviations of filled entries, both (n, d)."""
        answers = [model.complete(values, observed) for model in self.models.values()]
        weights = list(self.weights.values()) if self.by_column is None else list(self.by_column)
        filled, variance = _blended(answers, weights)
        std = np.sqrt(variance) * self.inflation(values.shape[1])
        return np.where(observed, values, filled), np.where(observed, 0.0, std)

    def resampled(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Blend:
        """Return the models that are densities of rows, fitted to rows drawn with replacement.

        Drawing the gaps from several of them accounts for what is not known about the models themselves. The
        nearest rows and trees are left out, and ridges are small: otherwise the correlations of what is drawn
        would be weaker.
        """
        used = rng.integers(len(values), size=min(len(values), _MOST_FITTED))
        if not observed[used].any(axis=0).all():  # a column that the sample has no entry of
            used = np.arange(len(values))
        shares = {
            name: (model, self.weights[name])
            for name, model in self.models.items()
            if not isinstance(model, Neighbours | Forest) and name not in _STRONG_RIDGES
        } or {
            name.removeprefix(_TREES): (
                model.first if isinstance(model, Forest) else model,
                self.weights[name],
            )
            for name, model in self.models.items()
        }
        densities = {name: model for name, (model, _) in shares.items()}
        total = sum(weight for _, weight in shares.values())
        weights = {name: weight / total for name, (_, weight) in shares.items()}
        fitted = _refit(values[used], observed[used], densities, rng, _FOR_DRAWING)
        return replace(self, models=fitted, weights=weights, by_column=None)

    def draw(self, values: Floats, observed: Bools, rng: np.random.Generator) -> Floats:
        """Return rows with their gaps drawn from their conditional distribution, (n, d)."""
        drawn = np.where(observed, values, 0.0)
        which = rng.choice(len(self.weights), size=len(values), p=list(self.weights.values()))
        for k, model in enumerate(self.models.values()):
            rows = np.flatnonzero((which == k) & ~observed.all(axis=1))
            if len(rows):
                drawn[rows] = model.draw(values[rows], observed[rows], rng)
        return drawn

    def inflation(self, d: int) -> Floats:
        """Return how much larger errors are than the models expect, for each of d columns.

        Columns with few held-out entries are drawn towards all columns.
        """
        if not len(self.ratios):
            return np.ones(d)
        squares = np.minimum(self.ratios, _EXTREME * np.quantile(self.ratios, 0.9)) ** 2
        return np.sqrt(_means_of_columns(squares, self.columns, d))

    def reach(self, level: float, d: int) -> Floats:
        """Return how many calibrated standard deviations an interval of a level reaches, by column, (d,).

        Errors are divided by their mean size in a column, which tails hardly change. The distribution of
        what is left is that of a column's c own held-out entries and of K entries of all columns, so that
        the reach q solves c·F_own(q) + K·F(q) = level·(c + K).
        """
        from scipy.special import ndtri, stdtrit

        total = len(self.ratios)
        if not total:
            return np.full(d, float(ndtri((1 + level) / 2)))
        sizes = _means_of_columns(self.ratios, self.columns, d)
        ratios = self.ratios / sizes[self.columns]
        # The next error is one of total + 1 that are in any order; few are joined by Student's distribution.
        wanted = min(level * (1 + 1 / total), 1.0)
        few = _PRIOR_STUDENT / (_PRIOR_STUDENT + total)
        usual = float(stdtrit(total, (1 + level) / 2)) * np.sqrt(np.pi / 2)
        overall = (1 - few) * float(np.quantile(ratios, wanted)) + few * usual
        prior = _credibility(ratios <= overall, self.columns)
        found = np.full(d, overall)
        for j in np.unique(self.columns):
            own = np.sort(ratios[self.columns == j])
            # With i own entries below q, F(q) has to be as follows; the least q that has both is the answer.
            left = (wanted * (len(own) + prior) - np.arange(len(own) + 1)) / prior
            others = np.quantile(ratios, np.clip(left, 0, 1)) + (overall - np.quantile(ratios, wanted))
            found[j] = np.maximum(np.append(0.0, own), others).min()
        return found * sizes / self.inflation(d)


def _means_of_columns(values: Floats, columns: npt.NDArray[np.intp], d: int) -> Floats:
    """Return the expectation of positive values in each of d columns, drawn towards the mean of all.

    Columns differ by factors, so that their logarithms are drawn.
    """
    counts, prior = np.bincount(columns, minlength=d), _credibility(values, columns)
    means = np.bincount(columns, values, minlength=d) / np.maximum(counts, 1)
    own, all_columns = (np.log(np.maximum(mean, 1e-24)) for mean in (means, values.mean()))  # 0 if exact
    return np.asarray(np.exp((counts * own + prior * all_columns) / (counts + prior)))


def _credibility(values: npt.NDArray[Any], columns: npt.NDArray[np.intp]) -> float:
    """Return how many entries of a column the mean of all columns is worth, by Bühlmann.

    It is the variance of entries within a column, over that of columns' expectations: with c entries in a
    column, the mean of c entries varies by (variance within)/c + (variance between).
    """
    counts = np.bincount(columns)
    several = np.flatnonzero(counts > 1)
    counts = counts[several]
    means = (np.bincount(columns, values)[several]) / counts
    squares = (np.bincount(columns, np.asarray(values, dtype=np.float64) ** 2))[several] / counts
    if len(several) < 2:
        return _MOST_PRIOR
    degrees = counts.sum() - len(several)
    within = (counts * (squares - means**2)).sum() / degrees
    middle = (counts * means).sum() / counts.sum()
    spread = (counts * (means - middle) ** 2).sum() - (len(several) - 1) * within
    between = spread / (counts.sum() - (counts**2).sum() / counts.sum())
    return float(np.clip(within / max(between, 1e-12), _LEAST_PRIOR, _MOST_PRIOR))


def fit_rows(
    values: Floats,
    observed: Bools,
    *,
    rng: np.random.Generator,
    families: tuple[str, ...] | None = None,
) -> Blend:
    """Fit models of rows and blend them by held-out entries.

    Parameters
    ----------
    values : ndarray (n, d)
        Standardised columns, finite everywhere.
    observed : bool ndarray (n, d)
        Each column has an observed entry.
    rng : Generator
        Chooses what is held out.
    families : tuple of str, optional
        Which models to try, of ``"em"``, ``"mixture"``, ``"scores"``, ``"local"``, ``"low rank"`` and
        ``"trees"``.
        Default: all that suit the table's size.

    Returns
    -------
    Blend
    """
    families = _families(*values.shape) if families is None else families
    judged = _some(len(values), _MOST_JUDGED, rng)
    models: dict[str, RowModel] = {}
    trials: list[_Trial] = []
    for held in _hold_out(values[judged], observed[judged], rng):
        known = observed[judged] & ~held
        inputs = np.where(known, values[judged], 0.0)
        kept = list(trials[-1].answers) if trials else None
        trial = _Trial(np.nonzero(held)[1], values[judged][held], {})
        models = dict(_contestants(inputs, known, kept, families, values[judged], held, trial.answers))
        trials.append(trial)
    first = _joined(trials, list(trials[-1].answers))
    errors = {name: _rmse(answer[0], first.truth) for name, answer in first.answers.items()}
    weights = _blend_weights(first.predictions, first.truth)
    chosen = {name: float(w) for name, w in zip(first.answers, weights, strict=True) if w > 0}
    models = {name: models[name] for name in chosen}
    further = _further(values[judged], observed[judged], models, first.columns, rng)
    trial = _joined([first, *further], list(chosen))
    by_column = _weights_of_columns(trial, np.array(list(chosen.values())), values.shape[1])
    filled, variance = _blended(list(trial.answers.values()), list(by_column[:, trial.columns]))
    errors["blend"] = _rmse(filled[: len(first.truth)], first.truth)
    ratios = np.abs(filled - trial.truth) / np.sqrt(variance + 1e-12) * _optimism(trial, len(chosen))
    return Blend(_refit(values, observed, models, rng), chosen, errors, trial.columns, ratios, by_column)


@dataclass(frozen=True, eq=False)
class _Trial:
    """Held-out entries, and what models say about them.

    Attributes
    ----------
    columns : ndarray (k,)
    truth : ndarray (k,)
    answers : dict of str to pairs of ndarray (k,)
        Means and variances.
    """

    columns: npt.NDArray[np.intp]
    truth: Floats
    answers: dict[str, tuple[Floats, Floats]]

    @property
    def predictions(self) -> Floats:
        """Means of all models, (k, models)."""
        return np.stack([filled for filled, _ in self.answers.values()], axis=1)


def _joined(trials: list[_Trial], names: list[str]) -> _Trial:
    """Return the entries of several trials, and what some models say about them."""
    answers = {
        name: (
            np.concatenate([trial.answers[name][0] for trial in trials]),
            np.concatenate([trial.answers[name][1] for trial in trials]),
        )
        for name in names
    }
    columns = np.concatenate([trial.columns for trial in trials])
    return _Trial(columns, np.concatenate([trial.truth for trial in trials]), answers)


def _further(
    values: Floats,
    observed: Bools,
    models: Mapping[str, RowModel],
    columns: npt.NDArray[np.intp],
    rng: np.random.Generator,
) -> Iterator[_Trial]:
    """Yield further held-out entries, and what models say about them that are fitted without them.

    ``columns`` are those of the entries that chose the models. There are more only if these are few for each
    column: enough to choose models, but not to weigh and calibrate them column by column.
    """
    entries, enough = len(columns), _ENOUGH * len(np.unique(columns))
    for _ in range(_MOST_ROUNDS):
        if entries >= enough:
            return
        for held in _hold_out(values, observed, rng):
            known = observed & ~held
            rows, inputs = held.any(axis=1), np.where(known, values, 0.0)
            answers = {}
            for name, model in _refit(inputs, known, models, rng, trees=_FEW_TREES).items():
                filled, variance = model.complete(inputs[rows], known[rows])
                answers[name] = filled[held[rows]], variance[held[rows]]
            yield _Trial(np.nonzero(held)[1], values[held], answers)
            entries += int(held.sum())


# --- what is held out ---


def _some(n: int, most: int, rng: np.random.Generator) -> npt.NDArray[np.intp]:
    return np.arange(n) if n <= most else np.sort(rng.choice(n, most, replace=False))


def _hold_out(values: Floats, observed: Bools, rng: np.random.Generator) -> Iterator[Bools]:
    """Yield sets of observed entries to hold out, so that rows have the gaps of other rows afterwards.

    A row that has few gaps gets those of another row as well. That row is one whose gaps, together with the
    row's own, are not more than rows usually have, and in which gaps are as likely: this may depend on other
    entries, and is estimated by a ridge regression of the gaps on the observed entries.
    """
    n, d = observed.shape
    donors = np.flatnonzero(~observed.all(axis=1))
    donors = donors[_some(len(donors), _DONORS, rng)]
    patterns = ~observed[donors]
    if not len(donors):
        donors, patterns = np.arange(n), rng.random((n, d)) < 0.2
    gaps, sizes = (~observed).sum(axis=1), np.sort(patterns.sum(axis=1))
    inputs = np.where(observed, np.clip(values, -_FARTHEST, _FARTHEST), 0.0)
    chances = _chances(inputs, ~observed)
    trials = min(-(-_FEW_ROWS // n), _MOST_TRIALS, n)
    rate = max(float(patterns.mean()), 1e-9)
    share = np.clip(_HELD_OUT / rate, _LEAST_JUDGED, 1 / trials)
    size = max(int(share * n), 1)
    smaller = np.searchsorted(sizes, gaps, side="right")  # donors with so many gaps, or fewer
    expected = (chances + (~observed).mean(axis=0)).sum(axis=1) / (rate * d)
    wanted = (1.02 - smaller / len(sizes)) * np.clip(expected, 0.1, 10)
    order = np.argsort(-np.log(rng.random(n)) / wanted)  # drawn with these weights, without replacement
    for k in range(trials):
        part = order[size * k : size * (k + 1)]
        own, there = (~observed[part]).astype(np.float64), observed[part].astype(np.float64)
        more, less = there @ patterns.T, own @ (~patterns).T.astype(np.float64)
        larger = smaller[part] + rng.random(len(part)) * (len(sizes) - smaller[part])
        usual = sizes[np.minimum(larger.astype(int), len(sizes) - 1)]
        apart = _squares(chances[part], chances[donors])
        score = less + np.abs(gaps[part, None] + more - usual[:, None])
        score += apart / max(apart.mean(), 1e-12) + rng.random(score.shape)
        score[more == 0] = np.inf  # nothing would be held out
        held = np.zeros((n, d), bool)
        held[part] = observed[part] & patterns[score.argmin(axis=1)]
        held[~(observed & ~held).any(axis=1)] = False
        if not held.any():  # rows with gaps have nothing in common: one entry of each row instead
            held[part, (rng.random((len(part), d)) * observed[part]).argmax(axis=1)] = True
            held &= observed
        left = observed & ~held
        held[~left.any(axis=1)] = False
        # Columns keep two entries, or all they have.
        for j in np.flatnonzero((observed & ~held).sum(axis=0) < 2):
            held[:, j] = False
        yield held


def _chances(inputs: Floats, gaps: Bools) -> Floats:
    """Return how much likelier gaps are in each entry than in its column, by ridge regression on the rows."""
    n, d = inputs.shape
    marks = gaps - gaps.mean(axis=0)
    if d <= n:
        return np.asarray(
            inputs @ np.linalg.solve(inputs.T @ inputs + _SHRINKAGE * np.eye(d), inputs.T @ marks)
        )
    kernel = inputs @ inputs.T
    return np.asarray(kernel @ np.linalg.solve(kernel + _SHRINKAGE * np.eye(n), marks))


def _squares(a: Floats, b: Floats) -> Floats:
    """Return the squared distances of rows of two matrices."""
    return np.asarray((a**2).sum(axis=1)[:, None] - 2 * a @ b.T + (b**2).sum(axis=1))


# --- the models ---


def _contestants(
    values: Floats,
    known: Bools,
    kept: list[str] | None,
    families: tuple[str, ...],
    truth: Floats,
    held: Bools,
    answers: dict[str, tuple[Floats, Floats]],
) -> Iterator[tuple[str, RowModel]]:
    """Fit models, put what they say about the held-out entries into ``answers``, and yield them by name.

    ``kept`` names the models to fit; without it, rows of growing models end where their error rises.
    """
    n, d = values.shape
    best, leader = np.inf, ""
    models: dict[str, RowModel] = {}
    bends = False
    touched = held.any(axis=1)
    inside = held[touched]

    def judge(name: str, model: RowModel) -> float:
        nonlocal best, leader
        filled, variance = model.complete(values[touched], known[touched])
        answers[name] = filled[inside], variance[inside]
        error = _rmse(filled[inside], truth[held])
        if error < best:
            best, leader = error, name
        models[name] = model
        return error

    def wanted(name: str) -> bool:
        return kept is None or name in kept

    if "em" in families:
        rows = Rows(values, known)
        first = gaussian = None
        lowest = np.inf
        ridge = RIDGES[0]
        for rho in RIDGES:
            # The next stronger one is tried as long as it helps, the weaker one if no stronger one does.
            useless = {0.3: ridge < 0.1, 0.001: ridge > RIDGES[0]}.get(rho, False)
            if useless if kept is None else not wanted(f"em {rho}"):
                continue
            fitted = _again(rows, first or first_mixture(rows), rho)
            first = first or fitted
            error = judge(f"em {rho}", fitted)
            yield f"em {rho}", fitted
            if error < lowest:
                lowest, ridge, gaussian = error, rho, fitted
        assert gaussian is not None
        scores = learn_scores(values, known) if "scores" in families else TableScores({})
        inner, start, scored = rows, gaussian, np.inf
        if scores.columns and wanted("scores em"):
            inner = Rows(np.where(known, scores.forward(values), 0.0), known)
            start = _again(inner, rescaled(gaussian, inner), min(ridge, 0.03))
            scored = judge("scores em", ScoredMixture(scores, start))
            yield "scores em", ScoredMixture(scores, start)
        if "mixture" in families:
            ladders = [_Ladder("mixture", rows, gaussian, None, lowest)]
            if scored < np.inf:
                ladders.append(_Ladder("scores mixture", inner, start, scores, scored))
            yield from _mixtures(ladders, min(ridge, 0.03), kept, judge)
        bends = best < _BENDS * lowest if kept is None else False
        if "local" in families and not bends:
            for K in GROUPS:
                if wanted(f"local {K}") and n >= 3 * K:
                    local = Neighbours.of(gaussian, values, known, K, ridge)
                    judge(f"local {K}", local)
                    yield f"local {K}", local
    if "low rank" in families and wanted("low rank 1") and not bends:
        model: Factors | None = None
        rank = 1
        before = np.inf
        while rank <= min(n, d) // 2:
            model = fit_factors(values, known, rank, start=model)
            error = judge(f"low rank {rank}", model)
            yield f"low rank {rank}", model
            if kept is None and error > before:
                break
            before = min(before, error)
            rank *= 2
            if kept is not None and f"low rank {rank}" not in kept:
                break
    if "trees" in families and models and held.any():
        targets = np.flatnonzero(held.any(axis=0))
        some = targets[:: -(-len(targets) // _PROBED)]
        names = [_TREES + leader] if kept is None else [name for name in kept if name.startswith(_TREES)]
        for name in names:
            if (
                name.removeprefix(_TREES) not in models
            ):  # no column is skewed without the entries held out here
                continue
            base = models[name.removeprefix(_TREES)]
            if kept is None:
                probe = Forest.of(base, values, known, some, _PROBING_TREES)
                asked = np.isin(np.nonzero(held)[1], some)
                found = probe.complete(values[touched], known[touched])[0][inside]
                errors = (_rmse(answer[asked], truth[held][asked]) for answer in (found, answers[leader][0]))
                if next(errors) > _WORSE * next(errors):
                    continue
            forest = Forest.of(base, values, known, targets, _FEW_TREES)
            judge(name, forest)
            yield name, forest


@dataclass
class _Ladder:
    """Mixtures of more and more components, each from the one before."""

    name: str
    rows: Rows
    mixture: Mixture
    scores: TableScores | None
    error: float


def _mixtures(
    ladders: list[_Ladder],
    ridge: float,
    kept: list[str] | None,
    judge: Callable[[str, RowModel], float],
) -> Iterator[tuple[str, RowModel]]:
    """Yield mixtures of 2, 4, 8, … components, as long as their error falls and is near the lowest one."""
    n = len(ladders[0].rows)
    components = 2
    while ladders and components <= min(_MOST_COMPONENTS, n // _ROWS_OF_A_COMPONENT):
        falling = []
        for ladder in ladders:
            name = f"{ladder.name} {components}"
            if kept is not None and name not in kept:
                continue
            mixture = _again(ladder.rows, split(ladder.mixture), ridge)
            model = mixture if ladder.scores is None else ScoredMixture(ladder.scores, mixture)
            error = judge(name, model)
            yield name, model
            if kept is not None or error < _FALLS * ladder.error:
                falling.append(replace(ladder, mixture=mixture, error=error))
        lowest = min((ladder.error for ladder in falling), default=0.0)
        near = _NEAR if components < _FEW_COMPONENTS else 1.0
        ladders = [ladder for ladder in falling if kept is not None or ladder.error <= near * lowest]
        components *= 2


def _families(n: int, d: int) -> tuple[str, ...]:
    """Return the models that suit a table of n rows and d columns."""
    if d > _MOST_COLUMNS:
        return ("low rank",)
    found = ["em", "mixture", "scores"]
    if n * d**3 <= _MOST_LOCAL_WORK:
        found.append("local")
    if d >= 2 and n * d * min(d, 50) <= _MOST_TREE_WORK:
        found.append("trees")
    if d >= 6 and n < _ROWS_OF_A_COLUMN * d:
        found.append("low rank")
    return tuple(found)


def _refit(
    values: Floats,
    observed: Bools,
    models: Mapping[str, RowModel],
    rng: np.random.Generator,
    precision: _Precision = _Precision(),
    trees: int = _MANY_TREES,
) -> dict[str, RowModel]:
    """Fit the chosen models to all rows, each from what the held-out trial found."""
    used = _some(len(values), _MOST_FITTED, rng)
    values, observed = np.where(observed, values, 0.0)[used], observed[used]
    found: dict[str, RowModel] = {}
    rows = Rows(values, observed)
    scores = inner = None
    for name, model in models.items():
        ridge = float(name.split()[1]) if name.startswith("em") else 0.01
        if isinstance(model, Mixture):
            found[name] = _again(rows, model, ridge, precision)
        elif isinstance(model, Neighbours):
            near = _some(len(values), _MOST_NEIGHBOURS, rng)
            first = _again(rows, model.first, model.ridge, precision)
            found[name] = Neighbours.of(first, values[near], observed[near], model.K, model.ridge)
        elif isinstance(model, ScoredMixture):
            if scores is None or inner is None:
                scores = relearn_scores(model.scores, values, observed)
                inner = Rows(np.where(observed, scores.forward(values), 0.0), observed)
            found[name] = ScoredMixture(scores, _again(inner, model.mixture, ridge, precision))
        elif isinstance(model, Forest):
            before = name.removeprefix(_TREES)
            near = _some(len(values), _MOST_JUDGED, rng)
            base = (
                found.get(before) or _refit(values, observed, {before: model.first}, rng, precision)[before]
            )
            gappy = np.flatnonzero(~observed.all(axis=0))
            found[name] = Forest.of(base, values[near], observed[near], gappy, trees)
        elif isinstance(model, Factors):
            rank = model.loadings.shape[1]
            found[name] = fit_factors(values, observed, rank, start=model)
    return found


def _again(rows: Rows, mixture: Mixture, ridge: float, precision: _Precision = _Precision()) -> Mixture:
    """Improve a mixture by EM."""
    prior = 0 if len(mixture.weights) == 1 else rows.values.shape[1]
    ridge = min(ridge, precision.ridge)
    tolerance = precision.tolerance if len(mixture.weights) == 1 else precision.of_mixtures
    return fit_mixture(rows, mixture, ridge=ridge, prior=prior, tolerance=tolerance)


# --- the blend ---


def _rmse(found: Floats, truth: Floats) -> float:
    """Return the root mean squared error; 1, that of a mean, if nothing is held out."""
    return float(np.sqrt(((found - truth) ** 2).mean())) if len(truth) else 1.0


def _optimism(trial: _Trial, models: int) -> float:
    """Return how much larger new errors are than those that the weights were chosen by (Akaike's FPE)."""
    counts = np.bincount(trial.columns)
    entries, parameters = counts.sum(), models * (1 + (counts / (counts + _PRIOR_WEIGHTS)).sum())
    parameters = min(parameters, entries // 2)
    return float(np.sqrt((entries + parameters) / max(entries - parameters, 1)))


def _blended(answers: list[tuple[Floats, Floats]], weights: list[Any]) -> tuple[Floats, Floats]:
    """Return mean and variance of a mixture of answers, which are means and variances.

    Each weight is one number, or one for each entry or column.
    """
    mean = sum((w * filled for w, (filled, _) in zip(weights, answers, strict=True)), np.zeros(()))
    variance = sum(
        (w * (spread + (filled - mean) ** 2) for w, (filled, spread) in zip(weights, answers, strict=True)),
        np.zeros(()),
    )
    return np.asarray(mean), np.asarray(variance)


def _blend_weights(predictions: Floats, truth: Floats) -> Floats:
    """Return weights (k,) that sum to 1 and minimise the squared error of predictions (entries, k).

    Small weights are dropped, and the others found again.
    """
    count = predictions.shape[1]
    used = np.arange(count)
    if not len(truth):
        return np.full(count, 1 / count)
    errors = ((predictions - truth[:, None]) ** 2).mean(axis=0)
    weights = np.zeros(count)
    if errors.min() < _EXACT:
        weights[errors.argmin()] = 1.0
        return weights
    for _ in range(2):
        apart = predictions[:, used] - truth[:, None]
        equal = _TOWARDS_EQUAL + _TOWARDS_EQUAL_ENTRIES / len(truth)
        squares = apart.T @ apart / len(truth)
        found = _least(squares, equal * errors.min(), np.full(len(used), 1 / len(used)))
        weights[:] = 0
        weights[used] = found
        used = used[found >= _SMALLEST_WEIGHT]
    weights[weights < _SMALLEST_WEIGHT / 2] = 0
    return np.asarray(weights / weights.sum())


def _weights_of_columns(trial: _Trial, weights: Floats, d: int) -> Floats:
    """Return weights (k, d) of k models in each column, drawn towards the weights in all columns.

    A column counts by its own held-out entries, and by a number of all entries.
    """
    found = np.repeat(weights[:, None], d, axis=1)
    apart = trial.predictions - trial.truth[:, None]
    total = float((apart**2).sum())
    if len(weights) == 1 or total <= 0:
        return found
    for j in np.unique(trial.columns):
        own = apart[trial.columns == j]
        size = float((own**2).sum()) / len(own)
        if size > _EXACT:
            squares = own.T @ own + _PRIOR_WEIGHTS * size / total * (apart.T @ apart)
            squares /= len(own) + _PRIOR_WEIGHTS
            found[:, j] = _least(squares, _TOWARDS_EQUAL * float(np.diag(squares).min()), weights)
    return found


def _least(squares: Floats, ridge: float, usual: Floats) -> Floats:
    """Return w ≥ 0 that sums to 1 and minimises w·E·w + ρ|w − u|², for E = ``squares`` (k, k).

    With Σ w = 1, w·E·w is the squared error of a blend, for E the mean products of the models' errors. The
    constraint becomes a heavy row of a non-negative least-squares problem.
    """
    from scipy.optimize import nnls

    size = float(np.trace(squares))
    root = np.linalg.cholesky(squares + (ridge + 1e-12 * size) * np.eye(len(usual))).T
    wanted = np.linalg.solve(root.T, ridge * usual)
    heavy = 1e3 * np.sqrt(size)
    matrix = np.vstack([root, heavy * np.ones(len(usual))])
    found, _ = nnls(matrix, np.append(wanted, heavy))
    return np.asarray(found / found.sum())
