"""``airnp.fit`` for sparse input: what it takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np

from airnp._checks import checked_seed, checked_whole
from airnp.data.bounds import Bounds, bounds_at
from airnp.data.entries import Entries, read_entries
from airnp.engines.threads import checked_threads
from airnp.model.factored import Layout, SparseOptions, SparseProblem
from airnp.model.fidelity import fidelity_scale
from airnp.model.offsets import checked_offsets
from airnp.optimizers import resolve_optimizer
from airnp.regularizers import Regularizer, default_regularizers
from airnp.regularizers.base import checked_choice
from airnp.results.sparse_result import SparseFitResult
from airnp.sparse_choice import sparse_engine, sparse_place
from airnp.training.checkpoints import checked_file
from airnp.training.options import checked_callback, checked_seconds
from airnp.training.sparse_loop import SparseLoop
from airnp.training.sparse_saved import fingerprint
from airnp.training.sparse_watch import check_rule
from airnp.training.stopping import resolve_stop


def fit_sparse(
    Y: Any,
    *,
    xp: Any = None,
    device: Any = None,
    regularizers: Any = "auto",
    weights: Any = None,
    fidelity: str = "mean",
    loss: str = "squared",
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
    offsets: bool | float = False,
    mask_factor: Any = None,
    batch_size: int | None = None,
    engine: str = "auto",
    threads: int | None = None,
    callback: Any = None,
    progress: bool = False,
    record_every: int = 10,
    checkpoint: Any = None,
    checkpoint_every: float = 30.0,
) -> SparseFitResult:
    """Complete a sparse matrix by thin factors; see :func:`airnp.fit` for the arguments."""
    place = sparse_place(xp, device)
    ops = sparse_engine(engine, xp)
    if loss != "squared":
        raise ValueError(f"loss: form='sparse' has 'squared', got {loss!r}")
    rule = resolve_stop(stop, regularized=True)
    check_rule(rule)
    options = SparseOptions(
        max_iter=checked_whole("max_iter", max_iter),
        record_every=checked_whole("record_every", record_every),
        seed=checked_seed(seed),
        init=init,
        optimizer=resolve_optimizer(optimizer, learning_rate),
        threads=checked_threads(threads),
        batch_size=None if batch_size is None else checked_whole("batch_size", batch_size),
        callback=checked_callback(callback),
        progress=progress,
        rule=rule,
        file=None if checkpoint is None else checked_file(checkpoint),
        file_every=checked_seconds(checkpoint_every),
    )
    entries = read_entries(Y, dtype, weights)
    limits = _checked_bounds(bounds, integers, entries)
    m, n = entries.shape
    sides = (
        None
        if mask_factor is None
        else checked_choice("mask_factor", mask_factor, ("rows", "columns", "both"))
    )
    shrinkage = checked_offsets(offsets)
    layout = Layout(
        m=m,
        n=n,
        depth=_checked_depth(depth),
        rank=_checked_rank(rank, m, n),
        mask_rows=sides in ("rows", "both"),
        mask_columns=sides in ("columns", "both"),
        offsets=shrinkage is not None,
    )
    if not isinstance(normalize, bool | np.bool_):
        raise TypeError(f"normalize: expected True or False, got {normalize!r}")
    scaled, base, span = normalized(entries) if normalize else (entries, 0.0, 1.0)
    del entries  # only what is fitted is kept
    problem = SparseProblem(
        entries=scaled,
        base=base,
        span=span,
        layout=layout,
        regularizers=_checked_regularizers(regularizers),
        scale=fidelity_scale(fidelity, m, n),
        shrinkage=shrinkage,
        bounds=limits,
        engine=engine,
        ops=ops,
    )
    with place:
        return SparseLoop(problem, options).run()


def check_same_data(header: dict[str, Any], Y: Any, dtype: Any, weights: Any = None) -> None:
    """Raise unless the sparse run in a file, of which this is the header, fits these very entries."""
    if header.get("data") != fingerprint(*normalized(read_entries(Y, dtype, weights))):
        raise ValueError("Y: expected the entries that the run in the file fits, got others")


def normalized(entries: Entries) -> tuple[Entries, float, float]:
    """Return the entries as (y − least) / (largest − least), and the way back."""
    values = entries.values.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    span = high - low or abs(low) or 1.0
    return entries.with_values(((values - low) / span).astype(entries.values.dtype)), low, span


def _checked_bounds(bounds: Any, integers: Any, entries: Entries) -> Bounds | None:
    limits = Bounds.of(bounds, integers, columns=entries.shape[1])
    if limits is not None:
        limits.check_type(str(entries.values.dtype))
        at = bounds_at(limits, entries.pattern.indices)
        at.check(entries.values[None], np.ones((1, entries.nnz), bool))
    return limits


def _checked_depth(depth: Any) -> int:
    found = checked_whole("depth", depth)
    if found == 1:
        raise ValueError(
            "depth: one factor is the whole matrix, which form='sparse' does not form; use 2 or more"
        )
    return found


def _checked_rank(rank: Any, m: int, n: int) -> int:
    if rank is None:
        raise ValueError(f"rank: form='sparse' needs one for a matrix of {m}x{n}, for example rank=32")
    found = checked_whole("rank", rank)
    if found > min(m, n):
        raise ValueError(
            f"rank: expected at most min(m, n) = {min(m, n)} for a matrix of {m}x{n}, got {rank}"
        )
    return found


def _checked_regularizers(regularizers: Any) -> list[Regularizer]:
    from airnp.model.objective import checked_regularizers

    if isinstance(regularizers, str):
        if regularizers != "auto":
            raise ValueError(f"regularizers: expected 'auto', None or a list of them, got {regularizers!r}")
        return default_regularizers()
    return checked_regularizers(regularizers)
