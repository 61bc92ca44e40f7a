"""Choose how to fill a picture by trials on pixels that are held out in the shape of its gaps.

Parts of the picture are filled without them. What is learned: how many rounds of patches, whether smaller
copies help in deep holes, how much of the smooth surface to keep, how wide intervals must be, and the error
to expect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from airnp._checks import checked_whole
from airnp.data.holdout import have_holes, like_the_gaps
from airnp.images.painting import Painter, Plan, State
from airnp.resemblance.patch_graph import GraphSettings
from airnp.resemblance.patches import Round
from airnp.resemblance.stages import Graph, Patches, Stage

Values = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]
Quality = Literal["best", "fast"]
Gaps = Literal["scattered", "thin", "deep"]
"""Single pixels; strokes of text and scratches; holes with pixels far from observed ones."""

_SHARE = 0.06
"""Share of the observed pixels that are held out."""

_SIDE = {"best": 88, "fast": 64}
"""Side, in pixels, of the parts that trials use; larger if the holes are."""

_LARGEST_SIDE = 320
"""Of a part with large holes."""

_PARTS = {"best": 3, "fast": 2}

_LARGEST_ROW = 110
"""Patches with more entries than this take too long."""

_LARGEST_WEIGHT = 5.0
"""Of a held-out pixel, beside a mean of 1."""

_DEEP = 3.0
"""Holes whose pixels are farther than this from observed ones, on average, are tried without copies, too."""

_SMOOTH, _ROUNDS, _FLAT = "smooth", "rounds: ", "without copies"
"""Names of what is tried."""

_UNLIKE = 0.08
"""By how much, relatively, errors over claimed deviations differ between a picture and parts of it, beyond
chance: measured on half of scikit-image's pictures (``python -m bench.pictures``)."""

_BLOCK = 8
"""Errors within squares of so many pixels are taken for one piece of evidence."""


@dataclass(frozen=True)
class Overrides:
    """What the user has chosen; None leaves it to the trials."""

    patch: int | None = None
    search: int | None = None
    neighbours: int | None = None

    @classmethod
    def checked(cls, patch: Any, search: Any, neighbours: Any) -> Overrides:
        """Return the choices of a caller; raise unless they are whole numbers that are large enough."""
        given = (("patch", patch, 2), ("search", search, 1), ("neighbours", neighbours, 4))
        return cls(
            *(
                None if value is None else checked_whole(name, value, least=least)
                for name, value, least in given
            )
        )


@dataclass(frozen=True)
class Candidate:
    """A way to fill a picture.

    Attributes
    ----------
    graphs : int
        Times that patches are joined by a graph.
    rounds : tuple of Round
        Rounds of Gaussian patches after that.
    levels : bool
        Whether gaps far from observed pixels start from smaller copies of the picture.
    graph : GraphSettings
    """

    graphs: int
    rounds: tuple[Round, ...]
    levels: bool = True
    graph: GraphSettings = field(default_factory=GraphSettings)

    def plan(self, xp: Any = None) -> Plan:
        """Return the stages."""
        stages: list[Stage] = [Graph(self.graph)] * self.graphs
        return Plan((*stages, *(Patches(how, xp) for how in self.rounds)), self.levels)


@dataclass(frozen=True, eq=False)
class Calibration:
    """How large errors are beside the standard deviations that the model claims.

    Attributes
    ----------
    ratios : ndarray
        Quantiles of |error| / claimed standard deviation of held-out pixels, at levels from 0 to 1.
    floor : float
        Variance that is added to the claimed one.
    """

    ratios: Values
    floor: float

    @classmethod
    def of(cls, ratios: Values, weights: Values, floor: float) -> Calibration:
        """Return the calibration by weighted ratios: each stands as often as its weight says."""
        order = np.argsort(ratios)
        share = np.cumsum(weights[order]) / weights.sum()
        places = np.minimum(np.searchsorted(share, np.linspace(0, 1, 501)), ratios.size - 1)
        return cls(ratios[order][places].astype(np.float32), floor)

    def deviation(self, variances: Any) -> Any:
        """Return the claimed standard deviation."""
        return np.sqrt(variances + self.floor)

    def width(self, level: float) -> float:
        """Return how many claimed standard deviations an interval reaches to each side."""
        return float(np.quantile(self.ratios, level))


