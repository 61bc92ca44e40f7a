"""The result of a fit: the completed matrix, factors, graphs and history."""

from __future__ import annotations

from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, device, is_array_api_obj

from airnp._arrays import Array, beside, to_numpy
from airnp.data.inputs import Labels
from airnp.data.normalization import Normalization
from airnp.results.history import History

if TYPE_CHECKING:
    from airnp.data.bounds import Bounds
    from airnp.results.calibration import Calibration
    from airnp.results.graphs import Graph


@dataclass(frozen=True, eq=False)
class FittedRegularizer:
    """A regulariser at the end of a fit.

    Attributes
    ----------
    name : str
        Its column in the history is ``energy_<name>``.
    description : str
        How it was written.
    weight : float
        λ.
    energy : array (…)
        R at the result, without λ, in normalised units.
    adjacency : array (…, k, k), sparse matrix, or None
        Its graph; None for a regulariser without one.
    parameter : array (…, k, k) or None
        V, for a learned graph.
    """

    name: str
    description: str
    weight: float
    energy: Array
    adjacency: Any = None
    parameter: Array | None = None

    @property
    def laplacian(self) -> Any:
        """L = deg(A) − A, of the adjacency's own kind; None for a regulariser without a graph."""
        if self.adjacency is None:
            return None
        if not is_array_api_obj(self.adjacency):
            from scipy.sparse import diags_array

            return diags_array(np.asarray(self.adjacency.sum(axis=1)).reshape(-1)).tocsr() - self.adjacency
        xp = array_namespace(self.adjacency)
        with beside(self.adjacency):
            degree = xp.sum(self.adjacency, axis=-1)
            like = {"dtype": self.adjacency.dtype, "device": device(self.adjacency)}
            identity = xp.eye(self.adjacency.shape[-1], **like)
            return degree[..., :, None] * identity - self.adjacency


