"""The protocol that HyperImpute and ReMasker are measured by, on any folder of CSV files.

Columns are scaled to [0, 1]. Entries are missing by MAR, MCAR or MNAR at a rate of 0.3, three times. Reported
are the root mean squared error of gaps, the Wasserstein distance between the imputed and the complete table
(mean over columns), and the AUROC of a classifier that is trained on the imputed table, by cross-validation.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import wasserstein_distance

from airnp.sklearn import AIRImputer
from bench.tables.data import Dataset, read_folder
from bench.tables.gaps import make_gaps
from bench.tables.measure import OURS, codes
from bench.tables.peers import PEERS

RATE, REPEATS = 0.3, 3


def run(folder: Path, peers: tuple[str, ...], mechanisms: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return one record for each table, mechanism, repeat and method."""
    records = []
    for dataset in read_folder(folder):
        for mechanism in mechanisms:
            for repeat in range(REPEATS):
                records += measure(dataset, mechanism, repeat, peers)
    return records


def measure(dataset: Dataset, mechanism: str, seed: int, peers: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return the records of one mask."""
    truth = codes(dataset.frame)
    low, high = truth.min(axis=0), truth.max(axis=0)
    truth = (truth - low) / np.where(high > low, high - low, 1)
    observed = make_gaps(truth, RATE, mechanism, seed)
    table = np.where(observed, truth, np.nan)
    found = []
    for name in (OURS, *peers):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if name == OURS:
                filled = AIRImputer(random_state=seed, identifiers=[]).fit_transform(table)
            else:
                filled = PEERS[name](table.copy(), seed)
        errors = (filled - truth)[~observed]
        distances = [wasserstein_distance(a, b) for a, b in zip(filled.T, truth.T, strict=True)]
        record = {"table": dataset.name, "mechanism": mechanism, "seed": seed, "method": name}
        record |= {"rmse": float(np.sqrt((errors**2).mean())), "wasserstein": float(np.mean(distances))}
        if dataset.target is not None:
            record["auroc"] = _auroc(filled, dataset.target, seed)
        found.append(record)
    return found


def _auroc(filled: np.ndarray, target: np.ndarray, seed: int) -> float:
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = len(np.unique(target))
    scoring = "roc_auc" if classes == 2 else "roc_auc_ovr"
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000))
    return float(cross_val_score(model, filled, target, cv=5, scoring=scoring).mean())


def table_of(records: list[dict[str, Any]]) -> str:
    """Return the means over tables and repeats, by mechanism and method."""
    lines = [f"{'':6} {'method':12} {'RMSE':>8} {'Wasserst.':>9} {'AUROC':>7}"]
    for mechanism in dict.fromkeys(record["mechanism"] for record in records):
        for method in dict.fromkeys(record["method"] for record in records):
            own = [r for r in records if r["mechanism"] == mechanism and r["method"] == method]
            means = [
                np.mean([r[key] for r in own if key in r] or [np.nan])
                for key in ("rmse", "wasserstein", "auroc")
            ]
            lines.append(f"{mechanism:6} {method:12} {means[0]:8.4f} {means[1]:9.4f} {means[2]:7.3f}")
    return "\n".join(lines)
