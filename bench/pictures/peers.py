"""Slow peers for small grey pictures: plug-and-play denoisers and a deep image prior.

All take an image (h, w) in [0, 1] that is zero where it is missing, a mask (True = observed) and a seed, and
keep observed pixels. None was trained on pictures.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from skimage.restoration import inpaint_biharmonic

STEPS = 24
NOISE = (0.15, 0.005)
"""Standard deviation that the denoiser removes in the first and in the last step."""

DEEP_ITERATIONS = 2000
DEEP_CHANNELS = 64


def bm3d(image: np.ndarray, mask: np.ndarray, seed: int) -> np.ndarray:
    """Fill by BM3D as a plug-and-play prior, by the package ``bm3d`` of its authors."""
    from bm3d import bm3d as denoised

    return _plug_and_play(image, mask, lambda filled, noise: denoised(filled, noise))


def wavelets(image: np.ndarray, mask: np.ndarray, seed: int) -> np.ndarray:
    """Fill by soft thresholds of two wavelet bases as a plug-and-play prior, by deepinv."""
    import torch
    from deepinv.models import WaveletDictDenoiser

    denoiser = WaveletDictDenoiser()

    def denoised(filled: np.ndarray, noise: float) -> np.ndarray:
        with torch.no_grad():
            batch = torch.from_numpy(filled.astype(np.float32))[None, None]
            return denoiser(batch, noise)[0, 0].numpy()

    return _plug_and_play(image, mask, denoised)


def _plug_and_play(
    image: np.ndarray, mask: np.ndarray, denoised: Callable[[np.ndarray, float], np.ndarray]
) -> np.ndarray:
    """Start from the biharmonic fill; alternate denoising, by less and less, with the observed pixels."""
    filled = inpaint_biharmonic(image, ~mask)
    for noise in np.geomspace(*NOISE, STEPS):
        filled = np.where(mask, image, denoised(filled, float(noise)))
    return filled


def deep_prior(image: np.ndarray, mask: np.ndarray, seed: int) -> np.ndarray:
    """Fill by a convolutional decoder that is fitted to the observed pixels, by deepinv."""
    import torch
    from deepinv.models import ConvDecoder, DeepImagePrior
    from deepinv.physics import Inpainting

    shape = (1, *image.shape)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        decoder = ConvDecoder(shape, in_size=(8, 8), layers=6, channels=DEEP_CHANNELS)
        prior = DeepImagePrior(decoder, (DEEP_CHANNELS, 8, 8), iterations=DEEP_ITERATIONS)
        observed = torch.from_numpy(mask.astype(np.float32))[None]
        batch = torch.from_numpy(image.astype(np.float32))[None, None]
        filled = prior(batch, Inpainting(shape, mask=observed)).detach()[0, 0].numpy()
    return np.where(mask, image, filled)
