"""Trees of plain values, arrays and airnp's own objects as JSON and named arrays, and back; no pickle.

An object is stored as the name of its class and the arguments that made it, which it keeps in attributes
of the same names. Only the classes listed here are stored, and only they are ever made from a file.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import is_array_api_obj, is_numpy_array

from airnp import regularizers
from airnp._arrays import Array, check_indices, to_numpy
from airnp.data.bounds import Bounds
from airnp.data.entries import Entries, Pattern
from airnp.data.linearmaps import Blocks, Columns, Rows
from airnp.engines import CPU, CUDA
from airnp.engines.contract import Edges, Moments
from airnp.model.fidelity import Huber, Squared
from airnp.model.initialization import Balanced, Gaussian
from airnp.optimizers import Adam, AdamState, DescentState, ExponentialDecay, GradientDescent
from airnp.training.options import Record
from airnp.training.stopping import EnergyChange, HeldOut, NeverStop
from airnp.training.task import Choice

_CLASSES: dict[str, type] = {
    kind.__name__: kind
    for kind in (
        *(Adam, AdamState, DescentState, ExponentialDecay, GradientDescent, Moments),
        *(getattr(regularizers, name) for name in regularizers.__all__),
        *(Blocks, Columns, Rows, CPU, CUDA, Huber, Squared),
        *(Choice, EnergyChange, HeldOut, NeverStop),
        *(Balanced, Bounds, Gaussian, Record),
        *(Edges, Entries, Pattern),
    )
}


class UnstorableError(TypeError):
    """There is something in a tree that only its owner can make again."""


class Packer:
    """Turns trees into JSON, and gathers their arrays.

    Parameters
    ----------
    known : dict of str to ndarray, optional
        Arrays that are stored anyway: those are referred to, not stored twice.

    Attributes
    ----------
    arrays : dict of str to ndarray
        What the JSON refers to, without those known before.

    Examples
    --------
    >>> packer = Packer()
    >>> packed = packer.packed({"rule": EnergyChange(0.5), "values": (np.eye(2), 1)})
    >>> tree = unpacked(packed, packer.arrays)
    >>> tree["rule"], tree["values"][0].shape
    (EnergyChange(0.5), (2, 2))
    """

    def __init__(self, known: dict[str, npt.NDArray[Any]] | None = None) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        # The arrays themselves are kept here, too: an identity is free again once its owner is gone.
        self._names: dict[int, tuple[str, Array]] = {
            id(array): (name, array) for name, array in (known or {}).items()
        }

    def packed(self, tree: Any) -> Any:
        """Return a tree as JSON can hold it.

        Raises
        ------
        UnstorableError
            If there is something in it that cannot be stored.
        """
        if isinstance(tree, np.bool_ | np.integer | np.floating):
            return {"number": tree.item(), "type": tree.dtype.name}
        if tree is None or isinstance(tree, bool | int | float | str):
            return tree
        if isinstance(tree, list):
            return [self.packed(part) for part in tree]
        if type(tree) is tuple:
            return {"tuple": [self.packed(part) for part in tree]}
        if isinstance(tree, dict):
            return {"dict": {_text(key): self.packed(part) for key, part in tree.items()}}
        if is_array_api_obj(tree):
            return {"array": self._name(tree), "host": is_numpy_array(tree)}
        if _CLASSES.get(type(tree).__name__) is type(tree):
            names = inspect.signature(type(tree)).parameters
            if not all(hasattr(tree, name) for name in names):
                raise UnstorableError(f"an object of {type(tree).__name__}")
            arguments = {name: self.packed(getattr(tree, name)) for name in names}
            return {"class": type(tree).__name__, "arguments": arguments}
        sparse = _host_sparse(tree)
        if sparse is not None:
            parts = [self.packed(getattr(sparse, part)) for part in ("data", "indices", "indptr")]
            return {"sparse": parts, "shape": list(sparse.shape)}
        raise UnstorableError(f"an object of {type(tree).__name__}")

    def _name(self, array: Array) -> str:
        if id(array) not in self._names:
            host = to_numpy(array)
            if host.dtype.kind not in "biuf":
                raise UnstorableError(f"an array of {host.dtype}")
            name = f"run_{len(self.arrays)}"
            self.arrays[name] = host
            self._names[id(array)] = (name, array)
        return self._names[id(array)][0]


def _text(key: Any) -> str:
    if not isinstance(key, str):
        raise UnstorableError(f"a dict with a key of {type(key).__name__}")
    return key


def _host_sparse(tree: Any) -> Any:
    """Return a sparse matrix of SciPy or CuPy as SciPy's CSR, None for anything else."""
    on_device, sparse = sys.modules.get("cupyx.scipy.sparse"), sys.modules.get("scipy.sparse")
    if on_device is not None and on_device.issparse(tree):
        tree = tree.get()
    if sparse is None or not sparse.issparse(tree):
        return None
    return sparse.csr_array(tree)


def _check_edges(edges: Edges) -> None:
    """Raise ValueError unless edges connect nodes of one graph."""
    nodes = edges.pattern.lines
    if edges.pattern.width != nodes:
        raise ValueError(f"edges: expected a graph of {nodes} nodes, got {edges.pattern.width} ends")
    if edges.order is not None and not np.array_equal(np.sort(edges.order), np.arange(nodes)):
        raise ValueError(f"edges: expected an order of {nodes} nodes")


def unpacked(
    packed: Any,
    arrays: dict[str, npt.NDArray[Any]],
    placed: Callable[[npt.NDArray[Any]], Array] = lambda array: array,
) -> Any:
    """Return the tree that :meth:`Packer.packed` was given.

    Parameters
    ----------
    packed : JSON value
    arrays : dict of str to ndarray
    placed : callable
        Brings an array that was not NumPy's to where the fit lives. Arrays that were one are one again.
    """
    brought: dict[str, Array] = {}

    def array(name: str, host: bool) -> Array:
        if name not in brought:
            brought[name] = arrays[name] if host else placed(arrays[name])
        return brought[name]

    def tree(part: Any) -> Any:
        if isinstance(part, list):
            return [tree(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "array" in part:
            return array(part["array"], part["host"])
        if "number" in part:
            return np.dtype(part["type"]).type(part["number"])
        if "tuple" in part:
            return tuple(tree(part["tuple"]))
        if "dict" in part:
            return {key: tree(each) for key, each in part["dict"].items()}
        if "sparse" in part:
            from scipy.sparse import csr_array

            matrix = csr_array(tuple(part["shape"]))
            matrix.data, matrix.indices, matrix.indptr = tree(part["sparse"])
            check_indices("sparse", matrix)
            return csr_array((matrix.data, matrix.indices, matrix.indptr), shape=matrix.shape)
        made = _CLASSES[part["class"]](**{name: tree(each) for name, each in part["arguments"].items()})
        if isinstance(made, Pattern | Entries):
            made.check()
        if isinstance(made, Edges):
            _check_edges(made)
        return made

    return tree(packed)
