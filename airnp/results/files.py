"""Results on disk: one ``.npz`` file, no pickle, written atomically, checked when read."""

from __future__ import annotations

import io
import json
import math
import os
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from airnp._arrays import check_indices
from airnp.data.bounds import Bounds
from airnp.data.entries import Pattern
from airnp.data.inputs import Labels
from airnp.data.interactions import Ids
from airnp.data.normalization import Normalization
from airnp.engines.contract import Offsets
from airnp.results.atomic import write_atomically
from airnp.results.calibration import Calibration
from airnp.results.history import History
from airnp.results.ratings_model import ImplicitModel, RatingsModel, Recommender, model_of
from airnp.results.result import FitResult, FittedRegularizer
from airnp.results.sparse_result import SparseFitResult, SparseGraph

FORMAT = "airnp result"
VERSION = 1


def save_result(result: FitResult, path: str | PathLike[str]) -> None:
    """Write a result; the file is complete or as it was before, never in between."""
    write_archive(Path(os.fsdecode(path)), *result_record(result.to_numpy()))


def result_record(result: FitResult) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a result of NumPy arrays as a header that JSON can hold, and named arrays."""
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
    if result.calibration is not None:
        arrays |= {f"calibration_{name}": array for name, array in vars(result.calibration).items()}
    if result.bounds is not None:
        arrays |= {f"bounds_{name}": array for name, array in vars(result.bounds).items()}
    for position, item in enumerate(result.regularizers):
        arrays |= _regularizer_arrays(position, item)
    header = {
        "format": FORMAT,
        "version": VERSION,
        "depth": len(result.factors),
        "n_iter": result.n_iter,
        "stop_reason": result.stop_reason,
        "seed": result.seed,
        "regularizers": [[item.name, item.description, item.weight] for item in result.regularizers],
        "labels": None if result.labels is None else _plain_labels(result.labels),
    }
    return header, arrays


def write_archive(path: Path, header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Write a header and arrays; the file is complete or as it was before, never in between."""
    text = json.dumps({**header, "arrays": sorted(arrays)})
    write_atomically(path, lambda file: np.savez(file, header=np.asarray(text), **arrays))


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
    return [index_to_plain(pair.index), index_to_plain(pair.columns)]


def load(path: str | PathLike[str]) -> Any:
    """Read a result that :meth:`airnp.FitResult.save` or :meth:`airnp.SparseFitResult.save` wrote.

    Its arrays are NumPy's.

    Raises
    ------
    FileNotFoundError, IsADirectoryError, PermissionError
        When there is no such file to read.
    ValueError
        When the file is damaged, or is not a result of airnp.
    """
    with open(path, "rb") as file, naming_file(path):
        return assembled(*read_archive(file, without="run_"))


