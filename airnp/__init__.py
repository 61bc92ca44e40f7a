"""airnp completes matrices: images with holes, rating tables, any array where entries are missing.

>>> import numpy as np, airnp
>>> Y = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
>>> Y[1, 1] = np.nan
>>> result = airnp.fit(Y, regularizers=[], max_iter=3000, stop=None, seed=0)
>>> bool(abs(result.X[1, 1] - 4) < 0.5)
True
"""

from airnp import masks, metrics
from airnp.choosing.candidates import Candidate, Search
from airnp.choosing.completion import Completion, complete
from airnp.choosing.searching import search
from airnp.fitting import fit
from airnp.fleet.many import Outcome, fit_many
from airnp.graph_recorder import GraphRecorder
from airnp.history import History
from airnp.images.inpainting import inpaint
from airnp.initialization import Balanced, Gaussian
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
from airnp.running.state import FitState
from airnp.saving.resuming import resume
from airnp.saving.storage import load
from airnp.sparse import SparseFitResult, fit_ratings
from airnp.stopping.rules import EnergyChange, HeldOut
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
