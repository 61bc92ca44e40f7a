"""``airnp.fit``: complete a matrix."""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from airnp import metrics, normalization
from airnp._arrays import Array, on_device, to_numpy
from airnp._checks import checked_whole
from airnp.engines.contract import NO_MEMORY, Precision
from airnp.engines.threads import checked_threads
from airnp.fidelity import FidelityScale, Loss
from airnp.history import History, energy_columns
from airnp.inputs import Observations, read
from airnp.linearmaps import check_shape_of_entries, measurement_operator
from airnp.memory_errors import explained_memory
from airnp.normalization import Normalization
from airnp.objective import Objective
from airnp.optimizers import resolve_optimizer
from airnp.progress import ProgressBar
from airnp.regularizers import Regularizer
from airnp.result import DivergenceError, FitResult, FittedRegularizer
from airnp.state import FitState
from airnp.stopping import Choice, Monitor, resolve_stop
from airnp.training import Training
from airnp.transforms import Transform

Callback = Callable[[int, FitState], Any]

_WHOLE_EVERY = 50
"""Iterations at most that run in one go; what an interrupt or a divergence may cost."""

_CHECKPOINT_SECONDS = 30.0


def fit(
    Y: Any,
    mask: Any = None,
    *,
    xp: Any = None,
    device: Any = None,
    regularizers: Sequence[Regularizer] | None = None,
    operator: Any = None,
    shape: tuple[int, int] | None = None,
    weights: Any = None,
    fidelity: FidelityScale = "mean",
    loss: Loss = "squared",
    huber_delta: float = 0.1,
    depth: int = 3,
    rank: int | None = None,
    max_iter: int = 40_000,
    stop: Any = "auto",
    optimizer: Any = "adam",
    learning_rate: float = 1e-3,
    init: Any = "gaussian",
    seed: int | None = None,
    dtype: Any = None,
    normalize: bool = True,
    engine: str = "auto",
    threads: int | None = None,
    precision: Precision | None = None,
    truth: Any = None,
    callback: Callback | None = None,
    progress: bool = False,
    record_every: int = 10,
    checkpoint: str | PathLike[str] | None = None,
) -> FitResult:
    r"""Complete a matrix, or every matrix of a stack.

    Minimises :math:`F(X) + \sum_i λ_i R_i(T_i(X))` over the factors of :math:`X = W[L-1] \cdots W[0]` and
    over the learned graphs, by closed-form gradients.

    Parameters
    ----------
    Y : array-like (…, m, n)
        The data. An array of NumPy, CuPy, PyTorch or another array-API namespace; a ``numpy.ma`` array; a
        scipy.sparse matrix, whose stored entries are the observed ones; a pandas DataFrame, whose labels
        come back on the result; or nested lists. A stack is a batch of independent problems. With
        ``operator``, the measurements, of any shape.
    mask : array-like, optional
        True or 1 where observed; the shape of Y or of one matrix. Without it, NaN means missing.
    xp : module, optional
        Array namespace to compute in, such as ``cupy``; NumPy data is moved there. Default: that of Y.
    device : int or device, optional
        Where in that namespace: the number of a CUDA device for CuPy. Fits in several Python threads may
        use a device each. Default: the current one, or that of Y.
    regularizers : list of Regularizer, optional
        Default: AIR, a learned graph over the rows and one over the columns. ``[]`` is plain deep matrix
        factorisation.
    operator : LinearOperator or object with ``forward`` and ``adjoint``, optional
        Y = A(X): a scipy.sparse.linalg.LinearOperator acts on X.ravel().
    shape : (m, n), optional
        Shape of X, where ``operator`` does not tell.
    weights : array-like, optional
        Non-negative weight of each entry in the fidelity; zero is missing.
    fidelity : {"mean", "sum"}
        Scale s of the fidelity: 2/(m·n), or 1.
    loss : {"squared", "huber"}
        Huber bounds the pull of outliers.
    huber_delta : float
        Error beyond which Huber's loss grows linearly, as a share of the data's range.
    depth : int
        Number of factors.
    rank : int, optional
        Inner dimension of the factors. Default min(m, n): none needs to be known.
    max_iter : int
        Iterations at most.
    stop : "auto", None, or StopRule
        ``"auto"`` holds out some observed entries and returns the iterate that predicts them best;
        ``None`` runs ``max_iter`` iterations and returns the last.
    optimizer : {"adam", "gradient_descent"} or Adam, GradientDescent
    learning_rate : float
        For an optimiser given by name.
    init : {"gaussian", "balanced"}, Gaussian, Balanced, or list of arrays
        Where to start. Arrays (factors, or factors and graphs, in normalised units) are a warm start.
    seed : int, optional
        The same seed gives the same answer, bit for bit, on the same machine. Default: a new one, kept in
        ``result.seed``.
    dtype : dtype, optional
        float32 or float64. Default: that of Y; booleans, 8- and 16-bit integers become float32, wider
        integers float64.
    normalize : bool
        Bring the data to [0, 1] inside, and the answer back; then data of any scale and offset has the
        same relative answer.
    engine : {"auto", "cpu", "cuda", "reference"}
        What carries out the operations. ``"auto"`` is the fastest there is for the namespace: ``"cpu"``
        (numba and BLAS) for NumPy, ``"cuda"`` (fused kernels and cuBLAS) for CuPy. ``"reference"`` is the
        specification, for every namespace.
    threads : int, optional
        Threads that the CPU engine may use. Default: one for each processor, or fewer if ``OMP_NUM_THREADS``,
        ``OPENBLAS_NUM_THREADS`` or ``NUMBA_NUM_THREADS`` say so.
    precision : {"tf32"}, optional
        Let the CUDA engine multiply float32 matrices by TF32 tensor cores, which keep 10 bits of a
        significand: faster on large matrices, coarser. Default: full float32.
    truth : array-like (…, m, n), optional
        The complete matrix, to record the NMAE on missing entries in ``history``. Only to look at:
        nothing is decided by it.
    callback : callable, optional
        ``callback(iteration, state)`` at each record, ``state`` being a :class:`FitState`; a true answer
        stops the fit.
    progress : bool
        Show a progress bar.
    record_every : int
        Iterations between two records: the first is recorded, every multiple of this, and the last. Only to
        look at: the answer does not depend on it.
    checkpoint : path, optional
        Save the result so far to this file every 30 seconds and at the end, atomically;
        :func:`airnp.load` reads it.

    Returns
    -------
    FitResult
        After ``KeyboardInterrupt``, the result so far.

    Raises
    ------
    ValueError, TypeError
        For input that cannot be meant; the message names the argument.
    DivergenceError
        When the loss is no longer finite; it carries the last finite state.

    Warns
    -----
    EmptyLineWarning
        When a row or column has no observed entry at all.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((30, 2)) @ rng.random((2, 20))
    >>> mask = rng.random(truth.shape) < 0.7
    >>> result = fit(truth, mask, regularizers=[], max_iter=3000, seed=0)
    >>> bool(np.abs(result.X - truth)[~mask].mean() < 0.01)
    True
    """
    max_iter = checked_whole("max_iter", max_iter)
    record_every = checked_whole("record_every", record_every)
    rule = resolve_stop(stop)
    method = resolve_optimizer(optimizer, learning_rate)
    seed = _checked_seed(seed)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function of (iteration, state), got {type(callback).__name__}")
    options = _Options(
        max_iter=max_iter,
        record_every=record_every,
        seed=seed,
        init=init,
        optimizer=method,
        threads=checked_threads(threads),
        precision=_checked_precision(precision),
        truth=truth,
        callback=callback,
        progress=progress,
        file=None if checkpoint is None else _checked_path(checkpoint),
    )
    data = _prepare(Y, mask, weights, xp, device, dtype, operator, shape, normalize)
    seen = data.observations
    batch = tuple(seen.values.shape[:-2]) if data.operator is None else ()
    sizes = (batch, *data.shape, checked_whole("depth", depth), rank, seen.dtype)
    with on_device(seen.xp, seen.device), explained_memory(*sizes):
        monitor = rule.begin(data.observations, data.operator, seed)
        objective = Objective.from_observations(
            _without(data.observations, monitor.held_out),
            regularizers=regularizers,
            depth=depth,
            rank=rank,
            operator=data.operator,
            shape=data.shape,
            fidelity=fidelity,
            loss=loss,
            huber_delta=huber_delta,
            engine=engine,
        )
        _check_precision_for(objective, options.precision)
        return _complete(data, objective, monitor, options)


