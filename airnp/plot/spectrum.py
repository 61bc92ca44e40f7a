"""Singular values of the recovered matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from airnp.plot.canvas import one_panel
from airnp.plot.inputs import one_matrix, one_truth
from airnp.plot.style import LINES, logarithmic_axis
from airnp.result import FitResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def singular_values(
    result: FitResult, truth: Any = None, *, problem: Any = None, ax: Axes | None = None
) -> Axes:
    """Draw the singular values of the recovered matrix ``result.X``, the largest first.

    Parameters
    ----------
    result : FitResult
    truth : array-like (…, m, n), optional
        The complete matrix, or the whole stack, to draw the singular values of as well.
    problem : int or tuple of int, optional
        Which problem of a stack.
    ax : Axes, optional
        Where to draw. Default: a new figure.

    Returns
    -------
    Axes
        On a logarithmic scale that ends where the rounding errors of the result's type begin.

    Examples
    --------
    >>> import airnp, airnp.plot
    >>> Y = np.outer([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0])
    >>> ax = airnp.plot.singular_values(airnp.fit(Y, max_iter=100, seed=0), Y)
    >>> [line.get_label() for line in ax.lines]
    ['recovered', 'truth']
    """
    recovered = one_matrix(result.matrix, result, problem)
    curves = {"recovered": _spectrum(recovered)}
    if truth is not None:
        curves["truth"] = _spectrum(one_truth(truth, result, problem))

    ax = one_panel(ax, 4.6, 3.6)
    for (label, values), style, marker in zip(curves.items(), LINES, "os", strict=False):
        numbers = np.arange(1, len(values) + 1)
        ax.plot(numbers, values, label=label, marker=marker, markersize=3, linewidth=1.2, **style)
    largest = float(max(values[0] for values in curves.values()))
    if largest > 0:
        least = min(float(values[-1]) for values in curves.values())
        rounding = float(np.finfo(recovered.dtype).eps) * max(recovered.shape)
        logarithmic_axis(ax, max(least, rounding * largest), largest)
    ax.set(xlabel="index", ylabel="singular value")
    ax.locator_params(axis="x", integer=True)
    ax.grid(alpha=0.25)
    ax.legend(frameon=False, fontsize=9)
    return ax


def _spectrum(matrix: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    return np.linalg.svd(matrix.astype(np.float64), compute_uv=False)
