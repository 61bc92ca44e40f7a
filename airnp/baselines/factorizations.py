"""DMF and its relatives with a fixed regulariser, by :func:`airnp.fit`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airnp.fitting import fit
from airnp.regularizers import DirichletEnergy, FixedLaplacian, Regularizer, TotalVariation
from airnp.regularizers.base import checked_weight


def dmf(Y: Any, mask: Any = None, *, max_iter: int = 10_000, stop: Any = None, **options: Any) -> Any:
    """Deep matrix factorisation: fit a product of matrices, without a regulariser.

    Training prefers products of low rank. Observed entries are **not** kept: X is the product.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    max_iter : int
        Iterations at most.
    stop : None, "auto", or StopRule
        By default the last iterate is the answer, as in the papers; for most data it over-fits. ``"auto"``
        returns the iterate that :func:`airnp.fit` finds best by held-out entries.
    **options
        More of :func:`airnp.fit`, such as ``depth``, ``seed`` or ``progress``.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry stay near the lowest observed value, which is the zero of the
    normalised data.

    References
    ----------
    Arora, Cohen, Hu and Luo, Implicit regularization in deep matrix factorization, NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((30, 2)) @ rng.random((2, 20))
    >>> mask = rng.random(truth.shape) < 0.7
    >>> X = dmf(truth, mask, max_iter=3000, seed=0)
    >>> bool(np.abs(X - truth)[~mask].mean() < 0.01)
    True
    """
    return _fit(Y, mask, [], max_iter, stop, options)


def rdmf(
    Y: Any,
    mask: Any = None,
    *,
    weight: float | None = None,
    max_iter: int = 10_000,
    stop: Any = None,
    **options: Any,
) -> Any:
    """Regularised deep matrix factorisation: DMF with total variation, for images.

    Observed entries are **not** kept: X is the product of the factors.

    Parameters
    ----------
    weight : float, optional
        λ of :class:`airnp.TotalVariation`. Default 0.005·s for the fidelity scale s, which is 0.01/(m·n)
        with the mean fidelity.
    Y, mask, max_iter, stop, **options
        As in :func:`dmf`.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are bridged by the total variation.

    References
    ----------
    Li, Xu, Luo and Wang, A regularized deep matrix factorized model of matrix completion for image
    restoration (2020).

    Examples
    --------
    >>> import numpy as np
    >>> steps = np.repeat(np.repeat([[0.0, 1.0], [1.0, 0.0]], 8, axis=0), 8, axis=1)
    >>> mask = np.random.default_rng(0).random(steps.shape) < 0.6
    >>> X = rdmf(steps, mask, max_iter=3000, seed=0)
    >>> bool(np.abs(X - steps)[~mask].mean() < 0.05)
    True
    """
    return _fit(Y, mask, [TotalVariation(weight)], max_iter, stop, options)


def dmf_de(
    Y: Any,
    mask: Any = None,
    *,
    row_graph: Any = None,
    column_graph: Any = None,
    weight: float | None = None,
    max_iter: int = 10_000,
    stop: Any = None,
    **options: Any,
) -> Any:
    """DMF with the Dirichlet energy of fixed graphs over rows and columns.

    Observed entries are **not** kept: X is the product of the factors.

    Parameters
    ----------
    row_graph, column_graph : array or sparse matrix, optional
        Adjacency or Laplacian, as in :class:`airnp.FixedLaplacian`; one alone is used alone. Without both,
        the covariance graphs of the observed rows and columns (:class:`airnp.DirichletEnergy`).
    weight : float, optional
        λ of each graph. Default: that of :class:`airnp.FixedLaplacian`.
    Y, mask, max_iter, stop, **options
        As in :func:`dmf`.

    Returns
    -------
    ndarray or DataFrame (…, m, n)

    Notes
    -----
    Rows and columns without any observed entry are filled from their neighbours in the given graphs; the
    covariance graphs have none for them, and they stay near the lowest observed value as in :func:`dmf`.

    References
    ----------
    Boyarski, Vedula and Bronstein, Spectral geometric matrix completion (2019).

    Examples
    --------
    >>> import numpy as np
    >>> truth = np.repeat([[0.0, 1.0, 1.0, 0.0]], 6, axis=0) + np.arange(6)[:, None]
    >>> path = np.diag(np.ones(5), 1) + np.diag(np.ones(5), -1)
    >>> mask = np.ones(truth.shape, dtype=bool)
    >>> mask[2, 1] = False
    >>> X = dmf_de(truth, mask, row_graph=path, max_iter=2000, seed=0)
    >>> bool(abs(X[2, 1] - truth[2, 1]) < 0.5)
    True
    """
    graphs = {"rows": row_graph, "columns": column_graph}
    regularizers: list[Regularizer] = [
        _fixed_laplacian(graph, axis, weight) for axis, graph in graphs.items() if graph is not None
    ]
    if not regularizers:
        regularizers = [DirichletEnergy(axis, weight) for axis in graphs]
    return _fit(Y, mask, regularizers, max_iter, stop, options)


def _fit(
    Y: Any, mask: Any, regularizers: Sequence[Regularizer], max_iter: int, stop: Any, options: dict[str, Any]
) -> Any:
    return fit(Y, mask, regularizers=regularizers, max_iter=max_iter, stop=stop, **options).to_numpy().X


def _fixed_laplacian(graph: Any, axis: str, weight: float | None) -> FixedLaplacian:
    weight = None if weight is None else checked_weight(weight)
    try:
        return FixedLaplacian(graph, axis, weight)
    except (TypeError, ValueError) as error:
        # Its message says "graph"; there are two here.
        raise type(error)(f"{axis.removesuffix('s')}_{error}") from None
