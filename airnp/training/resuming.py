"""``airnp.resume``: go on with a fit that was interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, from_numpy, namespace_name, on_device, standard_namespace
from airnp._checks import checked_whole
from airnp.data.inputs import Labels, Observations, read
from airnp.data.linearmaps import measurement_operator
from airnp.data.normalization import Normalization
from airnp.data.prepared import PreparedData
from airnp.engines.threads import checked_threads
from airnp.model.factorization import explained_memory
from airnp.model.objective import Model
from airnp.optimizers import resolve_optimizer
from airnp.regularizers import Regularizer
from airnp.results.files import assembled, is_sparse_form, read_archive, understood
from airnp.results.result import FitResult
from airnp.training.checkpoints import RunState, checked_file
from airnp.training.loop import Loop
from airnp.training.options import Callback, Options, checked_callback, checked_seconds
from airnp.training.records import unpacked
from airnp.training.stopping import resolve_stop


def resume(
    path: str | PathLike[str],
    *,
    xp: Any = None,
    device: Any = None,
    operator: Any = None,
    regularizers: Sequence[Regularizer] | None = None,
    stop: Any = None,
    optimizer: Any = None,
    init: Any = None,
    callback: Callback | None = None,
    progress: bool = False,
    threads: int | None = None,
    max_iter: int | None = None,
    checkpoint: str | PathLike[str] | bool | None = True,
    checkpoint_every: float | None = None,
) -> FitResult:
    """Go on with a fit from its checkpoint, as if it had never been interrupted.

    The result is that of the uninterrupted fit, bit for bit, on the same machine. The file holds data and
    settings; what only its owner can make (the first eight arguments) must be given again, as it was given
    to :func:`airnp.fit`, and only then. Only a ``callback`` may be a new one.

    Parameters
    ----------
    path : path
        What :func:`airnp.fit` or :func:`airnp.fit_ratings` was given as ``checkpoint``. A run that has ended
        is returned at once.
    xp : module, optional
        Array namespace of the run, if it was not NumPy.
    device : int or device, optional
        Where in that namespace.
    operator : optional
        If the data are measurements by an operator.
    regularizers : list of Regularizer, optional
        All of them, if one is of a class of your own or has a transform of your own.
    stop : StopRule, optional
        If it is of a class of your own. Its monitor must name what it remembers; see
        ``airnp.training.monitors.Monitor.remembered``.
    optimizer : optional
        If it is of a class of your own, or has a schedule of your own.
    init : optional
        If it is of a class of your own, and the sparse form may have to start from there a second time.
    callback : callable, optional
        If the run had one; also another, or a first one. Records that were made after the checkpoint are
        made, and told, once more.
    progress : bool
        Show a progress bar.
    threads : int, optional
        Default: as many as the run had. Another number may round differently.
    max_iter : int, optional
        More iterations than the run was meant to have. The result is that of a fit which had this
        ``max_iter`` from the start. A run that has gone on to its second phase (see :class:`HeldOut`) because
        its iterations were used up cannot have more.
    checkpoint : path, True or None
        Where to save from now on; True is ``path`` itself, None nowhere.
    checkpoint_every : float, optional
        Seconds between two checkpoints. Default: as before.

    Returns
    -------
    FitResult
        A :class:`SparseFitResult` for a run of the sparse form.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, PermissionError
        When there is no such file to read.
    ValueError
        When the file is damaged or holds no run; when something must be given again and was not, or was
        given and must not.

    Examples
    --------
    >>> import tempfile
    >>> import airnp
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> file = Path(tempfile.mkdtemp()) / "run.npz"
    >>> half = airnp.fit(Y, max_iter=500, stop=None, seed=0, checkpoint=file)
    >>> whole = airnp.resume(file, max_iter=1000)
    >>> bool((whole.X == airnp.fit(Y, max_iter=1000, stop=None, seed=0).X).all())
    True
    """
    given: dict[str, Any] = {
        "callback": checked_callback(callback),
        "progress": progress,
        "file": _file(path, checkpoint),
    }
    if threads is not None:
        given["threads"] = checked_threads(threads)
    if checkpoint_every is not None:
        given["file_every"] = checked_seconds(checkpoint_every)
    with open(path, "rb") as file, understood(path):
        header, arrays = read_archive(file)
        run = header.get("run")
        result = None if run is None else assembled(header, arrays)
    name = os.fsdecode(path)
    if run is None or result is None:
        raise ValueError(f"{name}: holds a result, but no run to go on with; see checkpoint= of airnp.fit")
    most = run["max_iter"] if max_iter is None else checked_whole("max_iter", max_iter)
    _check_limit(most, run)
    is_over = run["state"] is None and run["obstacle"] is None
    if run["finished"] and (most == run["max_iter"] or is_over):
        return result
    if run["obstacle"] is not None:
        raise ValueError(f"{name}: the run cannot be resumed ({run['obstacle']})")
    task = run["task"]
    asked = {"regularizers": regularizers, "stop": stop, "optimizer": optimizer, "init": init}
    _check_given({"operator": operator, "callback": callback, **asked}, run["given"])
    _check_namespace(xp, task["namespace"])

    # A matrix of no importance: reading it checks what is meant by the namespace and the device.
    place = read(np.zeros((1, 1)), xp=xp, device=device, dtype=task["dtype"])
    with on_device(place.xp, place.device):
        with understood(path):
            parts = _unpacked(run, arrays, place)
        del arrays
        asked = {key: parts["asked"].get(key, value) for key, value in asked.items()}
        asked["optimizer"] = resolve_optimizer(asked["optimizer"], 0.0)
        asked["stop"] = resolve_stop(asked["stop"])
        parts["plain"]["options"] |= {"max_iter": most, **given}
        if is_sparse_form(header):
            from airnp.training.sparse_resuming import resumed_sparse

            # What was saved, and what a caller gets who asked for this form.
            return resumed_sparse(parts, asked, result, place)  # type: ignore[return-value,arg-type]
        return _resumed_dense(parts, asked, result, place, operator)


def _resumed_dense(
    parts: dict[str, Any], asked: dict[str, Any], result: FitResult, place: Observations, operator: Any
) -> FitResult:
    """Go on with a run of the dense form."""
    plain, state = parts["plain"], RunState(**parts["state"])
    data = _data(plain, place, operator, result.labels)
    model = Model(asked["regularizers"], **plain["model"])
    options = Options(
        **plain["options"],
        init=None,  # the run has left it behind
        optimizer=asked["optimizer"],
        truth=plain["truth"],
    )
    with explained_memory(state.replaced.shape, *data.shape, model.depth, model.rank, place.dtype):
        return Loop(data, model, asked["stop"], options, (state, result.history)).run()


def _check_limit(most: int, run: dict[str, Any]) -> None:
    """Raise unless a run may have so many iterations in all."""
    before = run["max_iter"]
    if most < before:
        raise ValueError(f"max_iter: expected at least the {before} that the run was to have, got {most}")
    second = run["finished"] and run["state"] is None and run["obstacle"] is None
    if not run["finished"] and run["state"] is not None:
        second = run["state"]["dict"]["chosen"] is not None
    if most > before and run["used_up"] and second:
        raise ValueError(
            f"max_iter: the run has used its {before} iterations up and gone on with the entries that were "
            f"held out; it cannot have more, got {most}"
        )


def _check_given(values: dict[str, Any], needed: dict[str, str]) -> None:
    """Raise unless exactly what a file cannot hold was given again."""
    for name, value in values.items():
        if value is None and name in needed:
            raise ValueError(f"{name}: the run had {needed[name]}, which a file cannot hold; give it again")
        if value is not None and name not in needed and name != "callback":
            raise ValueError(f"{name}: expected None, the run had none or the file holds it; got {value!r}")


def _check_namespace(xp: Any, stored: str) -> None:
    if xp is None and stored != "numpy":
        raise ValueError(
            f"xp: the run had arrays of {stored}, which a file cannot hold; give the module again"
        )
    if xp is not None and namespace_name(standard_namespace(xp)) != stored:
        raise ValueError(f"xp: the run had arrays of {stored}, got {xp.__name__}")


def _unpacked(
    run: dict[str, Any], arrays: dict[str, npt.NDArray[Any]], place: Observations
) -> dict[str, Any]:
    """Return what a file says of a run (``asked``, ``plain``, ``state``), with arrays where the fit lives."""

    def placed(array: npt.NDArray[Any]) -> Array:
        return from_numpy(array, place.xp, place.device, array.dtype.name)

    packed = {"dict": {"asked": {"dict": run["task"]["asked"]}, "plain": run["task"]["plain"]}}
    packed["dict"]["state"] = run["state"]
    parts: dict[str, Any] = unpacked(packed, arrays, placed)
    return parts


def _data(plain: dict[str, Any], place: Observations, operator: Any, labels: Labels | None) -> PreparedData:
    entries = {name: plain[name] for name in ("values", "mask", "weights")}
    observations = replace(place, **entries, labels=labels)
    bound, shape = None, plain["shape"]
    if operator is not None:
        bound, shape = measurement_operator(operator, observations.values, shape, place.xp)
    way_back = Normalization(plain["offset"], plain["scale"])
    return PreparedData(observations, way_back, bound, shape, plain["original"], plain["bounds"])


def _file(path: str | PathLike[str], checkpoint: Any) -> Path | None:
    if checkpoint is None or checkpoint is False:
        return None
    return checked_file(os.fsdecode(path) if checkpoint is True else checkpoint)
