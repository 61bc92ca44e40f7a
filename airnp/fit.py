"""``airnp.fit``: complete a matrix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np

from airnp._arrays import on_device
from airnp._checks import checked_whole
from airnp.defaults import chosen_regularizers
from airnp.engines.contract import Precision
from airnp.engines.threads import checked_threads
from airnp.fidelity import FidelityScale, Loss
from airnp.inputs import Observations
from airnp.loop import Callback, Loop, Options
from airnp.memory_errors import explained_memory
from airnp.objective import Objective
from airnp.optimizers import resolve_optimizer
from airnp.prepared import prepare
from airnp.regularizers import Regularizer
from airnp.result import FitResult
from airnp.stopping import resolve_stop


def fit(
    Y: Any,
    mask: Any = None,
    *,
    xp: Any = None,
    device: Any = None,
    regularizers: Sequence[Regularizer] | Literal["auto"] | None = "auto",
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
    regularizers : "auto", None, or list of Regularizer
        ``None`` is AIR: a learned graph over the rows and one over the columns. ``"auto"`` is AIR too, and
        :class:`TotalVariation` besides if neighbouring entries are so much alike, along both axes, that
        Y must be a picture (correlation of at least 0.6). ``[]`` is plain deep matrix factorisation.
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
        ``"auto"`` holds out some observed entries and returns what predicts them best: usually an iterate
        of the fit, or with ``regularizers="auto"`` a matrix of low rank, if there is one that predicts
        them almost exactly, or better than the fit does. It is :class:`HeldOut`. ``None`` runs ``max_iter``
        iterations and returns the last.
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
    rule = resolve_stop(stop, regularized=not isinstance(regularizers, str))
    method = resolve_optimizer(optimizer, learning_rate)
    seed = _checked_seed(seed)
    if callback is not None and not callable(callback):
        raise TypeError(f"callback: expected a function of (iteration, state), got {type(callback).__name__}")
    options = Options(
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
    data = prepare(Y, mask, weights, xp, device, dtype, operator, shape, normalize)
    seen = data.observations
    batch = tuple(seen.values.shape[:-2]) if data.operator is None else ()
    sizes = (batch, *data.shape, checked_whole("depth", depth), rank, seen.dtype)

    def objective_of(observations: Observations) -> Objective:
        return Objective.from_observations(
            observations,
            regularizers=model,
            depth=depth,
            rank=rank,
            operator=data.operator,
            shape=data.shape,
            fidelity=fidelity,
            loss=loss,
            huber_delta=huber_delta,
            engine=engine,
        )

    with on_device(seen.xp, seen.device), explained_memory(*sizes):
        model = chosen_regularizers(regularizers, seen, measured=data.operator is not None)
        monitor = rule.begin(seen, data.operator, seed)
        return Loop(data, objective_of, monitor, options).run()


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


def _checked_seed(seed: Any) -> int:
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint32)[0])
    return checked_whole("seed", seed, least=0)
