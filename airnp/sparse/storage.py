"""Sparse results on disk: the archive of :mod:`airnp.saving.storage`, with other arrays in it."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path
from typing import Any

from airnp.bounds import Bounds
from airnp.history import History
from airnp.saving.storage import FORMAT, VERSION, write_archive
from airnp.sparse.contract import Offsets
from airnp.sparse.result import SparseFitResult, SparseGraph

SPARSE = "sparse"
"""What the header's ``form`` says."""

_BOUNDS = ("low", "high", "whole")
_CSR = ("data", "indices", "indptr")


def save_sparse_result(result: SparseFitResult, path: str | PathLike[str]) -> None:
    """Write a result; the file is complete or as it was before, never in between."""
    write_archive(Path(os.fsdecode(path)), *sparse_record(result))


def sparse_record(result: SparseFitResult) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a result as a header that JSON can hold, and named arrays."""
    arrays: dict[str, Any] = {"row_factors": result.row_factors, "column_factors": result.column_factors}
    if result.offsets is not None:
        arrays |= {"row_offsets": result.offsets.rows, "column_offsets": result.offsets.columns}
    if result.bounds is not None:
        arrays |= {f"bounds_{name}": getattr(result.bounds, name) for name in _BOUNDS}
    arrays |= {f"history_{name}": result.history[name] for name in result.history}
    for place, graph in enumerate(result.graphs):
        arrays |= {f"graph_{place}_{name}": getattr(graph.adjacency, name) for name in _CSR}
    header = {
        "format": FORMAT,
        "version": VERSION,
        "form": SPARSE,
        "base": result.base,
        "mean": None if result.offsets is None else result.offsets.mean,
        "n_iter": result.n_iter,
        "best_iter": result.best_iter,
        "stop_reason": result.stop_reason,
        "seed": result.seed,
        "graphs": [[g.name, g.description, g.weight, g.energy, g.learned] for g in result.graphs],
    }
    return header, arrays


def assembled_sparse(header: dict[str, Any], arrays: dict[str, Any]) -> SparseFitResult:
    """Return the sparse result in a file."""
    history = {
        name.removeprefix("history_"): array for name, array in arrays.items() if name.startswith("history_")
    }
    offsets = None
    if header["mean"] is not None:
        offsets = Offsets(float(header["mean"]), arrays["row_offsets"], arrays["column_offsets"])
    bounds = Bounds(*(arrays[f"bounds_{name}"] for name in _BOUNDS)) if "bounds_low" in arrays else None
    return SparseFitResult(
        row_factors=arrays["row_factors"],
        column_factors=arrays["column_factors"],
        offsets=offsets,
        base=float(header["base"]),
        graphs=[_graph(place, *item, arrays=arrays) for place, item in enumerate(header["graphs"])],
        history=History.from_columns(history),
        n_iter=int(header["n_iter"]),
        best_iter=int(header["best_iter"]),
        stop_reason=str(header["stop_reason"]),
        seed=int(header["seed"]),
        bounds=bounds,
    )


def _graph(
    place: int,
    name: str,
    description: str,
    weight: float,
    energy: float,
    learned: bool,
    *,
    arrays: dict[str, Any],
) -> SparseGraph:
    from scipy.sparse import csr_array

    parts = tuple(arrays[f"graph_{place}_{part}"] for part in _CSR)
    nodes = len(parts[2]) - 1
    adjacency = csr_array(parts, shape=(nodes, nodes))
    return SparseGraph(str(name), str(description), float(weight), float(energy), adjacency, bool(learned))
