"""``airnp.fit``: complete a matrix."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal

from airnp._arrays import on_device
from airnp._checks import checked_seed, checked_whole
from airnp.data.prepared import prepare
from airnp.defaults_ import chosen_regularizers
from airnp.engines.contract import Precision
from airnp.engines.threads import checked_threads
from airnp.model.factorization import explained_memory
from airnp.model.fidelity import FidelityScale, Loss
from airnp.model.objective import Model
from airnp.model.offsets import MaskSides
from airnp.optimizers import resolve_optimizer
from airnp.regularizers import Regularizer
from airnp.results.result import FitResult
from airnp.sparse_choice import Form, on_the_host, refuse_for_dense, refuse_for_sparse, wants_sparse
from airnp.training.checkpoints import checked_file
from airnp.training.loop import Loop
from airnp.training.options import Callback, Options, checked_callback, checked_seconds
from airnp.training.stopping import resolve_stop


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
    bounds: Any = None,
    integers: Any = None,
    form: Form = "auto",
    offsets: bool | float = False,
    mask_factor: MaskSides | None = None,
    batch_size: int | None = None,
    engine: str = "auto",
    threads: int | None = None,
    precision: Precision | None = None,
    truth: Any = None,
    callback: Callback | None = None,
    progress: bool = False,
    record_every: int = 10,
    checkpoint: str | PathLike[str] | None = None,
    checkpoint_every: float = 30.0,
) -> FitResult:
    r"""Complete a matrix, or every matrix of a stack.

    Minimises :math:`F(X) + \sum_i λ_i R_i(T_i(X))` over the factors of :math:`X = W[L-1] \cdots W[0]` and
    over the learned graphs, by closed-form gradients.

    Parameters
    ----------
    Y : array-like (…, m, n)
        The data. An array of NumPy, CuPy, PyTorch or another array-API namespace; a ``numpy.ma`` array; a
        sparse matrix of SciPy or CuPy, whose stored entries are the observed ones; a pandas DataFrame, whose
        labels come back on the result; or nested lists. A stack is a batch of independent problems. With
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
        Non-negative weight of each entry in the fidelity; zero is missing. For the sparse form a sparse
        matrix that stores entries where Y does, or one number for each entry, in the order of ``Y.data``.
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
    bounds : (low, high), or mapping of column label to (low, high), optional
        What no entry of the answer may be outside of. Each side is a number, None for no bound, or one number
        for each column, (n,), NaN or infinite where there is none; a mapping is for a DataFrame, and leaves
        columns that it does not name unbounded. Observed entries must keep them. The answer is clipped, the
        factors are not, nor is what a ``callback`` sees.
    integers : bool, booleans (n,), or list of columns, optional
        Which columns are rounded to whole numbers, within the bounds: True for all, or their positions, or
        for a DataFrame their labels. Their observed entries must be whole.
    form : {"auto", "dense", "sparse"}
        ``"sparse"``, for a scipy.sparse Y and a ``rank``, never forms X: it works on thin factors, at
        observed entries and over candidate edges of graphs, and gives a :class:`SparseFitResult`. ``"auto"``
        takes it for a sparse Y whose dense form would not fit into memory. It works on arrays of NumPy and
        CuPy, and has no ``mask``, ``operator``, ``shape``, Huber loss, ``precision`` and ``truth``.
    offsets : bool or float
        For the sparse form: X_ij = μ + b_i + c_j + u_i·v_j. A number is how many entries of zero shrink each
        offset; True is 10.
    mask_factor : {"rows", "columns", "both"}, optional
        For the sparse form: let which entries are observed say something about a row or column.
    batch_size : int, optional
        For the sparse form: entries in one iteration. Default: all.
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
        Save the run to this file now and then, after an interrupt and at the end, atomically:
        :func:`airnp.resume` goes on from there, :func:`airnp.load` reads the result so far.
    checkpoint_every : float
        Seconds between two of these. They do not change the answer.

    Returns
    -------
    FitResult
        After ``KeyboardInterrupt``, the result so far. A :class:`SparseFitResult` for the sparse form.

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

    Stars are whole numbers from 1 to 5:

    >>> stars = np.clip(np.rint(9 * truth), 1, 5)
    >>> filled = fit(stars, mask, bounds=(1, 5), integers=True, max_iter=300, seed=0).completed()
    >>> bool(np.isin(filled, [1, 2, 3, 4, 5]).all())
    True
    """
    Y, xp, device = on_the_host(Y, xp, device)
    if wants_sparse(form, Y, depth, rank, dtype, xp, device):
        refuse_for_sparse(mask=mask, operator=operator, shape=shape, precision=precision, truth=truth)
        from airnp.sparse_fitting import fit_sparse  # brings numba and SciPy

        return fit_sparse(  # type: ignore[return-value]  # what a caller gets who asks for this form
            Y, xp=xp, device=device, regularizers=regularizers, weights=weights, fidelity=fidelity, loss=loss,
            depth=depth, rank=rank, max_iter=max_iter, stop=stop, optimizer=optimizer,
            learning_rate=learning_rate, init=init, seed=seed, dtype=dtype, normalize=normalize,
            bounds=bounds, integers=integers, offsets=offsets, mask_factor=mask_factor,
            batch_size=batch_size, engine=engine, threads=threads, callback=callback, progress=progress,
            record_every=record_every, checkpoint=checkpoint, checkpoint_every=checkpoint_every,
        )  # fmt: skip
    refuse_for_dense(offsets=offsets, mask_factor=mask_factor, batch_size=batch_size)
    max_iter = checked_whole("max_iter", max_iter)
    record_every = checked_whole("record_every", record_every)
    rule = resolve_stop(stop, regularized=not isinstance(regularizers, str))
    method = resolve_optimizer(optimizer, learning_rate)
    seed = checked_seed(seed)
    options = Options(
        max_iter=max_iter,
        record_every=record_every,
        seed=seed,
        init=init,
        optimizer=method,
        threads=checked_threads(threads),
        precision=_checked_precision(precision),
        truth=truth,
        callback=checked_callback(callback),
        progress=progress,
        file=None if checkpoint is None else checked_file(checkpoint),
        file_every=checked_seconds(checkpoint_every),
    )
    data = prepare(Y, mask, weights, xp, device, dtype, operator, shape, normalize)
    data = data.within(bounds, integers)
    seen = data.observations
    batch = tuple(seen.values.shape[:-2]) if data.operator is None else ()
    sizes = (batch, *data.shape, checked_whole("depth", depth), rank, seen.dtype)

    with on_device(seen.xp, seen.device), explained_memory(*sizes):
        chosen = chosen_regularizers(regularizers, seen, measured=data.operator is not None)
        model = Model(chosen, depth, rank, fidelity, loss, huber_delta, engine)
        return Loop(data, model, rule, options).run()


def _checked_precision(precision: Any) -> Precision | None:
    if precision is not None and precision != "tf32":
        raise ValueError(f"precision: expected None or 'tf32', got {precision!r}")
    return None if precision is None else "tf32"
