"""What a fit gives back, from where it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import to_numpy
from airnp.confidence.calibration import Calibration, calibration
from airnp.history import History
from airnp.objective import Objective
from airnp.prepared import PreparedData
from airnp.result import FitResult
from airnp.running.fitted import fitted_regularizers
from airnp.running.rival import Rival
from airnp.stopping.monitors import Choice, Monitor


def answer(
    data: PreparedData,
    objective: Objective,
    monitor: Monitor,
    rival: Rival,
    last: Choice,
    history: History,
    *,
    held_out: npt.NDArray[np.bool_] | None,
    n_iter: int,
    reason: str,
    seed: int,
) -> FitResult:
    """Return the result of a fit.

    Parameters
    ----------
    data : PreparedData
    objective : Objective
        Of this phase.
    monitor : Monitor
        Of this phase; it chooses the iterate.
    rival : Rival
    last : Choice
        Where the fit is.
    history : History
        Up to there.
    held_out : ndarray of bool (…, m, n), optional
        Entries that the first phase did not see.
    n_iter : int
    reason : str
        Why the fit ended.
    seed : int
    """
    chosen = rival.put_into(monitor.choice(last))
    params = chosen.params
    return FitResult(
        matrix=data.restored(objective.matrix(params)),
        factors=list(params[: objective.depth]),
        regularizers=fitted_regularizers(objective, params),
        history=history,
        n_iter=n_iter,
        best_iter=_whole(chosen.iteration),
        stop_reason=reason,
        seed=seed,
        normalization=data.normalization,
        mask=None if data.original is None else data.observations.mask,
        observed=data.original,
        labels=data.observations.labels,
        calibration=_calibration(data, objective, monitor, rival, held_out),
        bounds=data.bounds,
    )


def _calibration(
    data: PreparedData,
    objective: Objective,
    monitor: Monitor,
    rival: Rival,
    held_out: npt.NDArray[np.bool_] | None,
) -> Calibration | None:
    """Return the held-out entries beside what was predicted before anything saw them."""
    if data.original is None or held_out is None:
        return None
    folds = []
    unseeing = monitor.unseeing()
    if unseeing is not None:
        predicted = to_numpy(objective.matrix(unseeing.params))
        folds.append((held_out & ~rival.replaced[..., None, None], predicted))
    folds += rival.left_out()
    return calibration(data.original, folds, data.normalization, data.bounds)


def _whole(iteration: npt.NDArray[np.int64]) -> Any:
    return int(iteration) if iteration.ndim == 0 else iteration
