"""``airnp.fit`` and ``airnp.fit_sparse``: check what the caller gave, build the task, run the loop."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from os import PathLike
from typing import Any, Literal, TypeAlias, cast

import numpy as np
from array_api_compat import is_cupy_namespace, is_numpy_namespace

from airnp._arrays import namespace_name, on_device, requested_float, standard_namespace
from airnp._checks import checked_choice, checked_depth, checked_whole
from airnp._devices import available_memory, device_memory
from airnp.data.bounds import Bounds, bounds_at
from airnp.data.entries import Entries, is_sparse, read_entries
from airnp.data.inputs import read
from airnp.data.normalization import entries_by_range, prepare
from airnp.engines import CPU, CUDA, Auto, select_engine
from airnp.model.factored import Layout
from airnp.model.factorization import explained_memory, needed_bytes
from airnp.model.fidelity import Huber, Squared, checked_fidelity
from airnp.model.objective import ModelSettings
from airnp.model.offsets import checked_offsets
from airnp.regularizers import Regularizer, checked_regularizers
from airnp.results.result import FitResult
from airnp.results.sparse_result import SparseFitResult
from airnp.training.dense import DenseTask
from airnp.training.loop import Loop
from airnp.training.options import Callback, Checkpoint, Options, Record
from airnp.training.sparse import SparseTask
from airnp.training.stopping import resolve_stop

MaskSides: TypeAlias = Literal["rows", "columns", "both"]


def fit(
    Y: Any,
    mask: Any = None,
    *,
    xp: Any = None,
    device: Any = None,
    regularizers: Sequence[Regularizer] | None = None,
    operator: Any = None,
    weights: Any = None,
    fidelity: Squared | None = None,
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
    engine: str | CPU | CUDA | Auto = "auto",
    record: int | Record | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    checkpoint: str | PathLike[str] | Checkpoint | None = None,
) -> FitResult:
    r"""Complete a matrix, or every matrix of a stack.

    This is the paper's model. For the best answer without choosing anything, see :func:`airnp.complete`.
    Minimises :math:`F(X) + \sum_i λ_i R_i(T_i(X))` over the factors of :math:`X = W[L-1] \cdots W[0]` and
    over the learned graphs, by closed-form gradients.

    Parameters
    ----------
    Y : array-like (…, m, n)
        The data. An array of NumPy, CuPy, PyTorch or another array-API namespace; a ``numpy.ma`` array; a
        sparse matrix of SciPy or CuPy, whose stored entries are the observed ones, each at most once (but
        zeros of the formats DIA and BSR, which pad with zeros, are missing); a pandas DataFrame, whose labels
        come back on the result; or nested lists. A stack is a batch of independent problems. With
        ``operator``, the measurements, of any shape.
    mask : array-like, optional
        True, 1 or 255 where observed, else 0; the shape of Y or of one matrix. Without it, NaN means missing.
        One of NumPy may stand beside a Y of another namespace.
    xp : module, optional
        Array namespace to compute in, such as ``cupy``; NumPy data is moved there. Default: that of Y.
    device : int or device, optional
        Where in that namespace: the number of a CUDA device for CuPy. Fits in several Python threads may
        use a device each. Default: the current one, or that of Y.
    regularizers : list of Regularizer, optional
        Default, None: AIR, a learned graph over the rows and one over the columns. ``[]`` is plain deep
        matrix factorisation.
    operator : LinearOperator, object with ``forward`` and ``adjoint``, or Operator, optional
        Y = A(X): a scipy.sparse.linalg.LinearOperator acts on X.ravel(). ``Operator(A, shape)`` says the
        shape of X where A does not tell.
    weights : array-like, optional
        Non-negative weight of each entry in the fidelity; zero is missing.
    fidelity : Squared or Huber, optional
        Shape and scale of the data term. Default ``Squared()``: the mean of the squared errors.
    depth : int
        Number of factors.
    rank : int, optional
        Inner dimension of the factors. Default min(m, n): none needs to be known.
    max_iter : int
        Iterations at most.
    stop : "auto", None, or StopRule
        ``"auto"`` is ``HeldOut()``: it holds out some observed entries, returns the iterate that predicts
        them best, and fits them, too, in the end. ``None`` runs ``max_iter`` iterations and returns the last.
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
    bounds : (low, high), mapping of column label to (low, high), or Integers, optional
        What no entry of the answer may be outside of. Each side is a number, None for no bound, or one number
        for each column, (n,), NaN or infinite where there is none; a mapping is for a DataFrame, and leaves
        columns that it does not name unbounded. Observed entries must keep them. The answer is clipped, the
        factors are not, nor is what a ``callback`` sees. ``Integers(1, 5)`` also rounds to whole numbers.
    engine : {"auto", "cpu", "cuda", "reference"}, CPU or CUDA
        What carries out the operations. ``"auto"`` is the fastest there is for the namespace: ``"cpu"``
        (numba and BLAS) for NumPy, ``"cuda"`` (fused kernels and cuBLAS) for CuPy. ``"reference"`` is the
        specification, for every namespace. ``CPU(threads=2)`` and ``CUDA(precision="tf32")`` have settings.
    record : int or Record, optional
        Iterations between two records in ``history``, 10 by default; ``Record(every, truth)`` also records
        the NMAE on missing entries. Only to look at: the answer does not depend on it.
    callback : callable, optional
        ``callback(iteration, state)`` at each record, ``state`` being a :class:`FitState`; a true answer
        stops the fit.
    progress : bool
        Show a progress bar.
    checkpoint : path or Checkpoint, optional
        Save the run to this file now and then (``Checkpoint(path, every=30)``: seconds), after an interrupt
        and at the end, atomically: :func:`airnp.resume` goes on from there, :func:`airnp.load` reads the
        result so far. The answer does not depend on it.

    Returns
    -------
    FitResult
        After ``KeyboardInterrupt``, the result so far; before the first iteration, it is raised.

    Raises
    ------
    ValueError, TypeError
        For input that cannot be meant; the message names the argument.
    MemoryError
        Before anything is computed, if the fit does not fit into memory: how much it needs, and what helps.
        :func:`airnp.fit_sparse` never forms the whole matrix.
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

    >>> from airnp import Integers
    >>> stars = np.clip(np.rint(9 * truth), 1, 5)
    >>> filled = fit(stars, mask, bounds=Integers(1, 5), max_iter=300, seed=0).completed()
    >>> bool(np.isin(filled, [1, 2, 3, 4, 5]).all())
    True
    """
    Y, xp, device = host_sparse(Y, xp, device)
    listed, rule, shaped = checked_regularizers(regularizers), resolve_stop(stop), checked_fidelity(fidelity)
    if is_sparse(Y):
        _check_room(Y, checked_depth(depth), rank, dtype, listed, xp, device)
    data = prepare(Y, mask, weights, xp, device, dtype, operator, normalize).within(bounds)
    seen = data.observations
    options = Options.checked(
        max_iter=max_iter,
        seed=seed,
        init=init,
        optimizer=optimizer,
        learning_rate=learning_rate,
        engine=select_engine(engine, seen.xp),
        record=record,
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
    )
    settings = ModelSettings(listed, checked_depth(depth), rank, shaped)
    task = DenseTask(data, settings, options.engine)
    with on_device(seen.xp, seen.device), explained_memory(*task.sizes):
        return cast(FitResult, Loop(task, rule, options).run())


def fit_sparse(
    S: Any,
    rank: int,
    *,
    xp: Any = None,
    device: Any = None,
    regularizers: Sequence[Regularizer] | None = None,
    offsets: bool | float = False,
    mask_factor: MaskSides | None = None,
    weights: Any = None,
    fidelity: Squared | None = None,
    depth: int = 3,
    batch_size: int | None = None,
    max_iter: int = 40_000,
    stop: Any = "auto",
    optimizer: Any = "adam",
    learning_rate: float = 1e-3,
    init: Any = "gaussian",
    seed: int | None = None,
    dtype: Any = None,
    normalize: bool = True,
    bounds: Any = None,
    engine: str | CPU | CUDA | Auto = "auto",
    record: int | Record | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    checkpoint: str | PathLike[str] | Checkpoint | None = None,
) -> SparseFitResult:
    """Complete a large sparse matrix without ever forming it.

    X_ij = μ + b_i + c_j + u_i·v_j, from thin factors: residuals are taken at observed entries, graphs are
    learned over candidate edges. An iteration costs O((nnz + (m + n) k) r) for k candidates and rank r.

    Parameters
    ----------
    S : sparse matrix or array of SciPy or CuPy (m, n)
        Stored entries are the observed ones, explicit zeros included, each at most once. Zeros of the formats
        DIA and BSR, which pad with zeros, are missing.
    rank : int
        Inner dimension of the factors.
    xp, device
        As in :func:`airnp.fit`; NumPy or CuPy.
    regularizers : list of Regularizer, optional
        Of :class:`AdaptiveLaplacian`, :class:`FixedLaplacian` and :class:`WeightDecay`. Default, None:
        learned graphs over rows and columns, on 20 nearest candidates each.
    offsets : bool or float
        Whether there are μ, b and c. A number is how many entries of zero shrink each offset; True is 10.
    mask_factor : {"rows", "columns", "both"}, optional
        Let which entries are observed say something about a row or column.
    weights : sparse matrix like S, or array (nnz,), optional
        Weight of each entry, in the order of ``S.data``; zero is missing.
    fidelity : Squared, optional
        Default ``Squared()``.
    depth : int
        Number of factors, at least 2.
    batch_size : int, optional
        Entries in one iteration. Default: all.
    max_iter : int
        Iterations at most, over both phases of ``stop``.
    stop, optimizer, learning_rate, init, seed, dtype, normalize, bounds
        As in :func:`airnp.fit`.
    engine, record, callback, progress, checkpoint
        As in :func:`airnp.fit`. There is no ``truth`` to record.

    Returns
    -------
    SparseFitResult
        ``predict(rows, columns)`` gives entries. After ``KeyboardInterrupt``, the result so far, as
        :func:`airnp.fit` does.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> rng = np.random.default_rng(0)
    >>> table = rng.random((60, 3)) @ rng.random((3, 40))
    >>> observed = csr_array(table * (rng.random(table.shape) < 0.5))
    >>> result = fit_sparse(observed, rank=3, offsets=True, learning_rate=3e-3, max_iter=6000, seed=0)
    >>> bool(np.abs(result.X - table).mean() < 0.05), result.n_iter <= 6000
    (True, True)
    """
    S, xp, device = host_sparse(S, xp, device)
    # A matrix of no importance: reading it checks what is meant by the namespace and the device.
    place = read(np.zeros((1, 1)), xp=xp, device=device)
    if not (is_numpy_namespace(place.xp) or is_cupy_namespace(place.xp)):
        name = namespace_name(place.xp)
        raise ValueError(f"xp: fit_sparse works on arrays of NumPy and CuPy, got {name}")
    listed, rule, shaped = checked_regularizers(regularizers), resolve_stop(stop), checked_fidelity(fidelity)
    if isinstance(shaped, Huber):
        raise ValueError(f"fidelity: fit_sparse has Squared(), got {shaped!r}")
    chosen = select_engine(engine, place.xp)
    if chosen.name == "reference" and not is_numpy_namespace(place.xp):
        raise ValueError("engine: 'reference' has sparse operations on NumPy arrays alone; say 'cuda'")
    options = Options.checked(
        max_iter=max_iter,
        seed=seed,
        init=init,
        optimizer=optimizer,
        learning_rate=learning_rate,
        engine=chosen,
        record=record,
        callback=callback,
        progress=progress,
        checkpoint=checkpoint,
    )
    entries = read_entries(S, dtype, weights)
    limits = _entry_bounds(bounds, entries)
    m, n = entries.shape
    sides = (
        None
        if mask_factor is None
        else checked_choice("mask_factor", mask_factor, ("rows", "columns", "both"))
    )
    shrinkage = checked_offsets(offsets)
    if checked_depth(depth) == 1:
        raise ValueError(
            "depth: one factor is the whole matrix, which fit_sparse does not form; use 2 or more"
        )
    if checked_whole("rank", rank) > min(m, n):
        raise ValueError(
            f"rank: expected at most min(m, n) = {min(m, n)} for a matrix of {m}x{n}, got {rank}"
        )
    layout = Layout(
        m=m,
        n=n,
        depth=depth,
        rank=int(rank),
        mask_rows=sides in ("rows", "both"),
        mask_columns=sides in ("columns", "both"),
        offsets=shrinkage is not None,
    )
    if not isinstance(normalize, bool | np.bool_):
        raise TypeError(f"normalize: expected True or False, got {normalize!r}")
    scaled, base, span = entries_by_range(entries) if normalize else (entries, 0.0, 1.0)
    del entries  # only what is fitted is kept
    task = SparseTask(
        entries=scaled,
        base=base,
        span=span,
        layout=layout,
        regularizers=listed,
        scale=shaped.factor(m, n),
        shrinkage=shrinkage,
        bounds=limits,
        batch_size=None if batch_size is None else checked_whole("batch_size", batch_size),
        seed=options.seed,
        engine=options.engine,
        xp=place.xp,
    )
    with on_device(place.xp, place.device):
        return cast(SparseFitResult, Loop(task, rule, options).run())


def host_sparse(Y: Any, xp: Any, device: Any) -> tuple[Any, Any, Any]:
    """Return Y, ``xp`` and ``device``; for a sparse matrix of CuPy the one of SciPy, and where it comes from.

    A matrix that lives on a device is computed with there.
    """
    found = sys.modules.get("cupyx.scipy.sparse")
    if found is None or not found.issparse(Y):
        return Y, xp, device
    import cupy

    if xp is not None and xp is not cupy:
        return Y.get(), xp, device
    home = Y.data.device
    if device is not None and int(getattr(device, "id", device)) != home.id:
        raise ValueError(f"device: expected {home}, where Y is, got {device}; move Y, or leave device out")
    return Y.get(), cupy, home


def _check_room(
    Y: Any, depth: int, rank: Any, dtype: Any, listed: Sequence[Regularizer], xp: Any, device: Any
) -> None:
    """Raise MemoryError if a sparse matrix needs more memory than there is once it is made dense."""
    if Y.ndim != 2:
        return
    kind = "float64" if dtype is None else requested_float(dtype)
    m, n = Y.shape
    width = rank if isinstance(rank, int) and 0 < rank <= min(m, n) else None
    on_cupy = xp is not None and is_cupy_namespace(standard_namespace(xp))
    graphs = sum(regularizer.graph_numbers(m, n) for regularizer in listed)
    needed = needed_bytes((), m, n, depth, width, kind, graphs)
    room = device_memory(device) if on_cupy else available_memory()
    if needed > room:
        raise MemoryError(
            f"Y: a dense fit of {m}x{n} in {kind} needs about {needed / 2**30:.2g} GiB, there are "
            f"{room / 2**30:.2g}; airnp.fit_sparse(S, rank=...) never forms the whole matrix"
        )


def _entry_bounds(bounds: Any, entries: Entries) -> Bounds | None:
    limits = Bounds.of(bounds, columns=entries.shape[1])
    if limits is not None:
        limits.check_type(str(entries.values.dtype))
        at = bounds_at(limits, entries.pattern.indices)
        at.check(entries.values[None], np.ones((1, entries.nnz), bool))
    return limits
