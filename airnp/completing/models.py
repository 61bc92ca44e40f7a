"""The models that compete in ``airnp.complete``: what they are meant for, what they cost, how they fit.

A new model is a class with the members of ``Model``, and a line in ``MODELS``.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from airnp.baselines.common import line_means
from airnp.baselines.imputers import knn, soft_impute
from airnp.completing.lowrank import fit_low_rank
from airnp.engines import Auto
from airnp.fitting import fit
from airnp.images.inpainting import inpaint
from airnp.ratings import fit_ratings
from airnp.regularizers import TotalVariation, default_regularizers
from airnp.tables.imputation import fit_table

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

KINDS = ("picture", "table", "matrix", "binary", "ratings")

_SPARSE = 0.7
"""Share of missing entries above which a model of ratings is tried."""


def keep_going(matrix: Floats) -> bool:
    """Return False: no model is given up."""
    return False


@dataclass(frozen=True, eq=False)
class Task:
    """One matrix to complete, as models see it.

    Attributes
    ----------
    values : ndarray (m, n)
        Zero in gaps; columns are standardised if the matrix is a table.
    observed : bool ndarray (m, n)
    kind : str
        One of :data:`KINDS`.
    seed : int
    threads : int or None
    deadline : float
        On the clock of :func:`time.monotonic`.
    give_up : callable
        Called by slow models with the matrix so far, now and then. True means that it cannot win any more.
    owners : int ndarray (n,) or None
        Columns with the same number are missing together: the categories of one column of a table.
    """

    values: Floats
    observed: Bools
    kind: str
    seed: int = 0
    threads: int | None = None
    deadline: float = math.inf
    give_up: Callable[[Floats], bool] = field(default=keep_going, repr=False)
    owners: npt.NDArray[np.intp] | None = None

    def without(self, held: Bools, **changes: Any) -> Task:
        """Return the task without some entries."""
        seen = self.observed & ~held
        return replace(self, values=np.where(seen, self.values, 0.0), observed=seen, **changes)

    @property
    def shape(self) -> tuple[int, int]:
        """(m, n)."""
        m, n = self.values.shape
        return int(m), int(n)

    @property
    def size(self) -> int:
        """m·n."""
        return self.shape[0] * self.shape[1]

    @property
    def missing(self) -> float:
        """Share of missing entries."""
        return 1 - float(self.observed.mean())


@dataclass(frozen=True, eq=False)
class Answer:
    """A completed matrix.

    Attributes
    ----------
    matrix : ndarray (m, n)
    std : ndarray (m, n) or None
        Standard deviations of missing entries, if the model has them.
    result : object
        What the model itself returns, such as a :class:`airnp.FitResult`.
    """

    matrix: Floats
    std: Floats | None = None
    result: Any = None


class Model(Protocol):
    """Completes a matrix.

    Attributes
    ----------
    name : str
    uses_neighbours : bool
        Whether it expects an entry to resemble the ones beside it, as in a picture.
    favourite_of : tuple of str
        Kinds of data for which it is begun even if it takes long.
    """

    @property
    def name(self) -> str: ...  # noqa: D102

    @property
    def uses_neighbours(self) -> bool: ...  # noqa: D102

    @property
    def favourite_of(self) -> tuple[str, ...]: ...  # noqa: D102

    def suits(self, task: Task) -> bool:
        """Return whether it is meant for such data."""

    def cost(self, task: Task) -> float:
        """Return about how many seconds a fit takes."""

    def fit(self, task: Task) -> Answer:
        """Complete the matrix from the observed entries."""


@dataclass(frozen=True)
class Means:
    """The mean of all entries, or of the row and the column of an entry."""

    by_line: bool
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ()

    @property
    def name(self) -> str:  # noqa: D102
        return "line means" if self.by_line else "constant"

    def suits(self, task: Task) -> bool:  # noqa: D102
        return True

    def cost(self, task: Task) -> float:  # noqa: D102
        return 1e-8 * task.size

    def fit(self, task: Task) -> Answer:  # noqa: D102
        if self.by_line:
            return Answer(line_means(task.values, task.observed))
        return Answer(np.full(task.values.shape, task.values[task.observed].mean()))


@dataclass(frozen=True)
class Picture:
    """A method of :func:`airnp.inpaint`."""

    name: str
    method: Any
    seconds: float
    """For a million pixels, half of them missing."""
    favourite_of: tuple[str, ...] = ()
    uses_neighbours: bool = True

    def suits(self, task: Task) -> bool:  # noqa: D102
        return task.kind != "table" and min(task.shape) >= 8

    def cost(self, task: Task) -> float:  # noqa: D102
        # The system of a smooth surface fills in where gaps join.
        joined = 100 if self.method == "biharmonic" and task.missing > 0.5 else 1
        return joined * self.seconds * 1e-6 * task.size * (0.2 + 1.6 * task.missing)

    def fit(self, task: Task) -> Answer:  # noqa: D102
        left = task.deadline - time.monotonic()
        found = inpaint(
            task.values,
            task.observed,
            method=self.method,
            channel_axis=None,
            full=True,
            seed=task.seed,
            threads=task.threads,
            time_limit=None if left == math.inf else max(left, 0.1),
        )
        if found.stop_reason == "interrupted":
            raise KeyboardInterrupt
        std = None if found.std is None else np.asarray(found.std, np.float64)
        return Answer(np.asarray(found.image, np.float64), std, found)


@dataclass(frozen=True)
class Lines:
    """Gaussian models of rows, or of columns, blended: those of :class:`airnp.sklearn.AIRImputer`."""

    name: str
    turned: bool
    favourite_of: tuple[str, ...] = ()
    uses_neighbours: bool = False

    def suits(self, task: Task) -> bool:  # noqa: D102
        return not (self.turned and task.kind == "table") and min(task.shape) > 1

    def cost(self, task: Task) -> float:  # noqa: D102
        n, d = task.shape[::-1] if self.turned else task.shape
        return 0.1 + (3e-9 * n * d**3 if d <= 150 else 5e-8 * n * d**2)

    def fit(self, task: Task) -> Answer:  # noqa: D102
        values, observed = task.values, task.observed
        if self.turned:
            values, observed = values.T, observed.T
        # Columns without entries are of no use to the model and become the mean of all.
        used = observed.any(axis=0)
        matrix = np.full(values.shape, values[observed].mean())
        spread = np.full(values.shape, values[observed].std())
        _, found = fit_table(
            values[:, used], observed[:, used], method="auto", seed=task.seed, threads=task.threads
        )
        matrix[:, used], spread[:, used] = found.X, found.std
        return Answer(matrix.T, spread.T, found) if self.turned else Answer(matrix, spread, found)


@dataclass(frozen=True)
class LowRank:
    """The matrix of low rank that :func:`airnp.completing.lowrank.fit_low_rank` finds."""

    name: str = "low rank"
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ()

    def suits(self, task: Task) -> bool:  # noqa: D102
        return min(task.shape) > 1

    def cost(self, task: Task) -> float:  # noqa: D102
        return 0.1 + 1e-5 * task.size

    def fit(self, task: Task) -> Answer:  # noqa: D102
        found = fit_low_rank(task.values, task.observed, seed=task.seed)
        return Answer(np.asarray(found.matrix, np.float64), None, found)


@dataclass(frozen=True)
class SoftImpute:
    """The matrix of small nuclear norm of :func:`airnp.baselines.soft_impute`."""

    name: str = "SoftImpute"
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ()

    def suits(self, task: Task) -> bool:  # noqa: D102
        return min(task.shape) > 1

    def cost(self, task: Task) -> float:  # noqa: D102
        return 0.05 + 9e-7 * task.size * min(task.shape)

    def fit(self, task: Task) -> Answer:  # noqa: D102
        return Answer(np.asarray(soft_impute(task.values, task.observed, seed=task.seed)))


@dataclass(frozen=True)
class Neighbours:
    """The nearest rows and columns, by :func:`airnp.baselines.knn`; needs scikit-learn."""

    name: str = "nearest lines"
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ()

    def suits(self, task: Task) -> bool:  # noqa: D102
        return find_spec("sklearn") is not None

    def cost(self, task: Task) -> float:  # noqa: D102
        m, n = task.shape
        return 0.05 + 5e-9 * m * n * (m + n)

    def fit(self, task: Task) -> Answer:  # noqa: D102
        by = "rows" if task.kind == "table" else "both"
        return Answer(np.asarray(knn(task.values, task.observed, by=by)))


@dataclass(frozen=True)
class Ratings:
    """Offsets and factors of :func:`airnp.fit_ratings`."""

    name: str = "ratings"
    uses_neighbours: bool = False
    favourite_of: tuple[str, ...] = ("ratings",)

    def suits(self, task: Task) -> bool:  # noqa: D102
        return task.kind == "ratings" or (task.kind == "matrix" and task.missing > _SPARSE)

    def cost(self, task: Task) -> float:  # noqa: D102
        return 1 + 1.5e-5 * int(task.observed.sum()) + 1e-3 * sum(task.shape)

    def fit(self, task: Task) -> Answer:  # noqa: D102
        from scipy.sparse import coo_array

        where = np.nonzero(task.observed)
        entries = coo_array((task.values[where], where), shape=task.shape)
        found = fit_ratings(entries, seed=task.seed, engine=Auto(task.threads))
        if found.stop_reason == "interrupted":
            raise KeyboardInterrupt
        return Answer(np.asarray(found.X, np.float64), None, found)


@dataclass(frozen=True)
class Factors:
    """A fit of :func:`airnp.fit`: with AIR's graphs or without, with total variation or without."""

    name: str
    graphs: bool = True
    variation: bool = False
    favourite_of: tuple[str, ...] = ()

    @property
    def uses_neighbours(self) -> bool:  # noqa: D102
        return self.variation

    def suits(self, task: Task) -> bool:  # noqa: D102
        return min(task.shape) > 1 and not (self.variation and task.kind == "table")

    def cost(self, task: Task) -> float:  # noqa: D102
        return 12_000 * (6e-5 + 8e-10 * task.size * min(task.shape))

    def fit(self, task: Task) -> Answer:  # noqa: D102
        parts: list[Any] = default_regularizers() if self.graphs else []
        given_up = False

        def stop(iteration: int, state: Any) -> bool:
            nonlocal given_up
            if iteration % 250 == 0:
                given_up = task.give_up(np.asarray(state.X))
            return given_up or time.monotonic() > task.deadline

        found = fit(
            task.values,
            task.observed,
            regularizers=[*parts, TotalVariation()] if self.variation else parts,
            callback=stop,
            seed=task.seed,
            engine=Auto(task.threads),
        )
        if found.stop_reason == "interrupted":
            raise KeyboardInterrupt
        if given_up:
            raise GivenUpError
        return Answer(np.asarray(found.matrix, np.float64), None, found)


class GivenUpError(RuntimeError):
    """A model was stopped because its held-out error could not become the lowest."""


MODELS: list[Model] = [
    Means(by_line=False),
    Means(by_line=True),
    Picture("linear", "linear", 9.0),
    Picture("smooth", "biharmonic", 2.0),
    Picture("patches", "auto", 45.0, favourite_of=("picture", "matrix")),
    LowRank(),
    Neighbours(),
    SoftImpute(),
    Lines("rows", turned=False, favourite_of=("table", "matrix")),
    Lines("columns", turned=True),
    Ratings(),
    Factors("DMF", graphs=False),
    Factors("AIR"),
    Factors("AIR + TV", variation=True),
]
"""All models. In doubt, the cheaper of two is kept."""
