"""Other programs for tables of ratings, each used as in its documentation, with all threads if it can."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from bench.ratings.data import Table
from bench.ratings.grids import Grid
from bench.ratings.models import Model, Settings, Watch, offsets_only


def threads() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0))


def cmfrec_als(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """cmfrec's explicit-feedback model with biases, by alternating least squares."""
    import cmfrec
    from scipy.sparse import coo_matrix

    model = cmfrec.CMF(
        method="als",
        k=settings["rank"],
        lambda_=settings["decay"],
        scale_lam=settings["scaled"],
        niter=settings["rounds"],
        add_implicit_features=settings["implicit"],
        nthreads=threads(),
        random_state=seed + 1,
        verbose=False,
    )
    train = table.train
    model.fit(coo_matrix((train.values, (train.rows, train.columns)), shape=table.shape))
    return np.asarray(model.predict(table.test.rows, table.test.columns))


def _surprise(table: Table, algorithm: Any) -> np.ndarray:
    import pandas as pd
    from surprise import Dataset, Reader

    train = table.train
    frame = pd.DataFrame({"user": train.rows, "item": train.columns, "rating": train.values})
    data = Dataset.load_from_df(frame, Reader(rating_scale=table.bounds)).build_full_trainset()
    algorithm.fit(data)
    pairs = zip(table.test.rows.tolist(), table.test.columns.tolist(), strict=True)
    return np.array([algorithm.predict(user, item).est for user, item in pairs])


