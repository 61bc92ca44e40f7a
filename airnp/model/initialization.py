"""Where the factors and the graphs start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from airnp.model.factorization import factor_shapes

Host = npt.NDArray[np.float64]

_FIRST_GRADIENT = 1e-6
_FIRST_ENTRY = 1e-9 * 240**2
"""An entry of the first X at 240×240, depth 3, N(1e-3, 1e-3²)."""

_LARGEST_FIRST_ENTRY = 0.05

_FIRST_SINGULAR_VALUE = 1e-3 * 240**0.5
"""A singular value of the noise of one factor there."""


@runtime_checkable
class Initializer(Protocol):
    """Draws the first factors W[0] … W[L-1] of an m×n matrix, in float64 on the host."""

    def draw(self, rng: np.random.Generator, m: int, n: int, depth: int, rank: int) -> list[Host]:
        """Return the factors."""


def lively_scale(m: int, n: int, depth: int, rank: int) -> float:
    r"""Return μ such that factors of mean μ start to move at once, whatever their size and depth.

    Every entry of a product of L such factors is about μᴸ rᴸ⁻¹, and the first gradient of a factor under
    the mean fidelity about μᴸ⁻¹ rᴸ⁻² / max(m, n). At 240×240 and L = 3, μ = 1e-3 makes them 6e-5 and
    1e-6. Far smaller gradients drown in Adam's ε = 1e-8; far smaller products are below one step of the
    optimiser. The mean returned is the smallest that falls below neither value, unless the first X of a
    very large matrix would then be of the size of the data.

    Examples
    --------
    >>> round(lively_scale(240, 240, depth=3, rank=240), 12)
    0.001
    """
    by_entry = (_FIRST_ENTRY / rank ** (depth - 1)) ** (1 / depth)
    if depth == 1:
        return float(by_entry)
    by_gradient = (_FIRST_GRADIENT * max(m, n) / rank ** (depth - 2)) ** (1 / (depth - 1))
    at_most = (_LARGEST_FIRST_ENTRY / rank ** (depth - 1)) ** (1 / depth)
    return float(max(by_entry, min(by_gradient, at_most)))


def lively_spread(m: int, n: int, depth: int, rank: int) -> float:
    r"""Return σ such that factors drawn from N(μ, σ²) leave the first saddle equally soon at every depth.

    The common mean makes X grow along one component, and when that one is fitted the gradient vanishes but
    for the noise, which tells the other components apart. A component whose singular value is s in each of
    the L factors then grows like ds/dt ∝ sᴸ⁻¹, and takes off after a time ∝ s⁻⁽ᴸ⁻²⁾. Noise of N(0, σ²)
    has s ≈ σ√r; keeping sᴸ⁻² at its value for 240×240, L = 3 keeps that time. With one or two factors
    there is no such wait, and σ = μ.

    Examples
    --------
    >>> round(lively_spread(240, 240, depth=3, rank=240), 12)
    0.001
    """
    mean = lively_scale(m, n, depth, rank)
    if depth < 3:
        return mean
    return float(max(mean, _FIRST_SINGULAR_VALUE ** (1 / (depth - 2)) / rank**0.5))


@dataclass(frozen=True)
class Gaussian:
    """Every entry of every factor from N(mean, scale²).

    Parameters
    ----------
    mean, scale : float, optional
        Default: :func:`airnp.model.initialization.lively_scale` and
        :func:`airnp.model.initialization.lively_spread`, both 1e-3 for a 240×240 matrix of depth 3.
    """

    mean: float | None = None
    scale: float | None = None

    def __post_init__(self) -> None:
        if self.mean is not None and not np.isfinite(self.mean):
            raise ValueError(f"mean: expected a finite number, got {self.mean!r}")
        if self.scale is not None and not 0 <= self.scale < np.inf:
            raise ValueError(f"scale: expected a finite number of at least 0, got {self.scale!r}")

    def draw(self, rng: np.random.Generator, m: int, n: int, depth: int, rank: int) -> list[Host]:
        """Return the factors."""
        mean = lively_scale(m, n, depth, rank) if self.mean is None else self.mean
        scale = lively_spread(m, n, depth, rank) if self.scale is None else self.scale
        return [rng.normal(mean, scale, size=shape) for shape in factor_shapes(m, n, depth, rank)]


@dataclass(frozen=True)
class Balanced:
    """Factors with W[l+1]ᵀ W[l+1] = W[l] W[l]ᵀ, whose product is that of :class:`Gaussian` factors.

    With the product's singular value decomposition U Σ Vᵀ and random orthogonal Q, W[l] = Q[l+1] Σ^(1/L)
    Q[l]ᵀ, where Q[0] = V and Q[L] = U. Under gradient flow balanced factors stay balanced, which the
    theory assumes.

    Parameters
    ----------
    mean, scale : float, optional
        Of the Gaussian factors.
    """

    mean: float | None = None
    scale: float | None = None

    def draw(self, rng: np.random.Generator, m: int, n: int, depth: int, rank: int) -> list[Host]:
        """Return the factors."""
        product = np.linalg.multi_dot(
            [np.eye(m), *reversed(Gaussian(self.mean, self.scale).draw(rng, m, n, depth, rank))]
        )
        turns = [np.linalg.qr(rng.standard_normal((rank, rank)))[0] for _ in range(depth - 1)]
        return balanced_factors(product, depth, rank, turns)


def balanced_factors(product: Host, depth: int, rank: int, turns: Sequence[Host] | None = None) -> list[Host]:
    """Return balanced factors W[0] … W[L-1] of a matrix whose rank is at most ``rank``.

    Parameters
    ----------
    product : ndarray (m, n)
    depth, rank : int
    turns : sequence of ndarray (rank, rank), optional
        Orthogonal matrices between the factors, L - 1 of them. Default: none, so that the inner factors are
        diagonal.
    """
    if depth == 1:
        return [product]
    left, singular, right = np.linalg.svd(product, full_matrices=False)
    # What is zero but for rounding would have gradients whose squares are too small for float32.
    exact = np.where(singular > singular[0] * np.finfo(np.float64).eps * len(singular), singular, 0.0)
    root = exact[:rank] ** (1 / depth)
    inner = [np.eye(rank)] * (depth - 1) if turns is None else turns
    bases = [right[:rank].T, *inner, left[:, :rank]]
    return [(bases[level + 1] * root) @ bases[level].T for level in range(depth)]


_NAMED: dict[str, Initializer] = {"gaussian": Gaussian(), "balanced": Balanced()}


def checked_init(init: Any) -> Initializer | Sequence[Any]:
    """Return the initializer that ``init`` names or is, or the given arrays."""
    if isinstance(init, str):
        if init not in _NAMED:
            raise ValueError(
                f"init: expected one of {', '.join(map(repr, _NAMED))}, an initializer or arrays, "
                f"got {init!r}"
            )
        return _NAMED[init]
    if isinstance(init, Initializer | list | tuple) and not isinstance(init, type):
        return init
    raise TypeError(
        "init: expected a name, an initializer such as Gaussian(mean, scale), or a list of arrays, "
        f"got {type(init).__name__}"
    )


def draw_graph(rng: np.random.Generator, nodes: int) -> Host:
    """Return the first V of a graph of k nodes: uniform in ±1/√k, as the authors' program has it."""
    bound = 1 / np.sqrt(nodes)
    return rng.uniform(-bound, bound, size=(nodes, nodes))


def drawn_factors(
    start: Initializer | Sequence[Any],
    rng: np.random.Generator,
    m: int,
    n: int,
    depth: int,
    rank: int,
    dtype: Any,
) -> list[npt.NDArray[Any]]:
    """Return W[0]ᵀ, W[1], …, W[L-1] for the factored form, drawn or given, as arrays of their own."""
    if isinstance(start, Balanced):
        raise ValueError("init: 'balanced' forms the whole matrix, which fit_sparse does not; use Gaussian")
    given = (
        start.draw(rng, m, n, depth, rank)
        if isinstance(start, Initializer)
        else [np.asarray(array) for array in start]
    )
    shapes = factor_shapes(m, n, depth, rank)
    if [array.shape for array in given] != shapes:
        raise ValueError(f"init: expected factors of shapes {shapes}, got {[a.shape for a in given]}")
    turned = [array.T if level == 0 else array for level, array in enumerate(given)]
    factors = [np.ascontiguousarray(array, dtype) for array in turned]
    if not all(np.isfinite(factor).all() for factor in factors):
        raise ValueError("init: expected finite factors")
    return [factor.copy() for factor in factors]
