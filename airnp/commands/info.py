"""``airnp info``: show versions, BLAS, threads and devices."""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError, version

import airnp
from airnp.commands.base import OK, Command
from airnp.engines.threads import available_threads

PACKAGES = (
    *("numpy", "array-api-compat", "scipy", "numba", "threadpoolctl", "tqdm"),
    *("pillow", "scikit-image", "scikit-learn", "pandas", "pyarrow", "matplotlib", "networkx"),
    *("torch", "jax"),
)

EXAMPLES = """\
  airnp info
  airnp info --json
"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def _run(options: argparse.Namespace) -> int:
    facts = _facts()
    if options.json:
        print(json.dumps(facts))
    else:
        for name, value in facts.items():
            print(f"{name:<17} {value}")
    return OK


def _facts() -> dict[str, str]:
    return {
        "airnp": airnp.__version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        **{name: _version(name) for name in PACKAGES},
        "blas": _blas(),
        "threads": str(available_threads()),
        "cupy": _cupy(),
    }


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _blas() -> str:
    """Return which BLAS libraries NumPy and SciPy have loaded."""
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    found = {
        f"{item['internal_api']} {item['version']} ({item.get('architecture', 'any processor')})"
        for item in threadpool_info()
        if item["user_api"] == "blas"
    }
    return ", ".join(sorted(found)) or "unknown to threadpoolctl"


def _cupy() -> str:
    """Return the version of CuPy and its devices, or why there is none."""
    from airnp._devices import describe, first_line

    try:
        return describe()
    except ImportError as error:
        return f"installed, but does not load: {first_line(error)}"


COMMAND = Command(_arguments, _run, EXAMPLES)