@dataclass(frozen=True)
class _Options:
    """How to go about it, checked."""

    max_iter: int
    record_every: int
    seed: int
    init: Any
    optimizer: Any
    threads: int
    precision: Precision | None
    truth: Any
    callback: Callback | None
    progress: bool
    file: Path | None


def _complete(data: _Data, objective: Objective, monitor: Monitor, options: _Options) -> FitResult:
    """Make iterations until a rule, the callback, the user or ``max_iter`` ends them."""
    max_iter, record_every, callback, file = (
        options.max_iter,
        options.record_every,
        options.callback,
        options.file,
    )
    watcher = _Watcher(objective, data, options.truth)
    training = Training(
        objective,
        options.optimizer,
        objective.init(options.seed, options.init),
        threads=options.threads,
        precision=options.precision,
    )

    def result_so_far(reason: str) -> FitResult:
        watcher.history.truncate(training.iteration)
        return _result(objective, data, training, monitor, watcher.history, reason, options.seed)

    reason = f"max_iter ({max_iter}) reached"
    saved = time.monotonic()
    try:
        with ProgressBar(max_iter, options.progress) as bar:
            for iterations in _portions(max_iter, record_every, monitor.every):
                values = training.advance(iterations)
                if not np.isfinite(values).all():
                    raise _diverged(training, _finite_iterations(training, values), result_so_far)
                state = watcher.state(training, values)
                last = training.iteration == max_iter
                look = last or _due(training.iteration, monitor.every)
                stopped = monitor.check(state) if look else None
                if last or stopped or training.iteration == 1 or _due(training.iteration, record_every):
                    watcher.record(state)
                    bar.show(state)
                    if callback is not None and callback(training.iteration, state) and stopped is None:
                        if not look:
                            monitor.check(state)  # the last iterate may be the best one
                        stopped = "stopped by callback"
                if stopped is not None:
                    reason = stopped
                    break
                if file is not None and time.monotonic() - saved > _CHECKPOINT_SECONDS:
                    _save_checkpoint(training, result_so_far, file)
                    saved = time.monotonic()
        if not training.is_finite():
            raise _diverged(training, training.iteration, result_so_far)
    except KeyboardInterrupt:
        # An iteration may have been cut in half.
        training.rewind()
        if not training.is_finite():
            training.fall_back()
        reason = "interrupted"
    training.release()
    result = result_so_far(reason)
    if file is not None:
        _save(result, file)
    return result


