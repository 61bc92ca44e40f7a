"""The public names of airnp, in one place; the package loads this module when the first of them is used."""

from airnp import masks, metrics, regularizers
from airnp.completing.completion import Completion, complete
from airnp.completing.searching import Candidate, Search, search
from airnp.data.bounds import Integers
from airnp.data.inputs import EmptyLineWarning
from airnp.data.linearmaps import Blocks, Operator
from airnp.engines import CPU, CUDA
from airnp.fitting import fit, fit_sparse
from airnp.fleet.many import Outcome, fit_many
from airnp.images.inpainted import Inpainting
from airnp.images.inpainting import inpaint
from airnp.implicit import fit_implicit
from airnp.model.fidelity import Huber, Squared
from airnp.model.initialization import Balanced, Gaussian
from airnp.model.objective import Objective
from airnp.optimizers import Adam, ExponentialDecay, GradientDescent
from airnp.ratings import fit_ratings
from airnp.regularizers import *  # noqa: F403  # what its __all__ names; a new one is exported by itself
from airnp.results.files import load
from airnp.results.history import History
from airnp.results.ratings_model import ImplicitModel, Newcomer, RatingsModel, UnknownIdWarning
from airnp.results.result import DivergenceError, FitResult
from airnp.results.sparse_result import SparseFitResult
from airnp.training.options import Checkpoint, Record
from airnp.training.recorder import FitState, GraphRecorder
from airnp.training.resuming import resume
from airnp.training.stopping import EnergyChange, HeldOut

__all__ = [
    "Adam",
    "Balanced",
    "Blocks",
    "CPU",
    "CUDA",
    "Candidate",
    "Checkpoint",
    "Completion",
    "DivergenceError",
    "EmptyLineWarning",
    "EnergyChange",
    "ExponentialDecay",
    "FitResult",
    "FitState",
    "Gaussian",
    "GradientDescent",
    "GraphRecorder",
    "HeldOut",
    "History",
    "Huber",
    "ImplicitModel",
    "Inpainting",
    "Integers",
    "Newcomer",
    "Objective",
    "Operator",
    "Outcome",
    "RatingsModel",
    "Record",
    "Search",
    "SparseFitResult",
    "Squared",
    "UnknownIdWarning",
    "complete",
    "fit",
    "fit_implicit",
    "fit_many",
    "fit_ratings",
    "fit_sparse",
    "inpaint",
    "load",
    "masks",
    "metrics",
    "resume",
    "search",
    *regularizers.__all__,
]
