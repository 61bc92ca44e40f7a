"""``airnp complete --form sparse``: sparse matrices that are never made dense, by thin factors."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from airnp.commands.base import INTERRUPTED, OK, UsageError, given, report, shows_progress
from airnp.commands.completed import Files, checked_files, file_facts, save, written_lines
from airnp.commands.fitting import fit_options, timed
from airnp.commands.limits import bounds_of, check_within
from airnp.commands.outputs import write_whole

if TYPE_CHECKING:
    from airnp.sparse import SparseFitResult

_WRITTEN_AT_MOST = 2**28
"""Entries of a matrix that is still written whole; more of them are not formed."""

_DENSE_ONLY = (
    *("mask", "truth", "auto", "interval", "checkpoint"),
    *("header", "index_col", "delimiter", "missing", "array"),
)


def add_form_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--form``."""
    parser.add_argument(
        "--form",
        choices=("auto", "dense", "sparse"),
        help="sparse: never make a sparse matrix dense, work on thin factors of --rank N; auto: if the dense "
        "form would not fit into memory (auto)",
    )


def wanted(options: argparse.Namespace) -> Any | None:
    """Return the sparse matrix that is to be fitted as such; None where the dense form is meant."""
    from airnp import tables

    if options.form == "dense":
        return None
    matrix = tables.read_sparse(options.table)
    if matrix is None:
        if options.form == "sparse":
            raise UsageError(
                f"--form sparse: {options.table} holds no sparse matrix; they are in .mtx files and in .npz "
                "files of scipy.sparse.save_npz"
            )
        return None
    from airnp.sparse.choice import wants_sparse

    sizes = (options.depth or 3, options.rank, options.dtype)
    return matrix if wants_sparse(options.form or "auto", matrix, *sizes) else None


def run(options: argparse.Namespace, matrix: Any) -> int:
    """Complete a sparse matrix, and write it whole if it is not too large for that."""
    import numpy as np

    import airnp

    refused = given(options, _DENSE_ONLY)
    if refused is not None:
        raise UsageError(f"{refused}: not with the sparse form; --form dense has it")
    files = checked_files(options, needs_output=False)
    m, n = matrix.shape
    if files.output is not None and m * n > _WRITTEN_AT_MOST:
        raise UsageError(
            f"{files.output}: a matrix of {m}x{n} is not written whole; --result FILE.npz saves its factors, "
            "whose predict(rows, columns) gives any entry in Python"
        )
    matrix = _summed(matrix)
    check_within(
        options,
        options.table,
        matrix.data.astype(np.float64),
        lambda k: f"row {matrix.row[k] + 1}, column {matrix.col[k] + 1}",
    )
    settings = {
        **fit_options(options),
        "bounds": bounds_of(options),
        "integers": _whole_columns(matrix) if options.round else None,
        "progress": shows_progress(options),
        "form": "sparse",
    }
    names = {"Y": str(options.table), "xp": "--device"}
    result, facts = timed(
        options.time_limit, lambda clock: _fitted(airnp.fit(matrix, callback=clock, **settings)), names
    )
    _write(options, files, matrix, result)
    facts = {
        "command": "complete",
        "input": str(options.table),
        **file_facts(options),
        "interval": None,
        "form": "sparse",
        "rows": m,
        "columns": n,
        "missing": m * n - matrix.nnz,
        "header": False,
        "index": None,
        **facts,
        "nmae": None,
    }
    lines = [
        f"{options.table}: {m} rows, {n} columns, {facts['missing'] / (m * n):.1%} missing",
        f"{facts['iterations']} iterations in {facts['seconds']:.1f} s: {facts['stop_reason']}",
        *written_lines(facts),
    ]
    report(options, facts, "\n".join(lines))
    return INTERRUPTED if facts["stop_reason"] == "interrupted" else OK


def _fitted(result: Any) -> SparseFitResult:
    """Return what ``airnp.fit`` gives for this form."""
    found: SparseFitResult = result
    return found


def _summed(matrix: Any) -> Any:
    """Return the entries as coordinates; those stored twice are added, as SciPy does."""
    from scipy.sparse import coo_array

    found = coo_array(matrix)
    found.sum_duplicates()
    return found


def _whole_columns(matrix: Any) -> Any:
    """Return for each column whether it has entries and all of them are whole numbers, (n,)."""
    import numpy as np

    from airnp.bounds import ALL_WHOLE

    n = matrix.shape[1]
    broken = ALL_WHOLE.fractional(matrix.data.astype(np.float64))
    return (np.bincount(matrix.col, minlength=n) > 0) & (np.bincount(matrix.col[broken], minlength=n) == 0)


def _write(options: argparse.Namespace, files: Files, matrix: Any, result: SparseFitResult) -> None:
    from airnp import tables

    if files.output is not None:
        filled = result.X
        if not options.fitted:
            filled[matrix.row, matrix.col] = matrix.data
        table = tables.Table(filled)
        write_whole(files.output, lambda file: tables.write(file, files.kind, table))
    if files.result is not None:
        save(result, files.result)
