"""Masks that say which entries are observed: NumPy bool arrays, True = observed.

The patterns of the paper's experiments (:func:`random`, :func:`patch` and, through :func:`from_image`,
texture) and others that occur in practice. A shape ``(m, n)`` gives one mask, ``(..., m, n)`` a stack of
them: the random patterns are drawn independently for each problem, the others repeated.
"""

from __future__ import annotations

from airnp.masks.drawings import from_image, text
from airnp.masks.sampling import columns, random, rows
from airnp.masks.shapes import patch, scratches

__all__ = ["columns", "from_image", "patch", "random", "rows", "scratches", "text"]
