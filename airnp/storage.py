"""Results on disk: one ``.npz`` file, no pickle, written atomically, checked when read."""

from __future__ import annotations

import io
import json
import os
import secrets
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

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
        "labels": _plain_labels(result.labels),
    }
    _write_atomically(Path(path), header, arrays)


def _write_atomically(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, header=np.asarray(json.dumps(header)), **arrays)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb") as file:
            file.write(buffer.getbuffer())
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


def _plain_labels(labels: Labels | None) -> Any:
    if labels is None:
        return None
    return [[_plain(label) for label in part] for part in (labels.index, labels.columns)]


def _plain(label: Any) -> Any:
    """Return a label as JSON can hold it: numbers and strings as they are, the rest by its text."""
    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return [_plain(part) for part in label]
    return label if isinstance(label, str | int | float | bool) or label is None else str(label)


def load(path: str | PathLike[str]) -> FitResult:
    """Read a result that :meth:`airnp.FitResult.save` wrote; its arrays are NumPy's.

    Raises
    ------
    FileNotFoundError
        When there is no such file.
    ValueError
        When the file is damaged, or is not a result of airnp.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays["header"]))
        if header["format"] != _FORMAT:
            raise ValueError(f"its format is {header['format']!r}")
        if header["version"] != _VERSION:
            raise ValueError(f"its version is {header['version']}, this airnp reads {_VERSION}")
        return _assemble(header, arrays)
    except FileNotFoundError:
        raise
    except (
        zipfile.BadZipFile,
        zlib.error,
        KeyError,
        TypeError,
        ValueError,
        EOFError,
        OSError,
        AttributeError,
    ) as error:
        raise ValueError(f"{os.fspath(path)}: not a result saved by airnp, or damaged ({error})") from error


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
    from pandas import Index

    index, columns = (
        [tuple(label) if isinstance(label, list) else label for label in part] for part in stored
    )
    return Labels(Index(index), Index(columns))
