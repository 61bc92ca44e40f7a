"""``airnp info``: versions, BLAS, threads and devices."""

from __future__ import annotations

import argparse
import json
import platform

from airnp.commands.base import OK, Command

PACKAGES = (
    *("numpy", "array-api-compat", "scipy", "numba", "threadpoolctl", "tqdm"),
    *(
        "pillow",
        "scikit-image",
        "scikit-learn",
        "pandas",
        "pyarrow",
        "matplotlib",
        "networkx",
        "torch",
        "jax",
    ),
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
    import airnp
    from airnp.engines.threads import available_threads

    return {
        "airnp": airnp.__version__,
        "python": f"{platform.python_version()} ({platform.system()} {platform.machine()})",
        **{name: _version(name) for name in PACKAGES},
        "blas": _blas(),
        "threads": str(available_threads()),
        "cupy": _cupy(),
    }


def _version(distribution: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed"


def _blas() -> str:
    """Say which BLAS libraries NumPy and SciPy have loaded."""
    import numpy  # noqa: F401
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    found = {
        f"{item['internal_api']} {item['version']} ({item.get('architecture', 'any processor')})"
        for item in threadpool_info()
        if item["user_api"] == "blas"
    }
    return ", ".join(sorted(found)) or "unknown to threadpoolctl"


def _cupy() -> str:
    """Say whether CuPy is there, with which devices, and if not, why."""
    from airnp._devices import describe, first_line

    try:
        return describe()
    except ImportError as error:
        return f"installed, but does not load: {first_line(error)}"


COMMAND = Command("show versions, optional packages, BLAS, threads and devices", _arguments, _run, EXAMPLES)
