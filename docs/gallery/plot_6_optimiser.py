"""
An optimiser of your own
========================

:class:`airnp.Objective` is the loss as a function with an exact gradient, so any optimiser can minimise it.
Here SciPy's L-BFGS replaces Adam.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import airnp

# %%
# The problem
# -----------

rng = np.random.default_rng(0)
truth = rng.random((40, 3)) @ rng.random((3, 30))
truth += 0.01 * rng.standard_normal(truth.shape)
mask = airnp.masks.random(truth.shape, missing=0.5, seed=0)

# %%
# As a function of one vector
# ---------------------------
# ``params`` is a list of arrays, the factors and then the graphs; ``pack`` and ``unpack`` turn it into a
# vector and back. An objective does not normalise the data.

objective = airnp.Objective(truth, mask, regularizers=[airnp.AdaptiveLaplacian("rows")], depth=2, rank=3)


def value_and_gradient(vector):
    """Return the loss and its gradient as SciPy expects them."""
    value, grads = objective.value_and_grad(objective.unpack(vector))
    return value, objective.pack(grads)


start = objective.pack(objective.init(seed=0, init=airnp.Gaussian(0.3, 0.3)))
print(f"{start.size} unknowns")

# %%
# The gradient is exact. Compared with a central difference along a random direction:

direction = rng.standard_normal(start.size)
step = 1e-5
ahead, behind = (value_and_gradient(start + sign * step * direction)[0] for sign in (1, -1))
slope = value_and_gradient(start)[1] @ direction
print(f"slope {slope:.8f}, by differences {(ahead - behind) / (2 * step):.8f}")

# %%
# L-BFGS and Adam
# ---------------
# An evaluation of the loss and its gradient costs the same in both, so the curves are drawn over evaluations.

values, errors = [], []


def watched(vector):
    """Note the loss and the error on missing entries at every evaluation."""
    value, gradient = value_and_gradient(vector)
    values.append(value)
    errors.append(airnp.metrics.nmae(objective.matrix(objective.unpack(vector)), truth, mask))
    return value, gradient


minimize(watched, start, jac=True, method="L-BFGS-B", options={"maxiter": 600})
quick_values, quick_errors = np.array(values), np.array(errors)

values, errors = [], []
params = objective.unpack(start.copy())
adam = airnp.Adam(learning_rate=1e-2)
state = adam.init(params, kinds=["factor", "factor", "graph"])
for _ in range(len(quick_values)):
    _, grads = watched(objective.pack(params))
    adam.step(params, objective.unpack(grads), state)

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
for ax, curves, title in [
    (left, (quick_values, values), "loss"),
    (right, (quick_errors, errors), "NMAE on missing entries"),
]:
    for curve, label, style in zip(curves, ["L-BFGS", "Adam, rate 0.01"], ["-", "--"], strict=True):
        ax.semilogy(curve, style, label=label)
    ax.set(xlabel="evaluations", title=title)
    ax.grid(alpha=0.25)
left.legend(frameon=False)

# %%
# On a small problem of known rank a quasi-Newton method needs few evaluations. With full rank, a lower loss
# is not always a better completion: the slow path of Adam from a small start favours simple matrices, and
# stopping early keeps them (:doc:`../defaults`).

print(f"after {len(quick_values)} evaluations: L-BFGS {quick_errors[-1]:.4f}, Adam {errors[-1]:.4f}")
