"""Peak memory of a fit, in matrices of m×m numbers.

    python -m bench.memory [--sizes 100 240 500 1000]

Counted by tracemalloc, to which NumPy reports; the caller's data is not included.
"""

from __future__ import annotations

import argparse
import json
import tracemalloc

import numpy as np

import airnp
from bench.speed import RESULTS
from bench.timing import markdown

METHODS = {"DMF": [], "RDMF": [airnp.TotalVariation(1e-6)], "AIR": None}


def peak_matrices(m: int, method: str, dtype: str = "float32", max_iter: int = 60) -> float:
    """Return the peak of a fit of an m×m matrix, in m² numbers of its dtype."""
    rng = np.random.default_rng(0)
    values, mask = rng.random((m, m)).astype(dtype), rng.random((m, m)) < 0.7
    settings = {"regularizers": METHODS[method], "stop": None, "seed": 0}
    airnp.fit(values, mask, max_iter=2, **settings)  # imports and compilation do not count
    tracemalloc.start()
    try:
        result = airnp.fit(values, mask, max_iter=max_iter, **settings)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    del result
    return peak / (m * m * np.dtype(dtype).itemsize)


def main(argv: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=int, default=[100, 240, 500, 1000])
    arguments = parser.parse_args(argv)
    rows = [[m, *(round(peak_matrices(m, method), 1) for method in METHODS)] for m in arguments.sizes]
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "memory.json").write_text(json.dumps(rows))
    print(markdown(["m", *METHODS], rows) + "\n\nin matrices of m×m float32 numbers, L = 3")


if __name__ == "__main__":
    main()
