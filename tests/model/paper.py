"""What the paper prints, as code: Proposition B.1, problems to try it on, and Barbara with its masks."""

from __future__ import annotations

import numpy as np
import pytest

import airnp
from airnp.engines import reference


def paper_quantities(V, Z):
    """A′ = exp(Vᵀ)/Σ exp(V), A = A′ + A′ᵀ, and C = diag(K) 1ᵀ − K, as the paper defines them."""
    A_prime = np.exp(V.T) / np.exp(V).sum()
    K = Z @ Z.T
    return A_prime, A_prime + A_prime.T, np.diag(K)[:, None] - K


def printed_gradient(V, Z):
    """The gradient that Proposition B.1 prints."""
    A_prime, A, C = paper_quantities(V, Z)
    return 2 * C * A - 2 * np.trace(C @ A_prime) * A_prime


def gradient(kind, V, Z):
    """The gradient of the energy with respect to V."""
    return reference.laplacian_terms(kind, V, Z @ Z.T, weight=1.0).gradient


def problems():
    """Yield V and Z; every second Z has rows of equal norm, as Theorem 2 assumes."""
    rng = np.random.default_rng(0)
    for k, d in ((4, 3), (7, 5), (10, 30)):
        Z = rng.random((k, d))
        V = rng.standard_normal((k, k)) * 0.3
        yield V, Z
        yield V, Z / np.linalg.norm(Z, axis=1, keepdims=True)


def relative_difference(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


def barbara(folder, pattern):
    """The picture and one of the paper's masks."""
    image = pytest.importorskip("PIL.Image", reason="Pillow reads the picture")
    grey = image.open(folder / "barbara.jpg").convert("L").resize((240, 240))
    mask = {
        "random": lambda: airnp.masks.random((240, 240), missing=0.3, seed=0),
        "patch": airnp.masks.patch,
        "texture": lambda: airnp.masks.from_image(folder / "texture_mask.png"),
    }[pattern]()
    return np.asarray(grey, dtype=np.float32) / 255, mask
