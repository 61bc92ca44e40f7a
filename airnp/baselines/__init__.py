"""Other methods of matrix completion, for comparison: ``f(Y, mask=None, **options) → X``.

===================== ====================================================== ==============  =============
name                  idea                                                   observed kept?  needs
===================== ====================================================== ==============  =============
:func:`mean`          means of observed entries                              yes
:func:`knn`           the k nearest rows or columns                          yes             scikit-learn
:func:`svd`           iterative imputation by a low-rank matrix              yes
:func:`soft_impute`   least squares with the nuclear norm                    no
:func:`pnmc`          a network that predicts an element from its patch      yes             scikit-learn
:func:`linear`        triangles between observed pixels                      yes
:func:`biharmonic`    the smoothest surface through the observed pixels      yes             scikit-image
:func:`navier_stokes` isophotes continued into the gaps                      yes             OpenCV
:func:`telea`         weighted neighbours, from the rim inwards              yes             OpenCV
:func:`fsr`           blocks as sums of a few waves                          yes             OpenCV
:func:`dmf`           deep matrix factorisation                              no
:func:`rdmf`          the same with total variation                          no
:func:`dmf_de`        the same with the Dirichlet energy of fixed graphs     no
===================== ====================================================== ==============  =============

All take what :func:`airnp.fit` takes for ``Y`` and ``mask`` (stacks are independent problems), leave it
untouched, and return a NumPy array, or a DataFrame for a DataFrame. Methods that do not fit factors return a
matrix without gaps as it is. With a ``seed``, where a method has one, the answer is always the same.
:data:`METHODS` has them by name. ``pip install "airnp[baselines]"`` installs the packages that some need,
``pip install "airnp[bench]"`` OpenCV.

>>> from airnp import baselines
>>> baselines.METHODS["mean"]([[1.0, 2.0], [6.0, None]])
array([[1., 2.],
       [6., 3.]])
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airnp.baselines.factorizations import dmf, dmf_de, rdmf
from airnp.baselines.imputers import knn, mean, soft_impute, svd
from airnp.baselines.inpainters import biharmonic, fsr, linear, navier_stokes, telea
from airnp.baselines.patches import pnmc

__all__ = [
    "METHODS",
    "biharmonic",
    "dmf",
    "dmf_de",
    "fsr",
    "knn",
    "linear",
    "mean",
    "navier_stokes",
    "pnmc",
    "rdmf",
    "soft_impute",
    "svd",
    "telea",
]

METHODS: dict[str, Callable[..., Any]] = {
    method.__name__: method
    for method in (
        *(mean, knn, svd, soft_impute, pnmc),
        *(linear, biharmonic, navier_stokes, telea, fsr),
        *(dmf, rdmf, dmf_de),
    )
}
