"""The few numbers that an optimiser step needs, in the order in which kernels read them."""

from __future__ import annotations

import math

from airnp.engines.contract import AdamUpdate, Update


def numbers(update: Update) -> tuple[float, ...]:
    """Return 1 − β1, β2, 1 − β2, rate / (1 − β1ᵗ), 1 / √(1 − β2ᵗ) and ε for Adam, the rate for descent."""
    if not isinstance(update, AdamUpdate):
        return (update.current_rate,)
    beta1, beta2, step = update.beta1, update.beta2, update.step
    rate = update.current_rate / (1 - beta1**step)
    return 1 - beta1, beta2, 1 - beta2, rate, 1 / math.sqrt(1 - beta2**step), update.epsilon
