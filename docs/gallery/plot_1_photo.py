"""
Restoring a photograph
======================

A colour picture with writing over it, and with a fifth of the other pixels missing. :func:`airnp.inpaint`
takes the picture as it is, an array of integers, and returns it filled.
"""

import matplotlib.pyplot as plt
import numpy as np

import airnp
import airnp.baselines
from airnp.commands.demo import scene

# %%
# The picture
# -----------
# :func:`airnp.commands.demo.scene` draws a grey still life. Three tones of it make an 8-bit colour picture.

grey = scene(96)
tones = np.stack([grey**0.8, grey, grey**1.3], axis=-1)
picture = np.rint(255 * tones).astype(np.uint8)

# %%
# The mask
# --------
# A mask is True where a pixel is *observed*. Masks combine like all boolean arrays. ``inpaint`` ignores the
# values of missing pixels; here they are white.

mask = airnp.masks.text(grey.shape, "scribble", size=14) & airnp.masks.random(grey.shape, 0.2, seed=1)
damaged = np.where(mask[..., None], picture, 255).astype(np.uint8)
print(f"{1 - mask.mean():.0%} of the pixels are missing")

# %%
# Filling it
# ----------
# Each colour is fitted as a matrix of its own. ``seed=`` makes the answer repeatable, ``max_iter=`` bounds
# the time.

filled = airnp.inpaint(damaged, mask, max_iter=6000, seed=0)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, image, title in zip(axes, [picture, damaged, filled], ["original", "damaged", "filled"], strict=True):
    ax.imshow(image)
    ax.set_title(title)
    ax.axis("off")

# %%
# How good is it?
# ---------------
# Observed pixels are unchanged, so the error is measured on the missing ones: the mean absolute error over
# the range of the picture (:func:`airnp.metrics.nmae`). For comparison: biharmonic inpainting, which draws
# the smoothest surface through the observed pixels, and the mean of the observed pixels.

assert (filled[mask] == picture[mask]).all()


def error(image):
    """Return the mean over the three colours."""
    return np.mean([airnp.metrics.nmae(image[..., c], picture[..., c], mask) for c in range(3)])


methods = {
    "airnp.inpaint": filled,
    "biharmonic": np.stack(
        [airnp.baselines.biharmonic(picture[..., c] / 255, mask) * 255 for c in range(3)], axis=-1
    ),
    "mean": np.where(mask[..., None], picture, picture[mask].mean(axis=0)),
}
for name, image in methods.items():
    print(f"{name:14} {error(image):.4f}")
