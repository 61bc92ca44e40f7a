r"""How hard an entry is to predict, up to a factor: what makes some intervals wider than others.

The size of an error is taken to be :math:`σ = \exp(b_0 + \sum_k b_k f_k)`, with features :math:`f_k` that are
known for every entry without its value:

* how far it is from the nearest known entry: the middle of a hole is harder than its edge;
* how much known entries around it differ from the next ones, and from each other: fur is harder than sky;
* how badly the fitted entries of its row, and of its column, are fitted;
* what is predicted: in a table of zeros and a few ones, a prediction of zero is almost always right.

The coefficients are those of a gamma regression with logarithmic link on the fourth roots a of known errors.
The roots keep a few large errors among many tiny ones from dominating. They minimise

.. math:: \min_b \; \sum_i \left( a_i / σ_i^{1/4} + \log σ_i^{1/4} \right) + \frac{ρ}{2} \sum_{k \ge 1} b_k^2,

a convex problem that Newton's method solves in a few steps. The penalty pulls towards one size for all, so
that few errors, or features without information, do not make intervals erratic.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airnp.data.holdout import holes
from airnp.results.calibration import quantile

Values = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_NEAR, _WIDE = 15, 31
"""Sides, in entries, of the squares in which neighbours are compared, and in which the spread is taken."""

_POWER = 0.25

_SHARE = 1e-3
"""Sizes below this share of the mean size count as equal."""

_PENALTY = 30.0
"""ρ: makes coefficients of about a fifth likely, since the features have unit variance."""

_FOLDS = 10

_TEMPERS, _JUDGED_AT = (0.0, 0.25, 0.5, 0.75, 1.0), 0.9
"""Powers of a scale to try, and the level at which the widths of intervals are compared."""

_FEWEST = 100
"""With fewer errors than this, all intervals have one width."""

_WITHIN = 3.0
"""Standard deviations from the mean at which a feature is clipped, because the errors beyond are unknown."""

_STEPS, _ACCURACY = 50, 1e-8

_COPIED_SHARE = 0.05
"""Share of the known entries under copies of holes at a time, as in a fit."""

_ENOUGH = 100_000
_FEWEST_COPIES, _MOST_COPIES = 4, 40
"""Entries to learn from, and how often at least and at most the holes are copied for that."""

_SIDES = (3, 7, 15, 31, 63, 127)
"""Sides of the squares over which means are taken; the first with enough known entries is used."""

_FILLED = 0.1
"""Share of a square that must be known."""


def surroundings(seen: Bools, values: Values) -> Values:
    """Return features of the neighbourhood of every entry, (m, n, 3).

    Parameters
    ----------
    seen : ndarray of bool (m, n)
        Known entries.
    values : ndarray (m, n)
        Of these; anything elsewhere.

    Returns
    -------
    ndarray (m, n, 3)
        Logarithms of the distance to the nearest known entry, of the mean difference of neighbours around
        it, and of the standard deviation around it.

    Examples
    --------
    >>> seen = np.ones((9, 9), dtype=bool)
    >>> seen[2:7, 2:7] = False
    >>> np.exp(surroundings(seen, np.eye(9))[4, :5, 0])
    array([1., 1., 1., 2., 3.])
    """
    from scipy import ndimage

    distance = np.asarray(ndimage.distance_transform_edt(~seen))
    differences, pairs = np.zeros(seen.shape), np.zeros(seen.shape)
    for later, earlier in (np.s_[1:], np.s_[:-1]), (np.s_[:, 1:], np.s_[:, :-1]):
        both = seen[later] & seen[earlier]
        differences[later] += np.where(both, np.abs(values[later] - values[earlier]), 0.0)
        pairs[later] += both
    centred = np.where(seen, values - values[seen].mean(), 0.0)
    mean = _local_mean(centred, seen, _WIDE)
    spread = np.sqrt(np.maximum(_local_mean(centred * centred, seen, _WIDE) - mean * mean, 0.0))
    rough = _local_mean(differences, pairs, _NEAR)
    return np.stack([np.log(np.maximum(distance, 1.0)), _log(rough), _log(spread)], axis=-1)


def line_features(seen: Bools, misfit: Values, predicted: Values) -> Values:
    """Return features of the row, the column and the prediction of every entry, (m, n, 3).

    Parameters
    ----------
    seen : ndarray of bool (m, n)
        Entries that were fitted.
    misfit : ndarray (m, n)
        |X − Y| of these; anything elsewhere.
    predicted : ndarray (m, n)
        Predictions of the entries that were not seen.

    Returns
    -------
    ndarray (m, n, 3)
        Logarithms of the mean misfit of its row and of its column, and of how far the prediction is from
        the median.
    """
    sizes = np.where(seen, misfit, 0.0)
    typical = sizes.sum() / seen.sum()

    def mean(axis: int) -> Values:
        means = (sizes.sum(axis, keepdims=True) + typical) / (seen.sum(axis, keepdims=True) + 1)
        return np.broadcast_to(means, seen.shape)

    features = mean(1), mean(0), np.abs(predicted - np.median(predicted))
    return np.stack([_log(feature) for feature in features], axis=-1)


@dataclass(frozen=True)
class Scale:
    """σ as a function of features.

    Attributes
    ----------
    size : float
        Mean of the fourth roots of the errors that it was learned from.
    centre, spread : ndarray (f,)
        Of the features that it was learned from.
    coefficients : ndarray (1 + f,)
        b, for features of zero mean and unit variance.
    """

    size: float
    centre: Values
    spread: Values
    coefficients: Values

    def __call__(self, features: Values) -> Values:
        """Return σ of entries with such features, (k, f) → (k,); positive, unless all errors were zero."""
        relative = np.exp(_design(features, self.centre, self.spread) @ self.coefficients)
        return np.asarray((self.size * relative) ** (1 / _POWER))


def fit_scale(features: Values, errors: Values) -> Scale:
    """Return the scale that describes the sizes of errors best.

    Parameters
    ----------
    features : ndarray (k, f)
    errors : ndarray (k,)
        Not negative.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = rng.standard_normal((5000, 1))
    >>> scale = fit_scale(features, np.exp(features[:, 0]) * rng.exponential(size=5000))
    >>> ratio = scale(np.array([[1.0]])) / scale(np.array([[0.0]]))
    >>> bool(abs(ratio[0] - np.e) < 0.2)
    True
    """
    centre, spread = features.mean(axis=0), features.std(axis=0)
    # A constant feature carries no information.
    spread = np.where(spread > 1e-9, spread, np.inf)
    roots = errors**_POWER
    size = float(roots.mean())
    if size == 0:
        return Scale(size, centre, spread, np.zeros(1 + features.shape[1]))
    design = _design(features, centre, spread)
    return Scale(size, centre, spread, _regression(design, roots / size, _PENALTY))


def cross_fit_scales(features: Values, errors: Values) -> Values:
    """Return the scale of each entry, (k,), positive, fitted to the other nine tenths of the entries.

    A scale that was fitted to the entry's own error would make it seem easier than a new entry.
    """
    folds = np.arange(len(errors)) % _FOLDS
    scales = np.zeros(len(errors))
    for fold in range(min(_FOLDS, len(errors)) if len(errors) > 1 else 0):
        others = folds != fold
        scales[~others] = fit_scale(features[others], errors[others])(features[~others])
    return np.where(scales > 0, scales, float(errors.mean()) or 1.0)


def temper(known: Values, wanted: Values, errors: Values) -> tuple[Values, Values]:
    """Raise both scales to the power between 0 and 1 that makes intervals narrowest on average.

    The power 0 gives one width for all, which is best where most errors are tiny and large ones cannot be
    foreseen. It is also the choice where there are too few errors to choose by.

    Parameters
    ----------
    known : ndarray (k,)
        Scales of entries with known errors, fitted to other entries.
    wanted : ndarray (j,)
        Scales of other entries.
    errors : ndarray (k,)
    """
    best = 0.0
    if len(errors) >= _FEWEST:
        widths = [quantile(errors / known**power, _JUDGED_AT) * (wanted**power).mean() for power in _TEMPERS]
        best = _TEMPERS[int(np.argmin(widths))]
    return known**best, wanted**best


def scale_of_holes(known: Bools, values: Values) -> Scale | None:
    """Fit a scale over :func:`surroundings` to copies of the holes that :func:`fill` completes.

    Return None if no copy of the holes can be placed.

    Parameters
    ----------
    known : ndarray of bool (m, n)
        Whose gaps are holes.
    values : ndarray (m, n)
        Anything where not known.
    """
    wanted = max(1, round(_COPIED_SHARE * int(known.sum())))
    rng = np.random.default_rng(0)
    features, errors = [], []
    for _ in range(int(np.clip(-(-_ENOUGH // wanted), _FEWEST_COPIES, _MOST_COPIES))):
        copies = holes(known, wanted, rng)
        left = known & ~copies
        features.append(surroundings(left, values)[copies])
        errors.append(np.abs(fill(left, values) - values)[copies])
    sizes = np.concatenate(errors)
    return fit_scale(np.concatenate(features), sizes) if len(sizes) else None


def fill(known: Bools, values: Values) -> Values:
    """Fill each gap with the mean of the smallest square around it that has enough known entries.

    Examples
    --------
    >>> known = np.array([[True, True, True], [True, False, True], [True, True, True]])
    >>> values = np.array([[1.0, 1.0, 3.0], [1.0, 99.0, 3.0], [1.0, 3.0, 3.0]])
    >>> round(float(fill(known, values)[1, 1]), 9)
    2.0
    """
    from scipy import ndimage

    answer = np.where(known, values, values[known].mean())
    source, weights = np.where(known, values, 0.0), known.astype(np.float64)
    gaps = ~known
    for side in _SIDES:
        share, total = (ndimage.uniform_filter(array, side, mode="constant") for array in (weights, source))
        enough = gaps & (share > _FILLED)
        answer[enough] = total[enough] / share[enough]
        gaps &= ~enough
        if not gaps.any():
            break
    return answer


def _local_mean(total: Values, weights: npt.NDArray[np.generic], side: int) -> Values:
    """Return means over squares; where a square has few entries they are drawn to the overall mean."""
    from scipy import ndimage

    sums, counts = (
        ndimage.uniform_filter(array.astype(np.float64), side, mode="constant") for array in (total, weights)
    )
    overall = float(total.sum()) / max(float(weights.sum()), 1.0)
    return np.asarray((sums + _SHARE * overall) / (counts + _SHARE))


def _log(sizes: Values) -> Values:
    mean = float(sizes.mean())
    return np.asarray(np.log(sizes + (_SHARE * mean if mean > 0 else 1.0)))


def _design(features: Values, centre: Values, spread: Values) -> Values:
    columns = np.clip((features - centre) / spread, -_WITHIN, _WITHIN)
    return np.hstack([np.ones((len(features), 1)), columns])


def _regression(design: Values, sizes: Values, penalty: float) -> Values:
    """Return the coefficients of the gamma regression, by Newton's method with a bounded step."""
    ridge = np.full(design.shape[1], penalty)
    ridge[0] = 0.0
    found = np.zeros(design.shape[1])
    for _ in range(_STEPS):
        relative = sizes * np.exp(-design @ found)
        slope = design.T @ (relative - 1.0) - ridge * found
        curvature = (design * relative[:, None]).T @ design + np.diag(ridge + 1e-9)
        step = np.linalg.solve(curvature, slope)
        step /= max(1.0, float(np.abs(step).max()))
        found = found + step
        if np.abs(step).max() < _ACCURACY:
            break
    return found
