"""airnp completes matrices: images with holes, rating tables, any array where entries are missing.

>>> import numpy as np, airnp
>>> Y = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
>>> Y[1, 1] = np.nan
>>> result = airnp.fit(Y, regularizers=[], max_iter=3000, stop=None, seed=0)
>>> bool(abs(result.X[1, 1] - 4) < 0.5)
True
"""

from airnp import masks, metrics
from airnp.candidates import Candidate, Search
from airnp.completion import Completion, complete
from airnp.fit import fit
from airnp.fleet import Outcome, fit_many
from airnp.graph_recorder import GraphRecorder
from airnp.history import History
from airnp.initialization import Balanced, Gaussian
from airnp.inpainting import inpaint
from airnp.inputs import EmptyLineWarning
from airnp.objective import Objective
from airnp.optimizers import Adam, ExponentialDecay, GradientDescent
from airnp.regularizers import (
    AdaptiveLaplacian,
    DirichletEnergy,
    FixedLaplacian,
    TotalVariation,
    WeightDecay,
)
from airnp.result import DivergenceError, FitResult
from airnp.resuming import resume
from airnp.searching import search
from airnp.sparse import SparseFitResult, fit_ratings
from airnp.state import FitState
from airnp.stopping import EnergyChange, HeldOut
from airnp.storage import load
from airnp.transforms import Blocks

__version__ = "0.1.0"

__all__ = [
    "Adam",
    "AdaptiveLaplacian",
    "Balanced",
    "Blocks",
    "Candidate",
    "Completion",
    "DirichletEnergy",
    "DivergenceError",
    "EmptyLineWarning",
    "EnergyChange",
    "ExponentialDecay",
    "FitResult",
    "FitState",
    "FixedLaplacian",
    "Gaussian",
    "GradientDescent",
    "GraphRecorder",
    "HeldOut",
    "History",
    "Objective",
    "Outcome",
    "Search",
    "SparseFitResult",
    "TotalVariation",
    "WeightDecay",
    "complete",
    "fit",
    "fit_many",
    "fit_ratings",
    "inpaint",
    "load",
    "masks",
    "metrics",
    "resume",
    "search",
]
