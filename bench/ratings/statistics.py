"""Paired bootstrap: how far apart two models are on the same test entries, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

RESAMPLES = 2000


@dataclass(frozen=True)
class Difference:
    """RMSE of a model less that of another, with the middle 95 % of its bootstrap distribution."""

    mean: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether zero lies outside the interval."""
        return not self.low <= 0 <= self.high


def rmse(errors: np.ndarray) -> np.ndarray:
    """Return the root mean square over the last axis."""
    return np.sqrt(np.mean(np.square(errors), axis=-1))


def group_sums(squares: np.ndarray, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of squared errors of each group, shape (seeds, groups), and its entries."""
    _, place = np.unique(groups, return_inverse=True)
    sums = np.stack([np.bincount(place, line) for line in squares])
    return sums, np.bincount(place).astype(float)


def compared(
    errors: np.ndarray, base: np.ndarray, groups: np.ndarray | None = None, *, seed: int = 0
) -> Difference:
    """Compare two models by a paired bootstrap over entries, or over groups of them (users).

    Parameters
    ----------
    errors, base : array (seeds, entries)
        Errors of both models; seed by seed on the same entries. One with a single line is set against every
        seed of the other.
    groups : array (entries,), optional
        Whole groups are drawn: entries of a user are not independent.

    Returns
    -------
    Difference
        Of the RMSE, averaged over seeds; negative where the first is better. The interval tells what other
        test entries might have said; seeds are averaged over, not resampled.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> base = rng.standard_normal((1, 500))
    >>> compared(1.1 * base, base).is_clear, compared(base[:, ::-1], base).is_clear
    (True, False)
    """
    lines = max(len(errors), len(base))
    one, two = (np.broadcast_to(np.square(e), (lines, e.shape[1])) for e in (errors, base))
    if groups is None:
        groups = np.arange(one.shape[1])
    (first, counts), (second, _) = group_sums(one, groups), group_sums(two, groups)
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(RESAMPLES // 100):
        draws = rng.integers(len(counts), size=(100, len(counts)))
        times = np.stack([np.bincount(draw, minlength=len(counts)) for draw in draws]).astype(float)
        totals = times @ counts
        roots = [np.sqrt(times @ sums.T / totals[:, None]) for sums in (first, second)]
        found.append((roots[0] - roots[1]).mean(axis=1))
    low, high = np.quantile(np.concatenate(found), [0.025, 0.975])
    whole = np.sqrt(first.sum(axis=1) / counts.sum()) - np.sqrt(second.sum(axis=1) / counts.sum())
    return Difference(float(whole.mean()), float(low), float(high))
