"""airnp completes matrices: images with holes, rating tables, any array where entries are missing.

>>> import numpy as np, airnp
>>> Y = np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
>>> Y[1, 1] = np.nan
>>> result = airnp.fit(Y, regularizers=[], max_iter=3000, stop=None, seed=0)
>>> bool(abs(result.X[1, 1] - 4) < 0.5)
True
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airnp import baselines as baselines
    from airnp import dask as dask
    from airnp import datasets as datasets
    from airnp import plot as plot
    from airnp import sklearn as sklearn
    from airnp._public import *  # noqa: F403
    from airnp.regularizers import *  # noqa: F403

__version__ = "0.2.0"

_PACKAGES = frozenset(
    {"baselines", "dask", "datasets", "masks", "metrics", "plot", "regularizers", "sklearn"}
)

if not TYPE_CHECKING:  # a type checker has the names above, and would take this for every other one

    def __getattr__(name: str) -> Any:
        """Load a public name when it is first used: ``import airnp`` itself takes a few milliseconds."""
        if name in _PACKAGES:
            return importlib.import_module(f"airnp.{name}")
        if name == "__all__" or not name.startswith("_"):
            public = importlib.import_module("airnp._public")
            if name == "__all__" or name in public.__all__:
                value = globals()[name] = getattr(public, name)
                return value
        raise AttributeError(f"module 'airnp' has no attribute {name!r}")


def __dir__() -> list[str]:
    public = importlib.import_module("airnp._public")
    return sorted({*globals(), *_PACKAGES, *public.__all__})