@dataclass(frozen=True)
class _Data:
    """What was read: the observations as the mathematics sees them, and the way back."""

    observations: Observations
    normalization: Normalization
    operator: Transform | None
    shape: tuple[int, int]
    original: Array | None


def _prepare(
    Y: Any,
    mask: Any,
    weights: Any,
    xp: Any,
    device: Any,
    dtype: Any,
    operator: Any,
    shape: Any,
    normalize: bool,
) -> _Data:
    if not isinstance(normalize, bool | np.bool_):
        raise TypeError(f"normalize: expected True or False, got {normalize!r}")
    observations = read(Y, mask, weights, xp=xp, device=device, dtype=dtype, matrices=operator is None)
    with on_device(observations.xp, observations.device):
        return _normalized(observations, operator, shape, normalize)


def _normalized(observations: Observations, operator: Any, shape: Any, normalize: bool) -> _Data:
    """Return the observations in the units that are fitted, and the way back."""
    if operator is None:
        batch, size = tuple(observations.values.shape[:-2]), tuple(observations.values.shape[-2:])
        check_shape_of_entries(shape, size)
        original = observations.place(observations.values, observations.dtype)
        scaled, way_back = (
            normalization.by_range(observations)
            if normalize
            else (observations, normalization.identity(observations, batch))
        )
        return _Data(scaled.moved(), way_back, None, size, original)
    observations = observations.moved()
    bound, size = measurement_operator(operator, observations.values, shape, observations.xp)
    scaled, way_back = (
        normalization.by_size(observations, bound, size)
        if normalize
        else (observations, normalization.identity(observations, ()))
    )
    return _Data(scaled, way_back, bound, size, None)