@dataclass(frozen=True, eq=False)
class FitResult:
    """A completed matrix and everything that was learned on the way.

    Attributes
    ----------
    matrix : array (…, m, n)
        The recovered matrix in the data's units, in the fit's namespace.
    factors : list of arrays
        W[0] … W[L-1]; ``normalization.undo`` of their product is ``matrix``.
    regularizers : list of FittedRegularizer
        With ``.laplacian``, ``.adjacency`` and ``.energy``.
    history : History
        Loss, fidelity and energies per recorded iteration.
    n_iter : int
        Iterations that were run.
    best_iter : int or array of int
        The iteration whose matrix is returned; for a stack, of each problem.
    stop_reason : str
        Why the fit ended.
    seed : int
        Repeats this fit.
    normalization : Normalization
        Between the factors' units and the data's.
    mask : boolean array (…, m, n) or None
        True where an entry was observed; None after an operator.
    observed : array (…, m, n) or None
        The observed values, zero elsewhere.
    labels : Labels or None
        Row and column labels of a pandas input.
    calibration : Calibration or None
        The entries that were held out, and what was predicted there before anything had seen them; what
        :meth:`interval` learns from. None if none were.
    bounds : Bounds or None
        What entries may be, as ``bounds`` of :func:`airnp.fit` said.
    """

    matrix: Array
    factors: list[Array]
    regularizers: list[FittedRegularizer]
    history: History
    n_iter: int
    best_iter: Any
    stop_reason: str
    seed: int
    normalization: Normalization
    mask: Array | None = None
    observed: Array | None = None
    labels: Labels | None = None
    calibration: Calibration | None = None
    bounds: Bounds | None = None

    @property
    def X(self) -> Any:  # noqa: N802
        """The recovered matrix; a DataFrame if the data came as one."""
        return self._labelled(self.matrix)

    @property
    def index(self) -> Any:
        """Row labels of a pandas input, else None."""
        return None if self.labels is None else self.labels.index

    @property
    def columns(self) -> Any:
        """Column labels of a pandas input, else None."""
        return None if self.labels is None else self.labels.columns

    def completed(self) -> Any:
        """Return the data with its gaps filled: observed entries as they were, the others from ``X``."""
        if self.mask is None or self.observed is None:
            raise ValueError(
                "completed(): an operator's measurements are not entries that could be kept; use X"
            )
        xp = array_namespace(self.matrix)
        with beside(self.matrix):
            return self._labelled(xp.where(self.mask, self.observed, self.matrix))

    def interval(self, level: float = 0.9) -> tuple[Any, Any]:
        """Return intervals that contain the missing entries' true values, a share ``level`` of them.

        They are calibrated on the entries that the fit held out, by split conformal prediction, and wider
        where entries are harder to predict; see :mod:`airnp.results.intervals`.

        Parameters
        ----------
        level : float
            Between 0 and 1.

        Returns
        -------
        lower, upper : arrays (…, m, n)
            In the data's units and within its bounds; of the kind of ``X``, labels included. An observed
            entry is known: both are its value.

        Raises
        ------
        ValueError
            When nothing was held out (``stop=None``, an operator), or too little for this level.

        Examples
        --------
        >>> import airnp
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.random((30, 2)) @ rng.random((2, 20)) + 0.1 * rng.standard_normal((30, 20))
        >>> mask = rng.random(truth.shape) < 0.7
        >>> result = airnp.fit(truth, mask, regularizers=[], max_iter=2000, seed=0)
        >>> lower, upper = result.interval(0.9)
        >>> inside = (lower <= truth) & (truth <= upper)
        >>> bool(0.8 < inside[~mask].mean()), bool(inside[mask].all())
        (True, True)
        """
        from airnp.results.intervals import interval

        return interval(self, level)

    def _labelled(self, matrix: Array) -> Any:
        return matrix if self.labels is None else self.labels.put_on(matrix)

    def row_graph(self, k: int | None = None, problem: Any = None) -> Graph:
        """Return the learned graph over the rows, without its weak edges.

        Parameters
        ----------
        k : int, optional
            Keep the k strongest neighbours of each row. Default: every edge stronger than a thousandth of
            the strongest. See :mod:`airnp.results.graphs` for what exactly is kept and what the weights mean.
        problem : int or tuple of int, optional
            Which problem of a stack.

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
        from airnp.results.graphs import learned_graph

        return learned_graph(self, "rows", k, problem)

    def column_graph(self, k: int | None = None, problem: Any = None) -> Graph:
        """Return the learned graph over the columns; otherwise as :meth:`row_graph`."""
        from airnp.results.graphs import learned_graph

        return learned_graph(self, "columns", k, problem)

    def to_numpy(self) -> FitResult:
        """Return the same result with NumPy arrays throughout.

        ``np.asarray(result)`` gives the matrix alone.
        """

        def host(array: Any) -> Any:
            return to_numpy(array) if is_array_api_obj(array) else array

        return replace(
            self,
            matrix=host(self.matrix),
            factors=[host(factor) for factor in self.factors],
            regularizers=[
                replace(
                    item,
                    energy=host(item.energy),
                    adjacency=host(item.adjacency),
                    parameter=host(item.parameter),
                )
                for item in self.regularizers
            ],
            normalization=Normalization(host(self.normalization.offset), host(self.normalization.scale)),
            mask=host(self.mask),
            observed=host(self.observed),
        )

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        matrix = to_numpy(self.matrix)
        return matrix.astype(dtype or matrix.dtype, copy=copy is not False)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the result to one ``.npz`` file, without pickle; :func:`airnp.load` reads it."""
        from airnp.results.files import save_result

        save_result(self, path)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.matrix.shape))
        return f"<FitResult {shape}, {self.n_iter} iterations, {self.stop_reason}>"


class DivergenceError(RuntimeError):
    """The loss became infinite or not a number.

    Attributes
    ----------
    result : FitResult
        The last finite state.
    """

    def __init__(self, message: str, result: FitResult) -> None:
        super().__init__(message)
        self.result = result

    @classmethod
    def after(cls, iterations: int, kept: int, result: Any) -> DivergenceError:
        """Return the error of a fit that went wrong after some iterations, with the state after ``kept``."""
        return cls(
            f"the loss became infinite or not a number after {iterations} iterations; the state after "
            f"{kept} is in the error's .result. A smaller learning_rate or smaller weights help.",
            result,
        )

    def __reduce__(self) -> Any:
        # An exception is rebuilt from its arguments when it comes back from another process.
        return type(self), (str(self), self.result)
