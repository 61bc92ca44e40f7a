"""One cell: make gaps in a table, impute it by every method, and measure errors, intervals and time."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from airnp.sklearn import AIRImputer
from bench.tables.data import Dataset
from bench.tables.gaps import make_gaps
from bench.tables.peers import PEERS

OURS = "airnp"


def codes(frame: pd.DataFrame) -> np.ndarray:
    """Return a complete table as numbers, categories as their codes."""
    columns = [frame[name] for name in frame]
    return np.stack(
        [(c.cat.codes if hasattr(c, "cat") else c).to_numpy(dtype=float) for c in columns], axis=1
    )


def one_hot(frame: pd.DataFrame, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the table as the numeric peers see it, NaN in gaps, and the column that each part belongs to."""
    parts, owners = [], []
    for j, values in enumerate(codes(frame).T):
        column = frame.iloc[:, j]
        levels = range(len(column.cat.categories)) if hasattr(column, "cat") else [None]
        for level in levels:
            part = values if level is None else (values == level).astype(float)
            parts.append(np.where(observed[:, j], part, np.nan))
            owners.append(j)
    return np.stack(parts, axis=1), np.array(owners)


def with_gaps(frame: pd.DataFrame, observed: np.ndarray) -> pd.DataFrame:
    """Return a table with gaps, in dtypes that can hold them."""
    changed = frame.copy()
    for j, name in enumerate(frame):
        column = changed[name]
        if pd.api.types.is_bool_dtype(column):
            column = column.astype("boolean")
        elif pd.api.types.is_integer_dtype(column):
            column = column.astype(float)
        changed[name] = column.where(observed[:, j])
    return changed


def scores(filled: np.ndarray, dataset: Dataset, observed: np.ndarray) -> dict[str, float]:
    """Return NRMSE of numbers and the error rate of categories, from a table of codes (n, d)."""
    truth, number = codes(dataset.frame), dataset.is_numeric
    found = {}
    gaps = ~observed & number
    if gaps.any():
        scale = truth.std(axis=0) + 1e-12
        found["nrmse"] = float(np.sqrt((((filled - truth) / scale)[gaps] ** 2).mean()))
    gaps = ~observed & ~number
    if gaps.any():
        found["error"] = float((filled != truth)[gaps].mean())
    return found


def measure(
    dataset: Dataset, mechanism: str, rate: float, seed: int, methods: Sequence[str], threads: int | None
) -> dict[str, dict[str, Any]]:
    """Return what methods reach in one cell.

    ``seconds`` is the time that passes; ``work`` that of processors, also on a busy machine.
    """
    truth = codes(dataset.frame)
    observed = make_gaps(truth, rate, mechanism, seed)
    found: dict[str, dict[str, Any]] = {}
    table, owners = one_hot(dataset.frame, observed)
    for name in methods:
        if name == OURS:
            found[name] = _ours(dataset, observed, seed, threads)
            continue
        started = _now()
        parts = PEERS[name](table.copy(), seed)
        times = _since(started)
        filled = np.empty_like(truth)
        for j in range(truth.shape[1]):
            own = parts[:, owners == j]
            filled[:, j] = own[:, 0] if own.shape[1] == 1 else own.argmax(axis=1)
            if pd.api.types.is_bool_dtype(dataset.frame.iloc[:, j]):
                filled[:, j] = filled[:, j] > 0.5
        found[name] = {**scores(filled, dataset, observed), **times}
    return found


def _now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def _since(started: tuple[float, float]) -> dict[str, float]:
    seconds, work = _now()
    return {"seconds": seconds - started[0], "work": work - started[1]}


def _ours(dataset: Dataset, observed: np.ndarray, seed: int, threads: int | None) -> dict[str, Any]:
    table = with_gaps(dataset.frame, observed)
    imputer = AIRImputer(random_state=seed, threads=threads, identifiers=[])
    started = _now()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filled = imputer.fit_transform(table)
    times = _since(started)
    numbers = filled if isinstance(filled, np.ndarray) else codes(_as_given(filled, dataset.frame))
    found = {**scores(numbers, dataset, observed), **times}
    number = dataset.is_numeric
    if number.all():
        low, high = imputer.result_.interval(0.9)
        inside = (low <= codes(dataset.frame)) & (codes(dataset.frame) <= high)
        gaps = ~observed
        found["cover"] = float(inside[gaps].mean())
        found["inside"] = [[int(inside[g, j].sum()), int(g.sum())] for j, g in enumerate(gaps.T)]
    return found


def _as_given(filled: pd.DataFrame, frame: pd.DataFrame) -> pd.DataFrame:
    for name in filled:
        if hasattr(frame[name], "cat"):
            filled[name] = filled[name].astype(frame[name].dtype)
    return filled


def downstream(dataset: Dataset, observed: np.ndarray, seed: int, name: str) -> float:
    """Return the cross-validated accuracy of a classifier behind an imputer that only sees training rows."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    table, _ = one_hot(dataset.frame, observed)
    imputers = {
        OURS: lambda: AIRImputer(random_state=seed, identifiers=[]),
        "mean": SimpleImputer,
        "knn": lambda: make_pipeline(StandardScaler(), KNNImputer()),
        "iterative": lambda: IterativeImputer(random_state=seed),
    }
    pipeline = make_pipeline(imputers[name](), RandomForestClassifier(50, random_state=seed))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(cross_val_score(pipeline, table, dataset.target, cv=5).mean())