def _without(observations: Observations, held_out: npt.NDArray[np.bool_] | None) -> Observations:
    """Return the observations less those that are held out."""
    if held_out is None:
        return observations
    kept = observations.place(~held_out, observations.dtype)
    return replace(observations, weights=observations.weights * kept)


class _Watcher:
    """Turns what the engine recorded into states and history."""

    def __init__(self, objective: Objective, data: _Data, truth: Any) -> None:
        self._objective = objective
        self._data = data
        self._energies = energy_columns([regularizer.name for regularizer in objective.regularizers])
        self._learned = tuple(
            name
            for name, term in zip(self._energies, objective.terms, strict=True)
            if term.parameter_shape is not None and term.weight > 0
        )
        self._missing_from = None if data.original is None else to_numpy(data.observations.mask)
        self._truth = None if truth is None else self._checked_truth(truth)
        self.history = History(
            ["loss", "fidelity", *self._energies, *(["nmae"] if truth is not None else [])]
        )
        self._last: npt.NDArray[np.float64] | None = None

    def _checked_truth(self, truth: Any) -> npt.NDArray[Any]:
        values = to_numpy(truth)
        shape = (*self._objective.batch, *self._objective.shape)
        if values.shape != shape:
            raise ValueError(f"truth: expected shape {shape}, got {values.shape}")
        if self._missing_from is not None and bool(self._missing_from.all(axis=(-2, -1)).any()):
            raise ValueError("truth: nothing is missing, so there is no error on missing entries to record")
        metrics.nmae(np.zeros(shape), values, self._missing_from)  # raises now what it would raise later
        return values

    def state(self, training: Training, values: npt.NDArray[np.float64]) -> FitState:
        """Return the state after some iterations, from what they recorded."""
        fidelity, energies = values[-1, 0], values[-1, 1:]
        before = values[-2, 1:] if len(values) > 1 else self._last
        self._last = energies
        return FitState(
            iteration=training.iteration,
            loss=_plain(self._objective.losses(fidelity, list(energies))),
            fidelity=_plain(fidelity),
            energies={name: _plain(energy) for name, energy in zip(self._energies, energies, strict=True)},
            energy_change=None if before is None else np.abs(energies - before),
            params=training.params,
            learned=self._learned,
            multiply=self._objective.matrix,
            undo=self._data.normalization.undo,
        )

    # The matrix may overflow one iteration before the loss, and the fit reports that.
    @np.errstate(over="ignore", invalid="ignore")
    def record(self, state: FitState) -> None:
        """Add a state to the history."""
        row = {"loss": state.loss, "fidelity": state.fidelity, **state.energies}
        if self._truth is not None:
            row["nmae"] = np.asarray(metrics.nmae(state.X, self._truth, self._missing_from))
        self.history.append(state.iteration, row)


def _plain(value: npt.NDArray[np.float64]) -> Any:
    """Return a Python float for one problem, an array for a stack."""
    return float(value) if np.ndim(value) == 0 else value


def _due(iteration: int, every: int | None) -> bool:
    return every is not None and iteration % every == 0


