"""Make gaps in tables: completely at random, at random given other columns, and not at random.

The last two follow the logistic masks that HyperImpute and ReMasker are measured with: some columns decide,
through a logistic model with random weights, which entries of the other columns are missing. If the deciding
columns are observed, entries are missing at random (MAR). If they have gaps, too, they are not (MNAR).

In blocks, half of the columns are missing together, in rows where one of them tends to be large.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

MECHANISMS = ("MCAR", "MAR", "MNAR")
"""Those that other programs are measured with."""

ALL_MECHANISMS = (*MECHANISMS, "blocks")


def make_gaps(values: np.ndarray, rate: float, mechanism: str, seed: int) -> np.ndarray:
    """Return where entries stay observed, as a boolean array (n, d).

    Parameters
    ----------
    values : ndarray (n, d)
        Numbers; categories as their codes.
    rate : float
        Share of missing entries, among the columns that may have gaps.
    mechanism : {"MCAR", "MAR", "MNAR", "blocks"}
    seed : int
    """
    rng = np.random.default_rng([seed, ALL_MECHANISMS.index(mechanism), round(100 * rate)])
    n, d = values.shape
    if mechanism == "MCAR":
        missing = rng.random((n, d)) < rate
    elif mechanism == "blocks":
        missing = np.zeros((n, d), bool)
        for block in np.array_split(rng.permutation(d), 2):
            ranks = values[:, block[0]].argsort().argsort() / n
            rows = rng.random(n) < np.clip(2 * rate * ranks, 0, 0.95)
            missing[np.ix_(rows, block)] = True
    else:
        scaled = (values - values.mean(axis=0)) / (values.std(axis=0) + 1e-12)
        deciding = rng.permutation(d)[: max(1, round(0.3 * d))]
        others = np.setdiff1d(np.arange(d), deciding)
        weights = rng.standard_normal((len(deciding), len(others)))
        slopes = scaled[:, deciding] @ weights
        slopes /= slopes.std(axis=0) + 1e-12
        missing = np.zeros((n, d), bool)
        for slope, column in zip(slopes.T, others, strict=True):
            shift = brentq(lambda b, s=slope: expit(s + b).mean() - rate, -50, 50)
            missing[:, column] = rng.random(n) < expit(slope + shift)
        if mechanism == "MNAR":
            missing[:, deciding] = rng.random((n, len(deciding))) < rate
    observed = ~missing
    # Every row keeps an entry, every column two.
    empty = np.flatnonzero(~observed.any(axis=1))
    observed[empty, rng.integers(d, size=len(empty))] = True
    for column in np.flatnonzero(observed.sum(axis=0) < 2):
        observed[rng.permutation(n)[:2], column] = True
    return observed
