"""Regularisers: what X should look like besides fitting the data. Any list of them is a model.

====================================  =======================================================
``None``                              AIR: learned graphs over rows and columns
``[]``                                DMF: the factorisation alone
``[TotalVariation(1e-4)]``            RDMF
``[FixedLaplacian(graph)]``           DMF with the Dirichlet energy of a given graph
====================================  =======================================================

A regulariser holds only what the user said. :meth:`Regularizer.bind` checks it against a problem and gives a
:class:`Term`, which knows shapes, namespace and λ, and does the arithmetic through an engine.
"""

from __future__ import annotations

from airnp.regularizers.base import Problem, Regularizer, Term
from airnp.regularizers.decay import WeightDecay
from airnp.regularizers.fixed import DirichletEnergy, FixedLaplacian
from airnp.regularizers.learned import AdaptiveLaplacian
from airnp.regularizers.variation import TotalVariation

__all__ = [
    "AdaptiveLaplacian",
    "DirichletEnergy",
    "FixedLaplacian",
    "Problem",
    "Regularizer",
    "Term",
    "TotalVariation",
    "WeightDecay",
    "default_regularizers",
]


def default_regularizers() -> list[Regularizer]:
    """Return AIR: learned graphs over rows and over columns."""
    return [AdaptiveLaplacian("rows"), AdaptiveLaplacian("columns")]
