"""Tables to make gaps in: those that scikit-learn ships with, synthetic ones, and folders of CSV files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bench.tables import unlike

TUNING = ("wine", "breast_cancer", "linnerud", "mixture", "nonlinear", "mixed")
"""Tables that settings may be chosen on."""

REPORT = ("iris", "diabetes", "digits", "gaussian", "low_rank", "heavy_tails")
"""Tables that no setting was chosen on."""


@dataclass(frozen=True)
class Dataset:
    """A complete table, and what to predict from it.

    Attributes
    ----------
    name : str
    frame : DataFrame (n, d)
        Floats, integers, booleans and categoricals.
    target : ndarray (n,) or None
        Classes, for the accuracy of a classifier after imputing.
    """

    name: str
    frame: pd.DataFrame
    target: np.ndarray | None = None

    @property
    def is_numeric(self) -> np.ndarray:
        """Which columns are numbers, (d,)."""
        return np.array([_is_number(self.frame[name]) for name in self.frame])


def _is_number(column: pd.Series) -> bool:
    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)


def load(name: str) -> Dataset:
    """Return a table by its name."""
    if name in (*unlike.STRANGE, *unlike.SEALED):
        return Dataset(name, unlike.load(name))
    return _SYNTHETIC[name](name) if name in _SYNTHETIC else _from_sklearn(name)


def _from_sklearn(name: str) -> Dataset:
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{name}")()
    values, target = np.asarray(bunch.data, dtype=float), np.asarray(bunch.target)
    if name == "linnerud":
        values, target = np.hstack([values, target]), None
    if name == "digits":
        values, target = values[:600], target[:600]
        values = values[:, values.std(axis=0) > 0.2]
    if name == "diabetes":
        target = (target > np.median(target)).astype(int)
    return Dataset(name, _frame(values), target)


def _frame(values: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame(values, columns=[f"x{k}" for k in range(values.shape[1])])


def _gaussian(name: str) -> Dataset:
    rng = np.random.default_rng(101)
    half = rng.standard_normal((12, 12)) * np.linspace(2, 0.1, 12)[:, None]
    values = rng.standard_normal((500, 12)) @ half + 0.3 * rng.standard_normal((500, 12))
    return Dataset(name, _frame(values * rng.lognormal(0, 2, 12)))


def _mixture(name: str) -> Dataset:
    rng = np.random.default_rng(102)
    which = rng.integers(4, size=600)
    centers, halves = 2.5 * rng.standard_normal((4, 8)), rng.standard_normal((4, 3, 8))
    noise = 0.4 * rng.standard_normal((600, 8))
    values = centers[which] + np.einsum("nk,nkd->nd", rng.standard_normal((600, 3)), halves[which]) + noise
    return Dataset(name, _frame(values), which)


def _low_rank(name: str) -> Dataset:
    rng = np.random.default_rng(103)
    values = rng.standard_normal((400, 4)) @ rng.standard_normal((4, 20)) + 0.3 * rng.standard_normal(
        (400, 20)
    )
    return Dataset(name, _frame(values))


def _nonlinear(name: str) -> Dataset:
    rng = np.random.default_rng(104)
    a, b, c = rng.uniform(-2, 2, (3, 800))
    columns = [a, b, c, np.sin(2 * a) + 0.5 * b, a * b, b**2 - c, np.abs(c) + 0.3 * a, np.exp(0.7 * a)]
    values = np.stack(columns, axis=1)
    return Dataset(name, _frame(values + 0.1 * rng.standard_normal(values.shape)))


def _heavy_tails(name: str) -> Dataset:
    rng = np.random.default_rng(105)
    half = rng.standard_normal((4, 10))
    normal = rng.standard_normal((500, 4)) @ half + 0.5 * rng.standard_normal((500, 10))
    values = normal / np.sqrt(rng.chisquare(3, (500, 1)) / 3)
    values[:, 5:] = np.exp(np.clip(values[:, 5:] / 2, -8, 8))
    return Dataset(name, _frame(values))


def _mixed(name: str) -> Dataset:
    rng = np.random.default_rng(106)
    n = 600
    hidden = rng.standard_normal((n, 3))
    noise = 0.4 * rng.standard_normal((n, 8))
    age = np.clip(40 + 12 * (hidden[:, 0] + noise[:, 0]), 18, 90).round().astype(np.int64)
    income = np.exp(8 + 0.5 * hidden[:, 0] + 0.6 * hidden[:, 1] + 0.3 * noise[:, 1])
    debt = np.exp(7 + 0.8 * hidden[:, 1] - 0.3 * hidden[:, 2] + noise[:, 2])
    score = 600 + 60 * (hidden[:, 2] - 0.5 * hidden[:, 1] + noise[:, 3])
    visits = rng.poisson(np.exp(1 + 0.6 * hidden[:, 2]))
    owner = hidden[:, 0] + 0.5 * hidden[:, 1] + noise[:, 5] > 0
    city = np.array(["east", "north", "south", "west"])[
        (2 * (hidden[:, 1] + noise[:, 6] > 0) + (hidden[:, 2] > 0)).astype(int)
    ]
    grade = np.array(["high", "low", "middle"])[np.digitize(hidden[:, 2] + noise[:, 7], [-0.6, 0.6])]
    frame = pd.DataFrame(
        {
            "age": age,
            "income": income,
            "debt": debt,
            "score": score,
            "visits": visits,
            "owner": owner,
            "city": pd.Categorical(city),
            "grade": pd.Categorical(grade),
        }
    )
    return Dataset(name, frame, (hidden.sum(axis=1) + noise[:, 4] > 0).astype(int))


_SYNTHETIC: dict[str, Callable[[str], Dataset]] = {
    "gaussian": _gaussian,
    "mixture": _mixture,
    "low_rank": _low_rank,
    "nonlinear": _nonlinear,
    "heavy_tails": _heavy_tails,
    "mixed": _mixed,
}


def read_folder(folder: Path) -> list[Dataset]:
    """Return the tables of a folder of CSV files; a last column named ``target`` is what to predict."""
    found = []
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path).dropna()
        target = None
        if "target" in frame:
            target = frame.pop("target").to_numpy()
        for name in frame:
            if not _is_number(frame[name]):
                frame[name] = frame[name].astype("category")
        found.append(Dataset(path.stem, frame.reset_index(drop=True), target))
    return found
