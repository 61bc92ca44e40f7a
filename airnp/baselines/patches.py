"""PNMC: a small network learns to predict an element from the patch around it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from airnp._checks import checked_seed, checked_whole
from airnp.baselines.common import Bools, Values, complete_each, show_progress

Size = tuple[int, int]
Samples = NDArray[np.float32]

_LARGEST = 4
"""Most elements that a patch may reach in each direction."""

_TRIAL_SAMPLES = 6000
_TRIAL_EPOCHS = 30


def pnmc(
    Y: Any,
    mask: Any = None,
    *,
    patch: Size | None = None,
    trials: int = 8,
    hidden: tuple[int, ...] = (64, 32),
    epochs: int = 20,
    rounds: int = 5,
    seed: int | None = None,
    progress: bool = False,
) -> Any:
    """Patch-based nonlinear matrix completion. Observed entries are kept.

    Gaps start as their nearest observed element. A network is trained, on the observed elements, to predict
    an element from the patch around it without its own value, and then predicts the gaps. With the gaps so
    filled it is trained further and predicts them again, for a few rounds. The order of rows and columns must
    mean something, as in an image.

    Parameters
    ----------
    Y, mask : array-like (…, m, n)
        As in :func:`airnp.fit`: the mask is True where observed; without it, NaN means missing.
    patch : (int, int), optional
        Height and width of the patch, both odd. Default: found by a short stochastic search, which trains
        small networks on some of the observed elements and judges them by others.
    trials : int
        Patch sizes that the search tries.
    hidden : tuple of int
        Units in each hidden layer.
    epochs : int
        Passes over the observed elements before the first round, and half as many before all others together.
    rounds : int
        How often the gaps are predicted.
    seed : int, optional
        Of the search and of the network. The same seed gives the same answer. Default: a new one.
    progress : bool
        Show a bar over the trials and the rounds.

    Returns
    -------
    ndarray or DataFrame (…, m, n)
        Within the range of the observed entries.

    Notes
    -----
    After Yang and Xu, A novel patch-based nonlinear matrix completion algorithm for image analysis through
    convolutional neural network, Neurocomputing (2020), doi 10.1016/j.neucom.2020.01.037. Written from its
    abstract, not from its program, so this is the idea and not a copy: the network here is a fully connected
    :class:`sklearn.neural_network.MLPRegressor`, not a convolutional one, and the search is our own.

    Rows and columns without any observed entry are bridged as any other gap.

    Examples
    --------
    >>> import numpy as np
    >>> ramp = np.add.outer(np.arange(20.0), np.arange(20.0))
    >>> mask = np.random.default_rng(0).random(ramp.shape) < 0.8
    >>> X = pnmc(ramp, mask, patch=(3, 3), seed=0)
    >>> bool(np.abs(X - ramp)[~mask].mean() < 2)
    True
    """
    patch = None if patch is None else _checked_patch(patch)
    trials = checked_whole("trials", trials)
    hidden = _checked_hidden(hidden)
    epochs = checked_whole("epochs", epochs)
    rounds = checked_whole("rounds", rounds)
    seed = checked_seed(seed)
    try:
        from sklearn.neural_network import MLPRegressor
    except ImportError as error:
        raise ImportError('pnmc needs scikit-learn: pip install "airnp[baselines]"') from error

    def network() -> Any:
        return MLPRegressor(hidden_layer_sizes=hidden, random_state=seed % 2**32)

    def complete(values: Values, mask: Bools) -> Values:
        low, high = values[mask].min(), values[mask].max()
        if low == high:
            return np.full_like(values, low)
        scaled = (values - low) / (high - low)
        filled = _nearest(scaled, mask)
        reach = (patch[0] // 2, patch[1] // 2) if patch else None
        if reach is None:
            reach = _search_reach(filled, mask, network, trials, seed, progress)
        filled = _refine(filled, mask, reach, network(), epochs, rounds, progress)
        return np.where(mask, values, low + (high - low) * filled)

    return complete_each(Y, mask, complete, "they are bridged from the nearest observed ones")


def _checked_patch(patch: Any) -> Size:
    try:
        height, width = patch
    except (TypeError, ValueError):
        raise TypeError(f"patch: expected two whole numbers, height and width, got {patch!r}") from None
    height, width = checked_whole("patch", height), checked_whole("patch", width)
    if height % 2 == 0 or width % 2 == 0 or height * width == 1:
        raise ValueError(f"patch: expected odd numbers, at least one above 1, got {patch!r}")
    return height, width


def _checked_hidden(hidden: Any) -> tuple[int, ...]:
    if not isinstance(hidden, list | tuple) or not hidden:
        raise TypeError(f"hidden: expected the units of each hidden layer, such as (64, 32), got {hidden!r}")
    return tuple(checked_whole("hidden", units) for units in hidden)


def _nearest(values: Values, mask: Bools) -> Values:
    """Return the matrix with every gap replaced by its nearest observed element."""
    from scipy.ndimage import distance_transform_edt

    nearest = distance_transform_edt(~mask, return_distances=False, return_indices=True)
    filled: Values = values[tuple(nearest)]
    return filled


def _patches(filled: Values, reach: Size, where: NDArray[np.intp]) -> Samples:
    """Return the patches around some elements, without the elements themselves: the network's input.

    ``where`` holds rows and columns, shape (2, k). The matrix is mirrored at its edges.
    """
    height, width = 2 * reach[0] + 1, 2 * reach[1] + 1
    padded = np.pad(2 * filled.astype(np.float32) - 1, [(r, r) for r in reach], mode="symmetric")
    windows = sliding_window_view(padded, (height, width))[tuple(where)]
    return np.delete(windows.reshape(-1, height * width), height * width // 2, axis=1)


def _search_reach(filled: Values, mask: Bools, network: Any, trials: int, seed: int, progress: bool) -> Size:
    """Return how far the best patch reaches; each trial is drawn near the best so far."""
    rng = np.random.default_rng([seed, 11])
    observed = rng.permutation(np.argwhere(mask))[:_TRIAL_SAMPLES].T
    judges = max(1, observed.shape[1] // 4)
    targets = filled[tuple(observed)].astype(np.float32)
    best, lowest = (1, 1), np.inf
    tried: set[Size] = set()
    for trial in show_progress(range(trials), progress, "pnmc: patch"):
        step = rng.integers(-1, 2, size=2) if trial else (0, 0)
        height, width = np.clip(np.add(best, step), 0, _LARGEST)
        reach = (int(height), int(width))
        if reach in tried or reach == (0, 0):
            reach = (int(rng.integers(1, _LARGEST + 1)), int(rng.integers(1, _LARGEST + 1)))
        if reach in tried:
            continue
        tried.add(reach)
        samples = _patches(filled, reach, observed)
        trained = network()
        for _ in range(_TRIAL_EPOCHS):
            trained.partial_fit(samples[judges:], targets[judges:])
        error = float(np.abs(trained.predict(samples[:judges]) - targets[:judges]).mean())
        if error < lowest:
            best, lowest = reach, error
    return best


def _refine(
    filled: Values, mask: Bools, reach: Size, network: Any, epochs: int, rounds: int, progress: bool
) -> Values:
    """Train on the observed elements and predict the gaps, for some rounds; return the matrix."""
    observed, gaps = np.argwhere(mask).T, np.argwhere(~mask).T
    targets = filled[tuple(observed)].astype(np.float32)
    filled = filled.copy()
    for round_ in show_progress(range(rounds), progress, "pnmc"):
        samples = _patches(filled, reach, observed)
        for _ in range(epochs if round_ == 0 else -(-epochs // (2 * rounds))):
            network.partial_fit(samples, targets)
        predicted = network.predict(_patches(filled, reach, gaps))
        filled[tuple(gaps)] = np.clip(predicted, 0, 1)
    return filled
