"""
The same fit on a GPU
=====================

One argument moves a fit to a CUDA device: ``xp=cupy``. This page is built on machines without one, so the
program falls back to NumPy. **The CUDA engine has not run on a real GPU yet** (:doc:`../gpu`).
"""

import matplotlib.pyplot as plt
import numpy as np

import airnp

# %%
# Is there a device?
# ------------------
# CuPy comes with ``pip install "airnp[cuda12x]"`` or ``"airnp[cuda13x]"``. The command ``airnp info`` says
# whether it can use a device.


def namespace():
    """Return CuPy if it can use a device, else NumPy, and why."""
    try:
        import cupy

        count = cupy.cuda.runtime.getDeviceCount()
    except ImportError:
        return np, "CuPy is not installed"
    except Exception as error:
        return np, f"CuPy cannot use a device: {error}"
    return cupy, f"{count} device(s)"


xp, reason = namespace()
print(f"computing with {xp.__name__} ({reason})")

# %%
# The fit
# -------
# float32 is the type to use on most devices. NumPy data is copied to the device, and ``to_numpy()`` copies
# the result back. Everything else is the same as on the CPU. With ``xp=cupy`` each iteration is one CUDA
# graph of fused kernels and cuBLAS products.

rng = np.random.default_rng(0)
truth = rng.random((96, 4)) @ rng.random((4, 80)) + 0.02 * rng.standard_normal((96, 80))
mask = airnp.masks.random(truth.shape, missing=0.4, seed=0)

result = airnp.fit(truth, mask, xp=xp, dtype="float32", max_iter=2000, stop=None, seed=0).to_numpy()
print(f"NMAE on the missing entries: {airnp.metrics.nmae(result.X, truth, mask):.4f}")

# %%
# Many matrices at once
# ---------------------
# A small matrix cannot keep a large device busy. A stack ``(batch, m, n)`` is computed as one problem,
# although each matrix is fitted independently.

stack = np.stack([truth[i * 24 : (i + 1) * 24, :20] for i in range(4)])
seen = np.stack([mask[i * 24 : (i + 1) * 24, :20] for i in range(4)])
batch = airnp.fit(stack, seen, xp=xp, dtype="float32", max_iter=2000, stop=None, seed=0).to_numpy()
print("errors of the four:", np.round(airnp.metrics.nmae(batch.X, stack, seen), 4))

# %%
# The loss over the iterations is the same on every device, up to rounding.

figure, ax = plt.subplots(figsize=(6, 3.2), layout="constrained")
ax.semilogy(result.history["iteration"], result.history["loss"])
ax.set(xlabel="iteration", ylabel="loss", title=f"computed with {xp.__name__}")
ax.grid(alpha=0.25)