def _portions(max_iter: int, record_every: int, look_every: int | None) -> Iterator[int]:
    """Yield numbers of iterations that end wherever something is due, and at the first and the last."""
    rhythms = [every for every in (record_every, look_every, _WHOLE_EVERY) if every is not None]
    done = 0
    while done < max_iter:
        goal = 1 if done == 0 else min(max_iter, *((done // every + 1) * every for every in rhythms))
        yield goal - done
        done = goal


def _finite_iterations(training: Training, values: npt.NDArray[np.float64]) -> int:
    """Return how many iterations were made when the loss was first found not to be finite."""
    finite = np.isfinite(values.reshape(len(values), -1)).all(axis=1)
    return training.iteration - len(values) + int(np.argmin(finite))


def _diverged(
    training: Training, iterations: int, result_so_far: Callable[[str], FitResult]
) -> DivergenceError:
    """Return the error to raise, with the last finite state in it."""
    training.fall_back()
    return DivergenceError(
        f"the loss became infinite or not a number after {iterations} iterations; the state after "
        f"{training.iteration} is in the error's .result. A smaller learning_rate or smaller weights help.",
        result_so_far("diverged"),
    )


def _save_checkpoint(training: Training, result_so_far: Callable[[str], FitResult], path: Path) -> None:
    """Save the result so far, unless that would replace a good file by one that is not finite."""
    if training.is_finite():
        _save(result_so_far("checkpoint"), path)


def _save(result: FitResult, path: Path) -> None:
    """Save a result; a full disk must not cost the fit itself."""
    try:
        result.save(path)
    except OSError as error:
        warnings.warn(f"checkpoint: could not write {path}: {error}", RuntimeWarning, stacklevel=3)


def _result(
    objective: Objective,
    data: _Data,
    training: Training,
    monitor: Monitor,
    history: History,
    reason: str,
    seed: int,
) -> FitResult:
    last = Choice(training.params, np.full(objective.batch, training.iteration, dtype=np.int64))
    chosen = monitor.choice(last)
    params = chosen.params
    energies = objective.evaluate(params, memory=NO_MEMORY).energies
    graphs = iter(params[objective.depth :])
    fitted = [
        FittedRegularizer(
            regularizer.name,
            repr(regularizer),
            term.weight,
            energy,
            adjacency,
            next(graphs) if term.parameter_shape is not None else None,
        )
        for regularizer, term, energy, adjacency in zip(
            objective.regularizers, objective.terms, energies, objective.adjacencies(params), strict=True
        )
    ]
    return FitResult(
        matrix=data.normalization.undo(objective.matrix(params)),
        factors=list(params[: objective.depth]),
        regularizers=fitted,
        history=history,
        n_iter=training.iteration,
        best_iter=_whole(chosen.iteration),
        stop_reason=reason,
        seed=seed,
        normalization=data.normalization,
        mask=None if data.original is None else data.observations.mask,
        observed=data.original,
        labels=data.observations.labels,
    )


def _whole(iteration: npt.NDArray[np.int64]) -> Any:
    return int(iteration) if iteration.ndim == 0 else iteration


def _checked_path(path: Any) -> Path:
    """Return where to save checkpoints; better to hear now that there is no such directory than later."""
    if not isinstance(path, str | PathLike):
        raise TypeError(f"checkpoint: expected a path, got {type(path).__name__}")
    file = Path(os.fsdecode(path))
    if not file.parent.is_dir():
        raise FileNotFoundError(f"checkpoint: expected a file in a directory that exists, got {str(file)!r}")
    if file.is_dir():
        raise IsADirectoryError(f"checkpoint: expected a file, got the directory {str(file)!r}")
    return file


def _checked_precision(precision: Any) -> Precision | None:
    if precision is not None and precision != "tf32":
        raise ValueError(f"precision: expected None or 'tf32', got {precision!r}")
    return None if precision is None else "tf32"


def _check_precision_for(objective: Objective, precision: Precision | None) -> None:
    """Refuse what would be ignored in silence."""
    if precision is not None and objective.engine_name != "cuda":
        raise ValueError(f"precision: 'tf32' is for the CUDA engine, this fit uses {objective.engine_name!r}")


def _checked_seed(seed: Any) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    return checked_whole("seed", seed, least=0)
