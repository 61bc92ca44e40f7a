"""Regularisers: what X should look like besides fitting the data. Any list of them is a model.

====================================  =======================================================
``None``                              AIR: learned graphs over rows and columns
``[]``                                DMF: the factorisation alone
``[TotalVariation(1e-4)]``            RDMF
``[FixedLaplacian(graph)]``           DMF with the Dirichlet energy of a given graph
``[PatchLaplacian()]``                DMF of a picture whose similar patches are joined
====================================  =======================================================

A regulariser holds only what the user said. :meth:`Regularizer.bind` checks it against a problem and returns
a term, which knows shapes, namespace and λ, and does the arithmetic through an engine;
:meth:`Regularizer.bind_factored` returns that of the factored form. To add one, write a file here with both
terms, and name it below: ``airnp`` exports what is in ``__all__``, and checkpoints store it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airnp.regularizers.base import Regularizer
from airnp.regularizers.candidates import Nearest
from airnp.regularizers.custom import Custom
from airnp.regularizers.decay import WeightDecay
from airnp.regularizers.fixed import DirichletEnergy, FixedLaplacian
from airnp.regularizers.learned import AdaptiveLaplacian
from airnp.regularizers.patch_laplacian import PatchLaplacian
from airnp.regularizers.variation import TotalVariation

__all__ = [
    "AdaptiveLaplacian",
    "Custom",
    "DirichletEnergy",
    "FixedLaplacian",
    "Nearest",
    "PatchLaplacian",
    "Regularizer",
    "TotalVariation",
    "WeightDecay",
]


def default_regularizers() -> list[Regularizer]:
    """Return AIR: learned graphs over rows and over columns."""
    return [AdaptiveLaplacian("rows"), AdaptiveLaplacian("columns")]


def checked_regularizers(regularizers: Any) -> list[Regularizer]:
    """Return the regularisers that a caller lists, or those that None means."""
    if regularizers is None:
        return default_regularizers()
    if isinstance(regularizers, Regularizer):
        raise TypeError(
            "regularizers: expected a list of regularizers, got a single one; write [...] around it"
        )
    if isinstance(regularizers, str) or not isinstance(regularizers, Iterable):
        raise TypeError(f"regularizers: expected None or a list of regularizers, got {regularizers!r}")
    listed = list(regularizers)
    for item in listed:
        if not isinstance(item, Regularizer):
            raise TypeError(f"regularizers: expected objects such as TotalVariation(1e-4), got {item!r}")
    return listed