@dataclass(frozen=True, eq=False)
class Choice:
    """What the trials found.

    Attributes
    ----------
    candidate : Candidate
    flat : float
        Share of the filling without smaller copies, in a mean with the one that has them.
    smooth : float
        Share of the smooth surface in the answer.
    calibration : Calibration
    ratio, ratio_error : float
        Mean absolute error of held-out pixels over the mean of their claimed standard deviations, and its
        standard error. Parts of a picture may be easier than the whole; claimed deviations know by how much,
        so that this times their mean over all gaps is the error to expect.
    errors : dict
        Mean absolute error of everything that was tried, by name.
    """

    candidate: Candidate
    flat: float = 0.0
    smooth: float = 0.0
    calibration: Calibration = field(
        default_factory=lambda: Calibration(np.linspace(0, 2.5, 100, dtype=np.float32), 1e-6)
    )
    ratio: float = float("nan")
    ratio_error: float = float("nan")
    errors: dict[str, float] = field(default_factory=dict)


def candidate(channels: int, quality: Quality, gaps: Gaps, given: Overrides) -> Candidate:
    """Return how to fill a picture, by its number of channels and the form of its gaps."""
    small, large = {1: (6, 8), 2: (5, 6), 3: (4, 5), 4: (4, 5)}.get(
        channels, (int(max(2, (_LARGEST_ROW / channels) ** 0.5)),) * 2
    )
    # Strokes are narrow: there fewer patches are nearly as good as many, and colour makes each of them dear.
    few = quality == "fast" or (gaps == "thin" and channels > 1)
    if gaps == "deep":
        sides = [large] * 2 if quality == "best" else [small] * 2  # large ones carry structure further
    elif few:
        sides = [small] * 2
    else:
        sides = [large, small, large, small] if channels == 1 else [small] * 4
    rounds = []
    for number, side in enumerate(sides, start=1):
        side = given.patch or side
        left = len(sides) - number
        # Looking further and filling more patches pays where one channel says little, once matches are good;
        # in holes it pays, too, and costs little, because few patches touch one.
        more = channels == 1 and quality == "best" and gaps != "deep"
        far = 20 if gaps == "deep" and quality == "best" else 14 if more and left < 2 else 10
        how = Round(
            patch=side,
            stride=(side + 1) // 2 + few,
            search=given.search or far,
            neighbours=given.neighbours or 64,
            answers=8 if few else 24 if more and left == 0 else 12,
            # Going further than the new values saves rounds; the last one may not.
            step=1.7 if left else 1.0,
        )
        rounds.append(how)
    # Outside of holes, a graph over fewer places takes less time and is no worse.
    near = 10 if gaps == "deep" else 6
    graph = GraphSettings(search=given.search or near, tolerance=3e-3 if quality == "fast" else 1e-3)
    return Candidate(2 if quality == "best" else 1, tuple(rounds), graph=graph)


def form(observed: Bools) -> Gaps:
    """Return the form of the gaps of a picture (T, C, H, W)."""
    if not have_holes(_flat(observed)):
        return "scattered"
    return "deep" if depth(observed) > _DEEP else "thin"


