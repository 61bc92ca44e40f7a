"""
Measurements that are not entries
=================================

Sometimes no entry of the matrix is known, only averages over several entries. A linear operator with an
adjoint describes how the measurements depend on the matrix. Here it is a scanner that blurs a picture.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.sparse.linalg import LinearOperator

import airnp
from airnp.commands.demo import scene

# %%
# The instrument
# --------------
# Every measurement is a mean over a neighbourhood, with Gaussian weights, and half of them are lost. A
# :class:`scipy.sparse.linalg.LinearOperator` acts on ``X.ravel()``; ``rmatvec`` is its adjoint. The blur
# with zeros beyond the border (``mode="constant"``) is symmetric, hence its own adjoint.

picture = scene(48)
shape = picture.shape
kept = np.flatnonzero(airnp.masks.random(shape, missing=0.5, seed=0))


def blur(x):
    """Return the blurred picture, as a vector."""
    return gaussian_filter(x.reshape(shape), 1.0, mode="constant").ravel()


def measure(x):
    """Blur, then keep half of the values."""
    return blur(x)[kept]


def adjoint(y):
    """Put the values back where they came from, then blur."""
    spread = np.zeros(picture.size)
    spread[kept] = y
    return blur(spread)


scanner = LinearOperator((kept.size, picture.size), matvec=measure, rmatvec=adjoint, dtype=float)
noise = np.random.default_rng(0).normal(0, 0.002, kept.size)
measured = scanner.matvec(picture.ravel()) + noise
print(f"{measured.size} measurements for {picture.size} unknowns")

# %%
# airnp checks once, on random arrays, that ``rmatvec`` is the adjoint of ``matvec``, and raises an error
# otherwise.
#
# The fit
# -------
# ``Operator`` adds the shape of X, which a vector of measurements does not tell. Blur hides detail from the
# gradient, so progress is slow; two factors and a larger rate help. (Size, regulariser, depth and rate of
# this example were chosen with the true picture in view. Learned graphs with all defaults did worse here.)

result = airnp.fit(
    measured,
    operator=airnp.Operator(scanner, shape),
    regularizers=[airnp.TotalVariation()],
    depth=2,
    learning_rate=5e-3,
    max_iter=6000,
    seed=0,
)
print(result.stop_reason)

# %%
# The measurements, the recovered picture and the truth. The error is measured on all entries, because none
# was observed. Edges are recovered. The stripes of the wall and the cloth, which are finer than the blur, are
# not.

seen = np.full(picture.size, np.nan)
seen[kept] = measured
error = np.abs(result.X - picture).mean()
print(f"mean absolute error {error:.3f}; of the measured values, where there are any,", end=" ")
print(f"{np.nanmean(np.abs(seen - picture.ravel())):.3f}")

figure, axes = plt.subplots(1, 3, figsize=(9, 3.3), layout="constrained")
grey = plt.get_cmap("gray").with_extremes(bad="#e69f00")
for ax, image, title in zip(
    axes, [seen.reshape(shape), result.X, picture], ["measured", "recovered", "truth"], strict=True
):
    ax.imshow(image, cmap=grey, vmin=0, vmax=1)
    ax.set_title(title)
    ax.axis("off")
