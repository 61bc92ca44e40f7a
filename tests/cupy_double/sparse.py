"""``cupyx.scipy.sparse.csr_matrix``: three arrays and a shape."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.cupy_double.array import ndarray
from tests.cupy_double.functions import asarray
from tests.cupy_double.streams import current_stream


class csr_matrix:  # noqa: N801
    """A sparse matrix from (data, indices, indptr), or from a SciPy matrix, on the current device."""

    format = "csr"

    def __init__(self, arg1: Any, shape: Any = None, dtype: Any = None, copy: bool = False) -> None:
        if isinstance(arg1, tuple) and len(arg1) == 3:
            for part in arg1:
                if not isinstance(part, ndarray):
                    raise TypeError(f"Unsupported type {type(part)}")
            data, indices, indptr = arg1
        elif hasattr(arg1, "tocsr"):
            host = arg1.tocsr()
            shape = host.shape
            data, indices, indptr = (asarray(part) for part in (host.data, host.indices, host.indptr))
        else:
            raise TypeError(f"Unsupported type {type(arg1)}")
        if shape is None:
            raise NotImplementedError("the double does not guess the shape of a sparse matrix")
        if data.size != indices.size or indptr.size != shape[0] + 1:
            raise ValueError("data, indices, and indptr do not fit together")
        self.shape = (int(shape[0]), int(shape[1]))
        self.data: ndarray = data.astype(data.dtype if dtype is None else dtype, copy=copy)
        # CuPy's sparse matrices have 32-bit indices.
        self.indices: ndarray = indices.astype(np.int32, copy=copy)
        self.indptr: ndarray = indptr.astype(np.int32, copy=copy)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def nnz(self) -> int:
        return self.data.size

    @property
    def ndim(self) -> int:
        return 2

    def __matmul__(self, other: Any) -> ndarray:
        """Return the product with a vector or matrix of the device, which CuPy hands to cuSPARSE."""
        if not isinstance(other, ndarray):
            raise TypeError(f"Unsupported type {type(other)}")
        if current_stream().is_capturing():
            raise NotImplementedError("calling cuSPARSE API during stream capture is currently unsupported")
        return asarray(self.get() @ other.get())

    def get(self) -> Any:
        """Return the matrix of SciPy."""
        import scipy.sparse

        parts = (self.data.get(), self.indices.get(), self.indptr.get())
        return scipy.sparse.csr_matrix(parts, shape=self.shape)


def issparse(x: Any) -> bool:
    """Whether something is a sparse matrix of the device."""
    return isinstance(x, csr_matrix)
