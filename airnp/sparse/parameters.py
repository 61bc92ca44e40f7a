"""What is learned in the sparse form: one list of arrays, and what each of them is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace

from airnp.engines.apart import copied_apart
from airnp.optimizers import Kind
from airnp.sparse.chain import chain_shapes
from airnp.sparse.contract import Edges, Offsets

Floats = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class SparseState:
    """Parameters, and the edges that those of the graphs belong to.

    Attributes
    ----------
    params : list of arrays (2-D)
        In the order of :class:`Layout`.
    edges : tuple of Edges
        Of each learned graph.
    """

    params: list[Floats]
    edges: tuple[Edges, ...]

    def copied(self) -> SparseState:
        """Return a copy that iterations do not change; edges are never changed in place."""
        return SparseState([_copied(param) for param in self.params], self.edges)


def _copied(array: Any) -> Any:
    """Return a copy, on the host apart from all other arrays: how loops round may depend on their places."""
    return copied_apart(array) if isinstance(array, np.ndarray) else array.copy()


@dataclass(frozen=True)
class Layout:
    """Which arrays there are: W[0]ᵀ, W[1] …, Y and Z of the mask factor, b, c and μ, V of each graph.

    Examples
    --------
    >>> layout = Layout(m=5, n=4, depth=2, rank=2, mask_rows=True, mask_columns=False, offsets=True)
    >>> layout.shapes
    [(4, 2), (5, 2), (4, 2), (1, 5), (1, 4), (1, 1)]
    """

    m: int
    n: int
    depth: int
    rank: int
    mask_rows: bool = False
    mask_columns: bool = False
    offsets: bool = False

    @property
    def shapes(self) -> list[tuple[int, int]]:
        """Shapes of all but the graphs."""
        found = chain_shapes(self.m, self.n, self.depth, self.rank)
        if self.mask_rows:
            found.append((self.n, self.rank))
        if self.mask_columns:
            found.append((self.m, self.rank))
        if self.offsets:
            found += [(1, self.m), (1, self.n), (1, 1)]
        return found

    @property
    def graphs_from(self) -> int:
        """Where the graphs begin in the list."""
        return len(self.shapes)

    def kinds(self, params: Sequence[Floats]) -> list[Kind]:
        """Return what the optimiser calls each of them."""
        first = self.graphs_from
        return ["factor" if place < first else "graph" for place in range(len(params))]

    def factors(self, params: Sequence[Floats]) -> Sequence[Floats]:
        """Return W[0]ᵀ, W[1] and so on."""
        return params[: self.depth]

    def masks(self, params: Sequence[Floats]) -> tuple[Floats | None, Floats | None]:
        """Return Y and Z; None where there is no mask factor."""
        rest = iter(params[self.depth :])
        return (next(rest) if self.mask_rows else None), (next(rest) if self.mask_columns else None)

    def offsets_of(self, params: Sequence[Floats], number: Callable[[Any], Any] = float) -> Offsets:
        """Return μ, b and c; zeros if there are none. ``number`` is what μ becomes, a float by default."""
        if not self.offsets:
            zeros, kind = array_namespace(params[0]).zeros, params[0].dtype
            return Offsets(0.0, zeros(self.m, dtype=kind), zeros(self.n, dtype=kind))
        rows, columns, mean = params[self.graphs_from - 3 : self.graphs_from]
        return Offsets(number(mean[0, 0]), rows[0], columns[0])

    def graphs(self, params: Sequence[Floats]) -> Sequence[Floats]:
        """Return V of each learned graph, (1, edges)."""
        return params[self.graphs_from :]
