"""A tournament: models complete a matrix without some entries, which judge them.

Models begin in the order of their cost. First the cheap ones say whether an entry resembles the ones beside
it: if models that assume so predict held-out entries clearly better than models that do not, the data is a
picture and only the former go on; if clearly worse, only the latter do; in doubt all do. An expensive model
is begun if it fits into the time allowed, and stopped if its held-out error, going on as it did, would not
become the lowest. Without a limit, the favourite of the kind of data, or else the first, is always begun.
Models that may be the best are judged on more draws of held-out entries while time allows.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp.completing.judging import Judges, standard_error
from airnp.completing.models import Answer, GivenUpError, Model, Task
from airnp.training.progress import ShareBar

Floats = npt.NDArray[np.float64]

_CHEAP = 0.25
"""Models that cost at most so many seconds are first, and say whether the data is a picture."""

_FREE, _MULTIPLE = 1.0, 1.0
"""Without a limit, judging may take so many seconds, or the longest fit and this multiple of it."""

_CLEARLY = 2.0
"""Standard errors."""

_FEWEST_DRAWS, _DRAWS, _CLUSTERS = 3, 8, 500
"""How many times entries are held out: more often if that makes fewer clusters than this."""

_HELD_OUT = 0.5
"""Share of the observed entries that all draws together hold out, at most."""

_BLENDED = 3
"""Models of a blend, at most."""

_STEPS = 20
"""Weights of a blend are multiples of one over this."""


@dataclass(eq=False)
class Entry:
    """A model in the tournament.

    Attributes
    ----------
    model : Model
    predictions, deviations : list of ndarray
        What it says about the held-out entries of each draw, and its standard deviations there, if any.
    seconds : float
        Of one fit.
    answer : Answer or None
        That of the first draw.
    note : str
        Why it was not judged.
    """

    model: Model
    predictions: list[Floats] = field(default_factory=list, repr=False)
    deviations: list[Floats | None] = field(default_factory=list, repr=False)
    seconds: float = float("nan")
    answer: Answer | None = field(default=None, repr=False)
    note: str = ""


@dataclass(eq=False)
class Tournament:
    """Entries, and the draws of held-out entries that judge them.

    Attributes
    ----------
    task : Task
    draws : list of Judges
    metric : {"mae", "rmse", "auc"}
    entries : list of Entry
    rounds : int
        How many draws have judged all models that may be the best.
    gains : ndarray (clusters,) or 0
        By how much a blend is better than the best model, by weights that other clusters chose.
    interrupted : bool
    """

    task: Task
    draws: list[Judges]
    metric: str
    entries: list[Entry]
    fraction: float
    ends: float
    shown: bool = False
    executor: Executor | None = None
    rounds: int = 1
    gains: Floats | float = 0.0
    interrupted: bool = False

    @classmethod
    def of(
        cls,
        task: Task,
        models: Sequence[Model],
        metric: str,
        *,
        fraction: float = 0.05,
        time_limit: float = float("inf"),
        progress: bool = False,
        executor: Executor | None = None,
    ) -> Tournament:
        """Draw held-out entries, and choose the models that are meant for the data."""
        chosen = sorted((model for model in models if model.suits(task)), key=lambda each: each.cost(task))
        ends = time.monotonic() + time_limit
        found = cls(task, [], metric, [Entry(model) for model in chosen], fraction, ends, progress, executor)
        found._draw_again()
        return found

    def _have_enough(self) -> bool:
        """Return whether there are enough draws, or no entries for another one."""
        clusters = sum(judges.count for judges in self.draws)
        held = sum(judges.held_out.sum() for judges in self.draws)
        mean = held / len(self.draws)
        return bool(
            (len(self.draws) >= _FEWEST_DRAWS and clusters >= _CLUSTERS)
            or held + mean > _HELD_OUT * self.task.observed.sum()
        )

    @property
    def estimate(self) -> float:
        """About how many seconds all of it will take: of the models that are begun in any case."""
        costs = [entry.model.cost(self.task) for entry in self.entries]
        sure = [c for c, e in zip(costs, self.entries, strict=True) if c <= _CHEAP or self._is_favourite(e)]
        seconds = sum(sure) + 2 * max(sure, default=max(costs, default=0.0)) + _FREE
        return min(seconds, self.ends - time.monotonic())

    def _draw_again(self) -> None:
        """Hold out other entries."""
        rng = np.random.default_rng([self.task.seed, 21, len(self.draws)])
        before = np.zeros(self.task.shape, bool)
        for judges in self.draws:
            before |= judges.held_out
        self.draws.append(_draw(self.task, self.fraction, rng, before))

    @property
    def judged(self) -> list[Entry]:
        """Entries that the first draw has judged, the best first."""
        found = [entry for entry in self.entries if entry.predictions]
        return sorted(found, key=lambda entry: self.losses(entry).mean())

    @property
    def finalists(self) -> list[Entry]:
        """Entries that all rounds have judged, the best first."""
        found = [entry for entry in self.entries if len(entry.predictions) >= self.rounds]
        return sorted(found, key=lambda entry: self.losses(entry, self.rounds).mean())

    def run(self) -> None:
        """Judge the models; an interrupt ends this early."""
        total = sum(entry.model.cost(self.task) for entry in self.entries)
        self._began = time.monotonic()
        self._first: list[Entry] = []
        try:
            with ShareBar(total, self.shown) as bar:
                self._run(bar)
        except KeyboardInterrupt:
            self.interrupted = True
            if not self.judged:
                raise

    def _run(self, bar: ShareBar) -> None:
        costs = [entry.model.cost(self.task) for entry in self.entries]
        cheap = [entry for entry, cost in zip(self.entries, costs, strict=True) if cost <= _CHEAP]
        self._judge_all(cheap, bar)
        self._leave_out_the_other_kind()
        rest = [entry for entry in self.entries if entry not in cheap and not entry.note]
        for side in (True, False):
            ours = [entry for entry in rest if entry.model.uses_neighbours is side]
            has_favourites = any(
                e.model.uses_neighbours is side and self._is_favourite(e) for e in self.entries
            )
            self._first += filter(self._is_favourite, ours) if has_favourites else ours[:1]
        self._began = time.monotonic()
        if self.executor is not None:
            self._judge_all([entry for entry in rest if self._may_begin(entry)], bar)
        else:
            for entry in rest:
                if self._may_begin(entry):
                    self._judge_all([entry], bar)
                else:
                    bar.advance(entry.model.name, entry.model.cost(self.task))
        while len(self.draws) < _DRAWS:
            entries = self._in_question()
            needed = sum(entry.seconds for entry in entries)
            if not entries or self._have_enough() or self._left() <= needed + entries[0].seconds:
                break
            self._draw_again()
            self._judge_all(entries, bar)
            if not any(len(entry.predictions) == len(self.draws) for entry in entries):
                break
            self.rounds = len(self.draws)

    def _is_favourite(self, entry: Entry) -> bool:
        return self.task.kind in entry.model.favourite_of

    def _judge_all(self, entries: list[Entry], bar: ShareBar) -> None:
        """Judge models by the last draw: in the executor, or one after the other."""
        draw = len(self.draws) - 1
        seen = self.task.without(self.draws[draw].held_out)
        left = self.ends - time.monotonic()
        waiting: dict[int, Any] = {}
        if self.executor is not None:
            waiting = {id(e): self.executor.submit(_fit_within, e.model, seen, left) for e in entries}
        for entry in entries:
            bar.advance(entry.model.name, 0)
            if waiting:
                self._take(entry, draw, *waiting[id(entry)].result())
            else:
                self.judge(entry, draw)
            bar.advance(entry.model.name, 0.0 if draw else entry.model.cost(self.task))

    def _may_begin(self, entry: Entry) -> bool:
        cost = entry.model.cost(self.task)
        # Without a limit, some model beyond the cheap ones is begun for each kind that the data may be.
        free = entry in self._first and not np.isfinite(self.ends)
        if cost > self._left() and not free:
            entry.note = f"not begun: about {cost:.0f} s"
            return False
        return True

    def _left(self) -> float:
        """Return the seconds that judging may still take; the best model has to be fitted again."""
        now = time.monotonic()
        best = self.judged[0].seconds if self.judged else 0.0
        if np.isfinite(self.ends):
            return self.ends - now - 1.2 * best
        longest = max((entry.seconds for entry in self.judged), default=0.0)
        return max(_FREE, (1 + _MULTIPLE) * longest) - (now - self._began)

    def _leave_out_the_other_kind(self) -> None:
        """Drop models of pictures, or all others, if they predict clearly worse; see the module."""
        sides = [[e for e in self.judged if e.model.uses_neighbours is side] for side in (True, False)]
        if self.task.kind == "picture":
            wrong = [False]
        elif not all(sides):
            return
        else:
            apart = self.losses(sides[0][0]) - self.losses(sides[1][0])
            unsure = _CLEARLY * standard_error(apart)
            wrong = [True] if apart.mean() > unsure else [False] if apart.mean() < -unsure else []
        for entry in self.entries:
            if not entry.predictions and entry.model.uses_neighbours in wrong:
                entry.note = "the data is no picture" if wrong == [True] else "the data is a picture"

    def _in_question(self) -> list[Entry]:
        """Return models whose error may be the lowest, judged by all draws so far."""
        ours = self.finalists
        if not ours:
            return []
        best = self.losses(ours[0], self.rounds)
        found = [ours[0]]
        for entry in ours[1 : 2 * _BLENDED]:
            worse = self.losses(entry, self.rounds) - best
            if worse.mean() <= _CLEARLY * standard_error(worse):
                found.append(entry)
        return found

    def judge(self, entry: Entry, draw: int) -> None:
        """Fit a model without the entries of a draw, and keep what it says about them."""
        task = self.task.without(
            self.draws[draw].held_out,
            deadline=self.ends,
            give_up=_Curve(self, draw),
        )
        self._take(entry, draw, *_fit(entry.model, task))

    def _take(self, entry: Entry, draw: int, answer: Answer | Exception, seconds: float) -> None:
        if isinstance(answer, Exception):
            given_up = isinstance(answer, GivenUpError)
            entry.note = "given up" if given_up else f"failed: {type(answer).__name__}: {answer}"
            return
        held = self.draws[draw].held_out
        if not np.isfinite(answer.matrix[held]).all():
            entry.note = "failed: not a number"
            return
        entry.seconds = seconds
        entry.answer = entry.answer or answer
        entry.predictions.append(answer.matrix[held])
        entry.deviations.append(None if answer.std is None else answer.std[held])

    def losses(self, entry: Entry, draws: int = 1) -> Floats:
        """Return the loss of a model in each cluster of the first draws."""
        return self.losses_of(entry.predictions[:draws])

    def losses_of(self, predictions: Sequence[Floats]) -> Floats:
        """Return the loss of predictions of the held-out entries of the first draws, cluster by cluster."""
        parts = [self._losses(judges, found) for judges, found in zip(self.draws, predictions, strict=False)]
        return np.concatenate(parts)

    def _losses(self, judges: Judges, predicted: Floats) -> Floats:
        if self.metric == "auc":
            sizes = 1 - _ranks(predicted, judges.truth > judges.truth.min())
        else:
            if self.task.kind == "binary":
                predicted = self.decided(predicted)
            errors = np.abs(predicted - judges.truth) / (1.0 if self.task.kind == "table" else judges.scale)
            sizes = errors if self.metric == "mae" else errors**2
        return np.asarray(np.bincount(judges.clusters, weights=sizes) / np.bincount(judges.clusters))

    def decided(self, matrix: Floats) -> Floats:
        """Return the value of least expected absolute error, if the data are one of two and that counts."""
        known = self.task.values[self.task.observed]
        low, high = float(known.min()), float(known.max())
        if self.metric != "mae":
            return np.asarray(np.clip(matrix, low, high))
        return np.where(matrix > (low + high) / 2, high, low)

    def choice(self, entries: Sequence[Entry]) -> Callable[[Floats], int]:
        """Return a function that chooses one of the models, given their losses (models, clusters).

        It is the one with the lowest mean, or a favourite of the kind of data if that is not worse by more
        than a standard error.
        """
        kind = self.task.kind
        if kind == "matrix":
            kind = "picture" if entries[0].model.uses_neighbours else ""
        favourites = [k for k, entry in enumerate(entries) if kind in entry.model.favourite_of]

        def choose(losses: Floats) -> int:
            best = int(losses.mean(axis=1).argmin())
            for k in favourites:
                worse = losses[k] - losses[best]
                if worse.mean() <= standard_error(worse):
                    return k
            return best

        return choose

    def blend(self) -> tuple[list[Entry], Floats]:
        """Return the best model, or several with the weights of a mean that is clearly better.

        Half of the clusters choose the weights, and the other half compares: the mean has to be better by
        more than its standard error. By how much it is better in each cluster is kept as ``gains``.
        """
        self.gains = 0.0
        count, used = self.rounds, self.finalists
        best = used[self.choice(used)(np.stack([self.losses(entry, count) for entry in used]))]
        used = [best, *(entry for entry in used if entry is not best)][:_BLENDED]
        alone = [best], np.ones(1)
        if len(used) < 2 or self.metric == "auc":
            return alone
        single = self.losses(best, count)
        gains = np.empty_like(single)
        half = np.random.default_rng([self.task.seed, 23]).random(len(single)) < 0.5
        for side in (half, ~half):
            if side.all() or not side.any():
                return alone
            gains[~side] = (single - self._mixed_losses(used, self._weights(used, count, side), count))[~side]
        if gains.mean() <= standard_error(gains):
            return alone
        self.gains = gains
        weights = self._weights(used, count, np.ones(len(single), bool))
        return [e for e, w in zip(used, weights, strict=True) if w > 0], weights[weights > 0]

    def _mixed_losses(self, entries: list[Entry], weights: Floats, count: int) -> Floats:
        mixed = [
            sum((w * e.predictions[k] for w, e in zip(weights, entries, strict=True)), np.zeros(()))
            for k in range(count)
        ]
        return self.losses_of(mixed)

    def _weights(self, entries: list[Entry], count: int, clusters: Any) -> Floats:
        """Return non-negative weights that sum to 1, found greedily: one model is added at a time."""
        votes = np.zeros(len(entries))
        for step in range(_STEPS):
            trials = votes + np.eye(len(entries))
            means = [self._mixed_losses(entries, t / (step + 1), count)[clusters].mean() for t in trials]
            votes = trials[int(np.argmin(means))]
        return np.asarray(votes / _STEPS)


class _Curve:
    """Decides by the held-out errors so far whether a slow model can still have the lowest one.

    Between half of the time and now the error fell by some amount. It is given up if twice that, for the
    time until twice as long, would not be enough.
    """

    def __init__(self, tournament: Tournament, draw: int) -> None:
        self.tournament, self.draw = tournament, draw
        self.errors: list[float] = []

    def __call__(self, matrix: Floats) -> bool:
        """Return whether to give up, given the matrix so far."""
        judges = self.tournament.draws[self.draw]
        predicted = matrix[judges.held_out]
        self.errors.append(float(self.tournament._losses(judges, predicted).mean()))
        if len(self.errors) < 8 or not self.tournament.judged:
            return False
        best = float(self.tournament.losses(self.tournament.judged[0]).mean())
        fell = self.errors[len(self.errors) // 2] - self.errors[-1]
        return self.errors[-1] - 2 * max(fell, 0.0) > best


def _draw(task: Task, fraction: float, rng: np.random.Generator, before: npt.NDArray[np.bool_]) -> Judges:
    """Draw held-out entries; columns that are missing together are held out together."""
    by_column = task.kind == "table"
    if task.owners is None:
        return Judges.draw(task.values, task.observed, fraction, rng, by_column, before)
    _, first, place = np.unique(task.owners, return_index=True, return_inverse=True)
    judges = Judges.draw(
        task.values[:, first], task.observed[:, first], fraction, rng, by_column, before[:, first]
    )
    labels = np.full(judges.held_out.shape, -1)
    labels[judges.held_out] = judges.clusters
    wide = labels[:, place]
    held = wide >= 0
    return replace(judges, held_out=held, clusters=wide[held], truth=task.values[held])


def _fit(model: Model, task: Task) -> tuple[Answer | Exception, float]:
    """Return the answer of a model, or its error, and the seconds that it took."""
    began = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer: Answer | Exception = model.fit(task)
    except Exception as error:
        answer = error
    return answer, time.perf_counter() - began


def _fit_within(model: Model, task: Task, seconds: float) -> tuple[Answer | Exception, float]:
    """Fit a model in another process, whose clock may be another."""
    return _fit(model, replace(task, deadline=time.monotonic() + seconds))


def _ranks(scores: Floats, positive: npt.NDArray[np.bool_]) -> Floats:
    """Return one number for each entry, whose mean is the area under the ROC curve.

    With P positive and Q negative entries, :math:`p_i` the share of negative ones that positive entry i
    beats, and :math:`q_j` the share of positive ones that beat negative entry j, these are
    :math:`A + (p_i - A)(P + Q)/P` and :math:`A + (q_j - A)(P + Q)/Q`. The square of their standard error is
    that of A: var p / P + var q / Q (DeLong and others, 1988).
    """
    found = np.full(len(scores), 0.5)
    if positive.all() or not positive.any():
        return found
    for side, sign in ((positive, 1.0), (~positive, -1.0)):
        others = np.sort(sign * scores[~side])
        below, upto = (np.searchsorted(others, sign * scores[side], way) for way in ("left", "right"))
        beaten = (below + upto) / (2 * len(others))
        found[side] = beaten.mean() + (beaten - beaten.mean()) * len(scores) / side.sum()
    return found
