"""Linear maps T that say whose similarity a graph describes: rows, columns, blocks, or the user's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
from array_api_compat import array_namespace

from airnp._arrays import Array


@runtime_checkable
class Transform(Protocol):
    """A linear map from a matrix X (…, m, n) to Z (…, k, d) whose k rows are a graph's nodes.

    ``adjoint`` must satisfy ⟨forward(X), Z⟩ = ⟨X, adjoint(Z)⟩ for all X and Z; airnp tries it once on random
    arrays before it uses the map.
    """

    def forward(self, X: Array) -> Array:
        """Return T(X)."""

    def adjoint(self, Z: Array) -> Array:
        """Return T*(Z)."""


@dataclass(frozen=True)
class Rows:
    """T(X) = X: the graph connects rows."""

    def forward(self, X: Array) -> Array:
        """Return X."""
        return X

    def adjoint(self, Z: Array) -> Array:
        """Return Z."""
        return Z


@dataclass(frozen=True)
class Columns:
    """T(X) = Xᵀ: the graph connects columns."""

    def forward(self, X: Array) -> Array:
        """Return Xᵀ."""
        return array_namespace(X).matrix_transpose(X)

    def adjoint(self, Z: Array) -> Array:
        """Return Zᵀ."""
        return array_namespace(Z).matrix_transpose(Z)


@dataclass(frozen=True)
class Blocks:
    """T(X) has one row per block of X: the graph connects blocks.

    X is cut into blocks of ``height × width`` entries, read from left to right and from top to bottom; each
    becomes one row of T(X), its entries in reading order. The blocks must tile X exactly.

    Parameters
    ----------
    height, width : int
        Size of a block, in entries.
    shape : (m, n), optional
        Shape of the matrices, which the adjoint has to know; a fit sets it by itself.

    Examples
    --------
    >>> import numpy as np
    >>> blocks = Blocks(2, 2, shape=(2, 4))
    >>> blocks.forward(np.arange(8.0).reshape(2, 4))
    array([[0., 1., 4., 5.],
           [2., 3., 6., 7.]])
    """

    height: int
    width: int
    shape: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        for name, size in (("height", self.height), ("width", self.width)):
            if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
                raise ValueError(f"{name}: expected a whole number of at least 1, got {size!r}")
        if self.shape is not None:
            m, n = self.shape
            if m % self.height or n % self.width:
                raise ValueError(
                    f"axis: blocks of {self.height}x{self.width} do not tile a matrix of {m}x{n}; "
                    f"the height must divide {m} and the width must divide {n}"
                )

    def forward(self, X: Array) -> Array:
        """Return the blocks of X (…, m, n) as rows, shape (…, blocks, height·width)."""
        if self.shape != tuple(X.shape[-2:]):
            return replace(self, shape=tuple(X.shape[-2:])).forward(X)
        xp = array_namespace(X)
        batch = tuple(X.shape[:-2])
        down, across = self._grid(self.shape)
        cut = xp.reshape(X, (*batch, down, self.height, across, self.width))
        return xp.reshape(_swap_middle(cut), (*batch, down * across, self.height * self.width))

    def adjoint(self, Z: Array) -> Array:
        """Return the matrix (…, m, n) whose blocks are the rows of Z."""
        if self.shape is None:
            raise ValueError(
                "shape: Blocks needs the matrix's shape for its adjoint, as in Blocks(8, 8, shape=(m, n))"
            )
        xp = array_namespace(Z)
        batch = tuple(Z.shape[:-2])
        blocks = xp.reshape(Z, (*batch, *self._grid(self.shape), self.height, self.width))
        return xp.reshape(_swap_middle(blocks), (*batch, *self.shape))

    def _grid(self, shape: tuple[int, int]) -> tuple[int, int]:
        return shape[0] // self.height, shape[1] // self.width


def _swap_middle(array: Array) -> Array:
    """Exchange the second and third of the last four axes; its own inverse."""
    batch = tuple(range(array.ndim - 4))
    last = array.ndim - 4
    return array_namespace(array).permute_dims(array, (*batch, last, last + 2, last + 1, last + 3))


_NAMED: dict[str, Transform] = {"rows": Rows(), "columns": Columns()}


def checked_axis(axis: Any) -> Any:
    """Return ``axis`` if it names or is a transform, else raise."""
    if isinstance(axis, str):
        if axis not in _NAMED:
            raise ValueError(
                f"axis: expected one of {', '.join(map(repr, _NAMED))} or a transform, got {axis!r}"
            )
    elif not isinstance(axis, Transform):
        raise TypeError(
            f"axis: expected 'rows', 'columns', Blocks(height, width) or an object with forward and adjoint, "
            f"got {type(axis).__name__}"
        )
    return axis


def bound_transform(axis: Any, m: int, n: int) -> Transform:
    """Return the transform that ``axis`` means for matrices of m×n."""
    if isinstance(axis, str):
        return _NAMED[axis]
    if isinstance(axis, Blocks):
        return replace(axis, shape=(m, n))
    transform: Transform = axis
    return transform


def axis_name(axis: Any) -> str:
    """Return a short name for the history's columns and for plots."""
    if isinstance(axis, str):
        return axis
    return "blocks" if isinstance(axis, Blocks) else type(axis).__name__.lower()
