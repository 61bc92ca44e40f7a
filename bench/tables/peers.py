"""The other imputers, each as a function of a numeric table with NaN in its gaps."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable

import numpy as np

Impute = Callable[[np.ndarray, int], np.ndarray]


def _standardised(impute: Impute) -> Impute:
    """Return a function that standardises columns, imputes, and undoes it."""

    def run(table: np.ndarray, seed: int) -> np.ndarray:
        mean, scale = np.nanmean(table, axis=0), np.nanstd(table, axis=0)
        scale = np.where(scale > 0, scale, 1.0)
        return impute((table - mean) / scale, seed) * scale + mean

    return run


def _mean(table: np.ndarray, seed: int) -> np.ndarray:
    return np.where(np.isnan(table), np.nanmean(table, axis=0), table)


def _knn(table: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.impute import KNNImputer

    return KNNImputer().fit_transform(table)


def _iterative(table: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it seldom converges
        return IterativeImputer(random_state=seed).fit_transform(table)


def _forest(table: np.ndarray, seed: int) -> np.ndarray:
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    trees = ExtraTreesRegressor(30, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return IterativeImputer(trees, max_iter=5, random_state=seed).fit_transform(table)


def _soft_impute(table: np.ndarray, seed: int) -> np.ndarray:
    from airnp.baselines import soft_impute

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled = soft_impute(table, seed=seed)
    return np.where(np.isnan(table), filled, table)


def _hyperimpute(table: np.ndarray, seed: int) -> np.ndarray:
    from hyperimpute.plugins.imputers import Imputers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Imputers().get("hyperimpute", random_state=seed).fit_transform(table.copy()))


def _air(table: np.ndarray, seed: int) -> np.ndarray:
    from airnp.sklearn import AIRImputer

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        imputer = AIRImputer(method="air", random_state=seed, threads=1, identifiers=[])
        return np.asarray(imputer.fit_transform(table))


def _missforest(table: np.ndarray, seed: int) -> np.ndarray:
    from hyperimpute.plugins.imputers import Imputers

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(Imputers().get("missforest", random_state=seed).fit_transform(table.copy()))


PEERS: dict[str, Impute] = {
    "mean": _mean,
    "knn": _standardised(_knn),
    "iterative": _iterative,
    "forest": _standardised(_forest),
    "soft_impute": _standardised(_soft_impute),
    "air": _air,
}
if importlib.util.find_spec("hyperimpute") is not None:
    PEERS |= {"hyperimpute": _hyperimpute, "missforest": _missforest}

ON_REQUEST = ("air", "hyperimpute", "missforest")
"""Peers that take seconds to minutes for a small table."""