def choose(
    values: Any,
    observed: Bools,
    quality: Quality,
    given: Overrides,
    painter: Painter,
    seed: int,
    xp: Any = None,
) -> Choice:
    """Try to fill parts of a picture (T, C, H, W); return what is best, and what its errors teach.

    ``values`` may be an array of Dask: only the parts are computed.
    """
    rng = np.random.default_rng([seed, 15])
    gaps = form(observed)
    way = candidate(values.shape[1], quality, gaps, given)
    parts = list(sample(values, observed, gaps, quality, rng))
    if not parts:
        return Choice(way)
    evidence = [_try(part, way, painter, xp) for part in parts]
    truth = np.concatenate([part.truth for part in parts])
    weights = np.concatenate([part.weights for part in parts])
    blocks = np.concatenate([part.blocks + 10**7 * number for number, part in enumerate(parts)])
    answers = {
        name: np.concatenate([each[name][0] for each in evidence])
        for name in set.intersection(*map(set, evidence))
    }
    variances = {name: np.concatenate([each[name][1] for each in evidence]) for name in answers}
    errors = {
        name: float(np.average(np.abs(answer - truth), weights=weights)) for name, answer in answers.items()
    }
    best = min((name for name in answers if name.startswith(_ROUNDS)), key=lambda name: errors[name])
    usual = f"{_ROUNDS}{len(way.rounds)}"
    gain = np.abs(answers[usual] - truth) - np.abs(answers[best] - truth)
    if not _is_clear(gain, weights, blocks):
        best = usual
    answer, variance = answers[best], variances[best]

    flat = 0.0
    if _FLAT in answers:
        flat = _share(answer, answers[_FLAT], truth, weights, blocks, prior=0.5)
        answer = (1 - flat) * answer + flat * answers[_FLAT]
        variance = (1 - flat) * variance + flat * variances[_FLAT]
    smooth = _share(answer, answers[_SMOOTH], truth, weights, blocks, prior=0.0)
    answer = (1 - smooth) * answer + smooth * answers[_SMOOTH]
    error = np.abs(answer - truth)
    floor = max(1e-8, float(np.quantile(error, 0.2)) ** 2)
    claimed = np.sqrt(variance + floor)
    calibration = Calibration.of(error / claimed, weights, floor)
    way = replace(way, rounds=way.rounds[: int(best.removeprefix(_ROUNDS))])
    size = float(np.average(claimed, weights=weights))
    ratio = float(np.average(error, weights=weights)) / size
    _, unsure = _mean_and_error(error - ratio * claimed, weights, blocks)
    unsure = float(np.hypot(unsure / size, _UNLIKE * ratio))
    return Choice(way, flat, smooth, calibration, ratio, unsure, errors)


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a picture (T, C, h, w), with pixels held out."""

    values: Values
    observed: Bools
    held: Bools
    deep: bool

    @property
    def truth(self) -> Values:
        """The held-out pixels."""
        return self.values[self.held]

    @property
    def weights(self) -> Values:
        """How much each held-out pixel counts, so that together they are as hard as the real gaps.

        Holding out makes gaps denser. What decides is how much is observed around a pixel: held-out pixels
        are weighted so that this has the distribution that it has for the real gaps.
        """
        from scipy.ndimage import gaussian_filter

        def nearby(observed: Bools) -> Values:
            planes = (gaussian_filter(plane.astype(np.float32), 1.5) for plane in observed[0])
            return np.stack(list(planes))[np.newaxis]

        real = self.observed | self.held
        wanted, present = nearby(real)[~real], nearby(self.observed)[self.held]
        edges = np.unique(np.quantile(wanted, np.linspace(0, 1, 9)[1:-1]))
        bins = np.searchsorted(edges, present)
        targets = np.bincount(np.searchsorted(edges, wanted), minlength=edges.size + 1) / wanted.size
        counts = np.bincount(bins, minlength=edges.size + 1) / present.size
        return np.minimum(targets[bins] / counts[bins], _LARGEST_WEIGHT)

    @property
    def blocks(self) -> Any:
        """A number for each held-out pixel, the same for those that are close together."""
        _, _, rows, columns = np.nonzero(self.held)
        return rows // _BLOCK * 10**4 + columns // _BLOCK


def sample(
    values: Any, observed: Bools, gaps: Gaps, quality: Quality, rng: np.random.Generator
) -> Iterator[Part]:
    """Yield parts of a picture with about as many gaps as the whole, and pixels of them to hold out."""
    from scipy.ndimage import find_objects, label

    frames, _, height, width = values.shape
    side = _SIDE[quality]
    deep = gaps == "deep"
    if deep:
        boxes = find_objects(label(~_flat(observed))[0])
        largest = max(
            (max(box[0].stop - box[0].start, box[1].stop - box[1].start) for box in boxes), default=0
        )
        side = min(max(2 * side, 4 * largest), _LARGEST_SIDE)
    tall, wide = min(side, height), min(side, width)
    whole = (tall, wide) == (height, width)
    missing = np.asarray(~observed.all(axis=1))
    places: list[tuple[float, int, int, int, int]] = []
    for _ in range(1 if whole and frames == 1 else 40):
        frame = int(rng.integers(frames))
        top, left = (int(rng.integers(length - size + 1)) for length, size in ((height, tall), (width, wide)))
        window = missing[frame, top : top + tall, left : left + wide]
        share = float(window.mean())
        if 0 < share < 0.98:
            # Windows with few gaps teach little; others count as they come, to be typical of the picture.
            places.append((max(0.0, 0.5 * float(missing.mean()) - share), len(places), frame, top, left))
    most = 1 if deep else 2 if gaps == "thin" else _PARTS[quality]
    count = min(most, -(-height * width // (2 * tall * wide)))
    for _, _, frame, top, left in sorted(places)[:count]:
        place = (slice(frame, frame + 1), slice(None), slice(top, top + tall), slice(left, left + wide))
        seen = observed[place]
        held = _held_out(seen[0], _flat(seen), gaps == "scattered", rng)[np.newaxis]
        if held.sum() >= 20 and (seen & ~held).any(axis=(0, 2, 3)).all():
            yield Part(np.asarray(values[place]), seen & ~held, held, deep)


def depth(observed: Bools) -> float:
    """Return how many pixels the gaps of a picture (T, C, H, W) are away from observed ones, on average."""
    from scipy.ndimage import distance_transform_edt

    distances = [distance_transform_edt(~frame.all(axis=0)) for frame in observed]
    return float(sum(each.sum() for each in distances) / sum((each > 0).sum() for each in distances))


def _held_out(observed: Bools, flat: Bools, scattered: bool, rng: np.random.Generator) -> Bools:
    """Return which pixels (C, h, w) to hold out: the same in all channels if they share their gaps."""
    share = _SHARE if scattered else 2 * _SHARE
    if (observed == flat).all():
        held = like_the_gaps(flat, max(40, round(share * int(flat.sum()))), rng)
        return np.broadcast_to(held, observed.shape) & observed
    held = np.zeros_like(observed)
    for number, channel in enumerate(observed):
        if channel.sum() > 100:
            held[number] = like_the_gaps(channel, max(40, round(share * int(channel.sum()))), rng)
    return held


def _try(part: Part, way: Candidate, painter: Painter, xp: Any) -> dict[str, tuple[Values, Values]]:
    """Return answers at the held-out pixels, by name, and the variances that they claim."""
    found: dict[str, tuple[Values, Values]] = {}

    def keep(name: str, state: State) -> None:
        found[name] = state.values[part.held], state.variances[part.held]

    plan = way.plan(xp)
    state = painter.begin(part.values, part.observed, plan)
    keep(_SMOOTH, state)
    state = painter.advance(state, part.observed, plan.stages[: way.graphs])
    for number, stage in enumerate(plan.stages[way.graphs :], start=1):
        state = painter.advance(state, part.observed, (stage,))
        keep(f"{_ROUNDS}{number}", state)
    if part.deep:
        plan = plan.without_levels()
        keep(_FLAT, painter.fill(part.values, part.observed, plan)[0])
    return found


def _share(one: Values, other: Values, truth: Values, weights: Values, blocks: Any, prior: float) -> float:
    """Return the share of ``other`` in a mean of two answers: ``prior`` unless another is clearly better."""
    shares = np.linspace(0, 1, 11)
    errors = [np.abs((1 - share) * one + share * other - truth) for share in shares]
    usual = np.abs((1 - prior) * one + prior * other - truth)
    best = int(np.argmin([np.average(error, weights=weights) for error in errors]))
    return float(shares[best]) if _is_clear(usual - errors[best], weights, blocks) else prior


def _is_clear(gains: Values, weights: Values, blocks: Any) -> bool:
    """Return whether gains at held-out pixels are more than luck."""
    gain, unsure = _mean_and_error(gains, weights, blocks)
    return gain > 1.5 * unsure


def _mean_and_error(values: Values, weights: Values, blocks: Any) -> tuple[float, float]:
    """Return a weighted mean and its standard error; a block's values count as one piece of evidence."""
    mean = float(np.average(values, weights=weights))
    _, place = np.unique(blocks, return_inverse=True)
    apart = np.bincount(place, weights * (values - mean))
    return mean, float(np.sqrt((apart**2).sum()) / weights.sum())


def _flat(observed: Bools) -> Bools:
    """Return which pixels of a picture (T, C, H, W) are observed in all frames' first gaps: (H, W)."""
    with_gaps = [frame.all(axis=0) for frame in observed if not frame.all()]
    return np.asarray(with_gaps[0] if with_gaps else observed[0].all(axis=0))
