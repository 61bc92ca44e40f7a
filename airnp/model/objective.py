"""The objective: fidelity plus regularisers of a product of factors, with its exact gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from array_api_compat import array_namespace, is_array_api_obj

from airnp._arrays import (
    Array,
    cast,
    dtype_name,
    from_numpy,
    namespace_name,
    on_device,
    shared_namespace,
    to_numpy,
)
from airnp._checks import checked_depth, checked_whole
from airnp.data.inputs import Observations, read
from airnp.data.linearmaps import Operator, Transform, check_adjoint, measurement_operator
from airnp.data.normalization import PreparedData
from airnp.engines import EngineChoice, select_engine
from airnp.engines.contract import NO_MEMORY, Engine, Memory, Update
from airnp.model.factorization import factor_gradients, factor_shapes, suffix_products
from airnp.model.fidelity import Fidelity, Squared, checked_fidelity
from airnp.model.initialization import Initializer, checked_init, draw_graph
from airnp.optimizers import Kind
from airnp.regularizers import Regularizer, checked_regularizers
from airnp.regularizers.base import Problem, Term


@dataclass(frozen=True)
class ModelSettings:
    """What is fitted to the data, as :func:`airnp.fit` was told; every phase makes its objective from it."""

    regularizers: list[Regularizer]
    depth: int
    rank: int | None
    fidelity: Squared


_SAFE_SIZE = 1e12
"""A matrix with entries below this has a finite loss in float32: squares and sums stay far from overflow."""


class Evaluation(NamedTuple):
    """The objective at one point."""

    fidelity: Array
    """F, shape (…)."""
    energies: list[Array]
    """R of each regulariser, shape (…), without λ."""
    factor_grads: list[Array]
    graph_grads: list[Array | None]
    """None where the graph was updated instead."""
    graphs: list[Array]
    """Each V, after its update if there was one."""


class Objective:
    r"""The loss that AIR minimises, and its exact gradient, on the data as given.

    .. math:: F(X) + \sum_i λ_i R_i(T_i(X)), \qquad X = W[L-1] \cdots W[1] W[0]

    Nothing is normalised: what you give is what is fitted. For completing a matrix use :func:`airnp.fit`;
    this class is for use with an optimiser of your own.

    Parameters
    ----------
    Y : array-like (…, m, n)
        Data; see :func:`airnp.fit` for all that is accepted. With ``operator``, the measurements.
    mask : array-like, optional
        True where observed. Without it NaN means missing.
    regularizers : list of Regularizer, optional
        Default: AIR, learned graphs over rows and columns. ``[]`` is plain deep matrix factorisation.
    depth : int
        Number of factors L.
    rank : int, optional
        Inner dimension r of the factors. Default min(m, n).
    operator : LinearOperator, object with ``forward`` and ``adjoint``, or Operator, optional
        A, for the fidelity s/2 ‖A(X) − y‖².
    fidelity : Squared or Huber, optional
        Shape and scale of the data term; δ in the data's units.
    weights : array-like, optional
        Non-negative weight of each entry.
    dtype : dtype, optional
        float32 or float64; default as in :func:`airnp.fit`.
    xp : module, optional
        Array namespace; default that of Y.
    engine : str
        See :func:`airnp.fit`.

    Attributes
    ----------
    shape : (m, n)
    batch : tuple of int
        Shape of the stack; empty for one matrix.
    depth, rank : int
    regularizers : list of Regularizer
    terms : list of Term
        The regularisers bound to this problem.

    Examples
    --------
    >>> import numpy as np
    >>> Y = np.outer([1.0, 2, 3], [1.0, 3, 1, 2])
    >>> objective = Objective(Y, Y != 9, depth=2)
    >>> params = objective.init(seed=0)
    >>> [p.shape for p in params]
    [(3, 4), (3, 3), (3, 3), (4, 4)]
    >>> value, grads = objective.value_and_grad(params)
    >>> [g.shape for g in grads]
    [(3, 4), (3, 3), (3, 3), (4, 4)]
    """

    def __init__(
        self,
        Y: Any,
        mask: Any = None,
        *,
        regularizers: Sequence[Regularizer] | None = None,
        depth: int = 3,
        rank: int | None = None,
        operator: Any = None,
        fidelity: Squared | None = None,
        weights: Any = None,
        dtype: Any = None,
        xp: Any = None,
        engine: Any = "auto",
    ) -> None:
        seen = read(Y, mask, weights, xp=xp, dtype=dtype, matrices=operator is None)
        with on_device(seen.xp, seen.device):
            seen = seen.moved()
            size: tuple[int, int] | None = None
            if operator is not None:
                operator, shape = Operator.parts(operator)
                operator, size = measurement_operator(operator, seen.values, shape, seen.xp)
            settings = ModelSettings(
                checked_regularizers(regularizers), depth, rank, checked_fidelity(fidelity)
            )
            self._set_up(seen, operator, size, settings, select_engine(engine, seen.xp))

    @classmethod
    def of_data(
        cls, data: PreparedData, observations: Observations, settings: ModelSettings, engine: EngineChoice
    ) -> Objective:
        """Return the objective of some of the observations of data that were read and normalised."""
        objective = cls.__new__(cls)
        objective._set_up(observations, data.operator, data.shape, settings, engine)
        return objective

    def _set_up(
        self,
        observations: Observations,
        operator: Transform | None,
        shape: tuple[int, int] | None,
        settings: ModelSettings,
        engine: EngineChoice,
    ) -> None:
        self._xp, self._device, self._dtype = observations.xp, observations.device, observations.dtype
        self._ops = engine.ops
        values, weights = observations.values, observations.weights
        if operator is None:
            self.batch: tuple[int, ...] = tuple(values.shape[:-2])
            self.shape: tuple[int, int] = (int(values.shape[-2]), int(values.shape[-1]))
        else:
            assert shape is not None
            self.batch, self.shape = (), shape
            self._check_operator(operator)
        m, n = self.shape
        self.depth = checked_depth(settings.depth)
        self.rank = _checked_rank(settings.rank, m, n, self.depth)
        scale = settings.fidelity.factor(m, n)
        self._fidelity = Fidelity(values, weights, scale, settings.fidelity.threshold, operator)
        self.regularizers = settings.regularizers
        entries = (None, None) if operator is not None else (values, weights)
        problem = Problem(self.batch, m, n, scale, self._xp, self._device, self._dtype, *entries)
        self.terms: list[Term] = [regularizer.bind(problem) for regularizer in self.regularizers]

    def _check_operator(self, operator: Transform) -> None:
        probe = from_numpy(np.zeros(self.shape), self._xp, self._device, self._dtype)
        check_adjoint("operator", operator, probe, self._xp, self._device, self._dtype)

    @property
    def engine(self) -> Engine:
        """The engine that carries out the operations."""
        return self._ops

    @property
    def is_plain(self) -> bool:
        """Whether :meth:`evaluate` is made of the engine's operations alone, without a user's maps."""
        scaled = [term.scaled_lines for term in self.terms if term.scaled_lines is not None]
        plain = all(term.is_plain for term in self.terms) and len(set(scaled)) == len(scaled)
        return plain and self._fidelity.operator is None

    @property
    def param_shapes(self) -> list[tuple[int, ...]]:
        """Shapes of all parameters: the factors W[0] … W[L-1], then V of each learned graph."""
        factors = [(*self.batch, *shape) for shape in factor_shapes(*self.shape, self.depth, self.rank)]
        return factors + [term.parameter_shape for term in self.terms if term.parameter_shape is not None]

    @property
    def portion(self) -> int:
        """Iterations at most between two whole states: what an interrupt or a divergence may cost."""
        return 100 if self._ops.looks_seldom else 50

    rhythms: tuple[int, ...] = ()
    """Iterations after whose multiples :meth:`refresh` has something to do: none."""

    structure: Any = None
    """What changes during a fit besides the parameters: nothing."""

    @property
    def energy_names(self) -> list[str]:
        """What each energy belongs to."""
        return [regularizer.name for regularizer in self.regularizers]

    @property
    def learned(self) -> list[bool]:
        """For each energy, whether it is that of a graph that is being learned."""
        return [term.parameter_shape is not None and term.weight > 0 for term in self.terms]

    def adopt(self, params: list[Array]) -> list[Array]:
        """Return saved parameters as they are."""
        return params

    def kinds(self, params: Sequence[Array]) -> list[Kind]:
        """Return what the optimiser calls each parameter."""
        return ["factor" if place < self.depth else "graph" for place in range(len(params))]

    def init(self, seed: int | np.random.Generator | None = None, init: Any = "gaussian") -> list[Array]:
        """Return parameters to start from: the factors W[0] … W[L-1], then one V per learned graph.

        Parameters
        ----------
        seed : int, Generator or None
        init : {"gaussian", "balanced"}, Gaussian, Balanced, or list of arrays
            Arrays are the factors, or all parameters; they are copied. All problems of a stack start alike.
        """
        start = checked_init(init)
        rng = np.random.default_rng(seed)
        if isinstance(start, Initializer):
            drawn = start.draw(rng, *self.shape, self.depth, self.rank)
            factors = [self._placed(array) for array in drawn]
            given: list[Array] = []
        else:
            factors, given = self._split_given(start)
        graphs = given or [
            self._placed(draw_graph(rng, shape[-1])) for shape in self.param_shapes[self.depth :]
        ]
        return factors + graphs

    def _placed(self, array: npt.NDArray[np.float64]) -> Array:
        stacked = np.broadcast_to(array, (*self.batch, *array.shape[-2:]))
        return from_numpy(stacked, self._xp, self._device, self._dtype)

    def _split_given(self, arrays: Sequence[Any]) -> tuple[list[Array], list[Array]]:
        shapes = self.param_shapes
        if len(arrays) not in (self.depth, len(shapes)):
            raise ValueError(
                f"init: expected {self.depth} factors, or these and the graphs, {len(shapes)} arrays in all; "
                f"got {len(arrays)}"
            )
        copies = []
        for position, (array, shape) in enumerate(zip(arrays, shapes, strict=False)):
            host = to_numpy(array)
            if host.dtype.kind not in "biuf":
                raise TypeError(f"init: array {position} must hold real numbers, got dtype {host.dtype}")
            if host.shape not in (shape, shape[-2:]):
                raise ValueError(f"init: array {position} must have shape {shape}, got {host.shape}")
            if not np.all(np.isfinite(host)):
                raise ValueError(f"init: array {position} has NaN or infinite entries")
            copies.append(self._placed(host))
        return copies[: self.depth], copies[self.depth :]

    def value_and_grad(self, params: Sequence[Array]) -> tuple[float, list[Array]]:
        """Return the loss and its gradient; modifies nothing.

        Parameters
        ----------
        params : list of arrays
            As from :meth:`init`. Other types of real numbers are converted to that of the objective.

        Returns
        -------
        value : float
            The loss, summed over the problems of a stack.
        grads : list of arrays
            One for each parameter, of its shape.
        """
        placed = self._checked_params(params)
        with on_device(self._xp, self._device):
            found = self.evaluate(placed, memory=NO_MEMORY)
        grads = [*found.factor_grads, *found.graph_grads]
        return float(np.sum(self.losses(found.fidelity, found.energies))), grads

    def evaluate(
        self, params: Sequence[Array], *, updates: Sequence[Update] | None = None, memory: Memory
    ) -> Evaluation:
        """Return all parts of the objective; with ``updates``, the graphs make their step on the way.

        Parameters
        ----------
        params : list of arrays
        updates : sequence of Update, optional
            One per learned graph. V is read and written once when its gradient needs not be kept.
        memory : Memory
            Where intermediates may live.
        """
        ops, factors = self._ops, params[: self.depth]
        graphs = iter(params[self.depth :])
        graph_updates = iter(updates or ())
        products = suffix_products(ops, factors, memory)
        x = products[-1]
        contributions = []
        with ops.together():
            for term in self.terms:
                learned = term.parameter_shape is not None
                v = next(graphs) if learned else None
                update = next(graph_updates, None) if learned else None
                contributions.append(term.prepare(ops, x, v, update, memory))
        for part in contributions:
            if part.spare is not None:
                memory.give(part.spare)
        row_scale = _total([part.row_scale for part in contributions])
        column_scale = _total([part.column_scale for part in contributions])
        fidelity, gradient = self._fidelity.value_and_gradient(ops, x, row_scale, column_scale, memory)
        energies = []
        for term, part in zip(self.terms, contributions, strict=True):
            energy, gradient = term.accumulate(ops, x, gradient, part)
            energies.append(energy)
            if part.terms is not None:
                memory.give(part.terms.adjacency)
        if self.depth > 1:
            memory.give(x)
        factor_grads = factor_gradients(ops, factors, products, gradient, memory)
        learned_terms = [part.terms for part in contributions if part.terms is not None]
        return Evaluation(
            fidelity,
            energies,
            factor_grads,
            [terms.gradient for terms in learned_terms],
            [terms.parameter for terms in learned_terms],
        )

    def step(
        self, params: Sequence[Array], updates: Sequence[Update], memory: Memory
    ) -> tuple[list[Array], list[Array]]:
        """Make one iteration; return the parameters, and fidelity and energies as they were before it."""
        depth = self.depth
        found = self.evaluate(params, updates=updates[depth:], memory=memory)
        moved = self._ops.apply_updates(params[:depth], found.factor_grads, updates[:depth])
        for grad in found.factor_grads:
            memory.give(grad)
        return [*moved, *found.graphs], [found.fidelity, *found.energies]

    def refresh(self, iteration: int, params: list[Array], memory: Any) -> bool:
        """Return whether arrays of the iteration were replaced by others: never."""
        return False

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def is_finite(self, params: Sequence[Array]) -> bool:
        """Whether the matrix and the loss are finite at this very point."""
        if self._is_moderate(params):
            return True
        found = self.evaluate(params, memory=NO_MEMORY)
        arrays = [self.matrix(params), found.fidelity, *found.energies]
        return all(bool(np.isfinite(to_numpy(array)).all()) for array in arrays)

    def _is_moderate(self, params: Sequence[Array]) -> bool:
        """Whether parameters are so small that matrix and loss must be finite; far cheaper than to look.

        An entry of a product is at most the product of the factors' largest entries times r for every
        inner dimension.
        """
        sizes = _largest(params)
        entry = math.prod(sizes[: self.depth]) * float(self.rank) ** (self.depth - 1)
        return entry < _SAFE_SIZE and all(size < 80 for size in sizes[self.depth :])

    def losses(self, fidelity: Any, energies: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Return F + Σ λ R, per problem, from values recorded or evaluated."""
        total: npt.NDArray[np.float64] = to_numpy(fidelity).astype(np.float64)
        for term, energy in zip(self.terms, energies, strict=True):
            total = total + term.weight * to_numpy(energy).astype(np.float64)
        return total

    def matrix(self, params: Sequence[Array]) -> Array:
        """Return X, the product of the factors, shape (…, m, n)."""
        factors = self._checked_params(params, "factors")
        with on_device(self._xp, self._device):
            return suffix_products(self._ops, factors, NO_MEMORY)[-1]

    def adjacencies(self, params: Sequence[Array]) -> list[Any]:
        """Return each regulariser's adjacency at ``params``; None where it has no graph."""
        graphs = iter(self._checked_params(params)[self.depth :])
        return [
            term.adjacency(self._ops, next(graphs) if term.parameter_shape is not None else None)
            for term in self.terms
        ]

    def pack(self, params: Sequence[Array]) -> npt.NDArray[np.float64]:
        """Return all parameters (or gradients) as one flat NumPy vector in float64, as SciPy wants them."""
        return np.concatenate([to_numpy(param).astype(np.float64).ravel() for param in params])

    def unpack(self, vector: npt.ArrayLike) -> list[Array]:
        """Return the parameters that :meth:`pack` made into a vector."""
        flat = np.asarray(vector, dtype=np.float64)
        sizes = [int(np.prod(shape)) for shape in self.param_shapes]
        if flat.shape != (sum(sizes),):
            raise ValueError(f"vector: expected shape ({sum(sizes)},), got {flat.shape}")
        pieces = np.split(flat, np.cumsum(sizes)[:-1])
        return [
            from_numpy(piece.reshape(shape), self._xp, self._device, self._dtype)
            for piece, shape in zip(pieces, self.param_shapes, strict=True)
        ]

    def _checked_params(self, params: Sequence[Array], which: str = "all") -> list[Array]:
        """Return all parameters, or the factors alone, as the engine takes them, copied where necessary.

        Raises
        ------
        ValueError, TypeError
            If their number, a shape, a type or the namespace is another than that of the objective.
        """
        shapes = self.param_shapes
        if len(params) != len(shapes) and not (which == "factors" and len(params) == self.depth):
            raise ValueError(f"params: expected {len(shapes)} arrays, got {len(params)}")
        if which == "factors":
            params, shapes = params[: self.depth], shapes[: self.depth]
        for position, (param, shape) in enumerate(zip(params, shapes, strict=True)):
            if not is_array_api_obj(param):
                raise TypeError(f"params: array {position} must be an array, got {type(param).__name__}")
            if tuple(param.shape) != shape:
                raise ValueError(
                    f"params: array {position} must have shape {shape}, got {tuple(param.shape)}"
                )
        named = {f"params[{position}]": param for position, param in enumerate(params)}
        source, _ = shared_namespace({"Y": self._fidelity.values, **named})
        if source is not self._xp:
            raise TypeError(
                f"params: expected arrays of {namespace_name(self._xp)}, got {namespace_name(source)}"
            )
        return [self._checked_param(position, param) for position, param in enumerate(params)]

    def _checked_param(self, position: int, param: Array) -> Array:
        xp = self._xp
        if not any(xp.isdtype(param.dtype, kind) for kind in ("bool", "integral", "real floating")):
            raise TypeError(f"params: array {position} must hold real numbers, got dtype {param.dtype}")
        flags = getattr(param, "flags", None)  # of NumPy and CuPy; compiled loops need C order
        in_order = flags is None or (flags.c_contiguous and getattr(flags, "writeable", True))
        native = getattr(param.dtype, "isnative", True) and getattr(flags, "aligned", True)
        if dtype_name(param.dtype) == self._dtype and in_order and native:
            return param
        return cast(param, xp, self._dtype)


def _largest(arrays: Sequence[Array]) -> list[float]:
    """Return the largest magnitude in each array, brought from the device all at once."""
    xp = array_namespace(*arrays)
    found = to_numpy(xp.stack([extreme(array) for array in arrays for extreme in (xp.max, xp.min)]))
    return [float(max(top, -bottom)) for top, bottom in found.reshape(-1, 2)]


def _total(scales: Sequence[Array | None]) -> Array | None:
    """Return the sum of those that are there."""
    total = None
    for scale in scales:
        if scale is not None:
            total = scale if total is None else total + scale
    return total


def _checked_rank(rank: Any, m: int, n: int, depth: int) -> int:
    if rank is None:
        return min(m, n)
    rank = checked_whole("rank", rank)
    if rank > min(m, n):
        raise ValueError(
            f"rank: expected at most min(m, n) = {min(m, n)} for a matrix of {m}x{n}, got {rank}"
        )
    if depth == 1 and rank < min(m, n):
        raise ValueError(
            f"rank: a single factor (depth=1) has full rank {min(m, n)}, got {rank}; use depth=2 or more"
        )
    return int(rank)
