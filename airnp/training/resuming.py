"""``airnp.resume``: go on with a fit that was interrupted."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp._arrays import Array, from_numpy, namespace_name, on_device, standard_namespace
from airnp._checks import checked_whole
from airnp.data.inputs import Observations, read
from airnp.engines import CPU, CUDA, select_engine
from airnp.model.factorization import explained_memory
from airnp.optimizers import resolve_optimizer
from airnp.regularizers import Regularizer
from airnp.results.files import assembled, is_sparse_form, naming_file, read_archive
from airnp.training.dense import DenseTask
from airnp.training.loop import Loop
from airnp.training.options import Callback, Checkpoint, Options, checked_callback, checked_checkpoint
from airnp.training.records import unpacked
from airnp.training.run import RunState
from airnp.training.sparse import SparseTask
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
    engine: CPU | CUDA | None = None,
    max_iter: int | None = None,
    checkpoint: str | PathLike[str] | Checkpoint | bool | None = True,
) -> Any:
    """Go on with a fit from its checkpoint, as if it had never been interrupted.

    The result is that of the uninterrupted fit, bit for bit, on the same machine. The file holds data and
    settings; what only its owner can make (the arguments up to ``callback``) must be given again, as it was
    given to :func:`airnp.fit`, and only then. Only a ``callback`` may be a new one.

    Parameters
    ----------
    path : path
        What ``fit``, ``fit_sparse`` or ``fit_ratings`` was given as ``checkpoint``. A run that has ended
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
        If it is of a class of your own, and a sparse fit may have to start from there a second time.
    callback : callable, optional
        If the run had one; also another, or a first one. Records that were made after the checkpoint are
        made, and told, once more.
    progress : bool
        Show a progress bar.
    engine : CPU or CUDA, optional
        Other settings of the run's engine. Default: as the run had. Another number of threads may round
        differently.
    max_iter : int, optional
        More iterations than the run was meant to have. The result is that of a fit which had this
        ``max_iter`` from the start. A run that has gone on to its second phase (see :class:`HeldOut`) because
        its iterations were used up cannot have more.
    checkpoint : path, Checkpoint, True or None
        Where to save from now on; True is ``path`` itself, as often as before; None nowhere.

    Returns
    -------
    FitResult
        A :class:`SparseFitResult` for a run of ``fit_sparse`` or ``fit_ratings``.

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
    >>> from pathlib import Path
    >>> import airnp
    >>> Y = np.random.default_rng(0).random((8, 6))
    >>> file = Path(tempfile.mkdtemp()) / "run.npz"
    >>> half = airnp.fit(Y, max_iter=500, stop=None, seed=0, checkpoint=file)
    >>> whole = airnp.resume(file, max_iter=1000)
    >>> bool((whole.X == airnp.fit(Y, max_iter=1000, stop=None, seed=0).X).all())
    True
    """
    checked_callback(callback)
    name = os.fsdecode(path)
    with open(path, "rb") as file, naming_file(path):
        header, arrays = read_archive(file)
        run = header.get("run")
        result = None if run is None else assembled(header, arrays)
    if run is None or result is None:
        raise ValueError(f"{name}: holds a result, but no run to go on with; see checkpoint= of airnp.fit")
    most = run["max_iter"] if max_iter is None else checked_whole("max_iter", max_iter)
    _check_limit(most, run)
    saves = checkpoint if isinstance(checkpoint, bool) else checked_checkpoint(checkpoint)
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
        with naming_file(path):
            parts = _unpacked(run, arrays, place)
        del arrays
        asked = {key: parts["asked"].get(key, value) for key, value in asked.items()}
        said = parts["options"]
        chosen = select_engine(said["engine"] if engine is None else engine, place.xp)
        options = Options.restore(
            said,
            name,
            saves,
            max_iter=most,
            init=asked["init"],
            optimizer=resolve_optimizer(asked["optimizer"], 0.0),
            engine=chosen,
            callback=callback,
            progress=progress,
        )
        rule, state = resolve_stop(asked["stop"]), RunState(**parts["state"])
        stored = {**parts["stored"], "regularizers": asked["regularizers"], "operator": operator}
        if is_sparse_form(header):
            sparse = SparseTask.restore(stored, chosen, place.xp)
            return Loop(sparse, rule, options, (state, result)).run()
        dense = DenseTask.restore(stored, place, chosen, result.labels)
        with explained_memory(*dense.sizes):
            return Loop(dense, rule, options, (state, result)).run()


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
    """Return what a file says of a run, with arrays where the fit lives."""

    def placed(array: npt.NDArray[Any]) -> Array:
        return from_numpy(array, place.xp, place.device, array.dtype.name)

    task = run["task"]
    parts = {"asked": {"dict": task["asked"]}, "stored": task["stored"], "options": task["options"]}
    found: dict[str, Any] = unpacked({"dict": {**parts, "state": run["state"]}}, arrays, placed)
    return found