def surprise_svd(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Surprise's SVD: biased factors by stochastic gradient descent."""
    from surprise import SVD

    options = {"n_factors": settings["rank"], "n_epochs": settings["rounds"], "random_state": seed}
    return _surprise(table, SVD(lr_all=settings["rate"], reg_all=settings["decay"], **options))


def surprise_svdpp(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Surprise's SVD++: SVD that also uses which films a user rated."""
    from surprise import SVDpp

    options = {"n_factors": settings["rank"], "n_epochs": settings["rounds"], "random_state": seed}
    return _surprise(
        table, SVDpp(lr_all=settings["rate"], reg_all=settings["decay"], cache_ratings=True, **options)
    )


def surprise_knn(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """Surprise's KNNBaseline: neighbours by shrunk correlation around the offsets."""
    from surprise import KNNBaseline

    similarity = {"name": "pearson_baseline", "user_based": False, "shrinkage": settings["shrinkage"]}
    return _surprise(table, KNNBaseline(k=settings["neighbors"], sim_options=similarity, verbose=False))


def lenskit_als(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """LensKit's biased factors by alternating least squares; films without ratings get offsets only."""
    import pandas as pd
    from lenskit.als import BiasedMFScorer
    from lenskit.basic import BiasScorer
    from lenskit.data import ItemList, from_interactions_df
    from lenskit.training import TrainingOptions

    train, test = table.train, table.test
    frame = pd.DataFrame({"user_id": train.rows, "item_id": train.columns, "rating": train.values})
    data = from_interactions_df(frame)
    sizes = {"embedding_size": settings["rank"], "epochs": settings["rounds"]}
    model = BiasedMFScorer(**sizes, regularization=settings["decay"], damping=settings["damping"])
    offsets = BiasScorer(damping=settings["damping"])
    for part in (model, offsets):
        part.train(data, TrainingOptions(rng=seed))
    found = np.empty(len(test))
    for user in np.unique(test.rows):
        asked = np.flatnonzero(test.rows == user)
        films = ItemList(item_ids=test.columns[asked])
        scores, plain = (np.asarray(part(int(user), films).scores()) for part in (model, offsets))
        found[asked] = np.where(np.isnan(scores), plain, scores)
    return found


def _offsets_everywhere(table: Table) -> np.ndarray:
    from dataclasses import replace

    rows, columns = (grid.ravel() for grid in np.indices(table.shape))
    everywhere = replace(table.test, rows=rows, columns=columns, values=np.zeros(len(rows)))
    found = offsets_only(replace(table, test=everywhere), {"shrinkage": 5.0}, 0, None)
    return np.clip(found, *table.bounds).reshape(table.shape)


def sklearn_nmf(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """scikit-learn's NMF, which needs all entries: gaps hold offsets first, then its own predictions."""
    import warnings

    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    values, mask = table.dense()
    filled = np.where(mask, values, _offsets_everywhere(table))
    for _ in range(settings["rounds"]):
        model = NMF(settings["rank"], init="nndsvda", random_state=seed, max_iter=60, solver="cd")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = model.fit_transform(filled) @ model.components_
        filled = np.where(mask, values, np.clip(found, *table.bounds))
    return found[table.test.rows, table.test.columns]


def soft_impute(table: Table, settings: Settings, seed: int, watch: Watch | None) -> np.ndarray:
    """``airnp.baselines.soft_impute`` of the residuals of the offsets."""
    from airnp.baselines import soft_impute as solve

    values, mask = table.dense()
    offsets = _offsets_everywhere(table)
    found = solve(
        np.where(mask, values - offsets, 0), mask, shrinkage=settings["shrinkage"], max_iter=25, tol=1e-3
    )
    return (offsets + found)[table.test.rows, table.test.columns]


_ALS: Grid = {
    "rank": (40, 100),
    "decay": (7.0, 10.0, 14.0, 20.0),
    "scaled": (False,),
    "rounds": (10, 30),
    "implicit": (False,),
}
_SVDPP: Grid = {"rank": (20,), "rounds": (50, 90), "rate": (0.007,), "decay": (0.08, 0.1, 0.13)}
_LENSKIT: Grid = {"rank": (50, 100), "rounds": (10, 30), "decay": (0.07, 0.1, 0.14, 0.2), "damping": (5.0,)}
PEERS = {
    "cmfrec": Model("cmfrec 'als'", cmfrec_als, {"ratings": _ALS}, needs="cmfrec"),
    "cmfrec_implicit": Model(
        "cmfrec 'als' with implicit features",
        cmfrec_als,
        {"ratings": _ALS | {"implicit": (True,)}},
        needs="cmfrec",
    ),
    "surprise_svd": Model(
        "Surprise SVD",
        surprise_svd,
        {"ratings": {"rank": (100,), "rounds": (40, 80), "rate": (0.005, 0.01), "decay": (0.06, 0.1, 0.15)}},
        needs="surprise",
    ),
    "surprise_svdpp": Model(
        "Surprise SVD++",
        surprise_svdpp,
        {"ratings": _SVDPP, "scarce": _SVDPP | {"rounds": (20, 50), "decay": (0.1, 0.2)}},
        needs="surprise",
        most_seeds=3,
    ),
    "surprise_knn": Model(
        "Surprise KNNBaseline (films)",
        surprise_knn,
        {"ratings": {"neighbors": (30, 60, 120), "shrinkage": (100, 300, 900)}},
        has_seed=False,
        needs="surprise",
    ),
    "lenskit": Model(
        "LensKit BiasedMFScorer",
        lenskit_als,
        {"ratings": _LENSKIT},
        needs="lenskit",
    ),
    "nmf": Model(
        "scikit-learn NMF, gaps filled by offsets, then by itself",
        sklearn_nmf,
        {"ratings": {"rank": (5, 10, 20), "rounds": (3, 8, 16)}},
        has_seed=False,
        needs="sklearn",
    ),
    "soft_impute": Model(
        "SoftImpute (`airnp.baselines`) on what the offsets leave",
        soft_impute,
        {"ratings": {"shrinkage": (8.0, 12.0, 16.0)}},
        has_seed=False,
    ),
}
"""Without implicit, which predicts who rates what, not ratings (see ``used``), and without fancyimpute's
SoftImpute (0.7), which calls scikit-learn with an argument that scikit-learn 1.8 does not have."""