def read_header(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the header of a file: what is in it, but for the arrays. Errors are those of :func:`load`."""
    with open(path, "rb") as file, naming_file(path):
        return read_archive(file, without="run_")[0]


@contextmanager
def naming_file(path: str | PathLike[str]) -> Iterator[None]:
    """Re-raise any parsing error as a ValueError that names the file."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        # Foreign bytes can fail in any way; each of them means the same to the caller.
        raise ValueError(
            f"{os.fsdecode(path)}: not a result saved by airnp, or damaged ({error!r})"
        ) from error


def read_archive(file: BinaryIO, without: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays of a file; None for arrays whose names begin as ``without`` says."""
    arrays = _read_arrays(file, without)
    header = json.loads(str(arrays.pop("header")))
    _check_header(header, arrays)
    return header, arrays


def _read_arrays(file: BinaryIO, without: str | None) -> dict[str, Any]:
    """Return the arrays of an archive, each read in one piece: only then its checksum is compared."""
    size = file.seek(0, os.SEEK_END)
    arrays: dict[str, Any] = {}
    with zipfile.ZipFile(file) as archive:
        if sum(member.compress_size for member in archive.infolist()) > size:
            raise ValueError("its members overlap")
        for member in archive.infolist():
            # Sizes are not under a checksum: do not ask for memory that no honest file needs.
            if member.compress_type != zipfile.ZIP_STORED or member.compress_size > size:
                raise ValueError(f"its member {member.filename!r} was not written by airnp")
            name = member.filename.removesuffix(".npy")
            if without is not None and name.startswith(without):
                arrays[name] = None
                continue
            content = archive.read(member)
            if len(content) != member.file_size:
                raise ValueError(f"its member {member.filename!r} is cut off")
            arrays[name] = read_array(io.BytesIO(content), len(content))
    return arrays


def read_array(file: BinaryIO, size: int) -> Any:
    """Return the array of an ``.npy`` file, without pickle, once its size is known to be that of its header.

    NumPy asks for memory before it reads, so that a header of a few bytes could ask for any amount.

    Parameters
    ----------
    file : binary file
        At its start.
    size : int
        Bytes that the file has.
    """
    check_array_header(file, size)
    file.seek(0)
    return np.lib.format.read_array(file, allow_pickle=False)


def check_array_header(file: Any, size: int) -> None:
    """Raise unless ``size`` bytes can hold the array that the header of an ``.npy`` file declares."""
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    version = np.lib.format.read_magic(file)
    if version not in readers:
        raise ValueError(f"expected version 1.0 or 2.0 of the .npy format, got {version}")
    shape, _, dtype = readers[version](file)
    if dtype.hasobject or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize > size:
        raise ValueError(f"its header says {shape} of {dtype}, which {size} bytes cannot hold")


def _check_header(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    if header["format"] != FORMAT:
        raise ValueError(f"its format is {header['format']!r}")
    if header["version"] != VERSION:
        raise ValueError(f"its version is {header['version']}, this airnp reads {VERSION}")
    if header["arrays"] != sorted(arrays):
        raise ValueError("some of its arrays are missing, or there are others")


def is_sparse_form(header: dict[str, Any]) -> bool:
    """Whether a file is that of a fit of the sparse form."""
    return header.get("form") == "sparse"


def assembled(header: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """Return the result in a file, whatever else may be in it."""
    if is_sparse_form(header):
        return assembled_sparse(header, arrays)
    columns = {
        name.removeprefix("history_"): array for name, array in arrays.items() if name.startswith("history_")
    }
    best = arrays["best_iter"]
    _check_dense(header, arrays)
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
        calibration=_calibration(arrays),
        bounds=_bounds(arrays),
    )


def _expect(arrays: dict[str, Any], name: str, kinds: str, *shapes: tuple[int, ...]) -> None:
    """Raise unless an array has one of the shapes, and a dtype of one of the kinds."""
    array = arrays[name]
    if array.dtype.kind not in kinds or array.shape not in shapes:
        wanted = " or ".join(map(str, shapes))
        raise ValueError(f"its {name} is {array.dtype} of shape {array.shape}, expected {wanted}")


def _check_dense(header: dict[str, Any], arrays: dict[str, Any]) -> None:
    """Raise unless shapes, dtypes and indices of all arrays are those of one fit."""
    matrix = arrays["matrix"]
    if matrix.ndim < 2 or matrix.dtype not in (np.float32, np.float64):
        raise ValueError(f"its matrix is {matrix.dtype} of shape {matrix.shape}")
    *batch, m, n = matrix.shape
    stack = tuple(batch)
    depth, rank = int(header["depth"]), arrays["factor_0"].shape[-2]
    for level in range(depth):
        rows, columns = m if level == depth - 1 else rank, n if level == 0 else rank
        _expect(arrays, f"factor_{level}", "f", (*stack, rows, columns))
        if arrays[f"factor_{level}"].dtype != matrix.dtype:
            raise ValueError(f"its factor_{level} has another dtype than its matrix")
    for name in ("offset", "scale"):
        _expect(arrays, name, "f", (*stack, 1, 1))
    _expect(arrays, "best_iter", "iu", stack, ())
    if "mask" in arrays or "observed" in arrays:
        _expect(arrays, "mask", "b", matrix.shape)
        _expect(arrays, "observed", "fiub", matrix.shape)
    if "calibration_positions" in arrays:
        count = len(arrays["calibration_positions"])
        _expect(arrays, "calibration_positions", "iu", (count, matrix.ndim))
        for name, kinds in (("values", "f"), ("predictions", "f"), ("folds", "iu")):
            _expect(arrays, f"calibration_{name}", kinds, (count,))
        places = arrays["calibration_positions"]
        if count and not ((places >= 0) & (places < matrix.shape)).all():
            raise ValueError("its calibration_positions are outside of its matrix")
    _check_bounds(arrays, n)
    _check_history(arrays)
    for position in range(len(header["regularizers"])):
        prefix = f"regularizer_{position}_"
        _expect(arrays, prefix + "energy", "f", stack)
        for name in ("adjacency", "parameter"):
            if prefix + name in arrays:
                nodes = arrays[prefix + name].shape[-1:] * 2
                _expect(arrays, prefix + name, "f", (*stack, *nodes), nodes)


def _check_bounds(arrays: dict[str, Any], n: int) -> None:
    if "bounds_low" in arrays:
        for name, kinds in (("low", "f"), ("high", "f"), ("whole", "b")):
            _expect(arrays, f"bounds_{name}", kinds, (), (n,))


def _check_history(arrays: dict[str, Any]) -> None:
    columns = {name: array for name, array in arrays.items() if name.startswith("history_")}
    for name, column in columns.items():
        if column.dtype.kind not in "iuf" or column.shape[:1] != (len(columns["history_iteration"]),):
            raise ValueError(f"its {name} is {column.dtype} of shape {column.shape}")


def _graph_of(parts: tuple[Any, ...]) -> Any:
    """Return a square sparse matrix, whose indices are checked: SciPy does not."""
    from scipy.sparse import csr_array

    data, indices, indptr = parts
    if data.dtype.kind not in "biuf" or any(part.dtype.kind not in "iu" for part in (indices, indptr)):
        raise ValueError("its graph has arrays of other dtypes")
    nodes = len(indptr) - 1
    graph = csr_array((nodes, nodes), dtype=data.dtype)
    graph.data, graph.indices, graph.indptr = data, indices, indptr
    if data.shape != indices.shape or data.ndim != 1:
        raise ValueError("its graph has arrays of different lengths")
    check_indices("its graph", graph)
    return csr_array((data, indices, indptr), shape=(nodes, nodes))


def _bounds(arrays: dict[str, Any]) -> Bounds | None:
    if "bounds_low" not in arrays:
        return None
    return Bounds(*(arrays[f"bounds_{name}"] for name in ("low", "high", "whole")))


def _calibration(arrays: dict[str, Any]) -> Calibration | None:
    if "calibration_positions" not in arrays:
        return None
    names = ("positions", "values", "predictions", "folds")
    return Calibration(*(arrays[f"calibration_{name}"] for name in names))


def _regularizer(position: int, item: list[Any], arrays: dict[str, Any]) -> FittedRegularizer:
    prefix = f"regularizer_{position}_"
    adjacency = arrays.get(prefix + "adjacency")
    if prefix + "indptr" in arrays:
        adjacency = _graph_of(tuple(arrays[prefix + part] for part in _CSR))
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
    return Labels(index_from_plain(index), index_from_plain(columns))


SPARSE = "sparse"
"""What the header's ``form`` says."""

_BOUNDS = ("low", "high", "whole")
_CSR = ("data", "indices", "indptr")
_MASKS = ("row_mask", "column_mask")


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
    arrays |= {name: part for name, part in zip(_MASKS, result.mask_factors, strict=True) if part is not None}
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
        "penalties": list(result.penalties),
    }
    if isinstance(result, Recommender):
        (users, user_ids), (items, item_ids) = result.users.stored("users"), result.items.stored("items")
        arrays |= {"seen_indptr": result.seen.indptr, "seen_indices": result.seen.indices}
        arrays |= user_ids | item_ids
        ids = {"users": users, "items": items}
        if isinstance(result, RatingsModel):
            header["ratings"] = {**ids, "noise": repr(result.noise)}
        elif isinstance(result, ImplicitModel):
            header["implicit"] = {**ids, "weight": result.weight, "decay": result.decay}
    return header, arrays


def assembled_sparse(header: dict[str, Any], arrays: dict[str, Any]) -> SparseFitResult:
    """Return the sparse result in a file."""
    history = {
        name.removeprefix("history_"): array for name, array in arrays.items() if name.startswith("history_")
    }
    (m, rank), n = arrays["row_factors"].shape, len(arrays["column_factors"])
    dtype = arrays["row_factors"].dtype
    _expect(arrays, "column_factors", "f", (n, rank))
    if header["mean"] is not None:
        _expect(arrays, "row_offsets", "f", (m,))
        _expect(arrays, "column_offsets", "f", (n,))
    for name in ("row_factors", "column_factors", "row_offsets", "column_offsets"):
        if name in arrays and arrays[name].dtype not in (np.float32, np.float64):
            raise ValueError(f"its {name} are {arrays[name].dtype}")
    if arrays["column_factors"].dtype != dtype:
        raise ValueError("its factors have different dtypes")
    _check_bounds(arrays, n)
    _check_history(arrays)
    offsets = None
    if header["mean"] is not None:
        offsets = Offsets(float(header["mean"]), arrays["row_offsets"], arrays["column_offsets"])
    bounds = Bounds(*(arrays[f"bounds_{name}"] for name in _BOUNDS)) if "bounds_low" in arrays else None
    result = SparseFitResult(
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
        mask_factors=(arrays.get(_MASKS[0]), arrays.get(_MASKS[1])),
        penalties=_penalties(header.get("penalties", (0.0, 0.0, 0.0))),
    )
    for name, shape in zip(_MASKS, ((n, rank), (m, rank)), strict=True):
        if name in arrays:
            _expect(arrays, name, "f", shape)
    kind = next((name for name in ("ratings", "implicit") if header.get(name) is not None), None)
    if kind is None:
        return result
    stored = header[kind]
    users, items = (Ids.restore(stored[name], arrays, name) for name in ("users", "items"))
    seen = Pattern(arrays["seen_indptr"], arrays["seen_indices"], len(items))
    seen.check()
    if (len(users), len(items)) != result.shape or seen.lines != len(users):
        raise ValueError("its ids do not belong to its factors")
    if kind == "ratings":
        return model_of(RatingsModel, result, users, items, seen, noise=float(stored["noise"]))
    numbers = {name: float(stored[name]) for name in ("weight", "decay")}
    return model_of(ImplicitModel, result, users, items, seen, **numbers)


def _penalties(stored: Sequence[Any]) -> tuple[float, float, float]:
    shrinkage, decay, mask_decay = map(float, stored)
    return shrinkage, decay, mask_decay


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
    adjacency = _graph_of(tuple(arrays[f"graph_{place}_{part}"] for part in _CSR))
    return SparseGraph(str(name), str(description), float(weight), float(energy), adjacency, bool(learned))


def index_to_plain(index: Any) -> dict[str, Any]:
    """Return a pandas index as JSON can hold it.

    Text, numbers and times come back as they were, with their names and levels. Labels that are none of
    these (intervals, objects of one's own) come back as their text.
    """
    from pandas import MultiIndex

    if isinstance(index, MultiIndex):
        return {"levels": [index_to_plain(index.get_level_values(level)) for level in range(index.nlevels)]}
    stored = {"name": _plain(index.name), "dtype": str(index.dtype), "values": _plain_values(index)}
    return stored if _comes_back(stored, index) else {**stored, "dtype": "object"}


def _plain_values(index: Any) -> list[Any]:
    if index.dtype.kind in "mM":
        # Ticks since 1970, in UTC where there is a time zone.
        return [int(tick) for tick in index.asi8]
    return [_plain(label) for label in index]


def _plain(label: Any) -> Any:
    """Return one label: numbers and strings as they are, nothing as None, the rest by its text."""
    from pandas import NA

    label = label.item() if isinstance(label, np.generic) else label
    if isinstance(label, tuple):
        return [_plain(part) for part in label]
    if label is None or label is NA:
        return None
    return label if isinstance(label, str | int | float) else str(label)


def _comes_back(stored: dict[str, Any], index: Any) -> bool:
    try:
        return bool(index_from_plain(stored).equals(index))
    except (TypeError, ValueError):
        return False


def index_from_plain(stored: dict[str, Any]) -> Any:
    """Return the pandas index that :func:`to_plain` stored."""
    from pandas import Index, MultiIndex

    if "levels" in stored:
        return MultiIndex.from_arrays([index_from_plain(level) for level in stored["levels"]])
    values = [_label(label) for label in stored["values"]]
    return Index(values, dtype=stored["dtype"], name=_label(stored["name"]), tupleize_cols=False)


def _label(stored: Any) -> Any:
    return tuple(_label(part) for part in stored) if isinstance(stored, list) else stored
