"""Results on disk: one ``.npz`` file, no pickle, written atomically, checked when read."""

from __future__ import annotations

import io
import json
import os
import secrets
import zipfile
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airnp import labels
from airnp.history import History
from airnp.inputs import Labels
from airnp.normalization import Normalization
from airnp.result import FitResult, FittedRegularizer

_FORMAT = "airnp result"
_VERSION = 1


def save_result(result: FitResult, path: str | PathLike[str]) -> None:
    """Write a result; the file is complete or as it was before, never in between."""
    result = result.to_numpy()
    arrays: dict[str, Any] = {
        "matrix": result.matrix,
        "offset": result.normalization.offset,
        "scale": result.normalization.scale,
        "best_iter": np.asarray(result.best_iter),
    }
    arrays |= {f"factor_{level}": factor for level, factor in enumerate(result.factors)}
    arrays |= {f"history_{name}": result.history[name] for name in result.history}
    if result.mask is not None and result.observed is not None:
        arrays |= {"mask": result.mask, "observed": result.observed}
    for position, item in enumerate(result.regularizers):
        arrays |= _regularizer_arrays(position, item)
    header = {
        "format": _FORMAT,
        "version": _VERSION,
        "depth": len(result.factors),
        "n_iter": result.n_iter,
        "stop_reason": result.stop_reason,
        "seed": result.seed,
        "regularizers": [[item.name, item.description, item.weight] for item in result.regularizers],
        "labels": None if result.labels is None else _plain_labels(result.labels),
        "arrays": sorted(arrays),
    }
    _write_atomically(Path(os.fsdecode(path)), header, arrays)


def _write_atomically(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            np.savez(file, header=np.asarray(json.dumps(header)), **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _regularizer_arrays(position: int, item: FittedRegularizer) -> dict[str, Any]:
    prefix = f"regularizer_{position}_"
    arrays = {prefix + "energy": item.energy}
    if item.parameter is not None:
        arrays[prefix + "parameter"] = item.parameter
    if isinstance(item.adjacency, np.ndarray):
        arrays[prefix + "adjacency"] = item.adjacency
    elif item.adjacency is not None:
        sparse = item.adjacency.tocsr()
        arrays |= {prefix + part: getattr(sparse, part) for part in ("data", "indices", "indptr")}
    return arrays


def _plain_labels(pair: Labels) -> list[dict[str, Any]]:
    return [labels.to_plain(pair.index), labels.to_plain(pair.columns)]


def load(path: str | PathLike[str]) -> FitResult:
    """Read a result that :meth:`airnp.FitResult.save` wrote; its arrays are NumPy's.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, PermissionError
        When there is no such file to read.
    ValueError
        When the file is damaged, or is not a result of airnp.
    """
    with open(path, "rb") as file:
        try:
            arrays = _read_arrays(file)
            header = json.loads(str(arrays.pop("header")))
            _check_header(header, arrays)
            return _assemble(header, arrays)
        except MemoryError:
            raise
        except Exception as error:
            # Bytes that are not ours can fail in any way; each of them means the same to the caller.
            raise ValueError(
                f"{os.fspath(path)}: not a result saved by airnp, or damaged ({error!r})"
            ) from error


def _read_arrays(file: BinaryIO) -> dict[str, Any]:
    """Return all arrays of an archive, each read in one piece: only then its checksum is compared."""
    size = file.seek(0, os.SEEK_END)
    arrays = {}
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            # Sizes are not under a checksum: do not ask for memory that no honest file needs.
            if member.compress_type != zipfile.ZIP_STORED or member.compress_size > size:
                raise ValueError(f"its member {member.filename!r} was not written by airnp")
            content = archive.read(member)
            if len(content) != member.file_size:
                raise ValueError(f"its member {member.filename!r} is cut off")
            arrays[member.filename.removesuffix(".npy")] = np.load(io.BytesIO(content), allow_pickle=False)
    return arrays


def _check_header(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    if header["format"] != _FORMAT:
        raise ValueError(f"its format is {header['format']!r}")
    if header["version"] != _VERSION:
        raise ValueError(f"its version is {header['version']}, this airnp reads {_VERSION}")
    if header["arrays"] != sorted(arrays):
        raise ValueError("some of its arrays are missing, or there are others")


def _assemble(header: dict[str, Any], arrays: dict[str, Any]) -> FitResult:
    columns = {
        name.removeprefix("history_"): array for name, array in arrays.items() if name.startswith("history_")
    }
    best = arrays["best_iter"]
    return FitResult(
        matrix=arrays["matrix"],
        factors=[arrays[f"factor_{level}"] for level in range(header["depth"])],
        regularizers=[
            _regularizer(position, item, arrays) for position, item in enumerate(header["regularizers"])
        ],
        history=History.from_columns(columns),
        n_iter=int(header["n_iter"]),
        best_iter=int(best) if best.ndim == 0 else best,
        stop_reason=str(header["stop_reason"]),
        seed=int(header["seed"]),
        normalization=Normalization(arrays["offset"], arrays["scale"]),
        mask=arrays.get("mask"),
        observed=arrays.get("observed"),
        labels=_labels(header["labels"]),
    )


def _regularizer(position: int, item: list[Any], arrays: dict[str, Any]) -> FittedRegularizer:
    prefix = f"regularizer_{position}_"
    adjacency = arrays.get(prefix + "adjacency")
    if prefix + "indptr" in arrays:
        from scipy.sparse import csr_array

        nodes = len(arrays[prefix + "indptr"]) - 1
        parts = tuple(arrays[prefix + part] for part in ("data", "indices", "indptr"))
        adjacency = csr_array(parts, shape=(nodes, nodes))
    name, description, weight = item
    return FittedRegularizer(
        str(name),
        str(description),
        float(weight),
        arrays[prefix + "energy"],
        adjacency,
        arrays.get(prefix + "parameter"),
    )


def _labels(stored: Any) -> Labels | None:
    if stored is None:
        return None
    index, columns = stored
    return Labels(labels.from_plain(index), labels.from_plain(columns))
