"""Linear maps with adjoints: the rows, columns and blocks of X that graphs connect, and users' operators."""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import index
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_array_api_obj, is_numpy_array, is_torch_array

from airnp._arrays import Array, Namespace, from_numpy, namespace_name, to_numpy


@runtime_checkable
class Transform(Protocol):
    """A linear map from a matrix X (…, m, n) to Z (…, k, d) whose k rows are a graph's nodes.

    ``adjoint`` must satisfy ⟨forward(X), Z⟩ = ⟨X, adjoint(Z)⟩ for all X and Z; :func:`check_adjoint` tests it
    on random arrays before the map is used.
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
        Shape of the matrices, which the adjoint needs; a fit sets it.

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
    k = array.ndim - 4
    return array_namespace(array).permute_dims(array, (*range(k), k, k + 2, k + 1, k + 3))


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


class FlatOperator:
    """A ``scipy.sparse.linalg.LinearOperator`` on X.ravel(), as a map on matrices.

    Parameters
    ----------
    operator : object with ``matvec``, ``rmatvec`` and ``shape`` (o, m·n)
    shape : (m, n)
        Shape of the matrices it acts on.
    measured : tuple of int, optional
        Shape of the measurements. Default (o,).
    """

    def __init__(self, operator: Any, shape: tuple[int, int], measured: tuple[int, ...] = (-1,)) -> None:
        self._operator = operator
        self._shape = shape
        self._measured = measured

    def forward(self, X: Array) -> Array:
        """Return the o measurements of X."""
        return self._operator.matvec(X.reshape(-1)).reshape(self._measured)

    def adjoint(self, Z: Array) -> Array:
        """Return the adjoint of the operator applied to measurements, shape (m, n)."""
        try:
            image = self._operator.rmatvec(Z.reshape(-1))
        except NotImplementedError:
            raise ValueError("operator: expected one with an adjoint (rmatvec), this has none") from None
        return image.reshape(self._shape)


class GuardedMap:
    """A user's map, with its results checked and cast to the type of its argument.

    A map that holds float64 numbers turns float32 into float64, which would double the work that follows or,
    with PyTorch, fail far from its cause.

    Parameters
    ----------
    name : str
        The argument that the map was given as, for the error.
    transform : Transform
    """

    def __init__(self, name: str, transform: Transform) -> None:
        self._name = name
        self._transform = transform

    def forward(self, X: Array) -> Array:
        """Return T(X)."""
        return _like(f"{self._name}: forward", self._transform.forward(X), X)

    def adjoint(self, Z: Array) -> Array:
        """Return T*(Z)."""
        return _like(f"{self._name}: adjoint", self._transform.adjoint(Z), Z)


def _like(name: str, result: Any, given: Array) -> Array:
    """Return ``result`` in the dtype of ``given``; raise unless namespace and device are the same."""
    xp = array_namespace(given)
    if not is_array_api_obj(result) or array_namespace(result) is not xp:
        raise TypeError(f"{name} must return an array of {namespace_name(xp)}, got {type(result).__name__}")
    place, found = device(given), device(result)
    if str(place) != str(found):
        raise TypeError(f"{name} must return an array on {place}, got one on {found}")
    if is_torch_array(result):
        result = result.detach()  # the map may hold parameters that the user trains
    elif is_numpy_array(result):
        result = np.asarray(result)  # a numpy.matrix would multiply differently
    if result.dtype == given.dtype:
        return result
    if not any(xp.isdtype(result.dtype, kind) for kind in ("bool", "integral", "real floating")):
        raise TypeError(f"{name} must return real numbers, got dtype {result.dtype}")
    return xp.astype(result, given.dtype, copy=False)


def is_flat_operator(operator: Any) -> bool:
    """Return whether ``operator`` has the interface of SciPy's linear operators."""
    return all(hasattr(operator, name) for name in ("matvec", "rmatvec", "shape"))


@dataclass(frozen=True)
class Operator:
    """A linear operator that does not say which matrices it acts on, and their shape.

    Parameters
    ----------
    operator : LinearOperator or object with ``forward`` and ``adjoint``
        A scipy.sparse.linalg.LinearOperator acts on ``X.ravel()``.
    shape : (m, n)
        Shape of X.
    """

    operator: Any
    shape: tuple[int, int]

    @classmethod
    def parts(cls, operator: Any) -> tuple[Any, tuple[int, int] | None]:
        """Return the operator itself and the shape that the user said, if any."""
        return (operator.operator, operator.shape) if isinstance(operator, cls) else (operator, None)


