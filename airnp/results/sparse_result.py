"""The result of a sparse fit: thin factors that predict any entry."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp.data.bounds import Bounds, bounds_at
from airnp.engines.contract import Offsets
from airnp.results.graphs import strongest
from airnp.results.history import History

if TYPE_CHECKING:
    from airnp.results.graphs import Graph


Floats = npt.NDArray[Any]

_LARGEST_MATRIX = 2**28
"""Entries above which the whole matrix is not formed: 2 GiB in float64."""


@dataclass(frozen=True, eq=False)
class SparseGraph:
    """A graph at the end of a sparse fit.

    Attributes
    ----------
    name : {"rows", "columns"}
    description : str
        How its regulariser was written.
    weight, energy : float
        λ, and R in normalised units.
    adjacency : scipy.sparse.csr_array (k, k)
        A = (P + Pᵀ)/2 with its diagonal, or the given one.
    learned : bool
    """

    name: str
    description: str
    weight: float
    energy: float
    adjacency: Any
    learned: bool


@dataclass(frozen=True, eq=False)
class SparseFitResult:
    """A completed matrix as two thin factors: X_ij = μ + b_i + c_j + u_i·v_j, in the data's units.

    Attributes
    ----------
    row_factors : array (m, r)
        U, with all that it is made of.
    column_factors : array (n, r)
        V, likewise.
    offsets : Offsets or None
        ``mean``, ``rows`` (m,) and ``columns`` (n,); None for a fit without them.
    base : float
        What normalisation added to every entry; in ``offsets.mean`` if there are offsets.
    graphs : list of SparseGraph
    history : History
        Loss, fidelity and energies per recorded iteration, in normalised units.
    n_iter : int
        Iterations that were run, those of a first phase with held-out entries included.
    best_iter : int
        Iterations that led to this result.
    stop_reason : str
        Why the fit ended.
    seed : int
        Repeats this fit.
    bounds : Bounds or None
        What predictions are clipped to.
    mask_factors : tuple of two arrays or None each
        Y (n, r) and Z (m, r) of the mask factor, in the units of the factors; None where there is none.
    penalties : tuple of three floats
        What the data's units make of the fit's penalties, beside ½ Σ (x − y)²: κ of the offsets, and λ of the
        decay of the factors and of the mask factor, both times √n. For a decay that does not grow, or a fit
        without it, 0.

    Examples
    --------
    >>> import airnp
    >>> from scipy.sparse import coo_array
    >>> ratings = coo_array(([4.0, 5.0, 1.0, 2.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    >>> result = airnp.fit_sparse(ratings, 1, offsets=1.0, regularizers=[], max_iter=50, stop=None, seed=0)
    >>> bool(result.predict([0, 1], [0, 0])[0] > 3)
    True
    """

    row_factors: Floats
    column_factors: Floats
    offsets: Offsets | None
    base: float
    graphs: list[SparseGraph]
    history: History
    n_iter: int
    best_iter: int
    stop_reason: str
    seed: int
    bounds: Bounds | None = None
    mask_factors: tuple[Floats | None, Floats | None] = (None, None)
    penalties: tuple[float, float, float] = (0.0, 0.0, 0.0)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        return len(self.row_factors), len(self.column_factors)

    def predict(self, rows: Any, columns: Any) -> Floats:
        """Return the entries at pairs (rows[k], columns[k]), clipped to the bounds.

        Parameters
        ----------
        rows, columns : whole numbers, or arrays of them that broadcast against each other

        Returns
        -------
        array
            Of their common shape, in the dtype of the fit.
        """
        from airnp.engines import cpu

        m, n = self.shape
        pair = _checked_places("rows", rows, m), _checked_places("columns", columns, n)
        i, j = np.broadcast_arrays(*pair)
        flat = np.ascontiguousarray(i.reshape(-1)), np.ascontiguousarray(j.reshape(-1))
        values = cpu.entry_values(*flat, self.row_factors, self.column_factors, self._all_offsets())
        return np.asarray(self._clipped(values, flat[1]).reshape(i.shape))

    def _all_offsets(self) -> Offsets:
        if self.offsets is not None:
            return self.offsets
        m, n = self.shape
        kind = self.row_factors.dtype
        return Offsets(self.base, np.zeros(m, kind), np.zeros(n, kind))

    def _clipped(self, values: Floats, columns: npt.NDArray[Any]) -> Floats:
        if self.bounds is None:
            return values
        return np.asarray(bounds_at(self.bounds, columns).put_on(values))

    @property
    def X(self) -> Floats:  # noqa: N802
        """The whole matrix (m, n), if it is not too large to be formed."""
        m, n = self.shape
        if m * n > _LARGEST_MATRIX:
            raise ValueError(
                f"X: a matrix of {m}x{n} is not formed; predict(rows, columns) gives any of its entries"
            )
        offsets = self._all_offsets()
        whole = self.row_factors @ self.column_factors.T
        whole += offsets.rows[:, None] + offsets.columns + whole.dtype.type(offsets.mean)
        return whole if self.bounds is None else np.asarray(self.bounds.put_on(whole))

    def row_graph(self, k: int | None = None) -> Graph:
        """Return the learned graph over the rows; with k, of each row the k strongest neighbours.

        Returns
        -------
        Graph
            ``.adjacency`` is a scipy.sparse.csr_array (m, m); there are ``.laplacian()`` and
            ``.to_networkx()``.

        Raises
        ------
        ValueError
            When the fit learned no such graph.
        """
        return self._graph("rows", k)

    def column_graph(self, k: int | None = None) -> Graph:
        """Return the learned graph over the columns; otherwise as :meth:`row_graph`."""
        return self._graph("columns", k)

    def _graph(self, axis: str, k: int | None) -> Graph:
        from airnp.results.graphs import Graph

        for graph in self.graphs:
            if graph.learned and graph.name == axis:
                return Graph(strongest(graph.adjacency, k), name=axis)
        raise ValueError(
            f"{axis[:-1]}_graph: this fit learned no graph over {axis}, which takes "
            f"AdaptiveLaplacian({axis!r}) among the regularizers"
        )

    def save(self, path: str | PathLike[str]) -> None:
        """Write the result to one ``.npz`` file, without pickle; :func:`airnp.load` reads it."""
        from airnp.results.files import save_sparse_result

        save_sparse_result(self, path)

    def __repr__(self) -> str:
        m, n = self.shape
        rank = self.row_factors.shape[1]
        return f"<SparseFitResult {m}x{n} of rank {rank}, {self.n_iter} iterations, {self.stop_reason}>"


def _checked_places(name: str, places: Any, count: int) -> npt.NDArray[np.int64]:
    found = np.asarray(places)
    if found.dtype.kind not in "iu" and found.size:
        raise TypeError(f"{name}: expected whole numbers, got dtype {found.dtype}")
    if found.size and (found.min() < 0 or found.max() >= count):
        raise IndexError(f"{name}: expected 0 to {count - 1}, got {found.min()} to {found.max()}")
    return found.astype(np.int64)
