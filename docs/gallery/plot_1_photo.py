"""
Restoring a photograph
======================

A colour picture with writing over it, and with every fifth pixel gone. :func:`airnp.inpaint` takes the
picture as it is, integers and all, and gives it back filled.
"""

import matplotlib.pyplot as plt
import numpy as np

import airnp
import airnp.baselines
from airnp.commands.demo import scene

# %%
# The picture
# -----------
# :func:`airnp.commands.demo.scene` paints a grey still life. Three tones of it make a colour picture of 8
# bits, as a camera would deliver it.

grey = scene(96)
tones = np.stack([grey**0.8, grey, grey**1.3], axis=-1)
picture = np.rint(255 * tones).astype(np.uint8)

# %%
# What is damaged
# ---------------
# A mask is True where a pixel is *observed*. Masks combine as all boolean arrays do. Damaged pixels may
# hold anything: here they are set to white, and ``inpaint`` does not look at them.

mask = airnp.masks.text(grey.shape, "scribble", size=14) & airnp.masks.random(grey.shape, 0.2, seed=1)
damaged = np.where(mask[..., None], picture, 255).astype(np.uint8)
print(f"{1 - mask.mean():.0%} of the pixels are missing")

# %%
# Filling it
# ----------
# No setting has to be chosen. Each colour is a matrix of its own; ``seed=`` makes the answer repeatable,
# and ``max_iter=`` bounds the time.

filled = airnp.inpaint(damaged, mask, max_iter=6000, seed=0)

figure, axes = plt.subplots(1, 3, figsize=(9, 3.4), layout="constrained")
for ax, image, title in zip(axes, [picture, damaged, filled], ["original", "damaged", "filled"], strict=True):
    ax.imshow(image)
    ax.set_title(title)
    ax.axis("off")

# %%
# How good is it?
# ---------------
# Observed pixels are exactly as they were, so the error is measured on the missing ones: the mean absolute
# error over the range of the picture (:func:`airnp.metrics.nmae`). Beside it stands the mean of all
# observed pixels, the least that a method has to beat, and the smoothest surface through them.

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
