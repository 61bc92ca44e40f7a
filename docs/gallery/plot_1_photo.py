"""
Restoring a photograph
======================

A colour photograph with writing over it, and with a fifth of the other pixels missing. :func:`airnp.inpaint`
takes the picture as it is, an array of integers, and returns it filled.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import airnp

# %%
# The picture
# -----------
# The eye of a cat, from scikit-image: 160×192 pixels of three colours.

picture = data.chelsea()[40:200, 110:302]

# %%
# The mask
# --------
# A mask is True where a pixel is *observed*. Masks combine like all boolean arrays. ``inpaint`` ignores the
# values of missing pixels; here they are white.

shape = picture.shape[:2]
mask = airnp.masks.text(shape, "scribble", size=20) & airnp.masks.random(shape, 0.2, seed=1)
damaged = np.where(mask[..., None], picture, 255).astype(np.uint8)
print(f"{1 - mask.mean():.0%} of the pixels are missing")

# %%
# Filling it
# ----------
# Gaps are filled from patches that resemble their surroundings; a patch holds all three colours. With
# ``full=True`` the answer also says what was chosen, what error to expect, and how sure each pixel is.

found = airnp.inpaint(damaged, mask, full=True)
chosen = {name: found.chosen[name] for name in ("patch", "search", "neighbours", "rounds", "smooth")}
print(chosen)
print(f"expected error: {found.expected:.2f} ± {found.expected_error:.2f} grey levels")

figure, axes = plt.subplots(2, 2, figsize=(9, 7.6), layout="constrained")
panels = {"original": picture, "damaged": damaged, "filled": found.image}
for ax, (title, image) in zip(axes.flat, panels.items(), strict=False):
    ax.imshow(image)
    ax.set_title(title)
shown = axes[1, 1].imshow(found.std.mean(axis=-1), cmap="magma")
axes[1, 1].set_title("standard deviation (grey levels)")
figure.colorbar(shown, ax=axes[1, 1], shrink=0.7)
for ax in axes.flat:
    ax.axis("off")

# %%
# How good is it?
# ---------------
# Observed pixels are unchanged, so the error is measured on the missing ones: the mean absolute error in grey
# levels of 255. For comparison: biharmonic inpainting, which draws the smoothest surface through the observed
# pixels, and linear interpolation.

assert (found.image[mask] == picture[mask]).all()


def error(image):
    """Return the mean absolute error on the missing pixels."""
    return np.abs(image.astype(float) - picture)[~mask].mean()


print(f"{'airnp.inpaint':14} {error(found.image):.2f}")
for method in ("biharmonic", "linear"):
    print(f"{method:14} {error(airnp.inpaint(damaged, mask, method=method)):.2f}")

# %%
# Intervals
# ---------
# Intervals of 90 % should hold nine tenths of the true pixels.

low, high = found.interval(0.9)
inside = (low <= picture) & (picture <= high)
print(f"{inside[~mask].mean():.0%} of the missing pixels are within their intervals")
