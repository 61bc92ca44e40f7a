"""Files with valid checksums whose arrays are not those of a fit: an error, never foreign memory."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import airnp

RNG = np.random.default_rng(5)
Y, MASK = RNG.random((12, 9)), RNG.random((12, 9)) < 0.7
S = sp.csr_array(np.where(MASK, Y, 0.0))


def write_files(folder: Path) -> list[Path]:
    """Write results and unfinished runs of both forms."""
    stop_at = lambda iteration, state: iteration >= 30  # noqa: E731
    graph = sp.csr_array(np.ones((12, 12)))
    both = [airnp.AdaptiveLaplacian("rows"), airnp.FixedLaplacian(graph, "rows")]
    settings = {"seed": 0, "max_iter": 60}
    airnp.fit(Y, MASK, bounds=(0, 2), regularizers=both, **settings).save(folder / "dense.npz")
    airnp.fit(Y, MASK, callback=stop_at, checkpoint=folder / "dense run.npz", **settings)
    offsets = {"offsets": True, "mask_factor": "both", "bounds": (0, 2)}
    airnp.fit_sparse(S, 2, **offsets, **settings).save(folder / "sparse.npz")
    weights = {"weights": S.data + 1}
    airnp.fit_sparse(S, 2, callback=stop_at, checkpoint=folder / "sparse run.npz", **weights, **settings)
    return sorted(folder.glob("*.npz"))


def changes(array: np.ndarray) -> Iterator[np.ndarray]:
    """Yield what may stand in place of an array."""
    yield array.reshape(-1)
    yield array[None]
    if array.ndim:
        yield array[:-1]
        yield array[:0]
        yield np.concatenate([array, array])
    if array.ndim > 1:
        yield np.swapaxes(array, -1, -2)
        yield array[..., :-1]
    if array.dtype.kind in "iu":
        yield array + 10**6
        yield -array - 1
        yield array.astype(np.float64)
    else:
        yield array.astype(np.int8)
        yield array.astype(np.float16)
        yield array.astype(np.float32)
        yield array.astype(np.complex128)


def rewritten(path: Path, name: str, array: np.ndarray) -> bytes:
    """Return the file with one array replaced, and checksums that are right."""
    content = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(content, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            if member == f"{name}.npy":
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, array, allow_pickle=False)
                data = buffer.getvalue()
            new.writestr(member, data)
    return content.getvalue()


def use(path: Path) -> str:
    """Use all that a file holds; return what happened."""
    try:
        result = airnp.load(path)
        if isinstance(result, airnp.SparseFitResult):
            result.predict([0, 11], [8, 0])
            result.row_graph(2)
        else:
            result.completed()
            result.interval(0.5)
            result.row_graph(2)
        np.asarray(result.X).sum()
        if "run" in path.stem:
            airnp.resume(path, checkpoint=None, callback=lambda iteration, state: False)
    except (ValueError, TypeError, LookupError):
        return "refused"
    return "used"


def use_all(folder: str) -> None:
    """Try every change of every array; print how many files were refused. To be run in a process."""
    found = {"refused": 0, "used": 0}
    for path in sorted(Path(folder).glob("*.npz")):
        with np.load(path) as archive:
            arrays = {name: archive[name] for name in archive if name != "header"}
        crafted = path.with_name(f"crafted {path.stem}.tmp")
        for name, array in arrays.items():
            for changed in changes(array):
                if changed.dtype == array.dtype and np.array_equal(changed, array):
                    continue
                crafted.write_bytes(rewritten(path, name, changed))
                print(path.stem, name, changed.dtype, changed.shape, file=sys.stderr, flush=True)  # noqa: T201
                found[use(crafted)] += 1
    print(found["refused"], found["used"])  # noqa: T201


@pytest.mark.parametrize("which", ["dense", "dense run", "sparse", "sparse run"])
def test_an_array_that_is_not_of_the_fit_is_refused(tmp_path: Path, which: str) -> None:
    for path in write_files(tmp_path):
        if path.stem != which:
            path.unlink()
    assert use(tmp_path / f"{which}.npz") == "used"
    call = f"from tests.results.test_crafted_files import use_all; use_all({str(tmp_path)!r})"
    command = [sys.executable, "-W", "ignore", "-c", call]
    # In a process of its own: foreign memory may kill it.
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    refused, used = map(int, done.stdout.split())
    assert refused > used


def test_an_array_that_declares_more_than_the_file_holds_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.npz"
    airnp.fit(Y, MASK, seed=0, max_iter=5, stop=None).save(path)
    header = io.BytesIO()
    declared = {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)}
    np.lib.format.write_array_header_1_0(header, declared)
    crafted = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(crafted, "w") as new:
        for member in old.namelist():
            new.writestr(member, header.getvalue() if member == "matrix.npy" else old.read(member))
    path.write_bytes(crafted.getvalue())
    with pytest.raises(ValueError, match=r"its header says \(1000000, 1000000\) of float64"):
        airnp.load(path)