def measurement_operator(
    operator: Any, measurements: Array, shape: Any, xp: Namespace
) -> tuple[Any, tuple[int, int]]:
    """Return an operator with ``forward`` and ``adjoint``, and the shape of the matrices it acts on.

    Parameters
    ----------
    operator : object with forward and adjoint, or SciPy linear operator
    measurements : array
        What was measured; its shape is that of ``forward``'s result.
    shape : (m, n) or None
        As the caller gave it. If None: the measurements' own shape for a SciPy operator of fitting size,
        and the shape that ``adjoint`` returns for other operators.
    xp : module
    """
    if shape is not None:
        shape = _checked_shape(shape)
    if is_flat_operator(operator):
        home = "cupy" if type(operator).__module__.startswith("cupyx") else "numpy"
        if namespace_name(xp) != home:
            library = type(operator).__module__.partition(".")[0]
            raise TypeError(
                f"operator: {library}'s linear operators work on arrays of {home}, the problem is in "
                f"{namespace_name(xp)}; give an object with forward and adjoint instead"
            )
        outputs, inputs = operator.shape
        if shape is None and len(measurements.shape) == 2 and measurements.size == inputs:
            shape = tuple(measurements.shape)
        if shape is None:
            raise ValueError(
                f"shape: expected (m, n) with m·n = {inputs}, the shape of the matrix that operator acts on; "
                "got None"
            )
        if shape[0] * shape[1] != inputs or measurements.size != outputs:
            raise ValueError(
                f"operator: its shape {tuple(operator.shape)} does not fit {measurements.size} measurements "
                f"of a matrix of {shape[0]}x{shape[1]}"
            )
        return GuardedMap("operator", FlatOperator(operator, shape, tuple(measurements.shape))), shape
    if not isinstance(operator, Transform):
        raise TypeError(
            "operator: expected a scipy.sparse.linalg.LinearOperator or an object with forward and adjoint, "
            f"got {type(operator).__name__}"
        )
    guarded = GuardedMap("operator", operator)
    if shape is None:
        shape = _checked_shape(tuple(guarded.adjoint(measurements).shape))
    ones = xp.ones(shape, dtype=measurements.dtype, device=device(measurements))
    image = guarded.forward(ones)
    # Equal sizes are not enough: an adjoint may treat (o, 1) differently from (o,).
    if tuple(image.shape) != tuple(measurements.shape):
        raise ValueError(
            f"operator: forward gives shape {tuple(image.shape)}, "
            f"the measurements Y have {tuple(measurements.shape)}"
        )
    return guarded, shape


def _checked_shape(shape: Any) -> tuple[int, int]:
    try:
        m, n = map(index, shape)
    except (TypeError, ValueError):
        raise ValueError(f"shape: expected two whole numbers (m, n), got {shape!r}") from None
    if m < 1 or n < 1:
        raise ValueError(f"shape: expected at least one row and one column, got {shape!r}")
    return m, n


def check_adjoint(
    name: str, transform: Transform, like: Array, xp: Namespace, place: Any, dtype: str
) -> Array:
    """Raise unless ``transform`` is linear and its adjoint passes the dot test; return T of a random X.

    The test is ⟨T(x), z⟩ = ⟨x, T*(z)⟩ for a random x, and T(−2x) = −2 T(x). A map that fails it would
    silently optimise another objective. Half of z is random and half is T(x): two random vectors of a million
    entries are nearly orthogonal, so any adjoint would pass in float32.

    Parameters
    ----------
    name : str
        The argument's name, for the error.
    transform : Transform
    like : array
        Its shape is that of X.
    """
    rng = np.random.default_rng(0)
    guarded = GuardedMap(name, transform)
    x = from_numpy(rng.standard_normal(tuple(like.shape)), xp, place, dtype)
    image = guarded.forward(x)
    host_x, host_image = _host(x), _host(image)
    size = float(np.linalg.norm(host_image))
    noise = rng.standard_normal(host_image.shape)
    z = from_numpy(host_image + noise * ((size or 1.0) / np.linalg.norm(noise)), xp, place, dtype)
    back = guarded.adjoint(z)
    if tuple(back.shape) != tuple(x.shape):
        raise ValueError(
            f"{name}: adjoint must return the shape that forward takes, {tuple(x.shape)}, "
            f"got {tuple(back.shape)}"
        )
    left, right = np.sum(host_image * _host(z)), np.sum(host_x * _host(back))
    tolerance = 1e-3 if dtype == "float32" else 1e-8
    if not abs(left - right) <= tolerance * size * np.linalg.norm(_host(z)):
        raise ValueError(
            f"{name}: adjoint is not the adjoint of forward: <forward(x), z> = {left:.6g}, "
            f"<x, adjoint(z)> = {right:.6g}"
        )
    if not np.linalg.norm(_host(guarded.forward(-2 * x)) + 2 * host_image) <= tolerance * size:
        raise ValueError(f"{name}: forward is not linear: forward(-2 x) differs from -2 forward(x)")
    return image


def _host(array: Array) -> npt.NDArray[np.float64]:
    return to_numpy(array).astype(np.float64)
